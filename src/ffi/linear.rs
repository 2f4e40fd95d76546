//! A linear layer by recipe.

use std::ffi::c_void;

use super::read::{out_pointer, read};
use super::recipe::recipe_from_c;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::context::Context;
use crate::linear::{self, LinearRequest};
use crate::Result;

/// SAFETY: this module's law.
unsafe fn request(ctx: &Context, p: *const nvfp4_linear_desc) -> Result<LinearRequest> {
    // SAFETY: the caller's promise.
    unsafe {
        let d = read(p, "desc")?;
        convert::at_most("desc.reserved", d.reserved, 0)?;
        Ok(LinearRequest {
            recipe: recipe_from_c(d.recipe, "desc.recipe")?,
            seed: convert::seed(ctx.device(), d.seed, d.offset, d.seed_offset)?,
            accumulate_wgrad: d.accumulate_wgrad != 0,
            workspace: d.workspace.cast(),
            workspace_bytes: d.workspace_bytes,
        })
    }
}

/// Scratch bytes that are enough for each of fprop, dgrad and wgrad of a layer; `dtype` is that of x, w and dy (the
/// largest, where they differ). The workspace must be aligned to 16 bytes (CUDA: 256) and be each call's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_linear_workspace(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_linear_desc,
    tokens: i64,
    in_features: i64,
    out_features: i64,
    dtype: u32,
    bytes: *mut usize,
) -> nvfp4_status {
    boundary(|| {
        out_pointer(bytes, "bytes")?;
        // SAFETY: this module's law.
        unsafe {
            let ctx = context(ctx)?;
            let recipe = request(ctx, desc)?.recipe;
            let dtype = convert::dtype("dtype", dtype)?;
            bytes.write(linear::workspace_bytes(
                ctx,
                &recipe,
                tokens,
                in_features,
                out_features,
                dtype,
            )?);
        }
        Ok(())
    })
}

/// y = x w^T + bias: x [tokens, in], w [out, in], y [tokens, out]; bias NULL or [1, out]. Quantizes x and w rowwise.
/// Random bits: activations draw with `offset`, weights with offset | 1 << 60, gradients with offset | 2 << 60, so
/// offset must be below 2^60; signs of seeded transforms are drawn from (seed, offset) for all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_linear_fprop(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_linear_desc,
    x: *const nvfp4_matrix,
    w: *const nvfp4_matrix,
    bias: *const nvfp4_matrix,
    y: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let bias = convert::optional_matrix("bias", bias)?;
        let (x, w, y) = (
            convert::matrix("x", x)?,
            convert::matrix("w", w)?,
            convert::matrix("y", y)?,
        );
        linear::fprop(ctx, &request(ctx, desc)?, x, w, bias, y, stream)
    })
}

/// dx = dy w: dy [tokens, out], w [out, in], dx [tokens, in]. Quantizes dy rowwise and w columnwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_linear_dgrad(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_linear_desc,
    dy: *const nvfp4_matrix,
    w: *const nvfp4_matrix,
    dx: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let (dy, w, dx) = (
            convert::matrix("dy", dy)?,
            convert::matrix("w", w)?,
            convert::matrix("dx", dx)?,
        );
        linear::dgrad(ctx, &request(ctx, desc)?, dy, w, dx, stream)
    })
}

/// dw = dy^T x, or dw += dy^T x with accumulate_wgrad (f32 only): dy [tokens, out], x [tokens, in], dw [out, in].
/// Quantizes dy and x columnwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_linear_wgrad(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_linear_desc,
    dy: *const nvfp4_matrix,
    x: *const nvfp4_matrix,
    dw: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let (dy, x, dw) = (
            convert::matrix("dy", dy)?,
            convert::matrix("x", x)?,
            convert::matrix("dw", dw)?,
        );
        linear::wgrad(ctx, &request(ctx, desc)?, dy, x, dw, stream)
    })
}
