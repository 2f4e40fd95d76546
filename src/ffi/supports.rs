//! Capability queries: the planner itself, so that they cannot disagree with the calls.

use super::grouped;
use super::quantize::plan_shapes;
use super::read::read;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::plan::grouped_gemm::Ragged;
use crate::plan::groups::{column_align, padded_columns};
use crate::plan::{Buffers, Matrix, Quantized};
use crate::Result;

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
        let (a, b) = (
            like("a_like", a_like, m, k, false)?,
            like("b_like", b_like, n, k, false)?,
        );
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

/// An operand of `rows` rows and k columns before a transform's padding. SAFETY: this module's law.
unsafe fn like(
    name: &'static str,
    p: *const nvfp4_quantized,
    rows: i64,
    k: i64,
    grouped: bool,
) -> Result<Quantized> {
    // SAFETY: the caller's promise.
    let like = unsafe { read(p, name)? };
    let padded = match like.hadamard as i64 {
        n @ (16 | 32 | 64 | 128) => k.checked_add(n - 1).map_or(k, |sum| sum / n * n),
        _ => k,
    };
    let like = nvfp4_quantized {
        rows,
        cols: padded,
        source_cols: k,
        groups: if grouped { like.groups } else { 0 },
        ..like
    };
    convert::described(name, &like)?.bind(name, &Buffers::shape_only())
}

/// As nvfp4_supports_quantize, for nvfp4_grouped_quantize; the offsets are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_supports_grouped_quantize(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        grouped::plan_shapes(context(ctx)?, desc, rows, cols, dtype, copies).map(|_| ())
    })
}

/// As nvfp4_supports_gemm, for nvfp4_grouped_gemm: m (ragged M) or k (ragged K) is the number of tokens of all groups;
/// C is taken to be there if desc->beta is. The offsets are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_supports_grouped_gemm(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_gemm_desc,
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
        let mut request = grouped::gemm_request(desc)?;
        request.shape_only = true;
        let columns = |p: *const nvfp4_quantized, name| {
            if request.ragged == Ragged::M {
                return Ok(k);
            }
            let q = convert::described(
                name,
                &nvfp4_quantized {
                    rows: 0,
                    cols: 0,
                    source_cols: 0,
                    ..read(p, name)?
                },
            )?;
            let align = column_align(request.column_align, q.format, q.hadamard, q.scale_layout)?;
            let tokens = crate::plan::view::dimension("supports", "k", k)?;
            let groups = crate::plan::view::dimension("desc", "groups", request.groups)?;
            Ok(padded_columns(tokens, groups, align) as i64)
        };
        let a = like("a_like", a_like, m, columns(a_like, "a_like")?, true)?;
        let b = like("b_like", b_like, n, columns(b_like, "b_like")?, true)?;
        let any = |name| Matrix::shape_only(name, convert::dtype("out_dtype", out_dtype)?, m, n);
        ctx.plan_grouped_gemm(&request, a, b, any("c").ok(), any("d")?)
            .map(|_| ())
    })
}
