//! The log: off by default, one callback for the process. `NVFP4_LOG=error|warn|info|plan` in the environment sends
//! it to stderr until a callback is set. Logging never changes a result.

use std::cell::Cell;
use std::ffi::{c_void, CString};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, RwLock};

use crate::abi::*;

struct Sink {
    call: nvfp4_log_fn,
    user: *mut c_void,
}

// SAFETY: `user` belongs to the caller, who promised in nvfp4_set_log that it may be used from any thread.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static LEVEL: AtomicU32 = AtomicU32::new(NVFP4_LOG_OFF);
static SINK: RwLock<Sink> = RwLock::new(Sink {
    call: None,
    user: std::ptr::null_mut(),
});
static ENVIRONMENT: Once = Once::new();

thread_local! {
    /// Set while this thread is inside the callback: what the callback's own calls would log is dropped.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Sets the callback; when this returns, the former one is not running in any other thread.
pub(crate) fn set(call: nvfp4_log_fn, user: *mut c_void, level: u32) {
    ENVIRONMENT.call_once(|| {});
    let mut sink = SINK.write().unwrap_or_else(|poison| poison.into_inner());
    *sink = Sink { call, user };
    let level = if call.is_some() { level } else { NVFP4_LOG_OFF };
    LEVEL.store(level, Ordering::Release);
}

/// Reads NVFP4_LOG, once a process, unless a callback was set before.
pub(crate) fn read_environment() {
    ENVIRONMENT.call_once(|| {
        let level = match std::env::var("NVFP4_LOG").as_deref() {
            Ok("error") => NVFP4_LOG_ERROR,
            Ok("warn") => NVFP4_LOG_WARN,
            Ok("info") => NVFP4_LOG_INFO,
            Ok("plan") => NVFP4_LOG_PLAN,
            _ => NVFP4_LOG_OFF,
        };
        LEVEL.store(level, Ordering::Release);
    });
}

/// Whether a message of this level would go anywhere: ask before building its text.
pub(crate) fn enabled(level: u32) -> bool {
    LEVEL.load(Ordering::Relaxed) >= level
}

pub(crate) fn message(level: u32, text: &str) {
    if !enabled(level) {
        return;
    }
    let _ = INSIDE.try_with(|inside| {
        if inside.replace(true) {
            return;
        }
        let sink = SINK.read().unwrap_or_else(|poison| poison.into_inner());
        match (sink.call, CString::new(text)) {
            // SAFETY: the caller of nvfp4_set_log promised a function that can be called so until it is replaced.
            (Some(call), Ok(text)) => unsafe { call(sink.user, level, text.as_ptr()) },
            _ => eprintln!("nvfp4: {text}"),
        }
        drop(sink);
        inside.set(false);
    });
}

pub(crate) fn error(text: &str) {
    message(NVFP4_LOG_ERROR, text);
}

/// A line about how a call will be run; `text` is built only when somebody listens.
pub(crate) fn plan(text: impl FnOnce() -> String) {
    if enabled(NVFP4_LOG_PLAN) {
        message(NVFP4_LOG_PLAN, &text());
    }
}
