//! The block-scaled matrix product on a GPU: candidates in order, the first that accepts the plan runs. Which one and why
//! not the others is in the plan log; `provider` in a descriptor forces one by its number.
//!
//! | candidate | takes |
//! |---|---|
//! | decode | M up to 16: weights in NVFP4, activations in NVFP4 or BF16 |
//! | cublaslt-fp4 | FAST, pairs of one FP4 format where cuBLASLt's heuristic has a kernel for them |
//! | tcgen05-pair, -narrow, tcgen05 | pairs of one FP4 format on sm_100 and sm_103, FAST and HARDWARE, by tiles of three sizes |
//! | mma-scaled | pairs of one FP4 format on sm_120 and sm_121, FAST and HARDWARE |
//! | cublaslt | FAST, large: both operands expanded to bf16 in the workspace, cuBLASLt if the machine has it |
//! | wgmma | NVFP4 pairs on Hopper, FAST and BLOCK, a stripe of B in the workspace |
//! | portable | everything |
//!
//! A quantized D is computed in f32 into the workspace and quantized from there, or by the epilogue of tcgen05.

mod decode;
pub mod grouped;
mod hopper;
mod kernels;
mod lt;
mod lt_fp4;
mod lt_library;
mod params;
mod portable;
mod scaled;
mod tcgen05;
pub mod trial;

use std::ptr::null_mut;

use super::driver::Stream;
use super::{quantize, scales, Cuda};
use crate::numerics::{Accumulate, Dtype, Nonfinite};
use crate::plan::{GemmOutput, GemmPlan, Matrix, QuantizePlan, Quantized, Seed, Source};
use crate::{log, Error, Result};

pub use kernels::GemmKernels;

/// Pieces of the workspace start at multiples of this.
const ALIGN: usize = 256;

/// One way to compute a product.
struct Candidate {
    /// What a descriptor's `provider` calls it (docs/abi.md): stays as candidates come and go.
    provider: u32,
    name: &'static str,
    /// Bytes of workspace that it wants, or why it does not do this product. The flag: forced by the caller.
    accepts: fn(&Cuda, &GemmPlan, bool) -> std::result::Result<usize, String>,
    /// D is the given matrix (of the first product of a batch).
    run: fn(&Cuda, &GemmPlan, &Matrix, *mut u8, Stream) -> Result<()>,
}

/// In order of preference.
const CANDIDATES: &[Candidate] = &[
    decode::CANDIDATE,
    lt_fp4::CANDIDATE,
    tcgen05::PAIR,
    tcgen05::NARROW,
    tcgen05::CANDIDATE,
    scaled::CANDIDATE,
    lt::CANDIDATE,
    hopper::CANDIDATE,
    portable::CANDIDATE,
];

const _: () = {
    let mut i = 0;
    while i < CANDIDATES.len() {
        let mut j = 0;
        while j < i {
            assert!(CANDIDATES[i].provider != CANDIDATES[j].provider);
            j += 1;
        }
        assert!(CANDIDATES[i].provider >= 1 && CANDIDATES[i].provider as usize <= CANDIDATES.len());
        i += 1;
    }
};

/// A candidate that uses instructions of some chips' own (cuda/certify.rs).
pub struct Native {
    pub provider: u32,
    pub name: &'static str,
    /// Does this device, with this build, have it?
    pub exists: fn(&Cuda) -> bool,
    /// Architectures on which it was shown to be right.
    pub certified: &'static [i32],
}

const fn native(
    candidate: &Candidate,
    certified: &'static [i32],
    exists: fn(&Cuda) -> bool,
) -> Native {
    Native {
        provider: candidate.provider,
        name: candidate.name,
        exists,
        certified,
    }
}

/// All of them, one line each.
pub const NATIVE: &[Native] = &[
    native(&decode::CANDIDATE, &[90], |cuda| cuda.gemm.decode.is_ok()),
    native(&hopper::CANDIDATE, &[90], |cuda| cuda.gemm.hopper.is_ok()),
    native(&scaled::CANDIDATE, &[], |cuda| cuda.gemm.scaled.is_ok()),
    native(&tcgen05::CANDIDATE, &[], |cuda| cuda.gemm.tensor.is_ok()),
    native(&tcgen05::PAIR, &[], |cuda| cuda.gemm.tensor.is_ok()),
    native(&tcgen05::NARROW, &[], |cuda| cuda.gemm.tensor.is_ok()),
    native(&lt_fp4::CANDIDATE, &[], |cuda| {
        cuda.device.arch >= 100 && cuda.gemm.lt.is_ok()
    }),
];

