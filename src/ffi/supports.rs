//! Capability queries: the planner itself, so that they cannot disagree with the calls.

use super::quantize::plan_shapes;
use super::read::read;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::plan::{Buffers, Matrix};

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
    // SAFETY: this module's law.
    boundary(|| unsafe { plan_shapes(context(ctx)?, desc, rows, cols, dtype, copies).map(|_| ()) })
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
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let (mut request, _) = convert::gemm_request(desc)?;
        let like = |name, p: *const nvfp4_quantized, rows| {
            let like = read(p, name)?;
            let padded = match like.hadamard as i64 {
                n @ (16 | 32 | 64 | 128) => k.checked_add(n - 1).map_or(k, |sum| sum / n * n),
                _ => k,
            };
            let like = nvfp4_quantized {
                rows,
                cols: padded,
                source_cols: k,
                ..like
            };
            convert::described(name, &like)?.bind(name, &Buffers::shape_only())
        };
        let (a, b) = (like("a_like", a_like, m)?, like("b_like", b_like, n)?);
        let any = |name| Matrix::shape_only(name, convert::dtype("out_dtype", out_dtype)?, m, n);
        request.shape_only = true;
        let d = match &mut request.d_quantized {
            Some(buffers) => {
                *buffers = Buffers::shape_only();
                None
            }
            None => Some(any("d")?),
        };
        let c = any("c").ok();
        ctx.plan_gemm(&request, a, b, c, d).map(|_| ())
    })
}
