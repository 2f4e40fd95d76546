//! Functions and kernels: lookup (lowering happens here), attributes, occupancy.

use super::state::*;
use super::types::*;
use crate::arch;
use crate::lower;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::sync::Arc;

unsafe fn get(call: &str, out: *mut Handle, h: Handle, name: *const c_char) -> CUresult {
    if name.is_null() {
        return ERROR_INVALID_VALUE;
    }
    let n = CStr::from_ptr(name).to_string_lossy().into_owned();
    let mut s = state();
    let c = match s.code(h as usize) {
        Ok(c) => c,
        Err(e) => return e,
    };
    if let Some(&f) = c.functions.get(&n) {
        return put(out, f as Handle);
    }
    let Some(f) = c.module.funcs.iter().find(|f| f.entry && f.name == n) else { return ERROR_NOT_FOUND };
    let kernel = match lower::lower(&c.module, f, &c.env, c.text.clone()) {
        Ok(k) => Arc::new(k),
        Err(e) => {
            let text = c.text.lines().nth(e.line.saturating_sub(1) as usize).unwrap_or("").trim().to_string();
            complain(call, &format!("{n}, PTX line {}: {}: {text}", e.line, e.msg));
            return ERROR_INVALID_PTX;
        }
    };
    let max_dynamic = 49152u32.saturating_sub(kernel.static_smem);
    let cname = CString::new(n.clone()).unwrap_or_default();
    let f = Function {
        max_dynamic,
        carveout: -1,
        nonportable_cluster: false,
        cluster: kernel.reqcluster.unwrap_or([0; 3]),
        kernel,
        code: h as usize,
        name: Arc::new(cname),
    };
    let id = s.add(Obj::Function(f));
    if let Ok(c) = s.code(h as usize) {
        c.functions.insert(n, id);
    }
    put(out, id as Handle)
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleGetFunction(out: *mut Handle, h: Handle, name: *const c_char) -> CUresult {
    if let Err(e) = usable() {
        return e;
    }
    get("cuModuleGetFunction", out, h, name)
}
#[no_mangle]
pub unsafe extern "C" fn cuLibraryGetKernel(out: *mut Handle, h: Handle, name: *const c_char) -> CUresult {
    get("cuLibraryGetKernel", out, h, name)
}
#[no_mangle]
pub unsafe extern "C" fn cuKernelGetFunction(out: *mut Handle, k: Handle) -> CUresult {
    if state().function(k as usize).is_err() {
        return ERROR_INVALID_HANDLE;
    }
    put(out, k)
}
#[no_mangle]
pub unsafe extern "C" fn cuKernelGetLibrary(out: *mut Handle, k: Handle) -> CUresult {
    match state().function(k as usize) {
        Ok(f) => put(out, f.code as Handle),
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuFuncGetModule(out: *mut Handle, f: Handle) -> CUresult {
    cuKernelGetLibrary(out, f)
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncGetName(out: *mut *const c_char, f: Handle) -> CUresult {
    match state().function(f as usize) {
        Ok(x) => put(out, x.name.as_ptr()),
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuKernelGetName(out: *mut *const c_char, f: Handle) -> CUresult {
    cuFuncGetName(out, f)
}

fn attribute(what: c_int, f: &Function) -> Option<c_int> {
    let a = arch::current();
    let k = &f.kernel;
    Some(match what {
        0 => k.maxntid.map_or(1024, |m| m.iter().product::<u32>()) as c_int,
        1 => k.static_smem as c_int,
        2 => 0,
        3 => k.local_bytes as c_int,
        4 => 64, // registers: not modelled
        5 | 6 => a.cc as c_int,
        7 => 0,
        8 => f.max_dynamic as c_int,
        9 => f.carveout,
        10 => (k.reqcluster.is_some()) as c_int,
        11..=13 => f.cluster[(what - 11) as usize] as c_int,
        14 => f.nonportable_cluster as c_int,
        15 => 0,
        _ => return None,
    })
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncGetAttribute(v: *mut c_int, what: c_int, f: Handle) -> CUresult {
    match state().function(f as usize) {
        Ok(x) => match attribute(what, x) {
            Some(n) => put(v, n),
            None => ERROR_INVALID_VALUE,
        },
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuKernelGetAttribute(v: *mut c_int, what: c_int, k: Handle, _dev: CUdevice) -> CUresult {
    cuFuncGetAttribute(v, what, k)
}

#[no_mangle]
pub extern "C" fn cuFuncSetAttribute(f: Handle, what: c_int, v: c_int) -> CUresult {
    let a = arch::current();
    match state().function(f as usize) {
        Ok(x) => {
            match what {
                8 => {
                    if v < 0 || v as u32 + x.kernel.static_smem > a.smem_optin {
                        complain(
                            "cuFuncSetAttribute",
                            &format!(
                                "{v} bytes of dynamic and {} of static shared memory; {} allows {}",
                                x.kernel.static_smem, a.name, a.smem_optin
                            ),
                        );
                        return ERROR_INVALID_VALUE;
                    }
                    x.max_dynamic = v as u32;
                }
                9 => x.carveout = v,
                11..=13 => x.cluster[(what - 11) as usize] = v as u32,
                14 => x.nonportable_cluster = v != 0,
                15 => {}
                _ => return ERROR_INVALID_VALUE,
            }
            SUCCESS
        }
        Err(e) => e,
    }
}
#[no_mangle]
pub extern "C" fn cuKernelSetAttribute(what: c_int, v: c_int, k: Handle, _dev: CUdevice) -> CUresult {
    cuFuncSetAttribute(k, what, v)
}
#[no_mangle]
pub extern "C" fn cuFuncSetCacheConfig(_f: Handle, _c: c_int) -> CUresult {
    SUCCESS
}
#[no_mangle]
pub extern "C" fn cuFuncSetSharedMemConfig(_f: Handle, _c: c_int) -> CUresult {
    SUCCESS
}
#[no_mangle]
pub extern "C" fn cuFuncLoad(_f: Handle) -> CUresult {
    SUCCESS
}
#[no_mangle]
pub unsafe extern "C" fn cuFuncIsLoaded(state: *mut c_int, _f: Handle) -> CUresult {
    put(state, 1)
}

#[no_mangle]
pub unsafe extern "C" fn cuFuncGetParamInfo(f: Handle, i: usize, off: *mut usize, size: *mut usize) -> CUresult {
    match state().function(f as usize) {
        Ok(x) => match x.kernel.params.get(i) {
            Some(p) => {
                if !size.is_null() {
                    *size = p.size as usize;
                }
                put(off, p.offset as usize)
            }
            None => ERROR_INVALID_VALUE,
        },
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuKernelGetParamInfo(f: Handle, i: usize, off: *mut usize, size: *mut usize) -> CUresult {
    cuFuncGetParamInfo(f, i, off, size)
}

/// Blocks that fit on one multiprocessor by threads and shared memory;
/// registers are not modelled.
fn blocks_per_sm(f: &Function, threads: u32, dynamic: usize) -> u32 {
    let a = arch::current();
    if threads == 0 || threads > 1024 {
        return 0;
    }
    let by_threads = a.threads_per_sm / threads.next_multiple_of(32);
    let smem = f.kernel.static_smem + dynamic as u32 + crate::shared::RESERVED;
    by_threads.min(a.smem_per_sm / smem).min(32)
}

#[no_mangle]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(n: *mut c_int, f: Handle, threads: c_int, dynamic: usize) -> CUresult {
    match state().function(f as usize) {
        Ok(x) => put(n, blocks_per_sm(x, threads as u32, dynamic) as c_int),
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    n: *mut c_int,
    f: Handle,
    threads: c_int,
    dynamic: usize,
    _flags: c_uint,
) -> CUresult {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, dynamic)
}

#[no_mangle]
pub unsafe extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    f: Handle,
    _smem: *mut c_void,
    dynamic: usize,
    limit: c_int,
) -> CUresult {
    match state().function(f as usize) {
        Ok(x) => {
            let max = attribute(0, x).unwrap_or(1024);
            let b = if limit > 0 { max.min(limit) } else { max };
            put(block, b);
            put(grid, (blocks_per_sm(x, b as u32, dynamic) * arch::current().sms) as c_int)
        }
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuOccupancyMaxActiveClusters(n: *mut c_int, f: Handle, config: *const super::launch::LaunchConfig) -> CUresult {
    let Some(c) = config.as_ref() else { return ERROR_INVALID_VALUE };
    match state().function(f as usize) {
        Ok(x) => {
            let size = super::launch::cluster_of(c, x).iter().product::<u32>().max(1);
            let per = blocks_per_sm(x, c.block[0] * c.block[1] * c.block[2], c.shared as usize);
            put(n, (per * arch::current().sms / size) as c_int)
        }
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuOccupancyMaxPotentialClusterSize(n: *mut c_int, _f: Handle, _config: *const c_void) -> CUresult {
    put(n, if arch::current().cc >= 90 { 8 } else { 1 })
}