/// What a workspace is to be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The fastest candidate that needs no expanded copy of both operands: at most about 32 MiB and aligned copies.
    Modest,
    /// The fastest candidate.
    Ample,
    /// As many bytes as there are.
    Bytes(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Fast,
    Block,
    Hardware,
}

/// FAST unless something else is asked for.
fn numerics_of(plan: &GemmPlan) -> Mode {
    match plan.accumulate {
        Accumulate::Block => Mode::Block,
        Accumulate::Hardware | Accumulate::HardwareK96 => Mode::Hardware,
        Accumulate::Fast | Accumulate::Default => Mode::Fast,
    }
}

/// Bytes of workspace that a candidate wants, or why it does not do this product or may not.
fn accepts(
    cuda: &Cuda,
    plan: &GemmPlan,
    candidate: &Candidate,
    forced: bool,
) -> std::result::Result<usize, String> {
    let need = (candidate.accepts)(cuda, plan, forced)?;
    cuda.natives.allows_product(candidate.provider)?;
    Ok(need)
}

/// Why a legal product cannot be computed here at all.
pub fn supports(cuda: &Cuda, plan: &GemmPlan) -> Result<()> {
    if plan.accumulate == Accumulate::HardwareK96 {
        return Err(Error::NotSupported(format!(
            "accumulate HARDWARE_K96 on {}: no kernel uses steps of K = 96; a CPU context models them",
            cuda.device.name
        )));
    }
    if !plan.b_packed.is_null() {
        return Err(Error::NotSupported(
            "desc.b_packed is given on a CUDA context, where weights have no packed form: leave it NULL, the kernels \
             read b as it is"
                .into(),
        ));
    }
    for (name, size) in [
        ("M", plan.m),
        ("N", plan.n),
        ("K", plan.k),
        ("batch", plan.batch),
    ] {
        if size > i32::MAX as usize - 256 {
            return Err(Error::NotSupported(format!(
                "{name} is {size}, a GPU product takes less than 2^31 - 256"
            )));
        }
    }
    let forced = CANDIDATES.iter().find(|c| c.provider == plan.provider);
    if plan.provider != 0 && forced.is_none() {
        return Err(Error::NotSupported(format!(
            "desc.provider is {}, want 0 to {} ({})",
            plan.provider,
            CANDIDATES.len(),
            names()
        )));
    }
    if let (Some(candidate), false) = (forced, is_empty(plan)) {
        accepts(cuda, plan, candidate, true).map_err(|why| {
            Error::NotSupported(format!(
                "desc.provider is {} ({}): {why}",
                plan.provider, candidate.name
            ))
        })?;
    }
    if plan.accumulate == Accumulate::Hardware && plan.provider == 0 && !is_empty(plan) {
        choose(cuda, plan, Room::Ample).map_err(|_| {
            Error::NotSupported(format!(
                "accumulate HARDWARE of {:?} x {:?} on {}: it wants a pair of one FP4 format and FP4 units; a CPU context models them",
                plan.a.format, plan.b.format, cuda.device.name
            ))
        })?;
    }
    Ok(())
}

fn names() -> String {
    let mut named: Vec<_> = CANDIDATES.iter().map(|c| (c.provider, c.name)).collect();
    named.sort();
    let named: Vec<String> = named
        .iter()
        .map(|(i, name)| format!("{i} {name}"))
        .collect();
    named.join(", ")
}

fn is_empty(plan: &GemmPlan) -> bool {
    plan.m == 0 || plan.n == 0
}

/// Product `i` of the batch, whose first D is `d`.
fn item(plan: &GemmPlan, d: &Matrix, i: usize) -> (Quantized, Quantized, Option<Matrix>, Matrix) {
    let (a, b, c, _) = plan.product(i);
    let step = i * plan.strides.d as usize * d.dtype.size();
    let d = Matrix {
        data: d.data.wrapping_add(step),
        ..*d
    };
    (a, b, c, d)
}

/// Bytes of a quantized D in f32.
fn wide_bytes(plan: &GemmPlan) -> usize {
    match plan.d {
        GemmOutput::Quantized(_) => (4 * plan.m * plan.n).next_multiple_of(ALIGN),
        GemmOutput::Matrix(_) => 0,
    }
}

