//! The log callback.

use std::ffi::c_void;

use super::boundary;
use crate::abi::*;
use crate::{log, Error};

/// Sets the process's log callback and the highest level that is passed to it (NVFP4_LOG_*); NULL or NVFP4_LOG_OFF
/// turns the log off, which is also how it starts (unless NVFP4_LOG in the environment names a level: then lines go to
/// stderr). It is called with `user` from whichever thread makes a line, several at once possibly; it must not call
/// nvfp4_set_log. When this returns, the former callback is not running in any other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_set_log(
    callback: nvfp4_log_fn,
    user: *mut c_void,
    level: u32,
) -> nvfp4_status {
    boundary(|| {
        if level > NVFP4_LOG_PLAN {
            return Err(Error::InvalidArgument(format!(
                "level is {level}, the highest is NVFP4_LOG_PLAN = {NVFP4_LOG_PLAN}"
            )));
        }
        log::set(callback, user, level);
        Ok(())
    })
}
