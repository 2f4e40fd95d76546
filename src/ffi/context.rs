//! The context: where calls run.

use super::boundary;
use super::read::{out_pointer, read};
use crate::abi::*;
use crate::context::Context;
use crate::Result;

/// A device to run on. Safe to use from many threads at once.
pub struct nvfp4_context {
    pub(crate) context: Context,
}

/// SAFETY: `ctx` is NULL or came from nvfp4_context_create and lives through the call.
pub(crate) unsafe fn context<'a>(ctx: *mut nvfp4_context) -> Result<&'a Context> {
    // SAFETY: the caller's promise.
    match unsafe { ctx.as_ref() } {
        Some(handle) => Ok(&handle.context),
        None => Err(crate::Error::NullPointer("ctx")),
    }
}

/// Makes a context. `desc` may be NULL: the CPU, with as many threads as the process may use. On a CUDA device this is
/// the only call that may allocate or wait. A context may be used from many threads at once and keeps working in a
/// child process after fork() (CPU).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_context_create(
    desc: *const nvfp4_context_desc,
    out: *mut *mut nvfp4_context,
) -> nvfp4_status {
    boundary(|| {
        // SAFETY: this module's law.
        unsafe {
            out_pointer(out, "out")?;
            let desc = if desc.is_null() {
                None
            } else {
                Some(read(desc, "desc")?)
            };
            let context = Context::from_desc(desc.as_ref())?;
            out.write(Box::into_raw(Box::new(nvfp4_context { context })));
        }
        Ok(())
    })
}

/// Destroys a context; NULL does nothing. No call may be using it. Buffers of the caller's are not touched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_context_destroy(ctx: *mut nvfp4_context) -> nvfp4_status {
    boundary(|| {
        if !ctx.is_null() {
            // SAFETY: it came from nvfp4_context_create, and nobody uses it any more.
            drop(unsafe { Box::from_raw(ctx) });
        }
        Ok(())
    })
}
