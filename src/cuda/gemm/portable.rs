//! Any product, by mma.sync or FMAs (kernels/gemm_portable.cu). Needs no workspace.

use super::params::{AnyOperand, Epilogue, Portable};
use super::{numerics_of, Candidate, Mode};
use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::numerics::Format;
use crate::plan::{GemmPlan, Matrix};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 4,
    name: "portable",
    accepts: |_, plan, _| match numerics_of(plan) {
        Mode::Hardware => Err("not FAST or BLOCK".into()),
        _ => Ok(0),
    },
    run,
};

fn run(
    cuda: &Cuda,
    plan: &GemmPlan,
    d: &Matrix,
    _workspace: *mut u8,
    stream: Stream,
) -> Result<()> {
    let (a, b) = (&plan.a, &plan.b);
    let k = &cuda.gemm.portable;
    let pair = |f| a.format == f && b.format == f;
    let mixed = a.format == Format::Bf16 || b.format == Format::Bf16;
    // (kernel, rows and columns of its tiles, what its accumulators lack)
    let (kernel, tile, factor) = match numerics_of(plan) {
        Mode::Fast if pair(Format::Nvfp4) => (&k.fast, (64, 128), 16384.0),
        Mode::Fast if mixed => (&k.fast, (64, 128), 1.0),
        Mode::Block if mixed => (&k.chain, (64, 64), 1.0),
        Mode::Block if pair(Format::Nvfp4) => (&k.block_nvfp4, (64, 128), 16384.0),
        // Scales of MXFP4 reach beyond what bf16 factors hold; BLOCK keeps FAST's bound.
        _ => (&k.block_mxfp4, (64, 128), 1.0),
    };
    let s = &plan.strides;
    let mut p = Portable {
        a: AnyOperand::new(a, [s.a_codes, s.a_scales, s.a_amax]),
        b: AnyOperand::new(b, [s.b_codes, s.b_scales, s.b_amax]),
        c_batch: s.c,
        d_batch: s.d,
        m: plan.m as i32,
        n: plan.n as i32,
        k: plan.k as i32,
        batch: plan.batch as i32,
        m_tiles: plan.m.div_ceil(tile.0) as i32,
        n_tiles: plan.n.div_ceil(tile.1) as i32,
        epilogue: Epilogue::new(plan, a, b, plan.c.as_ref(), d, factor),
    };
    for x in [&mut p.a, &mut p.b] {
        x.rescale = mixed as i32;
    }
    let tiles = p.m_tiles as usize * p.n_tiles as usize * plan.batch;
    kernel.launch(stream, tiles, 8, &p)
}
