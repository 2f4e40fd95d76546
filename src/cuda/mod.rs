//! The CUDA backend: `run(plan, stream)` for each operation, by kernels that the library carries (kernels/) and the
//! driver alone. A plan's pointers are device memory; work goes to the caller's stream, in the primary context of the
//! device, and nothing here allocates, waits or reads back after `Cuda::new`, so any call can be captured into a graph.
//!
//! `driver` makes the only driver calls, `kernels` knows every kernel's name and needs, `params` is what they are
//! launched with; one file an operation. A fast kernel takes the aligned common case, a general one all others; both
//! give the same bytes as the CPU.

mod certify;
mod dequantize;
mod driver;
mod gemm;
mod grouped_quantize;
mod groups;
mod hadamard;
mod kernels;
mod params;
mod quantize;
mod quantize_trial;
mod scales;
mod selftest;
mod tensor_map;
mod transpose;
mod trial;

use std::ffi::c_void;

use crate::plan::{
    DequantizePlan, GemmPlan, GroupedGemmPlan, GroupedQuantizePlan, HadamardPlan, QuantizePlan,
    ScalesPlan, TransposePlan,
};
use crate::Result;
use driver::{Device, Stream};
use kernels::Kernels;

pub use certify::State as NativeState;

/// One CUDA device as a context sees it.
pub struct Cuda {
    device: Device,
    kernels: Kernels,
    gemm: gemm::GemmKernels,
    natives: certify::Natives,
}

impl Cuda {
    /// Takes the primary context of device `ordinal`, loads all kernels into it and tries those that are not certified
    /// here (certify.rs). The only place that may allocate or wait, but for trials that a capture puts off; the caller's
    /// current context stays what it was.
    pub fn new(ordinal: u32) -> Result<Cuda> {
        let device = Device::open(ordinal)?;
        let (kernels, gemm) = {
            let _current = device.enter()?;
            let _relaxed = driver::Relaxed::new();
            (Kernels::load(&device)?, gemm::GemmKernels::load(&device)?)
        };
        let cuda = Cuda {
            device,
            kernels,
            gemm,
            natives: certify::Natives::new(),
        };
        let _current = cuda.device.enter()?;
        certify::settle(&cuda, Stream::new(std::ptr::null_mut()))?;
        drop(_current);
        Ok(cuda)
    }

    /// The current device's context for a call on this stream.
    fn enter(&self, stream: Stream) -> Result<driver::Current> {
        let current = self.device.enter()?;
        certify::settle(self, stream)?;
        Ok(current)
    }

    /// The kernels that use instructions of some chips' own, and what is known of them here.
    pub fn native_kernels(&self) -> Vec<(&'static str, NativeState)> {
        certify::report(self)
    }

    /// Every operation and every such kernel against the CPU backend. Allocates and waits.
    pub fn selftest(&self) -> Result<Vec<selftest::Check>> {
        selftest::run(self)
    }

    /// `NVIDIA H200 (sm_90)`.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Fills `out.amax` of each copy; nothing else of `out` is touched.
    pub fn amax(&self, plan: &QuantizePlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        quantize::amax(self, plan, Stream::new(stream))
    }

    pub fn quantize(&self, plan: &QuantizePlan, stream: *mut c_void) -> Result<()> {
        let stream = Stream::new(stream);
        let _current = self.enter(stream)?;
        quantize::run(self, plan, stream)
    }

    /// Scratch memory that `quantize` wants in `plan.workspace`.
    pub fn quantize_workspace(&self, plan: &QuantizePlan) -> usize {
        quantize::workspace(plan)
    }

    pub fn dequantize(&self, plan: &DequantizePlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        dequantize::run(self, plan, Stream::new(stream))
    }

    pub fn transpose(&self, plan: &TransposePlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        transpose::run(self, plan, Stream::new(stream))
    }

    pub fn hadamard(&self, plan: &HadamardPlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        hadamard::run(self, plan, Stream::new(stream))
    }

    pub fn swizzle(&self, plan: &ScalesPlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        scales::swizzle(self, plan, Stream::new(stream))
    }

    pub fn unswizzle(&self, plan: &ScalesPlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        scales::unswizzle(self, plan, Stream::new(stream))
    }

    /// Why a product cannot be computed here.
    pub fn supports_gemm(&self, plan: &GemmPlan) -> Result<()> {
        let _current = self.device.enter()?;
        gemm::supports(self, plan)
    }

    /// Scratch memory with which `gemm` runs well; with less it may choose another kernel. `ample`: with which it runs
    /// best, room for expanded copies of the operands included.
    pub fn gemm_workspace(&self, plan: &GemmPlan, ample: bool) -> usize {
        let room = match ample {
            true => gemm::Room::Ample,
            false => gemm::Room::Modest,
        };
        // The library that runs large products may be asked for an algorithm, in the device's context.
        match self.device.enter() {
            Ok(_current) => gemm::workspace(self, plan, room),
            Err(_) => 0,
        }
    }

    pub fn gemm(&self, plan: &GemmPlan, stream: *mut c_void) -> Result<()> {
        let stream = Stream::new(stream);
        let _current = self.enter(stream)?;
        gemm::run(self, plan, stream)
    }

    /// Scratch memory that `grouped_quantize` wants in `plan.workspace`.
    pub fn grouped_quantize_workspace(&self, plan: &GroupedQuantizePlan) -> usize {
        grouped_quantize::workspace(plan)
    }

    pub fn grouped_quantize(&self, plan: &GroupedQuantizePlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        grouped_quantize::run(self, plan, Stream::new(stream))
    }

    /// Why a grouped product cannot be computed here.
    pub fn supports_grouped_gemm(&self, plan: &GroupedGemmPlan) -> Result<()> {
        gemm::grouped::supports(self, plan)
    }

    /// Scratch memory that `grouped_gemm` wants in `plan.workspace`.
    pub fn grouped_gemm_workspace(&self, plan: &GroupedGemmPlan) -> usize {
        gemm::grouped::workspace(self, plan)
    }

    pub fn grouped_gemm(&self, plan: &GroupedGemmPlan, stream: *mut c_void) -> Result<()> {
        let _current = self.device.enter()?;
        gemm::grouped::run(self, plan, Stream::new(stream))
    }
}
