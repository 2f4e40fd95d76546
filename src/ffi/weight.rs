//! Weights packed once for many products.

use std::ffi::c_void;

use super::read::out_pointer;
use super::{boundary, context, convert, nvfp4_context};
use crate::abi::*;

/// Bytes of B's packed form on this context; 0 on a CUDA context, where weights have none and nvfp4_gemm takes B as it
/// is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_pack_weight_bytes(
    ctx: *mut nvfp4_context,
    b: *const nvfp4_quantized,
    bytes: *mut usize,
) -> nvfp4_status {
    boundary(|| {
        out_pointer(bytes, "bytes")?;
        // SAFETY: this module's law.
        unsafe {
            let ctx = context(ctx)?;
            let b = convert::quantized("b", b)?;
            bytes.write(ctx.weight_bytes(&b));
        }
        Ok(())
    })
}

/// Packs B for nvfp4_gemm_desc.b_packed: the same products, faster when B is used often. The packed bytes belong to
/// this version of the library and kind of processor: do not store them. B itself stays in use: its amax is read at each
/// product, its codes where a product has no kernel for packed ones. Pack again when B changes: a product compares B
/// with what was packed at some places only, and gives NVFP4_ERR_MISMATCH where they differ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_pack_weight(
    ctx: *mut nvfp4_context,
    b: *const nvfp4_quantized,
    packed: *mut c_void,
    packed_bytes: usize,
    stream: *mut c_void,
) -> nvfp4_status {
    // SAFETY: this module's law.
    boundary(|| unsafe {
        let ctx = context(ctx)?;
        let b = convert::quantized("b", b)?;
        ctx.pack_weight(&b, packed, packed_bytes, stream)
    })
}
