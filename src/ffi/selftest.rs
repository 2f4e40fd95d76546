//! The library's own check, for a machine nobody has tried it on.

use std::ffi::c_char;

use super::{boundary, nvfp4_context};
use crate::abi::*;
use crate::Error;

/// Runs small known answers through every operation of the context's backend and compares them, byte for byte, with
/// the scalar reference. `failures` receives the number that differ (the status is NVFP4_OK all the same); `report`,
/// if not NULL, receives one line a check, NUL-terminated, cut to `report_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_selftest(
    ctx: *mut nvfp4_context,
    failures: *mut u32,
    report: *mut c_char,
    report_bytes: usize,
) -> nvfp4_status {
    let _ = (ctx, failures, report, report_bytes);
    boundary(|| Err(Error::NotSupported("not in this build".into())))
}
