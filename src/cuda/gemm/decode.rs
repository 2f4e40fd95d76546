//! Few rows of A against weights in NVFP4, which are read once, packed (kernels/gemm_decode.cu). Needs no workspace.

use super::hopper::is_aligned;
use super::params::{rows_are_aligned, Decode, Epilogue, Operand};
use super::{item, numerics_of, Candidate, Mode};
use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::numerics::Format;
use crate::plan::{GemmPlan, Matrix};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 1,
    name: "decode",
    accepts,
    run,
};

fn accepts(cuda: &Cuda, plan: &GemmPlan, _: bool) -> std::result::Result<usize, String> {
    cuda.gemm.decode.as_ref().map_err(Clone::clone)?;
    let (a, b, s) = (&plan.a, &plan.b, &plan.strides);
    if plan.m > 16 {
        return Err(format!("M is {}, want at most 16", plan.m));
    }
    if numerics_of(plan) != Mode::Fast {
        return Err("not FAST".into());
    }
    if b.format != Format::Nvfp4 || a.format == Format::Mxfp4 {
        return Err("not NVFP4 weights with NVFP4 or BF16 activations".into());
    }
    let a_fits = match a.format {
        Format::Bf16 => rows_are_aligned(a) && s.a_codes % 16 == 0,
        _ => is_aligned(a, [s.a_codes, s.a_scales], plan.batch),
    };
    if plan.k == 0 || !a_fits || !is_aligned(b, [s.b_codes, s.b_scales], plan.batch) {
        return Err(format!(
            "K is {} or rows are not aligned, want a multiple of 128 and 16-byte aligned codes",
            plan.k
        ));
    }
    Ok(0)
}

fn run(
    cuda: &Cuda,
    plan: &GemmPlan,
    d: &Matrix,
    _workspace: *mut u8,
    stream: Stream,
) -> Result<()> {
    let Ok(k) = &cuda.gemm.decode else {
        return Ok(()); // `accepts` has said no
    };
    let bf16 = plan.a.format == Format::Bf16;
    let (kernel, factor) = match (bf16, plan.m > 8) {
        (false, false) => (&k.m8, 16384.0),
        (false, true) => (&k.m16, 16384.0),
        (true, false) => (&k.bf16_m8, 128.0),
        (true, true) => (&k.bf16_m16, 128.0),
    };
    for i in 0..plan.batch {
        let (a, b, c, d) = item(plan, d, i);
        let p = Decode {
            a: Operand::new(&a),
            b: Operand::new(&b),
            m: plan.m as i32,
            n: plan.n as i32,
            k_groups: (plan.k / 128) as i32,
            pad: 0,
            epilogue: Epilogue::new(plan, &a, &b, c.as_ref(), &d, factor),
        };
        kernel.launch(stream, 4 * plan.n.div_ceil(128), u32::MAX, &p)?;
    }
    Ok(())
}
