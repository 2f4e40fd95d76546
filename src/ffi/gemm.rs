//! The block-scaled matrix product.

use std::ffi::c_void;

use super::read::out_pointer;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;
use crate::plan::gemm::Scalar;

/// Scratch bytes that nvfp4_gemm wants for these operands; often 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_gemm_workspace(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_gemm_desc,
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
            let (mut request, _) = convert::gemm_request(desc)?;
            // C has D's shape; whether it is there is the call's affair.
            request.beta = Scalar::Value(0.0);
            let (a, b) = (convert::quantized("a", a)?, convert::quantized("b", b)?);
            let d = convert::optional_matrix("d", d)?;
            let plan = ctx.plan_gemm(&request, a, b, None, d)?;
            bytes.write(ctx.gemm_workspace(&plan, false));
        }
        Ok(())
    })
}

/// D = act(alpha' * A B^T + beta * C + bias): A [M, K] and B [N, K] quantized with blocks along K, C and D [M, N] in
/// f32, bf16 or f16 (docs/format.md, section 10). `desc` may be NULL: alpha 1, no C, no bias. `c` may be NULL when beta
/// is; D may be C itself. `d` is NULL when desc->d_quantized is set. Either scale layout is read directly. Both operands
/// must have the same K and have gone through the same transform with the same signs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_gemm(
    ctx: *mut nvfp4_context,
    desc: *const nvfp4_gemm_desc,
    a: *const nvfp4_quantized,
    b: *const nvfp4_quantized,
    c: *const nvfp4_matrix,
    d: *const nvfp4_matrix,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let (request, d_quantized) = convert::gemm_request(desc)?;
        let (a, b) = (convert::quantized("a", a)?, convert::quantized("b", b)?);
        let (c, d) = (
            convert::optional_matrix("c", c)?,
            convert::optional_matrix("d", d)?,
        );
        match ctx.gemm(&request, a, b, c, d, stream)? {
            Some(became) => convert::tell(d_quantized, "desc.d_quantized", &became),
            None => Ok(()),
        }
    })
}