/// The first candidate that takes the plan in that room, and what it uses.
fn choose(cuda: &Cuda, plan: &GemmPlan, room: Room) -> Result<(&'static Candidate, usize)> {
    let forced = plan.provider;
    let mut skipped = String::new();
    let mut least: Option<usize> = None; // bytes with which one of those skipped would do
    for candidate in CANDIDATES {
        if forced != 0 && forced != candidate.provider {
            continue;
        }
        let expands = candidate.provider == lt::CANDIDATE.provider;
        if room == Room::Modest && expands && forced == 0 {
            continue;
        }
        let why = match accepts(cuda, plan, candidate, forced != 0) {
            Ok(need) if !matches!(room, Room::Bytes(have) if need > have) => {
                if let Room::Bytes(_) = room {
                    log::plan(|| {
                        format!(
                            "gemm [{}, {}] x [{}, {}]^T, {:?}: {} {}, {need} bytes of workspace{skipped}",
                            plan.m,
                            plan.k,
                            plan.n,
                            plan.k,
                            numerics_of(plan),
                            candidate.provider,
                            candidate.name
                        )
                    });
                }
                return Ok((candidate, need));
            }
            Ok(need) => {
                least = Some(least.map_or(need, |least| least.min(need)));
                format!("it needs {need} bytes of workspace, not {room:?}")
            }
            Err(why) => why,
        };
        if forced != 0 {
            return Err(match why.starts_with("it needs") {
                true => Error::BufferSize(format!(
                    "desc.provider is {forced} ({}): {why}",
                    candidate.name
                )),
                false => Error::NotSupported(format!(
                    "desc.provider is {forced} ({}): {why}",
                    candidate.name
                )),
            });
        }
        skipped += &format!("; not {} {}: {why}", candidate.provider, candidate.name);
    }
    Err(match (room, least) {
        (Room::Bytes(have), Some(need)) => Error::BufferSize(format!(
            "desc.workspace_bytes leaves {have} for the product, {:?} of [{}, {}] x [{}, {}]^T needs {need} here{skipped}",
            numerics_of(plan),
            plan.m,
            plan.k,
            plan.n,
            plan.k
        )),
        _ => Error::Internal(format!("no candidate{skipped}")),
    })
}

/// Scratch bytes with which the preferred candidate runs.
pub fn workspace(cuda: &Cuda, plan: &GemmPlan, room: Room) -> usize {
    if is_empty(plan) {
        return 0;
    }
    wide_bytes(plan) + choose(cuda, plan, room).map_or(0, |(_, need)| need)
}

pub fn run(cuda: &Cuda, plan: &GemmPlan, stream: Stream) -> Result<()> {
    supports(cuda, plan)?;
    let wide = wide_bytes(plan);
    let bytes = match plan.workspace.is_null() {
        true => 0,
        false => plan.workspace_bytes,
    };
    if !(plan.workspace as usize).is_multiple_of(ALIGN) {
        return Err(Error::Alignment(format!(
            "desc.workspace is at {:p}, want a multiple of {ALIGN}",
            plan.workspace
        )));
    }
    if bytes < wide {
        return Err(Error::BufferSize(format!(
            "desc.workspace_bytes is {bytes}, a quantized D of [{}, {}] needs {wide} on a GPU",
            plan.m, plan.n
        )));
    }
    if is_empty(plan) {
        return match &plan.d {
            GemmOutput::Quantized(copy) => {
                quantize::run(cuda, &quantization(plan, copy, null_mut()), stream)
            }
            GemmOutput::Matrix(_) => Ok(()),
        };
    }
    let (candidate, _) = choose(cuda, plan, Room::Bytes(bytes - wide))?;
    let rest = plan.workspace.wrapping_add(wide);
    match &plan.d {
        GemmOutput::Matrix(d) => (candidate.run)(cuda, plan, d, rest, stream),
        GemmOutput::Quantized(copy) => {
            let q = quantization(plan, copy, plan.workspace);
            let Source::Matrix(d) = &q.x else {
                return Err(Error::Internal("a quantized D comes from a matrix".into()));
            };
            if tcgen05::quantizes(candidate.provider, copy) {
                quantize::amax(cuda, &q, stream)?;
                scales::clear_padding(cuda, &copy.out, stream)?;
                let p = candidate.provider;
                return tcgen05::run_quantized(cuda, p, plan, d, copy, rest, stream);
            }
            (candidate.run)(cuda, plan, d, rest, stream)?;
            quantize::run(cuda, &q, stream)
        }
    }
}

/// How D in f32 at `wide` becomes the quantized one.
fn quantization(plan: &GemmPlan, copy: &crate::plan::CopyPlan, wide: *mut u8) -> QuantizePlan {
    QuantizePlan {
        x: Source::Matrix(Matrix {
            data: wide,
            dtype: Dtype::F32,
            rows: plan.m,
            cols: plan.n,
            stride: plan.n,
        }),
        rowwise: Some(*copy),
        columnwise: None,
        nonfinite: Nonfinite::Propagate,
        seed: Seed::Host(plan.seed.0, plan.seed.1),
        stats: null_mut(),
        workspace: null_mut(),
        workspace_bytes: 0,
    }
}
