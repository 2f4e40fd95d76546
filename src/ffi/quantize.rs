//! Sizes, amax, quantize and requantize.

use std::ffi::c_void;

use super::{boundary, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// Buffer sizes for quantizing a [rows, cols] matrix of `dtype`. `desc` may be NULL (all default). `copies`: 1 rowwise,
/// 2 columnwise, 3 both; the sizes of a copy that is not asked for are 0. Packed strides are assumed; with other
/// strides a buffer needs (rows - 1) * stride + the packed bytes of one row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_quantize_sizes(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
    out: *mut nvfp4_sizes,
) -> nvfp4_status {
    let _ = (ctx, desc, rows, cols, dtype, copies, out);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}

/// The amax of each scale domain, as nvfp4_quantize would compute it: over finite elements, after each copy's own
/// transform and its rounding. `rowwise_amax` and `columnwise_amax` receive one f32 a scale domain of their copy;
/// either may be NULL. An empty matrix has amax 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_amax(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_quantize_desc,
    x: *const nvfp4_matrix,
    rowwise_amax: *mut f32,
    columnwise_amax: *mut f32,
    stream: *mut c_void,
) -> nvfp4_status {
    let _ = (ctx, desc, x, rowwise_amax, columnwise_amax, stream);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}

/// Quantizes x, from one read of it, into a rowwise copy [rows, cols], a columnwise copy (transposed: [cols, rows],
/// blocks along the original columns), or both; either may be NULL, not both. In each copy set struct_size, `codes`,
/// `scales` and `amax` with their sizes, and the strides unless packed; the call fills in all other fields. `desc` may
/// be NULL (all default). docs/format.md says what every byte is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_quantize(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_quantize_desc,
    x: *const nvfp4_matrix,
    rowwise: *mut nvfp4_quantized,
    columnwise: *mut nvfp4_quantized,
    stream: *mut c_void,
) -> nvfp4_status {
    let _ = (ctx, desc, x, rowwise, columnwise, stream);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}

/// Quantizes the values that a quantized matrix stands for, without writing them anywhere: equal to nvfp4_dequantize
/// into f32 followed by nvfp4_quantize. The matrix must not have gone through a transform.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_requantize(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_quantize_desc,
    x: *const nvfp4_quantized,
    rowwise: *mut nvfp4_quantized,
    columnwise: *mut nvfp4_quantized,
    stream: *mut c_void,
) -> nvfp4_status {
    let _ = (ctx, desc, x, rowwise, columnwise, stream);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}
