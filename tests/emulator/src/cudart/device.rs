//! Devices, errors, versions, the driver's entry points.

use super::*;
use crate::arch;
use crate::driver::{context, device, proc_address};
use std::ffi::{c_char, c_int, c_uint, c_void};

pub(super) fn init() -> CUresult {
    device::cuInit(0)
}

/// The runtime this stands in for.
const VERSION: c_int = 13000;

#[no_mangle]
pub extern "C" fn cudaGetDeviceCount(n: *mut c_int) -> Status {
    // SAFETY: the caller's place.
    call(|| unsafe { device::cuDeviceGetCount(n) })
}

#[no_mangle]
pub extern "C" fn cudaGetDevice(d: *mut c_int) -> Status {
    // SAFETY: the caller's place.
    call(|| unsafe { put(d, 0) })
}

#[no_mangle]
pub extern "C" fn cudaSetDevice(d: c_int) -> Status {
    call(|| if d == 0 { SUCCESS } else { ERROR_INVALID_DEVICE })
}

#[no_mangle]
pub extern "C" fn cudaDeviceSynchronize() -> Status {
    call(|| context::cuCtxSynchronize())
}

#[no_mangle]
pub extern "C" fn cudaDeviceGetAttribute(v: *mut c_int, what: c_int, d: c_int) -> Status {
    // SAFETY: the caller's place.
    call(|| unsafe { device::cuDeviceGetAttribute(v, what, d) })
}

#[no_mangle]
pub extern "C" fn cudaRuntimeGetVersion(v: *mut c_int) -> Status {
    // SAFETY: the caller's place.
    unsafe { put(v, VERSION) }
}

#[no_mangle]
pub extern "C" fn cudaDriverGetVersion(v: *mut c_int) -> Status {
    // SAFETY: the caller's place.
    call(|| unsafe { device::cuDriverGetVersion(v) })
}

#[no_mangle]
pub extern "C" fn cudaGetLastError() -> Status {
    LAST.with(|l| l.replace(SUCCESS))
}

#[no_mangle]
pub extern "C" fn cudaPeekAtLastError() -> Status {
    LAST.with(|l| l.get())
}

fn text(e: Status, name: bool) -> *const c_char {
    match RESULTS.iter().find(|r| r.0 == e) {
        Some(r) => (if name { r.1 } else { r.2 }).as_ptr() as *const c_char,
        None => c"unrecognized error code".as_ptr(),
    }
}

#[no_mangle]
pub extern "C" fn cudaGetErrorString(e: Status) -> *const c_char {
    text(e, false)
}

#[no_mangle]
pub extern "C" fn cudaGetErrorName(e: Status) -> *const c_char {
    text(e, true)
}

/// Size and places of `cudaDeviceProp` in CUDA 13.
const PROP_BYTES: usize = 1008;

/// # Safety
/// `prop` has room for CUDA 13's `cudaDeviceProp`.
#[no_mangle]
pub unsafe extern "C" fn cudaGetDeviceProperties(prop: *mut u8, d: c_int) -> Status {
    if prop.is_null() || d != 0 {
        return call(|| ERROR_INVALID_VALUE);
    }
    let a = arch::current();
    let mut p = [0u8; PROP_BYTES];
    let mut int = |at: usize, v: u32| p[at..at + 4].copy_from_slice(&v.to_le_bytes());
    int(296, 49152); // sharedMemPerBlock
    int(304, 65536); // regsPerBlock
    int(308, 32); // warpSize
    int(320, 1024); // maxThreadsPerBlock
    for (i, v) in [1024, 1024, 64, i32::MAX as u32, 65535, 65535].into_iter().enumerate() {
        int(324 + 4 * i, v); // maxThreadsDim, maxGridSize
    }
    int(352, 65536); // totalConstMem
    int(360, a.cc / 10); // major
    int(364, a.cc % 10); // minor
    int(384, a.sms); // multiProcessorCount
    int(560, 1); // concurrentKernels
    int(588, 1); // unifiedAddressing
    int(596, a.l2); // l2CacheSize
    int(604, a.threads_per_sm); // maxThreadsPerMultiProcessor
    int(624, a.smem_per_sm); // sharedMemPerMultiprocessor
    int(632, 65536); // regsPerMultiprocessor
    int(668, 1); // cooperativeLaunch
    int(672, a.smem_optin); // sharedMemPerBlockOptin
    int(688, 32); // maxBlocksPerMultiProcessor
    int(748, (a.cc >= 90) as u32); // clusterLaunch
    p[288..296].copy_from_slice(&(64u64 << 30).to_le_bytes()); // totalGlobalMem
    let name = format!("emulated {}", a.name);
    p[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the caller gives this much room.
    unsafe { std::ptr::copy_nonoverlapping(p.as_ptr(), prop, PROP_BYTES) };
    call(|| SUCCESS)
}

/// # Safety
/// As the runtime's: a name and places for the answers.
#[no_mangle]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> Status {
    // SAFETY: handed on as they came.
    call(|| unsafe { proc_address::cuGetProcAddress_v2(name, out, version as c_int, flags, status) })
}

/// # Safety
/// As the runtime's: a name and places for the answers.
#[no_mangle]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(name: *const c_char, out: *mut *mut c_void, flags: u64, status: *mut c_int) -> Status {
    // SAFETY: handed on as they came.
    unsafe { cudaGetDriverEntryPointByVersion(name, out, VERSION as c_uint, flags, status) }
}
