//! The two orders of scale bytes.

use std::ffi::c_void;

use super::read::out_pointer;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::plan;

/// Bytes of the scales of `rows` rows with `scale_cols` blocks each in `layout` (NVFP4_SCALES_*): rows * scale_cols,
/// or 512 for each tile of 128 rows and 4 blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_scales_bytes(
    rows: i64,
    scale_cols: i64,
    layout: u32,
    bytes: *mut usize,
) -> nvfp4_status {
    boundary(|| {
        out_pointer(bytes, "bytes")?;
        let need = plan::scales::bytes(rows, scale_cols, convert::scale_layout("layout", layout)?)?;
        // SAFETY: not NULL, aligned, and the caller's to be written.
        unsafe { bytes.write(need) };
        Ok(())
    })
}

/// Copies linear scales (`stride` bytes from row to row, 0 = scale_cols) into the 128x4 tile order. Bytes of the tiles
/// that stand for no row or block become 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_swizzle_scales(
    ctx: *mut nvfp4_context,
    rows: i64,
    scale_cols: i64,
    linear: *const u8,
    stride: i64,
    swizzled: *mut u8,
    swizzled_bytes: usize,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let plan = plan::scales::plan(
            rows,
            scale_cols,
            linear.cast_mut(),
            stride,
            swizzled,
            swizzled_bytes,
        )?;
        context(ctx)?.swizzle(&plan, stream)
    })
}

/// The reverse; the padding of the tiles is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_unswizzle_scales(
    ctx: *mut nvfp4_context,
    rows: i64,
    scale_cols: i64,
    swizzled: *const u8,
    swizzled_bytes: usize,
    linear: *mut u8,
    stride: i64,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let plan = plan::scales::plan(
            rows,
            scale_cols,
            linear,
            stride,
            swizzled.cast_mut(),
            swizzled_bytes,
        )?;
        context(ctx)?.unswizzle(&plan, stream)
    })
}
