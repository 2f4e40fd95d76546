//! Grouped quantize on a GPU.

use super::driver::Stream;
use super::Cuda;
use crate::plan::GroupedQuantizePlan;
use crate::{Error, Result};

/// Why a legal call cannot run here.
pub fn supports(cuda: &Cuda, _plan: &GroupedQuantizePlan) -> Result<()> {
    Err(Error::NotSupported(format!(
        "grouped quantize on {}: not in this version; a CPU context has it",
        cuda.device.name
    )))
}

pub fn workspace(_plan: &GroupedQuantizePlan) -> usize {
    0
}

pub fn run(cuda: &Cuda, plan: &GroupedQuantizePlan, _stream: Stream) -> Result<()> {
    supports(cuda, plan)
}
