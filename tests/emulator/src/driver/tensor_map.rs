//! Tensor maps.

use super::types::*;
use crate::arch;
use crate::tma::{EncodeError, TensorMap, TiledParams};
use std::ffi::c_void;

/// Tell why a call was refused: the driver itself gives only a number.
fn refused(what: &str, why: &str, result: CUresult) -> CUresult {
    eprintln!("emulator: {what}: {why}");
    result
}

/// # Safety
/// As the driver's: `map` has room for 128 bytes, the arrays have `rank` (strides: `rank - 1`) values.
#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut c_void,
    data_type: u32,
    rank: u32,
    address: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    boxes: *const u32,
    element_strides: *const u32,
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    oob_fill: u32,
) -> CUresult {
    let name = "cuTensorMapEncodeTiled";
    if map.is_null() || !(map as usize).is_multiple_of(64) {
        let why = format!("the map at {map:?} is not 64-byte aligned");
        return refused(name, &why, ERROR_INVALID_VALUE);
    }
    if !(1..=5).contains(&rank) {
        return refused(name, &format!("tensorRank {rank} is not from 1 to 5"), ERROR_INVALID_VALUE);
    }
    let n = rank as usize;
    if dims.is_null() || boxes.is_null() || element_strides.is_null() || (n > 1 && strides.is_null()) {
        return refused(name, "an array is NULL", ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's arrays have these lengths.
    let (dims, boxes, element_strides) = unsafe {
        (std::slice::from_raw_parts(dims, n), std::slice::from_raw_parts(boxes, n), std::slice::from_raw_parts(element_strides, n))
    };
    // SAFETY: not NULL unless it is empty.
    let strides = if n == 1 { &[][..] } else { unsafe { std::slice::from_raw_parts(strides, n - 1) } };
    let params = TiledParams {
        data_type,
        rank,
        address: address as u64,
        dims,
        strides,
        boxes,
        element_strides,
        interleave,
        swizzle,
        l2_promotion,
        oob_fill,
    };
    match TensorMap::encode_tiled(&params, arch::current().cc) {
        Ok(bytes) => {
            // SAFETY: the caller gives room for 128 bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map as *mut u8, 128) };
            SUCCESS
        }
        Err(EncodeError::Invalid(e)) => refused(name, &e, ERROR_INVALID_VALUE),
        Err(EncodeError::Unsupported(e)) => refused(name, &e, ERROR_NOT_SUPPORTED),
    }
}
