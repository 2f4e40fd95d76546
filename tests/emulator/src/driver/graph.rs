//! Graphs: nodes in the order of capture, which respects every dependency.

use super::memory;
use super::state::*;
use super::types::*;
use crate::launch::Request;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

#[derive(Clone)]
pub enum Node {
    Kernel { ctx: usize, request: Request },
    Copy { dst: u64, src: u64, n: u64 },
    Set { dst: u64, value: u32, width: u32, n: u64 },
    Host { f: unsafe extern "C" fn(*mut c_void), data: usize },
    Free(u64),
}

// SAFETY: host data of a captured function belongs to the program, which must
// keep it valid for every launch of the graph.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

#[derive(Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
}

impl Node {
    pub fn run(&self) -> Result<(), CUresult> {
        match self {
            Node::Kernel { ctx, request } => super::launch::execute(*ctx, request),
            Node::Copy { dst, src, n } => memory::copy(*dst, *src, *n),
            Node::Set { dst, value, width, n } => memory::set(*dst, *value, *width, *n),
            Node::Host { f, data } => {
                // SAFETY: the program promised that the function may be called with its data.
                unsafe { f(*data as *mut c_void) };
                Ok(())
            }
            Node::Free(p) => {
                if crate::mem::memory().free(*p) {
                    Ok(())
                } else {
                    Err(ERROR_INVALID_VALUE)
                }
            }
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn cuGraphCreate(out: *mut Handle, _flags: c_uint) -> CUresult {
    let h = state().add(Obj::Graph(Graph::default()));
    put(out, h as Handle)
}

#[no_mangle]
pub extern "C" fn cuGraphDestroy(h: Handle) -> CUresult {
    let mut s = state();
    if s.graph(h as usize).is_err() {
        return ERROR_INVALID_VALUE;
    }
    s.objs.remove(&(h as usize));
    SUCCESS
}

unsafe fn instantiate(out: *mut Handle, graph: Handle) -> CUresult {
    let mut s = state();
    let nodes = match s.graph(graph as usize) {
        Ok(g) => g.nodes.clone(),
        Err(_) => return ERROR_INVALID_VALUE,
    };
    let h = s.add(Obj::Exec(Arc::new(nodes)));
    put(out, h as Handle)
}

#[no_mangle]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, _flags: c_ulonglong) -> CUresult {
    instantiate(out, graph)
}
#[no_mangle]
pub unsafe extern "C" fn cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, _params: *mut c_void) -> CUresult {
    instantiate(out, graph)
}
#[no_mangle]
pub unsafe extern "C" fn cuGraphInstantiate_v2(out: *mut Handle, graph: Handle, _err: *mut Handle, _log: *mut i8, _n: usize) -> CUresult {
    instantiate(out, graph)
}

#[no_mangle]
pub extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> CUresult {
    code((|| {
        usable()?;
        let nodes = state().exec(exec as usize).map_err(|_| ERROR_INVALID_VALUE)?.clone();
        for n in nodes.iter() {
            super::stream::submit("cuGraphLaunch", stream, n.clone())?;
        }
        Ok(())
    })())
}

#[no_mangle]
pub extern "C" fn cuGraphUpload(_exec: Handle, _stream: Handle) -> CUresult {
    SUCCESS
}

#[no_mangle]
pub extern "C" fn cuGraphExecDestroy(h: Handle) -> CUresult {
    let mut s = state();
    if s.exec(h as usize).is_err() {
        return ERROR_INVALID_VALUE;
    }
    s.objs.remove(&(h as usize));
    SUCCESS
}

/// Number of nodes only: `nodes` must be null.
#[no_mangle]
pub unsafe extern "C" fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, n: *mut usize) -> CUresult {
    if !nodes.is_null() {
        return ERROR_NOT_SUPPORTED;
    }
    match state().graph(graph as usize) {
        Ok(g) => put(n, g.nodes.len()),
        Err(_) => ERROR_INVALID_VALUE,
    }
}

/// An executable graph takes over the nodes of a graph of the same shape.
#[no_mangle]
pub unsafe extern "C" fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, info: *mut c_int) -> CUresult {
    let mut s = state();
    let nodes = match s.graph(graph as usize) {
        Ok(g) => g.nodes.clone(),
        Err(_) => return ERROR_INVALID_VALUE,
    };
    match s.exec(exec as usize) {
        Ok(e) => *e = Arc::new(nodes),
        Err(_) => return ERROR_INVALID_VALUE,
    }
    if !info.is_null() {
        *info = 0;
    }
    SUCCESS
}
