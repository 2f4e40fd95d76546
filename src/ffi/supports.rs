//! Capability queries: the planner itself, so that they cannot disagree with the calls.

use super::{boundary, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// NVFP4_OK if nvfp4_quantize would take a [rows, cols] matrix of `dtype` with these options (`copies` as in
/// nvfp4_quantize_sizes), else the status it would give, and why in nvfp4_last_error().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_supports_quantize(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
) -> nvfp4_status {
    let _ = (ctx, desc, rows, cols, dtype, copies);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}

/// The same for nvfp4_gemm with an [m, k] and an [n, k] operand like these (format, block, chain, layout, transform;
/// pointers, sizes and shapes in them are not looked at) and D of `out_dtype` (ignored when desc->d_quantized is set).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_supports_gemm(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_gemm_desc,
    m: i64,
    n: i64,
    k: i64,
    a_like: *const nvfp4_quantized,
    b_like: *const nvfp4_quantized,
    out_dtype: u32,
) -> nvfp4_status {
    let _ = (ctx, desc, m, n, k, a_like, b_like, out_dtype);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}
