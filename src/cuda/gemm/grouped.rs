//! The grouped product on a GPU: a table of the groups, then the tiles of all of them (kernels/gemm_grouped.cu).
//!
//! Candidates as in `nvfp4_gemm`, under the same numbers; so far one, which takes every pair of operands on every
//! architecture in the modes FAST and BLOCK. A kernel of an architecture's own joins as another entry of CANDIDATES: a
//! table that is cut to its tiles gives it the groups, and operands keep their places in memory (columns of a group start
//! at multiples of the 64 or 128 that its tiles of scales want where the caller asks for that `column_align`).

use super::params::{rows_are_aligned, AnyOperand, Epilogue, Grouped, Portable};
use crate::cuda::driver::Stream;
use crate::cuda::groups::{self, Cut};
use crate::cuda::Cuda;
use crate::numerics::{Accumulate, Format};
use crate::plan::grouped_gemm::Ragged;
use crate::plan::{GroupedGemmPlan, Quantized};
use crate::{log, Error, Result};

/// One way to compute the products of groups.
struct Candidate {
    /// That of `nvfp4_gemm`'s kin (docs/abi.md).
    provider: u32,
    name: &'static str,
    /// Bytes of workspace behind the table, or why it does not do this.
    accepts: fn(&Cuda, &GroupedGemmPlan) -> std::result::Result<usize, String>,
    /// Rows and columns of its tiles of D.
    tile: fn(&GroupedGemmPlan) -> (usize, usize),
    /// With the table, and what is behind it.
    run: fn(&Cuda, &GroupedGemmPlan, *mut u8, *mut u8, Stream) -> Result<()>,
}

/// In order of preference.
const CANDIDATES: &[Candidate] = &[Candidate {
    provider: super::portable::CANDIDATE.provider,
    name: super::portable::CANDIDATE.name,
    accepts: |cuda, plan| match plan.accumulate {
        Accumulate::Hardware | Accumulate::HardwareK96 => Err(format!(
            "accumulate {:?} of groups on {}: not in this version; a CPU context models it",
            plan.accumulate, cuda.device.name
        )),
        _ => Ok(0),
    },
    tile: portable_tile,
    run: portable,
}];

fn choose(cuda: &Cuda, plan: &GroupedGemmPlan) -> Result<(&'static Candidate, usize)> {
    let mut skipped = String::new();
    for candidate in CANDIDATES {
        if plan.provider != 0 && plan.provider != candidate.provider {
            continue;
        }
        match (candidate.accepts)(cuda, plan) {
            Ok(bytes) => return Ok((candidate, bytes)),
            Err(why) => skipped += &why,
        }
    }
    if skipped.is_empty() {
        let names: Vec<String> = CANDIDATES
            .iter()
            .map(|c| format!("{} {}", c.provider, c.name))
            .collect();
        skipped = format!(
            "desc.provider is {}; for products of groups want 0 or {}",
            plan.provider,
            names.join(", ")
        );
    }
    Err(Error::NotSupported(skipped))
}

/// Why a legal product cannot run here.
pub fn supports(cuda: &Cuda, plan: &GroupedGemmPlan) -> Result<()> {
    for (name, size) in [("M", plan.m), ("N", plan.n), ("K", plan.k)] {
        if size > i32::MAX as usize - 256 {
            return Err(Error::NotSupported(format!(
                "{name} is {size}, a GPU product takes less than 2^31 - 256"
            )));
        }
    }
    choose(cuda, plan).map(|_| ())
}

pub fn workspace(cuda: &Cuda, plan: &GroupedGemmPlan) -> usize {
    groups::bytes(&plan.groups) + choose(cuda, plan).map_or(0, |(_, bytes)| bytes)
}

