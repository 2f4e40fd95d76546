//! Modules and libraries.

use super::fatbin;
use super::state::*;
use super::types::*;
use crate::arch;
use crate::lower::Env;
use crate::mem::{memory, Kind};
use crate::parse::{self, Module, Space};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::sync::Arc;

/// Parse an image and give its variables addresses.
unsafe fn load(call: &str, image: *const c_void, library: bool) -> Result<usize, CUresult> {
    let a = arch::current();
    let text = fatbin::ptx_of(image as *const u8, &a).map_err(|e| {
        complain(call, &e);
        ERROR_NO_BINARY_FOR_GPU
    })?;
    let text = fatbin::replacement(&text)
        .map_err(|e| {
            complain(call, &e);
            ERROR_INVALID_PTX
        })?
        .unwrap_or(text);
    let m = parse::parse(&text).map_err(|e| {
        complain(call, &e.to_string());
        ERROR_INVALID_PTX
    })?;
    if !a.accepts(&m.target) {
        complain(call, &format!("PTX for {} does not run on {}", m.target, a.name));
        return Err(ERROR_NO_BINARY_FOR_GPU);
    }
    let (vars, env) = place_variables(call, &m)?;
    let code = Code { module: m, env, text: Arc::new(text), vars, library, functions: HashMap::new() };
    Ok(state().add(Obj::Code(code)))
}

type Placed = (Vec<(String, u64, u32)>, Env);

fn place_variables(call: &str, m: &Module) -> Result<Placed, CUresult> {
    let mut vars = Vec::new();
    let mut globals = HashMap::new();
    for v in m.vars.iter().filter(|v| matches!(v.space, Space::Global | Space::Const)) {
        if v.external {
            complain(call, &format!("external variable {} is not resolved", v.name));
            return Err(ERROR_INVALID_PTX);
        }
        let size = v.size.max(1);
        let p = memory().alloc(size as u64, Kind::Module).ok_or(ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the allocation holds `size` bytes. Variables start as zero.
        unsafe {
            std::ptr::write_bytes(p as *mut u8, 0, size as usize);
            std::ptr::copy_nonoverlapping(v.init.as_ptr(), p as *mut u8, v.init.len().min(size as usize));
        }
        vars.push((v.name.clone(), p, v.size));
        globals.insert(v.name.clone(), p);
    }
    for v in &m.vars {
        let Some(&base) = globals.get(&v.name) else { continue };
        for (off, sym, add, _) in &v.relocs {
            let Some(&to) = globals.get(sym) else {
                complain(call, &format!("initializer of {} names {sym}, which is not a variable here", v.name));
                return Err(ERROR_INVALID_PTX);
            };
            // SAFETY: the initializer's slot lies inside the variable.
            unsafe { ((base + *off as u64) as *mut u64).write_unaligned(to.wrapping_add(*add as u64)) };
        }
    }
    Ok((vars, Env { globals }))
}

fn unload(h: usize) -> CUresult {
    let mut s = state();
    if s.code(h).is_err() {
        return ERROR_INVALID_HANDLE;
    }
    if let Some(Obj::Code(c)) = s.objs.remove(&h) {
        for (_, p, _) in &c.vars {
            memory().free(*p);
        }
        for f in c.functions.values() {
            s.objs.remove(f);
        }
    }
    SUCCESS
}

unsafe fn put_load(call: &str, out: *mut Handle, image: *const c_void, library: bool) -> CUresult {
    if !library {
        if let Err(e) = usable() {
            return e;
        }
    } else if !initialized() {
        return ERROR_NOT_INITIALIZED;
    }
    match load(call, image, library) {
        Ok(h) => put(out, h as Handle),
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut Handle, image: *const c_void) -> CUresult {
    put_load("cuModuleLoadData", out, image, false)
}
#[no_mangle]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut Handle,
    image: *const c_void,
    _n: c_uint,
    _opts: *mut c_int,
    _vals: *mut *mut c_void,
) -> CUresult {
    put_load("cuModuleLoadDataEx", out, image, false)
}
#[no_mangle]
pub unsafe extern "C" fn cuModuleLoadFatBinary(out: *mut Handle, image: *const c_void) -> CUresult {
    put_load("cuModuleLoadFatBinary", out, image, false)
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleLoad(out: *mut Handle, path: *const c_char) -> CUresult {
    if path.is_null() {
        return ERROR_INVALID_VALUE;
    }
    let Ok(mut bytes) = std::fs::read(CStr::from_ptr(path).to_string_lossy().as_ref()) else { return ERROR_FILE_NOT_FOUND };
    bytes.extend_from_slice(&[0; 8]);
    put_load("cuModuleLoad", out, bytes.as_ptr() as *const c_void, false)
}

#[no_mangle]
pub extern "C" fn cuModuleUnload(h: Handle) -> CUresult {
    unload(h as usize)
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleGetLoadingMode(mode: *mut c_int) -> CUresult {
    put(mode, 2)
}

unsafe fn global(ptr: *mut CUdeviceptr, size: *mut usize, h: Handle, name: *const c_char) -> CUresult {
    if name.is_null() {
        return ERROR_INVALID_VALUE;
    }
    let n = CStr::from_ptr(name).to_string_lossy();
    match state().code(h as usize) {
        Ok(c) => match c.vars.iter().find(|v| v.0 == n) {
            Some(v) => {
                if !ptr.is_null() {
                    *ptr = v.1;
                }
                if !size.is_null() {
                    *size = v.2 as usize;
                }
                SUCCESS
            }
            None => ERROR_NOT_FOUND,
        },
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(ptr: *mut CUdeviceptr, size: *mut usize, h: Handle, name: *const c_char) -> CUresult {
    global(ptr, size, h, name)
}
#[no_mangle]
pub unsafe extern "C" fn cuLibraryGetGlobal(ptr: *mut CUdeviceptr, size: *mut usize, h: Handle, name: *const c_char) -> CUresult {
    global(ptr, size, h, name)
}

#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLibraryLoadData(
    out: *mut Handle,
    image: *const c_void,
    _jit: *mut c_int,
    _jit_vals: *mut *mut c_void,
    _nj: c_uint,
    _opts: *mut c_int,
    _opt_vals: *mut *mut c_void,
    _no: c_uint,
) -> CUresult {
    put_load("cuLibraryLoadData", out, image, true)
}

#[no_mangle]
pub extern "C" fn cuLibraryUnload(h: Handle) -> CUresult {
    unload(h as usize)
}

#[no_mangle]
pub unsafe extern "C" fn cuLibraryGetModule(out: *mut Handle, h: Handle) -> CUresult {
    if state().code(h as usize).is_err() {
        return ERROR_INVALID_HANDLE;
    }
    put(out, h)
}

#[no_mangle]
pub unsafe extern "C" fn cuLibraryGetKernelCount(n: *mut c_uint, h: Handle) -> CUresult {
    match state().code(h as usize) {
        Ok(c) => put(n, c.module.funcs.iter().filter(|f| f.entry).count() as c_uint),
        Err(e) => e,
    }
}
#[no_mangle]
pub unsafe extern "C" fn cuModuleGetFunctionCount(n: *mut c_uint, h: Handle) -> CUresult {
    cuLibraryGetKernelCount(n, h)
}
