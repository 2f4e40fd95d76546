//! Memory, streams and events.

use super::*;
use crate::driver::{event, memory, stream};
use std::ffi::{c_int, c_uint, c_void};

#[no_mangle]
pub extern "C" fn cudaMalloc(out: *mut u64, n: usize) -> Status {
    // The runtime gives out nothing for nothing; the driver refuses.
    if n == 0 {
        // SAFETY: the caller's place for a pointer.
        return call(|| unsafe { put(out, 0) });
    }
    call(|| memory::cuMemAlloc_v2(out, n))
}

#[no_mangle]
pub extern "C" fn cudaFree(p: u64) -> Status {
    call(|| if p == 0 { SUCCESS } else { memory::cuMemFree_v2(p) })
}

#[no_mangle]
pub extern "C" fn cudaMallocHost(out: *mut *mut c_void, n: usize) -> Status {
    call(|| memory::cuMemAllocHost_v2(out, n))
}

#[no_mangle]
pub extern "C" fn cudaFreeHost(p: *mut c_void) -> Status {
    call(|| memory::cuMemFreeHost(p))
}

/// `kind`: 0 host to host, 1 to the device, 2 from it, 3 inside it, 4 by address.
fn copy(dst: *mut c_void, src: *const c_void, n: usize, kind: c_int) -> CUresult {
    match kind {
        _ if n == 0 => SUCCESS,
        1 => memory::cuMemcpyHtoD_v2(dst as u64, src, n),
        2 => memory::cuMemcpyDtoH_v2(dst, src as u64, n),
        3 => memory::cuMemcpyDtoD_v2(dst as u64, src as u64, n),
        0 | 4 => memory::cuMemcpy(dst as u64, src as u64, n),
        _ => ERROR_INVALID_VALUE,
    }
}

#[no_mangle]
pub extern "C" fn cudaMemcpy(dst: *mut c_void, src: *const c_void, n: usize, kind: c_int) -> Status {
    call(|| copy(dst, src, n, kind))
}

/// Streams run eagerly, so the copy is done when this returns.
#[no_mangle]
pub extern "C" fn cudaMemcpyAsync(dst: *mut c_void, src: *const c_void, n: usize, kind: c_int, _stream: Handle) -> Status {
    call(|| copy(dst, src, n, kind))
}

#[no_mangle]
pub extern "C" fn cudaMemset(p: u64, value: c_int, n: usize) -> Status {
    call(|| memory::cuMemsetD8_v2(p, value as u8, n))
}

#[no_mangle]
pub extern "C" fn cudaMemsetAsync(p: u64, value: c_int, n: usize, stream: Handle) -> Status {
    call(|| memory::cuMemsetD8Async(p, value as u8, n, stream))
}

#[no_mangle]
pub extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> Status {
    // SAFETY: the caller's places.
    call(|| unsafe { memory::cuMemGetInfo_v2(free, total) })
}

#[no_mangle]
pub extern "C" fn cudaStreamCreate(out: *mut Handle) -> Status {
    call(|| stream::cuStreamCreate(out, 0))
}

#[no_mangle]
pub extern "C" fn cudaStreamCreateWithFlags(out: *mut Handle, flags: c_uint) -> Status {
    call(|| stream::cuStreamCreate(out, flags))
}

#[no_mangle]
pub extern "C" fn cudaStreamDestroy(s: Handle) -> Status {
    call(|| stream::cuStreamDestroy_v2(s))
}

#[no_mangle]
pub extern "C" fn cudaStreamSynchronize(s: Handle) -> Status {
    call(|| stream::cuStreamSynchronize(s))
}

#[no_mangle]
pub extern "C" fn cudaStreamWaitEvent(s: Handle, e: Handle, flags: c_uint) -> Status {
    call(|| stream::cuStreamWaitEvent(s, e, flags))
}

#[no_mangle]
pub extern "C" fn cudaEventCreate(out: *mut Handle) -> Status {
    cudaEventCreateWithFlags(out, 0)
}

#[no_mangle]
pub extern "C" fn cudaEventCreateWithFlags(out: *mut Handle, flags: c_uint) -> Status {
    // SAFETY: the caller's place for the handle.
    call(|| unsafe { event::cuEventCreate(out, flags) })
}

#[no_mangle]
pub extern "C" fn cudaEventDestroy(e: Handle) -> Status {
    call(|| event::cuEventDestroy_v2(e))
}

#[no_mangle]
pub extern "C" fn cudaEventRecord(e: Handle, s: Handle) -> Status {
    call(|| event::cuEventRecord(e, s))
}

#[no_mangle]
pub extern "C" fn cudaEventSynchronize(e: Handle) -> Status {
    call(|| event::cuEventSynchronize(e))
}

#[no_mangle]
pub extern "C" fn cudaEventElapsedTime(ms: *mut f32, a: Handle, b: Handle) -> Status {
    // SAFETY: the caller's place.
    call(|| unsafe { event::cuEventElapsedTime(ms, a, b) })
}
