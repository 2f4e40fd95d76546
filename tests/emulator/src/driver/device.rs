//! Initialisation and devices: there is exactly one.

use super::state::*;
use super::types::*;
use crate::arch;
use std::ffi::{c_char, c_int, c_uint};

#[no_mangle]
pub extern "C" fn cuInit(flags: c_uint) -> CUresult {
    if flags != 0 {
        return ERROR_INVALID_VALUE;
    }
    arch::current();
    initialize();
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuDriverGetVersion(v: *mut c_int) -> CUresult {
    put(v, 13000)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetCount(n: *mut c_int) -> CUresult {
    if !initialized() {
        return ERROR_NOT_INITIALIZED;
    }
    put(n, 1)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGet(d: *mut CUdevice, ordinal: c_int) -> CUresult {
    if !initialized() {
        return ERROR_NOT_INITIALIZED;
    }
    if ordinal != 0 {
        return ERROR_INVALID_DEVICE;
    }
    put(d, 0)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) -> CUresult {
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    if name.is_null() || len <= 0 {
        return ERROR_INVALID_VALUE;
    }
    let s = format!("nvfp4 emulated {}", arch::current().name);
    let n = s.len().min(len as usize - 1);
    std::ptr::copy_nonoverlapping(s.as_ptr(), name as *mut u8, n);
    *name.add(n) = 0;
    SUCCESS
}

unsafe fn uuid(out: *mut [u8; 16], dev: CUdevice) -> CUresult {
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    let mut u = *b"nvfp4-emu-gpu-\0\0";
    u[14] = arch::current().cc as u8;
    put(out, u)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetUuid(out: *mut [u8; 16], dev: CUdevice) -> CUresult {
    uuid(out, dev)
}
#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], dev: CUdevice) -> CUresult {
    uuid(out, dev)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(n: *mut usize, dev: CUdevice) -> CUresult {
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    put(n, crate::mem::memory().info().1 as usize)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) -> CUresult {
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    let cc = arch::current().cc as c_int;
    put(major, cc / 10);
    put(minor, cc % 10)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, len: c_int, dev: CUdevice) -> CUresult {
    let s = b"0000:00:00.0\0";
    if dev != 0 || out.is_null() || (len as usize) < s.len() {
        return ERROR_INVALID_VALUE;
    }
    std::ptr::copy_nonoverlapping(s.as_ptr(), out as *mut u8, s.len());
    SUCCESS
}

/// Value of a device attribute, None when it is not modelled.
fn attribute(n: c_int) -> Option<c_int> {
    let a = arch::current();
    let cc = a.cc as c_int;
    Some(match n {
        1 => 1024,                       // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                   // MAX_BLOCK_DIM_X, Y
        4 => 64,                         // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                   // MAX_GRID_DIM_X
        6 | 7 => 65535,                  // MAX_GRID_DIM_Y, Z
        8 => 49152,                      // MAX_SHARED_MEMORY_PER_BLOCK
        9 => 65536,                      // TOTAL_CONSTANT_MEMORY
        10 => 32,                        // WARP_SIZE
        11 => i32::MAX,                  // MAX_PITCH
        12 => 65536,                     // MAX_REGISTERS_PER_BLOCK
        13 => 1_000_000,                 // CLOCK_RATE
        14 => 512,                       // TEXTURE_ALIGNMENT
        15 => 1,                         // GPU_OVERLAP
        16 => a.sms as c_int,            // MULTIPROCESSOR_COUNT
        17 | 18 => 0,                    // KERNEL_EXEC_TIMEOUT, INTEGRATED
        19 => 1,                         // CAN_MAP_HOST_MEMORY
        20 => 0,                         // COMPUTE_MODE
        31 => 1,                         // CONCURRENT_KERNELS
        32..=34 => 0,                    // ECC, PCI ids
        35 => 0,                         // TCC_DRIVER
        36 => 1_000_000,                 // MEMORY_CLOCK_RATE
        37 => 4096,                      // GLOBAL_MEMORY_BUS_WIDTH
        38 => a.l2 as c_int,             // L2_CACHE_SIZE
        39 => a.threads_per_sm as c_int, // MAX_THREADS_PER_MULTIPROCESSOR
        40 => 1,                         // ASYNC_ENGINE_COUNT
        41 => 1,                         // UNIFIED_ADDRESSING
        50 => 0,                         // PCI_DOMAIN_ID
        75 => cc / 10,                   // COMPUTE_CAPABILITY_MAJOR
        76 => cc % 10,
        78 => 1,                      // STREAM_PRIORITIES_SUPPORTED
        79 | 80 => 1,                 // L1 caching
        81 => a.smem_per_sm as c_int, // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => 65536,                  // MAX_REGISTERS_PER_MULTIPROCESSOR
        83 => 1,                      // MANAGED_MEMORY
        84 | 85 => 0,                 // MULTI_GPU_BOARD
        86 => 1,                      // HOST_NATIVE_ATOMIC_SUPPORTED
        87 => 2,                      // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
        88 => 1,                      // PAGEABLE_MEMORY_ACCESS
        89 => 1,                      // CONCURRENT_MANAGED_ACCESS
        90 => 0,                      // COMPUTE_PREEMPTION_SUPPORTED
        91 => 1,                      // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        95 => 1,                      // COOPERATIVE_LAUNCH
        97 => a.smem_optin as c_int,  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        99 => 1,                      // HOST_REGISTER_SUPPORTED
        100 | 101 => 0,
        106 => 32,                  // MAX_BLOCKS_PER_MULTIPROCESSOR
        108 => 0,                   // MAX_PERSISTING_L2_CACHE_SIZE
        109 => 0,                   // MAX_ACCESS_POLICY_WINDOW_SIZE
        111 => 1024,                // RESERVED_SHARED_MEMORY_PER_BLOCK
        115 => 1,                   // MEMORY_POOLS_SUPPORTED
        120 => (cc >= 90) as c_int, // CLUSTER_LAUNCH
        127 => (cc >= 90) as c_int, // TENSOR_MAP_ACCESS_SUPPORTED
        42..=49 | 51..=74 | 77 | 92..=94 | 96 | 98 | 102..=105 | 107 | 110 | 112..=114 | 116..=119 | 121..=126 | 128..=145 => 0,
        _ => return None,
    })
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetAttribute(v: *mut c_int, n: c_int, dev: CUdevice) -> CUresult {
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    match attribute(n) {
        Some(x) => put(v, x),
        None => ERROR_INVALID_VALUE,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(v: *mut c_int, _a: CUdevice, _b: CUdevice) -> CUresult {
    put(v, 0)
}

#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut Handle, _dev: CUdevice) -> CUresult {
    put(pool, 0x10 as Handle)
}
#[no_mangle]
pub unsafe extern "C" fn cuDeviceGetMemPool(pool: *mut Handle, _dev: CUdevice) -> CUresult {
    put(pool, 0x10 as Handle)
}
