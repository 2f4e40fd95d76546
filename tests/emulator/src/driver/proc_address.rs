//! `cuGetProcAddress`: what is not implemented is not found, and named once.

use super::types::*;
use super::*;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::Mutex;

macro_rules! table {
    ($($m:ident :: { $($f:ident),* $(,)? })*) => {
        /// Every exported function, by symbol.
        pub const TABLE: &[(&str, usize_fn)] = &[$($((stringify!($f), || $m::$f as *const () as usize)),*),*];
    };
}

#[allow(non_camel_case_types)]
type usize_fn = fn() -> usize;

table! {
    types::{cuGetErrorString, cuGetErrorName}
    device::{cuInit, cuDriverGetVersion, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDeviceTotalMem_v2,
        cuDeviceComputeCapability, cuDeviceGetPCIBusId, cuDeviceGetAttribute, cuDeviceCanAccessPeer, cuDeviceGetDefaultMemPool, cuDeviceGetMemPool}
    context::{cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxGetState,
        cuDevicePrimaryCtxSetFlags_v2, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuCtxDestroy_v2, cuCtxSetCurrent, cuCtxGetCurrent,
        cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuCtxGetDevice, cuCtxSynchronize, cuCtxGetApiVersion, cuCtxGetFlags, cuCtxGetId, cuCtxGetLimit,
        cuCtxSetLimit, cuCtxSetCacheConfig, cuCtxGetStreamPriorityRange}
    memory::{cuMemAlloc_v2, cuMemFree_v2, cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, cuMemAllocManaged, cuMemHostAlloc, cuMemAllocHost_v2,
        cuMemFreeHost, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags, cuMemHostRegister_v2, cuMemHostUnregister, cuMemGetInfo_v2,
        cuMemGetAddressRange_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyDtoD_v2,
        cuMemcpyDtoDAsync_v2, cuMemcpy, cuMemcpyAsync, cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2, cuMemcpy2DAsync_v2, cuMemsetD8_v2, cuMemsetD8Async,
        cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD32_v2, cuMemsetD32Async, cuPointerGetAttribute, cuPointerGetAttributes}
    module::{cuModuleLoadData, cuModuleLoadDataEx, cuModuleLoadFatBinary, cuModuleLoad, cuModuleUnload, cuModuleGetLoadingMode, cuModuleGetGlobal_v2,
        cuLibraryGetGlobal, cuLibraryLoadData, cuLibraryUnload, cuLibraryGetModule, cuLibraryGetKernelCount, cuModuleGetFunctionCount}
    function::{cuModuleGetFunction, cuLibraryGetKernel, cuKernelGetFunction, cuKernelGetLibrary, cuFuncGetModule, cuFuncGetName, cuKernelGetName,
        cuFuncGetAttribute, cuKernelGetAttribute, cuFuncSetAttribute, cuKernelSetAttribute, cuFuncSetCacheConfig, cuFuncSetSharedMemConfig, cuFuncLoad,
        cuFuncIsLoaded, cuFuncGetParamInfo, cuKernelGetParamInfo, cuOccupancyMaxActiveBlocksPerMultiprocessor,
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxActiveClusters,
        cuOccupancyMaxPotentialClusterSize}
    tensor_map::{cuTensorMapEncodeTiled}
    launch::{cuLaunchKernel, cuLaunchCooperativeKernel, cuLaunchKernelEx}
    stream::{cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamSynchronize, cuStreamQuery, cuStreamWaitEvent, cuStreamGetPriority,
        cuStreamGetFlags, cuStreamGetCtx, cuStreamGetId, cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing, cuStreamGetCaptureInfo_v2,
        cuThreadExchangeStreamCaptureMode, cuLaunchHostFunc}
    event::{cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventRecordWithFlags, cuEventQuery, cuEventSynchronize, cuEventElapsedTime, cuEventElapsedTime_v2}
    graph::{cuGraphCreate, cuGraphDestroy, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams, cuGraphInstantiate_v2, cuGraphLaunch, cuGraphUpload,
        cuGraphExecDestroy, cuGraphGetNodes, cuGraphExecUpdate_v2}
}

/// The function behind a name as programs ask for it: the newest version wins.
pub fn find(name: &str) -> Option<usize> {
    for v in ["_v4", "_v3", "_v2", ""] {
        let full = format!("{name}{v}");
        if let Some(e) = TABLE.iter().find(|e| e.0 == full) {
            return Some((e.1)());
        }
    }
    match name {
        "cuGetProcAddress" => Some(cuGetProcAddress_v2 as *const () as usize),
        _ => None,
    }
}

unsafe fn look_up(name: *const c_char, out: *mut *mut c_void, status: *mut c_int) -> CUresult {
    if name.is_null() || out.is_null() {
        return ERROR_INVALID_VALUE;
    }
    let n = CStr::from_ptr(name).to_string_lossy();
    match find(&n) {
        Some(f) => {
            *out = f as *mut c_void;
            if !status.is_null() {
                *status = 0;
            }
            SUCCESS
        }
        None => {
            static TOLD: Mutex<Option<HashSet<String>>> = Mutex::new(None);
            let mut g = TOLD.lock().unwrap_or_else(|e| e.into_inner());
            if g.get_or_insert_with(HashSet::new).insert(n.to_string()) {
                complain("cuGetProcAddress", &format!("{n} is not implemented"));
            }
            *out = std::ptr::null_mut();
            if !status.is_null() {
                *status = 1;
            }
            ERROR_NOT_FOUND
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuGetProcAddress(name: *const c_char, out: *mut *mut c_void, _version: c_int, _flags: u64) -> CUresult {
    look_up(name, out, std::ptr::null_mut())
}
#[no_mangle]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> CUresult {
    look_up(name, out, status)
}
