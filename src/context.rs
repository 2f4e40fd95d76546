//! Where calls run: the CPU, or one CUDA device. The only place that chooses a backend; plans before it runs.

use std::ffi::c_void;

use crate::abi::*;
use crate::cpu::Cpu;
#[cfg(feature = "cuda")]
use crate::cuda::Cuda;
use crate::numerics::ScaleLayout;
use crate::plan::{
    self, Buffers, Device, GemmRequest, HadamardRequest, Matrix, QuantizeRequest, Quantized, Source,
};
use crate::plan::{
    GemmOutput, GemmPlan, GroupedGemmPlan, GroupedGemmRequest, GroupedQuantizePlan,
    GroupedQuantizeRequest, QuantizePlan, ScalesPlan,
};
use crate::{log, Error, Result};

/// A device to run on. Safe to use from many threads at once.
pub struct Context {
    backend: Backend,
}

enum Backend {
    Cpu(Cpu),
    #[cfg(feature = "cuda")]
    Cuda(Box<Cuda>),
}

/// The stream of a call: NULL on the CPU.
pub type Stream = *mut c_void;

impl Context {
    /// The CPU, `threads` of it in one call, caller included; 0 = as many as the process may use.
    pub fn cpu(threads: usize) -> Context {
        log::read_environment();
        let cpu = Cpu::new(threads);
        log::plan(|| format!("context: cpu, {}, {} threads", cpu.isa(), cpu.threads()));
        Context {
            backend: Backend::Cpu(cpu),
        }
    }

    /// CUDA device `ordinal`, in its primary context. May allocate and wait; no later call does.
    #[cfg(feature = "cuda")]
    pub fn cuda(ordinal: u32) -> Result<Context> {
        log::read_environment();
        let cuda = Cuda::new(ordinal)?;
        log::plan(|| format!("context: cuda, {}", cuda.name()));
        Ok(Context {
            backend: Backend::Cuda(Box::new(cuda)),
        })
    }

