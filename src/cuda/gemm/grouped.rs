//! The grouped product on a GPU.

use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::plan::GroupedGemmPlan;
use crate::{Error, Result};

/// Why a legal product cannot run here.
pub fn supports(cuda: &Cuda, _plan: &GroupedGemmPlan) -> Result<()> {
    Err(Error::NotSupported(format!(
        "grouped products on {}: not in this version; a CPU context has them",
        cuda.device.name
    )))
}

pub fn workspace(_plan: &GroupedGemmPlan) -> usize {
    0
}

pub fn run(cuda: &Cuda, plan: &GroupedGemmPlan, _stream: Stream) -> Result<()> {
    supports(cuda, plan)
}
