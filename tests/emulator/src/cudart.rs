//! A small stand-in for the CUDA runtime, so that host programs built by nvcc with
//! `-cudart shared` run on the emulated GPU: the real runtime needs private tables of the
//! driver. Put a link `libcudart.so.13` (and `libcuda.so.1`) to this library on the program's
//! library path; compile with `-no-compress` and PTX for the chip
//! (`-gencode arch=compute_100a,code=compute_100a`).
//!
//! What is here is what such programs call: registration of kernels, launches, memory,
//! streams, events, attributes, the driver's entry points. Everything goes through the
//! driver API of this crate; results are the driver's numbers, which the runtime shares.

mod device;
mod launch;
mod memory;

pub use device::*;
pub use launch::*;
pub use memory::*;

use crate::driver::*;
use std::cell::Cell;

/// cudaError_t
pub type Status = CUresult;

thread_local! {
    static LAST: Cell<Status> = const { Cell::new(SUCCESS) };
}

/// Make the primary context of device 0 current in this thread.
fn ready() -> Result<(), Status> {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    // Destructors of statics run when this thread's locals are gone: then all is set up.
    if DONE.try_with(|d| d.get()).unwrap_or(true) {
        return Ok(());
    }
    let mut context = std::ptr::null_mut();
    check(device::init())?;
    // SAFETY: the place for the handle is valid.
    check(unsafe { context::cuDevicePrimaryCtxRetain(&mut context, 0) })?;
    check(context::cuCtxSetCurrent(context))?;
    DONE.with(|d| d.set(true));
    Ok(())
}

fn check(r: CUresult) -> Result<(), Status> {
    if r == SUCCESS {
        Ok(())
    } else {
        Err(r)
    }
}

/// Run a call: context first, errors remembered for cudaGetLastError.
fn call(f: impl FnOnce() -> CUresult) -> Status {
    let r = ready().map_or_else(|e| e, |()| f());
    if r != SUCCESS {
        let _ = LAST.try_with(|l| l.set(r));
    }
    r
}