    /// CUDA device `ordinal`; an error in this build.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda(_ordinal: u32) -> Result<Context> {
        Err(Error::NoDevice(
            "this build of libnvfp4 has no CUDA backend (cargo feature `cuda`)".into(),
        ))
    }

    pub(crate) fn from_desc(desc: Option<&nvfp4_context_desc>) -> Result<Context> {
        let Some(desc) = desc else {
            return Ok(Context::cpu(0));
        };
        if desc.reserved != 0 {
            return Err(Error::InvalidArgument(format!(
                "desc.reserved is {}, want 0",
                desc.reserved
            )));
        }
        match desc.device {
            NVFP4_DEVICE_CPU if desc.ordinal != 0 => Err(Error::NoDevice(format!(
                "desc.ordinal is {}, there is one CPU, 0",
                desc.ordinal
            ))),
            NVFP4_DEVICE_CPU => Ok(Context::cpu(desc.threads as usize)),
            NVFP4_DEVICE_CUDA => Context::cuda(desc.ordinal),
            other => Err(Error::InvalidArgument(format!(
                "desc.device is {other}, want NVFP4_DEVICE_CPU = 0 or NVFP4_DEVICE_CUDA = 1"
            ))),
        }
    }

    /// The kind of memory that the buffers of this context's calls are in.
    pub fn device(&self) -> Device {
        match &self.backend {
            Backend::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => Device::Cuda,
        }
    }

    /// What calls run on, in words: "cpu (scalar, 2 threads)".
    pub fn describe(&self) -> String {
        match &self.backend {
            Backend::Cpu(cpu) => format!("cpu ({}, {} threads)", cpu.isa(), cpu.threads()),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => format!("cuda ({})", cuda.name()),
        }
    }

    /// The CUDA backend, where this is one.
    #[cfg(feature = "cuda")]
    pub(crate) fn as_cuda(&self) -> Option<&Cuda> {
        match &self.backend {
            Backend::Cpu(_) => None,
            Backend::Cuda(cuda) => Some(cuda),
        }
    }

    /// Alignment that a workspace must have.
    pub fn workspace_alignment(&self) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 16,
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => 256,
        }
    }

    fn check_stream(&self, stream: Stream) -> Result<()> {
        if self.device() == Device::Cpu && !stream.is_null() {
            return Err(Error::InvalidArgument(format!(
                "stream is {stream:p}, want NULL for a CPU context"
            )));
        }
        Ok(())
    }

    pub(crate) fn amax(
        &self,
        request: &QuantizeRequest,
        x: Matrix,
        rowwise: *mut f32,
        columnwise: *mut f32,
        stream: Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let request = QuantizeRequest {
            rowwise_amax: std::ptr::null(),
            columnwise_amax: std::ptr::null(),
            stats: std::ptr::null_mut(),
            ..*request
        };
        let only_amax = |amax: *mut f32| {
            (!amax.is_null()).then(|| Buffers {
                amax,
                ..Buffers::shape_only()
            })
        };
        let (rowwise, columnwise) = (only_amax(rowwise), only_amax(columnwise));
        let plan = plan::quantize::plan(
            &request,
            self.device(),
            Source::Matrix(x),
            rowwise.as_ref(),
            columnwise.as_ref(),
        )?;
        if let Some(copy) = plan.copies().find(|c| !c.out.has_amax()) {
            return Err(Error::InvalidArgument(format!(
                "the {} copy ({}) has no amax",
                if copy.columnwise {
                    "columnwise"
                } else {
                    "rowwise"
                },
                plan::view::describe(copy.out.format)
            )));
        }
        match &self.backend {
            Backend::Cpu(cpu) => cpu.amax(&plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.amax(&plan, stream),
        }
    }

    /// Plans and runs; the plan says what the copies became.
    pub(crate) fn quantize(
        &self,
        request: &QuantizeRequest,
        x: Source,
        rowwise: Option<&Buffers>,
        columnwise: Option<&Buffers>,
        stream: Stream,
    ) -> Result<QuantizePlan> {
        self.check_stream(stream)?;
        let plan = plan::quantize::plan(request, self.device(), x, rowwise, columnwise)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.quantize(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.quantize(&plan, stream)?,
        }
        Ok(plan)
    }

    /// Scratch bytes of `quantize`.
    pub(crate) fn quantize_workspace(&self, _plan: &QuantizePlan) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.quantize_workspace(_plan),
        }
    }

    pub(crate) fn dequantize(
        &self,
        x: Quantized,
        transpose: bool,
        out: Matrix,
        stream: Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let plan = plan::dequantize::plan(x, transpose, out)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.dequantize(&plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.dequantize(&plan, stream),
        }
    }

    /// The transposed matrix's description.
    pub(crate) fn transpose(
        &self,
        x: Quantized,
        layout: ScaleLayout,
        out: &Buffers,
        stream: Stream,
    ) -> Result<Quantized> {
        self.check_stream(stream)?;
        let plan = plan::transpose::plan(x, layout, out)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.transpose(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.transpose(&plan, stream)?,
        }
        Ok(plan.out)
    }

    pub(crate) fn hadamard(
        &self,
        request: &HadamardRequest,
        x: Matrix,
        y: Matrix,
        stream: Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let plan = plan::hadamard::plan(request, x, y)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.hadamard(&plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.hadamard(&plan, stream),
        }
    }

    pub(crate) fn swizzle(&self, plan: &ScalesPlan, stream: Stream) -> Result<()> {
        self.check_stream(stream)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.swizzle(plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.swizzle(plan, stream),
        }
    }

    pub(crate) fn unswizzle(&self, plan: &ScalesPlan, stream: Stream) -> Result<()> {
        self.check_stream(stream)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.unswizzle(plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.unswizzle(plan, stream),
        }
    }

    pub(crate) fn plan_gemm(
        &self,
        request: &GemmRequest,
        a: Quantized,
        b: Quantized,
        c: Option<Matrix>,
        d: Option<Matrix>,
    ) -> Result<GemmPlan> {
        let plan = plan::gemm::plan(request, self.device(), a, b, c, d)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.supports_gemm(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.supports_gemm(&plan)?,
        }
        Ok(plan)
    }

    /// Scratch bytes of `gemm`; `ample`: with room for expanded copies of large operands.
    pub(crate) fn gemm_workspace(&self, _plan: &GemmPlan, _ample: bool) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.gemm_workspace(_plan, _ample),
        }
    }

    /// Bytes of B's packed form; 0 where it has none (a CUDA context).
    pub(crate) fn weight_bytes(&self, b: &Quantized) -> usize {
        match &self.backend {
            Backend::Cpu(cpu) => cpu.weight_bytes(b),
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => 0,
        }
    }

    pub(crate) fn pack_weight(
        &self,
        b: &Quantized,
        packed: *mut c_void,
        packed_bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.pack_weight(b, packed.cast(), packed_bytes),
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => Err(Error::NotSupported(
                "weights have no packed form on a CUDA context (nvfp4_pack_weight_bytes says 0): leave desc.b_packed NULL, \
                 nvfp4_gemm reads b as it is"
                    .into(),
            )),
        }
    }

    /// What a quantized D became, if D is quantized.
    pub(crate) fn gemm(
        &self,
        request: &GemmRequest,
        a: Quantized,
        b: Quantized,
        c: Option<Matrix>,
        d: Option<Matrix>,
        stream: Stream,
    ) -> Result<Option<Quantized>> {
        self.check_stream(stream)?;
        let plan = self.plan_gemm(request, a, b, c, d)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.gemm(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.gemm(&plan, stream)?,
        }
        Ok(match plan.d {
            GemmOutput::Quantized(copy) => Some(copy.out),
            GemmOutput::Matrix(_) => None,
        })
    }

    pub(crate) fn plan_grouped_quantize(
        &self,
        request: &GroupedQuantizeRequest,
        x: Matrix,
        rowwise: Option<&Buffers>,
        columnwise: Option<&Buffers>,
    ) -> Result<GroupedQuantizePlan> {
        plan::grouped_quantize::plan(request, self.device(), x, rowwise, columnwise)
    }

    /// Scratch bytes of `grouped_quantize`.
    pub(crate) fn grouped_quantize_workspace(&self, _plan: &GroupedQuantizePlan) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.grouped_quantize_workspace(_plan),
        }
    }

    /// Plans and runs; the plan says what the copies became.
    pub(crate) fn grouped_quantize(
        &self,
        request: &GroupedQuantizeRequest,
        x: Matrix,
        rowwise: Option<&Buffers>,
        columnwise: Option<&Buffers>,
        stream: Stream,
    ) -> Result<GroupedQuantizePlan> {
        self.check_stream(stream)?;
        let plan = self.plan_grouped_quantize(request, x, rowwise, columnwise)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.grouped_quantize(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.grouped_quantize(&plan, stream)?,
        }
        Ok(plan)
    }

    pub(crate) fn plan_grouped_gemm(
        &self,
        request: &GroupedGemmRequest,
        a: Quantized,
        b: Quantized,
        c: Option<Matrix>,
        d: Matrix,
    ) -> Result<GroupedGemmPlan> {
        let plan = plan::grouped_gemm::plan(request, self.device(), a, b, c, d)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.supports_grouped_gemm(&plan)?,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.supports_grouped_gemm(&plan)?,
        }
        Ok(plan)
    }

    /// Scratch bytes of `grouped_gemm`.
    pub(crate) fn grouped_gemm_workspace(&self, _plan: &GroupedGemmPlan) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 0,
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.grouped_gemm_workspace(_plan),
        }
    }

    pub(crate) fn grouped_gemm(
        &self,
        request: &GroupedGemmRequest,
        a: Quantized,
        b: Quantized,
        c: Option<Matrix>,
        d: Matrix,
        stream: Stream,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let plan = self.plan_grouped_gemm(request, a, b, c, d)?;
        match &self.backend {
            Backend::Cpu(cpu) => cpu.grouped_gemm(&plan),
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.grouped_gemm(&plan, stream),
        }
    }
}
