//! Dequantize, and transpose of a quantized matrix.

use std::ffi::c_void;

use super::read::read;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// Writes the values that x stands for to `out` (f32, bf16 or f16; each cast once): [rows, cols] of x, or with
/// transpose = 1 its transpose [cols, rows], which for a columnwise copy is the original orientation. Values of a
/// transformed copy stay transformed (nvfp4_hadamard with inverse = 1 undoes it). `out` may have fewer columns (with
/// transpose = 1: rows) than x, down to x's source_cols: the padding of a transform is then left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_dequantize(
    ctx: *mut nvfp4_context,
    x: *const nvfp4_quantized,
    transpose: u32,
    out: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let transpose = convert::at_most("transpose", transpose, 1)? == 1;
        let x = convert::quantized("x", x)?;
        context(ctx)?.dequantize(x, transpose, convert::matrix("out", out)?, stream)
    })
}

/// Transposes a matrix that was quantized in square tiles (NVFP4_BLOCK_2D, no transform, one amax for the tensor)
/// without its source: the bytes equal those of quantizing the transposed source. In `out` set what nvfp4_quantize
/// wants set, and `scale_layout`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_transpose(
    ctx: *mut nvfp4_context,
    x: *const nvfp4_quantized,
    out: *mut nvfp4_quantized,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let x = convert::quantized("x", x)?;
        let buffers = convert::buffers("out", out)?.ok_or(Error::NullPointer("out"))?;
        let layout = convert::scale_layout(
            "out.scale_layout",
            read(out.cast_const(), "out")?.scale_layout,
        )?;
        let became = context(ctx)?.transpose(x, layout, &buffers, stream)?;
        convert::tell(out, "out", &became)
    })
}
