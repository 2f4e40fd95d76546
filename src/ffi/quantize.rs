//! Sizes, amax, quantize and requantize.

use std::ffi::c_void;

use super::read::out_pointer;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::context::Context;
use crate::plan::quantize::Sizes;
use crate::plan::{self, Buffers, CopyPlan, Matrix, QuantizePlan, QuantizeRequest, Source};
use crate::{Error, Result};

/// Plans a call of which only the shape is known. SAFETY: this module's law.
pub(super) unsafe fn plan_shapes(
    ctx: &Context,
    desc: *const nvfp4_quantize_desc,
    rows: i64,
    cols: i64,
    dtype: u32,
    copies: u32,
) -> Result<QuantizePlan> {
    if !(1..=3).contains(&copies) {
        return Err(Error::InvalidArgument(format!(
            "copies is {copies}, want 1 (rowwise), 2 (columnwise) or 3 (both)"
        )));
    }
    // SAFETY: the caller's promise.
    let request = unsafe { convert::quantize_request(ctx.device(), desc)? };
    // What the descriptor points to belongs to a call with data.
    let request = QuantizeRequest {
        rowwise_amax: std::ptr::null(),
        columnwise_amax: std::ptr::null(),
        ..request
    };
    let x = Matrix::shape_only("x", convert::dtype("dtype", dtype)?, rows, cols)?;
    let any = Buffers::shape_only();
    plan::quantize::plan(
        &request,
        ctx.device(),
        Source::Matrix(x),
        (copies & 1 != 0).then_some(&any),
        (copies & 2 != 0).then_some(&any),
    )
}

/// SAFETY: this module's law.
unsafe fn quantize(
    ctx: &Context,
    desc: *const nvfp4_quantize_desc,
    x: Source,
    rowwise: *mut nvfp4_quantized,
    columnwise: *mut nvfp4_quantized,
    stream: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let request = convert::quantize_request(ctx.device(), desc)?;
        let rowwise_buffers = convert::buffers("rowwise", rowwise)?;
        let columnwise_buffers = convert::buffers("columnwise", columnwise)?;
        let plan = ctx.quantize(
            &request,
            x,
            rowwise_buffers.as_ref(),
            columnwise_buffers.as_ref(),
            stream,
        )?;
        if let Some(copy) = &plan.rowwise {
            convert::tell(rowwise, "rowwise", &copy.out)?;
        }
        if let Some(copy) = &plan.columnwise {
            convert::tell(columnwise, "columnwise", &copy.out)?;
        }
    }
    Ok(())
}

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
    boundary(|| {
        out_pointer(out, "out")?;
        // SAFETY: this module's law.
        unsafe {
            let plan = plan_shapes(context(ctx)?, desc, rows, cols, dtype, copies)?;
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
                workspace_bytes: context(ctx)?.quantize_workspace(&plan),
            });
        }
        Ok(())
    })
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
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let request = convert::quantize_request(ctx.device(), desc)?;
        let x = convert::matrix("x", x)?;
        if rowwise_amax.is_null() && columnwise_amax.is_null() {
            return Err(Error::NullPointer("rowwise_amax and columnwise_amax"));
        }
        ctx.amax(&request, x, rowwise_amax, columnwise_amax, stream)
    })
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
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let x = Source::Matrix(convert::matrix("x", x)?);
        quantize(context(ctx)?, desc, x, rowwise, columnwise, stream)
    })
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
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let x = Source::Quantized(convert::quantized("x", x)?);
        quantize(context(ctx)?, desc, x, rowwise, columnwise, stream)
    })
}
