//! The two orders of scale bytes.

use std::ffi::c_void;

use super::{boundary, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// Bytes of the scales of `rows` rows with `scale_cols` blocks each in `layout` (NVFP4_SCALES_*): rows * scale_cols,
/// or 512 for each tile of 128 rows and 4 blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_scales_bytes(
    rows: i64,
    scale_cols: i64,
    layout: u32,
    bytes: *mut usize,
) -> nvfp4_status {
    let _ = (rows, scale_cols, layout, bytes);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
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
    let _ = (
        ctx,
        rows,
        scale_cols,
        linear,
        stride,
        swizzled,
        swizzled_bytes,
        stream,
    );
    boundary(|| Err(Error::NotSupported("not in this build".into())))
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
    let _ = (
        ctx,
        rows,
        scale_cols,
        swizzled,
        swizzled_bytes,
        linear,
        stride,
        stream,
    );
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}
