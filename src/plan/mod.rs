//! Planning: what a caller asked for becomes a plan value, or an error that names the values. Pure: nothing here reads
//! data (but a given amax on the CPU) or writes an output, so the capability queries call the same functions. A backend takes a plan and never
//! validates again.
//!
//! One file an operation; `view` is what the others stand on: matrices in the caller's memory, checked once.

pub mod dequantize;
pub mod gemm;
pub mod grouped_gemm;
pub mod grouped_quantize;
pub mod groups;
pub mod hadamard;
pub mod options;
pub mod quantize;
pub mod scales;
pub mod transpose;
pub mod view;

pub use dequantize::DequantizePlan;
pub use gemm::{GemmOutput, GemmPlan, GemmRequest};
pub use grouped_gemm::{GroupedGemmPlan, GroupedGemmRequest};
pub use grouped_quantize::{GroupedQuantizePlan, GroupedQuantizeRequest};
pub use groups::Groups;
pub use hadamard::{HadamardPlan, HadamardRequest};
pub use quantize::{CopyPlan, QuantizePlan, QuantizeRequest, Seed, Source};
pub use scales::ScalesPlan;
pub use transpose::TransposePlan;
pub use view::{Buffers, Matrix, Quantized};

/// The kind of device that the buffers of a call live on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Cuda,
}