pub fn run(cuda: &Cuda, plan: &GroupedGemmPlan, stream: Stream) -> Result<()> {
    supports(cuda, plan)?;
    let (candidate, _) = choose(cuda, plan)?;
    let need = workspace(cuda, plan);
    groups::check(plan.workspace, plan.workspace_bytes, need, "desc.workspace")?;
    if plan.m == 0 || plan.n == 0 {
        return Ok(());
    }
    log::plan(|| {
        format!(
            "grouped gemm, {} groups, ragged {:?}, [{}, {}] with K {}, {:?}: {} {}",
            plan.groups.count,
            plan.ragged,
            plan.m,
            plan.n,
            plan.k,
            plan.accumulate,
            candidate.provider,
            candidate.name
        )
    });
    let (total, capacity) = match plan.ragged {
        Ragged::M => (plan.m, 0),
        // Tokens take at least as many columns.
        Ragged::K => (plan.k, plan.k),
    };
    let cut = Cut {
        total,
        capacity,
        align: plan.column_align,
        row_step: (candidate.tile)(plan).0,
        column_step: 128,
    };
    groups::table(cuda, &plan.groups, cut, plan.workspace, stream)?;
    let rest = plan.workspace.wrapping_add(groups::bytes(&plan.groups));
    (candidate.run)(cuda, plan, plan.workspace, rest, stream)
}

fn is_mixed(plan: &GroupedGemmPlan) -> bool {
    plan.a.format == Format::Bf16 || plan.b.format == Format::Bf16
}

fn portable_tile(plan: &GroupedGemmPlan) -> (usize, usize) {
    match plan.accumulate {
        Accumulate::Block if is_mixed(plan) => (64, 64),
        _ => (64, 128),
    }
}

fn portable(
    cuda: &Cuda,
    plan: &GroupedGemmPlan,
    table: *mut u8,
    _rest: *mut u8,
    stream: Stream,
) -> Result<()> {
    let k = &cuda.gemm.grouped;
    let block = plan.accumulate == Accumulate::Block;
    let nvfp4 = plan.a.format == Format::Nvfp4 && plan.b.format == Format::Nvfp4;
    let (kernel, factor) = match (is_mixed(plan), nvfp4, block) {
        (true, _, false) => (&k.fast, 1.0),
        (true, _, true) => (&k.chain, 1.0),
        (_, true, false) => (&k.fast, 16384.0),
        (_, true, true) => (&k.block_nvfp4, 16384.0),
        _ => (&k.block_mxfp4, 1.0),
    };
    // Everything that groups share, as a product of its own.
    let whole = plan.group(0, 0, plan.a.rows, 0);
    let ragged_k = plan.ragged == Ragged::K;
    let operand = |q: &Quantized, [codes, scales, amax]: [usize; 3]| {
        let amax = if q.groups != 0 { 1 } else { amax };
        let mut x = AnyOperand::new(q, [codes as i64, scales as i64, amax as i64]);
        if ragged_k && q.format != Format::Bf16 && !plan.column_align.is_multiple_of(32) {
            // Groups start at multiples of 8 bytes.
            let aligned = rows_are_aligned(q) || rows_are_aligned_to_8(q);
            x.vector = if aligned { 2 } else { 0 };
        }
        x.rescale = is_mixed(plan) as i32;
        x
    };
    let b_strides = if ragged_k { [0; 3] } else { plan.b_strides };
    let tile = portable_tile(plan);
    let product = Portable {
        a: operand(&plan.a, [0; 3]),
        b: operand(&plan.b, b_strides),
        c_batch: plan.c_group as i64,
        d_batch: plan.d_group as i64,
        m: plan.m as i32,
        n: plan.n as i32,
        k: plan.k as i32,
        batch: plan.groups.count as i32,
        m_tiles: plan.m.div_ceil(tile.0) as i32,
        n_tiles: plan.n.div_ceil(tile.1) as i32,
        epilogue: Epilogue::new(&whole, &plan.a, &plan.b, plan.c.as_ref(), &plan.d, factor),
    };
    let p = Grouped {
        product,
        table,
        bias_stride: plan.bias_stride as i64,
        alpha_stride: plan.alpha_stride as i64,
        ragged_k: ragged_k as i32,
        transform: plan.a.hadamard as i32,
    };
    let down = match plan.ragged {
        // Each group may begin a tile.
        Ragged::M => plan.m.div_ceil(tile.0) + plan.groups.count,
        Ragged::K => plan.m.div_ceil(tile.0) * plan.groups.count,
    };
    kernel.launch(stream, down * plan.n.div_ceil(tile.1), 8, &p)
}

/// Rows of codes that 8-byte loads can read.
fn rows_are_aligned_to_8(q: &Quantized) -> bool {
    (q.codes as usize).is_multiple_of(8) && q.code_stride.is_multiple_of(8)
}
