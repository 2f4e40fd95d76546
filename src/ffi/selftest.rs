//! The library's own check, for a machine nobody has tried it on.

use std::ffi::c_char;

use super::read::out_pointer;
use super::{boundary, context, nvfp4_context};
use crate::abi::*;
use crate::selftest;

/// Runs small known answers through every operation of the context's backend and compares them, byte for byte, with
/// the scalar reference, a CUDA context's with the CPU backend; of a GPU also each kernel that uses instructions of some
/// chips' own. Allocates and waits. `failures` receives the number that differ (the status is NVFP4_OK all the same); `report`,
/// if not NULL, receives one line a check, NUL-terminated, cut to `report_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvfp4_selftest(
    ctx: *mut nvfp4_context,
    failures: *mut u32,
    report: *mut c_char,
    report_bytes: usize,
) -> nvfp4_status {
    boundary(|| {
        // SAFETY: this module's law.
        let ctx = unsafe { context(ctx)? };
        out_pointer(failures, "failures")?;
        let checks = selftest::run(ctx)?;
        let failed = checks.iter().filter(|c| c.result.is_err()).count();
        let mut text = format!(
            "nvfp4 {} on {}\n",
            env!("CARGO_PKG_VERSION"),
            ctx.describe()
        );
        for check in &checks {
            let outcome = match &check.result {
                Ok(passed) => passed,
                Err(why) => why.as_str(),
            };
            text.push_str(&format!("{}: {outcome}\n", check.name));
        }
        // SAFETY: not NULL and aligned; a report that is not NULL has room for `report_bytes`.
        unsafe {
            failures.write(failed as u32);
            if !report.is_null() && report_bytes > 0 {
                let len = text.len().min(report_bytes - 1);
                std::ptr::copy_nonoverlapping(text.as_ptr(), report.cast::<u8>(), len);
                report.add(len).write(0);
            }
        }
        Ok(())
    })
}
