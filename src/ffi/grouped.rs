//! Groups of tokens: quantize, sizes, product.

use std::ffi::c_void;

use super::read::{out_pointer, read};
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::context::Context;
use crate::plan::grouped_gemm::Ragged;
use crate::plan::quantize::Sizes;
use crate::plan::{
    Buffers, CopyPlan, GroupedGemmRequest, GroupedQuantizePlan, GroupedQuantizeRequest, Matrix,
    QuantizeRequest,
};
use crate::{Error, Result};

/// SAFETY (this and the functions below): this module's law.
unsafe fn quantize_request(
    ctx: &Context,
    desc: *const nvfp4_grouped_quantize_desc,
) -> Result<GroupedQuantizeRequest> {
    // SAFETY: the caller's promise.
    unsafe {
        let d = read(desc, "desc")?;
        convert::at_most("desc.reserved", d.reserved, 0)?;
        Ok(GroupedQuantizeRequest {
            quantize: convert::quantize_request(ctx.device(), d.quantize)?,
            groups: d.groups,
            offsets: d.offsets,
            column_align: d.column_align,
            shape_only: false,
        })
    }
}

/// Plans a call of which only the shape is known.
pub(super) unsafe fn plan_shapes(
    ctx: &Context,
    desc: *const nvfp4_grouped_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
) -> Result<GroupedQuantizePlan> {
    if !(1..=3).contains(&copies) {
        return Err(Error::InvalidArgument(format!(
            "copies is {copies}, want 1 (rowwise), 2 (columnwise) or 3 (both)"
        )));
    }
    // SAFETY: the caller's promise.
    let request = unsafe { quantize_request(ctx, desc)? };
    // What the descriptors point to belongs to a call with data. An alignment is the columnwise copy's.
    let request = GroupedQuantizeRequest {
        quantize: QuantizeRequest {
            rowwise_amax: std::ptr::null(),
            columnwise_amax: std::ptr::null(),
            ..request.quantize
        },
        column_align: if copies & 2 != 0 {
            request.column_align
        } else {
            0
        },
        shape_only: true,
        ..request
    };
    let x = Matrix::shape_only("x", convert::dtype("dtype", dtype)?, rows, cols)?;
    let any = Buffers::shape_only();
    ctx.plan_grouped_quantize(
        &request,
        x,
        (copies & 1 != 0).then_some(&any),
        (copies & 2 != 0).then_some(&any),
    )
}

/// Buffer sizes for nvfp4_grouped_quantize of a [rows, cols] matrix of `dtype`; `copies` as in nvfp4_quantize_sizes. The
/// columnwise copy has as many columns as any groups of `rows` tokens can take (docs/abi.md, "Groups"), so the sizes
/// hold whatever the offsets are; they need not be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_grouped_quantize_sizes(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
    out: *mut nvfp4_sizes,
) -> nvfp4_status {
    boundary(|| {
        out_pointer(out, "out")?;
        // SAFETY: this module's law.
        unsafe {
            let ctx = context(ctx)?;
            let plan = plan_shapes(ctx, desc, rows, cols, dtype, copies)?;
            let of = |copy: &Option<CopyPlan>| {
                copy.as_ref()
                    .map_or(Sizes::default(), |c| Sizes::of(&c.out))
            };
            let (r, c) = (of(&plan.rowwise), of(&plan.columnwise));
            out.write(nvfp4_sizes {
                rowwise_codes_bytes: r.codes_bytes,
                rowwise_scales_bytes: r.scales_bytes,
                rowwise_amax_count: r.amax_count,
                columnwise_codes_bytes: c.codes_bytes,
                columnwise_scales_bytes: c.scales_bytes,
                columnwise_amax_count: c.amax_count,
                workspace_bytes: ctx.grouped_quantize_workspace(&plan),
            });
        }
        Ok(())
    })
}

