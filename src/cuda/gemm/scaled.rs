//! Pairs of FP4 operands on the FP4 units of sm_120 and sm_121 (kernels/gemm_sm120.cu): any shape, layout and alignment,
//! no workspace. The accumulator is that of mode HARDWARE, which keeps FAST's bound.

use super::params::{AnyOperand, Epilogue, Portable};
use super::{numerics_of, Candidate, Mode};
use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::numerics::Format;
use crate::plan::{GemmPlan, Matrix};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 5,
    name: "mma-scaled",
    accepts,
    run,
};

/// Rows and columns of D in a tile.
const TILE: usize = 128;

fn accepts(cuda: &Cuda, plan: &GemmPlan, _: bool) -> std::result::Result<usize, String> {
    cuda.gemm.scaled.as_ref().map_err(Clone::clone)?;
    if numerics_of(plan) == Mode::Block {
        return Err("not FAST or HARDWARE".into());
    }
    match (plan.a.format, plan.b.format) {
        (Format::Nvfp4, Format::Nvfp4) | (Format::Mxfp4, Format::Mxfp4) => Ok(0),
        (a, b) => Err(format!("{a:?} x {b:?} is not a pair of one FP4 format")),
    }
}

fn run(
    cuda: &Cuda,
    plan: &GemmPlan,
    d: &Matrix,
    _workspace: *mut u8,
    stream: Stream,
) -> Result<()> {
    let Ok(k) = &cuda.gemm.scaled else {
        return Ok(()); // `accepts` has said no
    };
    let (a, b, s) = (&plan.a, &plan.b, &plan.strides);
    let kernel = match a.format {
        Format::Nvfp4 => &k.nvfp4,
        _ => &k.mxfp4,
    };
    let p = Portable {
        a: AnyOperand::new(a, [s.a_codes, s.a_scales, s.a_amax]),
        b: AnyOperand::new(b, [s.b_codes, s.b_scales, s.b_amax]),
        c_batch: s.c,
        d_batch: s.d,
        m: plan.m as i32,
        n: plan.n as i32,
        k: plan.k as i32,
        batch: plan.batch as i32,
        m_tiles: plan.m.div_ceil(TILE) as i32,
        n_tiles: plan.n.div_ceil(TILE) as i32,
        epilogue: Epilogue::new(plan, a, b, plan.c.as_ref(), d, 1.0),
    };
    let tiles = p.m_tiles as usize * p.n_tiles as usize * plan.batch;
    kernel.launch(stream, tiles, 1, &p)
}
