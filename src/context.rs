//! Where calls run: the CPU, or one CUDA device. The only place that chooses a backend.

use crate::abi::*;
use crate::{log, Error, Result};

/// A device to run on. Safe to use from many threads at once.
pub struct Context {
    threads: usize,
}

impl Context {
    pub(crate) fn from_desc(desc: Option<&nvfp4_context_desc>) -> Result<Context> {
        log::read_environment();
        let device = desc.map_or(NVFP4_DEVICE_CPU, |d| d.device);
        let threads = desc.map_or(0, |d| d.threads) as usize;
        if let Some(desc) = desc {
            if desc.reserved != 0 {
                return Err(Error::InvalidArgument(format!(
                    "desc.reserved is {}, want 0",
                    desc.reserved
                )));
            }
        }
        match device {
            NVFP4_DEVICE_CPU => Ok(Context { threads }),
            NVFP4_DEVICE_CUDA => Err(Error::NoDevice(
                "this build of libnvfp4 has no CUDA backend (cargo feature `cuda`)".into(),
            )),
            other => Err(Error::InvalidArgument(format!(
                "desc.device is {other}, want NVFP4_DEVICE_CPU = 0 or NVFP4_DEVICE_CUDA = 1"
            ))),
        }
    }

    /// CPU threads of one call, caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }
}