/// Quantizes groups of rows of x, each as nvfp4_quantize would alone, with an amax of its own: group g is the rows
/// offsets[g]..offsets[g + 1]. The rowwise copy is [rows, cols]; in the columnwise one, [cols, padded rows], each group
/// starts at a multiple of `column_align` columns, and the columns up to the next group's are 0 (docs/abi.md, "Groups").
/// Rows and columns of no group are left as they were. Nothing is read back from a GPU, so that a graph can be replayed
/// with other offsets. Either copy may be NULL, not both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_grouped_quantize(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_quantize_desc,
    x: *const nvfp4_matrix,
    rowwise: *mut nvfp4_quantized,
    columnwise: *mut nvfp4_quantized,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let request = quantize_request(ctx, desc)?;
        let x = convert::matrix("x", x)?;
        let row_buffers = convert::buffers("rowwise", rowwise)?;
        let col_buffers = convert::buffers("columnwise", columnwise)?;
        let plan = ctx.grouped_quantize(
            &request,
            x,
            row_buffers.as_ref(),
            col_buffers.as_ref(),
            stream,
        )?;
        if let Some(copy) = &plan.rowwise {
            convert::tell(rowwise, "rowwise", &copy.out)?;
        }
        if let Some(copy) = &plan.columnwise {
            convert::tell(columnwise, "columnwise", &copy.out)?;
        }
        Ok(())
    })
}

pub(super) unsafe fn gemm_request(
    desc: *const nvfp4_grouped_gemm_desc,
) -> Result<GroupedGemmRequest> {
    // SAFETY: the caller's promise.
    let d = unsafe { read(desc, "desc")? };
    Ok(GroupedGemmRequest {
        ragged: match d.ragged {
            NVFP4_RAGGED_M => Ragged::M,
            NVFP4_RAGGED_K => Ragged::K,
            other => {
                return Err(Error::InvalidArgument(format!(
                    "desc.ragged is {other}, want NVFP4_RAGGED_M = 0 or NVFP4_RAGGED_K = 1"
                )))
            }
        },
        accumulate: convert::accumulate("desc.accumulate", d.accumulate)?,
        activation: convert::activation("desc.activation", d.activation)?,
        groups: d.groups,
        offsets: d.offsets,
        column_align: d.column_align,
        alpha: d.alpha,
        alpha_stride: d.alpha_stride,
        beta: d.beta,
        bias: d.bias.cast(),
        bias_stride: d.bias_stride,
        bias_dtype: convert::dtype("desc.bias_dtype", d.bias_dtype)?,
        provider: d.provider,
        b_codes_stride: d.b_codes_stride,
        b_scales_stride: d.b_scales_stride,
        b_amax_stride: d.b_amax_stride,
        c_group_stride: d.c_group_stride,
        d_group_stride: d.d_group_stride,
        row_factors: d.row_factors,
        shape_only: false,
        workspace: d.workspace.cast(),
        workspace_bytes: d.workspace_bytes,
    })
}

/// Scratch bytes that nvfp4_grouped_gemm wants for these operands; offsets, C and their memory need not be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_grouped_gemm_workspace(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_gemm_desc,
    a: *const nvfp4_quantized,
    b: *const nvfp4_quantized,
    d: *const nvfp4_matrix,
    bytes: *mut usize,
) -> nvfp4_status {
    boundary(|| {
        out_pointer(bytes, "bytes")?;
        // SAFETY: this module's law.
        unsafe {
            let ctx = context(ctx)?;
            let mut request = gemm_request(desc)?;
            request.shape_only = true;
            (request.beta, request.c_group_stride) = (std::ptr::null(), 0);
            let a = convert::grouped_operand("a", a)?;
            let b = convert::grouped_operand("b", b)?;
            let d = convert::matrix("d", d)?;
            let plan = ctx.plan_grouped_gemm(&request, a, b, None, d)?;
            bytes.write(ctx.grouped_gemm_workspace(&plan));
        }
        Ok(())
    })
}

/// One product a group, each as nvfp4_gemm would compute it alone (docs/abi.md, "Groups"). NVFP4_RAGGED_M: A is
/// [tokens, K], B one [N, K] a group, C and D are [tokens, N]; rows of no group are left as they were. NVFP4_RAGGED_K: A
/// is [M, columns] and B [N, columns], columnwise copies of nvfp4_grouped_quantize with the same offsets; C and D are G
/// matrices [M, N], of which `c` and `d` describe the first, and a group without tokens gives beta * C + bias (0, or C
/// when beta is 1). D may be C itself. Nothing is read back from a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_grouped_gemm(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_grouped_gemm_desc,
    a: *const nvfp4_quantized,
    b: *const nvfp4_quantized,
    c: *const nvfp4_matrix,
    d: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let request = gemm_request(desc)?;
        let a = convert::grouped_operand("a", a)?;
        let b = convert::grouped_operand("b", b)?;
        let c = convert::optional_matrix("c", c)?;
        let d = convert::matrix("d", d)?;
        ctx.grouped_gemm(&request, a, b, c, d, stream)
    })
}
