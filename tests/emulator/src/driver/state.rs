//! All live objects of the driver, by handle.

use super::graph::{Graph, Node};
use super::types::*;
use crate::ir::Kernel;
use crate::lower::Env;
use crate::parse::Module;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

pub struct Context {
    pub primary: bool,
    pub refs: u32,
    /// Error of a kernel that stopped: every later call gives it.
    pub sticky: CUresult,
    pub flags: u32,
}

pub struct Code {
    pub module: Module,
    pub env: Env,
    pub text: Arc<String>,
    /// Addresses of the module's variables, freed with it.
    pub vars: Vec<(String, u64, u32)>,
    pub library: bool,
    pub functions: HashMap<String, usize>,
}

#[derive(Clone)]
pub struct Function {
    pub kernel: Arc<Kernel>,
    pub code: usize,
    pub max_dynamic: u32,
    pub carveout: i32,
    pub nonportable_cluster: bool,
    pub cluster: [u32; 3],
    pub name: Arc<std::ffi::CString>,
}

pub struct Stream {
    pub ctx: usize,
    pub flags: u32,
    pub priority: i32,
    /// Graph being captured, its mode, whether this stream began it.
    pub capture: Option<Capture>,
}

#[derive(Clone, Copy)]
pub struct Capture {
    pub graph: usize,
    pub mode: u32,
    pub origin: bool,
    pub thread: std::thread::ThreadId,
}

pub struct Event {
    pub ctx: usize,
    pub flags: u32,
    pub at: Option<std::time::Instant>,
    /// Recorded in a capture of this graph.
    pub captured: Option<usize>,
}

pub enum Obj {
    Context(Context),
    Code(Code),
    Function(Function),
    Stream(Stream),
    Event(Event),
    Graph(Graph),
    Exec(Arc<Vec<Node>>),
}

pub struct State {
    pub objs: HashMap<usize, Obj>,
    next: usize,
    pub primary: usize,
    /// Captures that an error has spoiled.
    pub spoiled: std::collections::HashSet<usize>,
}

static READY: AtomicBool = AtomicBool::new(false);

pub fn state() -> MutexGuard<'static, State> {
    static S: OnceLock<Mutex<State>> = OnceLock::new();
    S.get_or_init(|| Mutex::new(State { objs: HashMap::new(), next: 0x1000, primary: 0, spoiled: Default::default() }))
        .lock()
        .unwrap_or_else(|e| e.into_inner())
}

pub fn initialized() -> bool {
    READY.load(Ordering::Acquire)
}

pub fn initialize() {
    READY.store(true, Ordering::Release);
}

impl State {
    pub fn add(&mut self, o: Obj) -> usize {
        self.next += 16;
        self.objs.insert(self.next, o);
        self.next
    }
}

macro_rules! getters {
    ($($name:ident, $kind:ident, $t:ty;)*) => {
        impl State {
            $(pub fn $name(&mut self, h: usize) -> Result<&mut $t, CUresult> {
                match self.objs.get_mut(&h) {
                    Some(Obj::$kind(x)) => Ok(x),
                    _ => Err(ERROR_INVALID_HANDLE),
                }
            })*
        }
    };
}

getters! {
    context, Context, Context;
    code, Code, Code;
    function, Function, Function;
    stream, Stream, Stream;
    event, Event, Event;
    graph, Graph, Graph;
    exec, Exec, Arc<Vec<Node>>;
}

thread_local! {
    /// Stack of current contexts of this thread; the last one is current.
    pub static CURRENT: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

pub fn current() -> usize {
    // At the end of the process the thread's locals may be gone.
    CURRENT.try_with(|c| c.borrow().last().copied().unwrap_or(0)).unwrap_or(0)
}

/// The current context, when there is one and no kernel has broken it.
pub fn usable() -> Result<usize, CUresult> {
    if !initialized() {
        return Err(ERROR_NOT_INITIALIZED);
    }
    let c = current();
    if c == 0 {
        return Err(ERROR_INVALID_CONTEXT);
    }
    match state().context(c) {
        Ok(x) if x.sticky != 0 => Err(x.sticky),
        Ok(_) => Ok(c),
        Err(_) => Err(ERROR_INVALID_CONTEXT),
    }
}

/// Turn a result into a code.
pub fn code(r: Result<(), CUresult>) -> CUresult {
    match r {
        Ok(()) => SUCCESS,
        Err(e) => e,
    }
}
