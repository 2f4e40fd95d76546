//! Weights packed once for many products.

use std::ffi::c_void;

use super::{boundary, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// Bytes of B's packed form on this context; 0 when it has none (then nvfp4_gemm takes B as it is).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_pack_weight_bytes(
    ctx: *mut nvfp4_context,
    b: *const nvfp4_quantized,
    bytes: *mut usize,
) -> nvfp4_status {
    let _ = (ctx, b, bytes);
    boundary(|| {
        Err(Error::NotSupported(
            "this version does not pack weights".into(),
        ))
    })
}

/// Packs B for nvfp4_gemm_desc.b_packed: the same products, faster when B is used often. The packed bytes belong to
/// this version of the library and kind of processor: do not store them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_pack_weight(
    ctx: *mut nvfp4_context,
    b: *const nvfp4_quantized,
    packed: *mut c_void,
    packed_bytes: usize,
    stream: *mut c_void,
) -> nvfp4_status {
    let _ = (ctx, b, packed, packed_bytes, stream);
    boundary(|| {
        Err(Error::NotSupported(
            "this version does not pack weights".into(),
        ))
    })
}
