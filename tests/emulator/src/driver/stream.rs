//! Streams. Work runs when it is submitted, unless it is being captured.

use super::graph::{Graph, Node};
use super::state::*;
use super::types::*;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};

/// Streams without an object: 0 and CU_STREAM_LEGACY (1), CU_STREAM_PER_THREAD (2).
pub fn is_default(h: Handle) -> bool {
    (h as usize) <= 2
}

thread_local! {
    /// How this thread treats captures: 0 global, 1 thread-local, 2 relaxed.
    static MODE: Cell<u32> = const { Cell::new(0) };
}

/// Any stream captures in a mode that forbids unsafe calls of this thread?
/// Then the call fails and spoils the capture.
pub fn not_capturing(call: &str) -> Result<(), CUresult> {
    let me = std::thread::current().id();
    let mode = MODE.get();
    if mode == 2 {
        return Ok(());
    }
    let mut s = state();
    let hit: Vec<usize> = s
        .objs
        .values()
        .filter_map(|o| match o {
            Obj::Stream(Stream { capture: Some(c), .. })
                if (c.mode == 0 && (mode == 0 || c.thread == me)) || (c.mode == 1 && c.thread == me) =>
            {
                Some(c.graph)
            }
            _ => None,
        })
        .collect();
    if hit.is_empty() {
        return Ok(());
    }
    s.spoiled.extend(hit);
    complain(call, "not allowed while a stream is being captured");
    Err(ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Submit work: run it, or record it when the stream captures.
pub fn submit(call: &str, stream: Handle, node: Node) -> Result<(), CUresult> {
    let ctx = usable()?;
    if is_default(stream) {
        // The legacy stream would wait for every blocking stream.
        let mut s = state();
        let hit: Vec<usize> = s
            .objs
            .values()
            .filter_map(|o| match o {
                Obj::Stream(Stream { capture: Some(c), flags, .. }) if flags & 1 == 0 => Some(c.graph),
                _ => None,
            })
            .collect();
        if (stream as usize) < 2 && !hit.is_empty() {
            s.spoiled.extend(hit);
            complain(call, "the default stream is used while a blocking stream is being captured");
            return Err(ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        drop(s);
        return node.run();
    }
    let mut s = state();
    let st = s.stream(stream as usize)?;
    if st.ctx != ctx {
        complain(call, "the stream belongs to another context than the current one");
        return Err(ERROR_INVALID_HANDLE);
    }
    if let Some(c) = st.capture {
        if s.spoiled.contains(&c.graph) {
            return Err(ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        s.graph(c.graph)?.nodes.push(node);
        return Ok(());
    }
    drop(s);
    node.run()
}

fn create(out: *mut Handle, flags: c_uint, priority: c_int) -> CUresult {
    code((|| {
        let ctx = usable()?;
        if flags > 1 {
            return Err(ERROR_INVALID_VALUE);
        }
        let h = state().add(Obj::Stream(Stream { ctx, flags, priority, capture: None }));
        // SAFETY: the caller gives a place for the handle; null is refused.
        match unsafe { put(out, h as Handle) } {
            SUCCESS => Ok(()),
            e => Err(e),
        }
    })())
}

#[no_mangle]
pub extern "C" fn cuStreamCreate(out: *mut Handle, flags: c_uint) -> CUresult {
    create(out, flags, 0)
}
#[no_mangle]
pub extern "C" fn cuStreamCreateWithPriority(out: *mut Handle, flags: c_uint, priority: c_int) -> CUresult {
    create(out, flags, priority)
}

#[no_mangle]
pub extern "C" fn cuStreamDestroy_v2(h: Handle) -> CUresult {
    let mut s = state();
    if s.stream(h as usize).is_err() {
        return ERROR_INVALID_HANDLE;
    }
    s.objs.remove(&(h as usize));
    SUCCESS
}

fn capturing(h: Handle) -> Result<Option<Capture>, CUresult> {
    if (h as usize) < 2 {
        let blocking = |o: &Obj| matches!(o, Obj::Stream(Stream { capture: Some(_), flags, .. }) if flags & 1 == 0);
        return match state().objs.values().any(blocking) {
            true => Err(ERROR_STREAM_CAPTURE_IMPLICIT),
            false => Ok(None),
        };
    }
    if is_default(h) {
        return Ok(None);
    }
    Ok(state().stream(h as usize)?.capture)
}

#[no_mangle]
pub extern "C" fn cuStreamSynchronize(h: Handle) -> CUresult {
    code((|| {
        usable()?;
        if let Some(c) = capturing(h)? {
            state().spoiled.insert(c.graph);
            complain("cuStreamSynchronize", "not allowed on a stream that is being captured");
            return Err(ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    })())
}

#[no_mangle]
pub extern "C" fn cuStreamQuery(h: Handle) -> CUresult {
    cuStreamSynchronize(h)
}

#[no_mangle]
pub extern "C" fn cuStreamWaitEvent(h: Handle, ev: Handle, _flags: c_uint) -> CUresult {
    code((|| {
        usable()?;
        let mut s = state();
        let captured = s.event(ev as usize)?.captured;
        if let (Some(g), false) = (captured, is_default(h)) {
            // The waiting stream joins the capture.
            let origin = s.objs.values().find_map(|o| match o {
                Obj::Stream(Stream { capture: Some(c), .. }) if c.graph == g => Some(*c),
                _ => None,
            });
            if let Some(o) = origin {
                let st = s.stream(h as usize)?;
                if st.capture.is_none() {
                    st.capture = Some(Capture { origin: false, ..o });
                }
            }
        }
        Ok(())
    })())
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamGetPriority(h: Handle, p: *mut c_int) -> CUresult {
    if is_default(h) {
        return put(p, 0);
    }
    match state().stream(h as usize) {
        Ok(s) => put(p, s.priority),
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamGetFlags(h: Handle, f: *mut c_uint) -> CUresult {
    if is_default(h) {
        return put(f, 0);
    }
    match state().stream(h as usize) {
        Ok(s) => put(f, s.flags),
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamGetCtx(h: Handle, ctx: *mut Handle) -> CUresult {
    if is_default(h) {
        return put(ctx, current() as Handle);
    }
    match state().stream(h as usize) {
        Ok(s) => put(ctx, s.ctx as Handle),
        Err(e) => e,
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamGetId(h: Handle, id: *mut u64) -> CUresult {
    put(id, h as u64)
}

#[no_mangle]
pub extern "C" fn cuStreamBeginCapture_v2(h: Handle, mode: c_int) -> CUresult {
    code((|| {
        usable()?;
        if is_default(h) {
            return Err(ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut s = state();
        if s.stream(h as usize)?.capture.is_some() {
            return Err(ERROR_ILLEGAL_STATE);
        }
        let graph = s.add(Obj::Graph(Graph::default()));
        let thread = std::thread::current().id();
        s.stream(h as usize)?.capture = Some(Capture { graph, mode: mode as u32, origin: true, thread });
        Ok(())
    })())
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamEndCapture(h: Handle, out: *mut Handle) -> CUresult {
    if is_default(h) {
        return ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    let mut s = state();
    let cap = match s.stream(h as usize) {
        Ok(st) => st.capture,
        Err(e) => return e,
    };
    let Some(c) = cap else { return ERROR_STREAM_CAPTURE_UNMATCHED };
    if !c.origin {
        return ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    for o in s.objs.values_mut() {
        match o {
            Obj::Stream(st) if st.capture.is_some_and(|x| x.graph == c.graph) => st.capture = None,
            Obj::Event(e) if e.captured == Some(c.graph) => e.captured = None,
            _ => {}
        }
    }
    if s.spoiled.remove(&c.graph) {
        s.objs.remove(&c.graph);
        put(out, std::ptr::null_mut());
        return ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    put(out, c.graph as Handle)
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamIsCapturing(h: Handle, status: *mut c_int) -> CUresult {
    match capturing(h) {
        Ok(c) => {
            let v = match c {
                None => 0,
                Some(c) => 1 + state().spoiled.contains(&c.graph) as c_int,
            };
            put(status, v)
        }
        Err(e) => e,
    }
}

unsafe fn capture_info(h: Handle, status: *mut c_int, id: *mut u64, graph: *mut Handle) -> CUresult {
    let r = cuStreamIsCapturing(h, status);
    if let Ok(Some(c)) = capturing(h) {
        if !id.is_null() {
            *id = c.graph as u64;
        }
        if !graph.is_null() {
            *graph = c.graph as Handle;
        }
    }
    r
}

#[no_mangle]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    h: Handle,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut Handle,
    _deps: *mut *const Handle,
    n: *mut usize,
) -> CUresult {
    if !n.is_null() {
        *n = 0;
    }
    capture_info(h, status, id, graph)
}

#[no_mangle]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> CUresult {
    if mode.is_null() || !(0..=2).contains(&*mode) {
        return ERROR_INVALID_VALUE;
    }
    *mode = MODE.replace(*mode as u32) as c_int;
    SUCCESS
}

#[no_mangle]
pub extern "C" fn cuLaunchHostFunc(h: Handle, f: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void) -> CUresult {
    let Some(f) = f else { return ERROR_INVALID_VALUE };
    code(submit("cuLaunchHostFunc", h, Node::Host { f, data: data as usize }))
}
