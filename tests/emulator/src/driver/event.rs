//! Events: complete as soon as they are recorded.

use super::state::*;
use super::stream::is_default;
use super::types::*;
use std::ffi::c_uint;

#[no_mangle]
pub unsafe extern "C" fn cuEventCreate(out: *mut Handle, flags: c_uint) -> CUresult {
    match usable() {
        Ok(ctx) => {
            let h = state().add(Obj::Event(Event { ctx, flags, at: None, captured: None }));
            put(out, h as Handle)
        }
        Err(e) => e,
    }
}

#[no_mangle]
pub extern "C" fn cuEventDestroy_v2(h: Handle) -> CUresult {
    let mut s = state();
    if s.event(h as usize).is_err() {
        return ERROR_INVALID_HANDLE;
    }
    s.objs.remove(&(h as usize));
    SUCCESS
}

#[no_mangle]
pub extern "C" fn cuEventRecord(h: Handle, stream: Handle) -> CUresult {
    code((|| {
        usable()?;
        let mut s = state();
        let captured = if is_default(stream) { None } else { s.stream(stream as usize)?.capture.map(|c| c.graph) };
        let e = s.event(h as usize)?;
        e.captured = captured;
        if captured.is_none() {
            e.at = Some(std::time::Instant::now());
        }
        Ok(())
    })())
}

#[no_mangle]
pub extern "C" fn cuEventRecordWithFlags(h: Handle, stream: Handle, _flags: c_uint) -> CUresult {
    cuEventRecord(h, stream)
}

#[no_mangle]
pub extern "C" fn cuEventQuery(h: Handle) -> CUresult {
    code((|| {
        usable()?;
        if state().event(h as usize)?.captured.is_some() {
            return Err(ERROR_CAPTURED_EVENT);
        }
        Ok(())
    })())
}

#[no_mangle]
pub extern "C" fn cuEventSynchronize(h: Handle) -> CUresult {
    cuEventQuery(h)
}

unsafe fn elapsed(ms: *mut f32, a: Handle, b: Handle) -> CUresult {
    let mut s = state();
    let Ok(x) = s.event(a as usize).map(|e| e.at) else { return ERROR_INVALID_HANDLE };
    let Ok(z) = s.event(b as usize).map(|e| e.at) else { return ERROR_INVALID_HANDLE };
    match (x, z) {
        (Some(x), Some(z)) => put(ms, z.saturating_duration_since(x).as_secs_f32() * 1e3),
        _ => ERROR_INVALID_HANDLE,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, a: Handle, b: Handle) -> CUresult {
    elapsed(ms, a, b)
}
#[no_mangle]
pub unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, a: Handle, b: Handle) -> CUresult {
    elapsed(ms, a, b)
}
