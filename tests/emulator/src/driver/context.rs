//! Contexts: the primary one, own ones, and each thread's stack.

use super::state::*;
use super::types::*;
use std::ffi::{c_int, c_uint, c_void};

fn new_context(primary: bool, flags: u32) -> usize {
    state().add(Obj::Context(Context { primary, refs: 1, sticky: 0, flags }))
}

#[no_mangle]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut Handle, dev: CUdevice) -> CUresult {
    if !initialized() {
        return ERROR_NOT_INITIALIZED;
    }
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    let p = state().primary;
    let mut s = state();
    if let Ok(c) = s.context(p) {
        c.refs += 1;
        return put(out, p as Handle);
    }
    drop(s);
    let h = new_context(true, 0);
    state().primary = h;
    put(out, h as Handle)
}

fn release_primary() -> CUresult {
    let mut s = state();
    let p = s.primary;
    match s.context(p) {
        Ok(c) => {
            c.refs = c.refs.saturating_sub(1);
            SUCCESS
        }
        Err(_) => ERROR_INVALID_CONTEXT,
    }
}

#[no_mangle]
pub extern "C" fn cuDevicePrimaryCtxRelease(_dev: CUdevice) -> CUresult {
    release_primary()
}
#[no_mangle]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_dev: CUdevice) -> CUresult {
    release_primary()
}

#[no_mangle]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(_dev: CUdevice) -> CUresult {
    let mut s = state();
    let p = s.primary;
    if let Ok(c) = s.context(p) {
        c.sticky = 0;
    }
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(_dev: CUdevice, flags: *mut c_uint, active: *mut c_int) -> CUresult {
    let mut s = state();
    let p = s.primary;
    let on = s.context(p).is_ok_and(|c| c.refs > 0);
    let f = s.context(p).map_or(0, |c| c.flags);
    put(flags, f);
    put(active, on as c_int)
}

#[no_mangle]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(_dev: CUdevice, flags: c_uint) -> CUresult {
    let mut s = state();
    let p = s.primary;
    if let Ok(c) = s.context(p) {
        c.flags = flags;
    }
    SUCCESS
}

unsafe fn create(out: *mut Handle, flags: c_uint, dev: CUdevice) -> CUresult {
    if !initialized() {
        return ERROR_NOT_INITIALIZED;
    }
    if dev != 0 {
        return ERROR_INVALID_DEVICE;
    }
    let h = new_context(false, flags);
    CURRENT.with(|c| c.borrow_mut().push(h));
    put(out, h as Handle)
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxCreate_v2(out: *mut Handle, flags: c_uint, dev: CUdevice) -> CUresult {
    create(out, flags, dev)
}
#[no_mangle]
pub unsafe extern "C" fn cuCtxCreate_v3(out: *mut Handle, _params: *mut c_void, _n: c_int, flags: c_uint, dev: CUdevice) -> CUresult {
    create(out, flags, dev)
}
#[no_mangle]
pub unsafe extern "C" fn cuCtxCreate_v4(out: *mut Handle, _params: *mut c_void, flags: c_uint, dev: CUdevice) -> CUresult {
    create(out, flags, dev)
}

#[no_mangle]
pub extern "C" fn cuCtxDestroy_v2(ctx: Handle) -> CUresult {
    let h = ctx as usize;
    let mut s = state();
    match s.context(h) {
        Ok(c) if c.primary => return ERROR_INVALID_CONTEXT,
        Ok(_) => {}
        Err(_) => return ERROR_INVALID_CONTEXT,
    }
    s.objs.remove(&h);
    drop(s);
    CURRENT.with(|c| {
        let mut c = c.borrow_mut();
        if c.last() == Some(&h) {
            c.pop();
        }
    });
    SUCCESS
}

#[no_mangle]
pub extern "C" fn cuCtxSetCurrent(ctx: Handle) -> CUresult {
    let h = ctx as usize;
    if h != 0 && state().context(h).is_err() {
        return ERROR_INVALID_CONTEXT;
    }
    CURRENT.with(|c| {
        let mut c = c.borrow_mut();
        c.pop();
        if h != 0 {
            c.push(h);
        }
    });
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetCurrent(out: *mut Handle) -> CUresult {
    put(out, current() as Handle)
}

#[no_mangle]
pub extern "C" fn cuCtxPushCurrent_v2(ctx: Handle) -> CUresult {
    let h = ctx as usize;
    if state().context(h).is_err() {
        return ERROR_INVALID_CONTEXT;
    }
    CURRENT.with(|c| c.borrow_mut().push(h));
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(out: *mut Handle) -> CUresult {
    match CURRENT.with(|c| c.borrow_mut().pop()) {
        Some(h) => {
            if !out.is_null() {
                *out = h as Handle;
            }
            SUCCESS
        }
        None => ERROR_INVALID_CONTEXT,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetDevice(out: *mut CUdevice) -> CUresult {
    if current() == 0 {
        return ERROR_INVALID_CONTEXT;
    }
    put(out, 0)
}

#[no_mangle]
pub extern "C" fn cuCtxSynchronize() -> CUresult {
    code((|| {
        usable()?;
        super::stream::not_capturing("cuCtxSynchronize")
    })())
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetApiVersion(_ctx: Handle, v: *mut c_uint) -> CUresult {
    put(v, 3020)
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetFlags(f: *mut c_uint) -> CUresult {
    let c = current();
    match state().context(c) {
        Ok(x) => put(f, x.flags),
        Err(_) => ERROR_INVALID_CONTEXT,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetId(ctx: Handle, id: *mut u64) -> CUresult {
    let h = if ctx.is_null() { current() } else { ctx as usize };
    if h == 0 {
        return ERROR_INVALID_CONTEXT;
    }
    put(id, h as u64)
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetLimit(v: *mut usize, limit: c_int) -> CUresult {
    put(v, if limit == 1 { 1 << 20 } else { 1 << 23 })
}
#[no_mangle]
pub extern "C" fn cuCtxSetLimit(_limit: c_int, _v: usize) -> CUresult {
    SUCCESS
}
#[no_mangle]
pub extern "C" fn cuCtxSetCacheConfig(_c: c_int) -> CUresult {
    SUCCESS
}

#[no_mangle]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CUresult {
    if !least.is_null() {
        *least = 0;
    }
    if !greatest.is_null() {
        *greatest = -5;
    }
    SUCCESS
}

/// Forget the error of a stopped kernel (tests of the strict machine use this).
#[no_mangle]
pub extern "C" fn nvfp4_emu_clear_fault() {
    for o in state().objs.values_mut() {
        if let Obj::Context(c) = o {
            c.sticky = 0;
        }
    }
}
