//! Pairs of FP4 operands by cuBLASLt's own FP4 kernels, where its heuristic has one: codes as they are, block scales in the
//! 128x4 layout (linear ones are copied into it in the workspace).

use super::lt::{data_type, takes_the_rest};
use super::lt_library::{alignment_of, Elements, Shape, WORKSPACE};
use super::params::{rows_are_aligned, Epilogue, Scalars};
use super::{numerics_of, Candidate, Mode, ALIGN};
use crate::cuda::driver::Stream;
use crate::cuda::{scales, Cuda};
use crate::numerics::{Format, ScaleLayout};
use crate::plan::{GemmOutput, GemmPlan, Matrix, Quantized, ScalesPlan};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 6,
    name: "cublaslt-fp4",
    accepts,
    run,
};

fn elements(plan: &GemmPlan) -> std::result::Result<Elements, String> {
    match (plan.a.format, plan.b.format) {
        (Format::Nvfp4, Format::Nvfp4) => Ok(Elements::Nvfp4),
        (Format::Mxfp4, Format::Mxfp4) => Ok(Elements::Mxfp4),
        (a, b) => Err(format!("{a:?} x {b:?} is not a pair of one FP4 format")),
    }
}

fn accepts(cuda: &Cuda, plan: &GemmPlan, forced: bool) -> std::result::Result<usize, String> {
    let library = cuda.gemm.lt.as_ref().map_err(Clone::clone)?;
    // Forced, the library itself is asked.
    if cuda.device.arch < 100 && !forced {
        return Err(format!("{} has no FP4 units", cuda.device.name));
    }
    if numerics_of(plan) != Mode::Fast {
        return Err("not FAST".into());
    }
    let elements = elements(plan)?;
    if plan.k == 0 || !plan.k.is_multiple_of(32) {
        return Err(format!("K is {}, want a multiple of 32", plan.k));
    }
    for (name, q) in [("A", &plan.a), ("B", &plan.b)] {
        let scales =
            q.scale_layout == ScaleLayout::Linear || (q.scales as usize).is_multiple_of(16);
        if !rows_are_aligned(q) || !scales {
            return Err(format!("{name} is not 16-byte aligned"));
        }
    }
    takes_the_rest(plan)?;
    if let GemmOutput::Matrix(d) = &plan.d {
        // Where the scales will lie does not matter yet, only that they are aligned.
        library.has(&shape(plan, elements, d), [plan.a.codes, plan.b.codes])?;
    }
    Ok(ALIGN + WORKSPACE + copied(&plan.a) + copied(&plan.b))
}

/// Bytes of an operand's scales that are copied into the 128x4 layout.
fn copied(q: &Quantized) -> usize {
    match q.scale_layout {
        ScaleLayout::Swizzled => 0,
        ScaleLayout::Linear => (q.rows.next_multiple_of(128) * q.scale_cols().next_multiple_of(4))
            .next_multiple_of(ALIGN),
    }
}

fn shape(plan: &GemmPlan, elements: Elements, d: &Matrix) -> Shape {
    Shape {
        elements,
        m: plan.m as u64,
        n: plan.n as u64,
        k: plan.k as u64,
        lda: 2 * plan.a.code_stride as i64,
        ldb: 2 * plan.b.code_stride as i64,
        ldc: plan.c.map_or(d.stride, |c| c.stride) as i64,
        ldd: d.stride as i64,
        dtype: data_type(d.dtype),
        alignment: alignment_of(&[
            d.data,
            plan.c.map_or(d.data, |c| c.data),
            plan.a.codes,
            plan.b.codes,
        ]),
    }
}

fn run(cuda: &Cuda, plan: &GemmPlan, d: &Matrix, workspace: *mut u8, stream: Stream) -> Result<()> {
    let (Ok(library), Ok(elements)) = (&cuda.gemm.lt, elements(plan)) else {
        return Ok(()); // `accepts` has said no
    };
    let scalars: *mut f32 = workspace.cast();
    let own = workspace.wrapping_add(ALIGN);
    let mut room = own.wrapping_add(WORKSPACE);
    let mut scales_at = [plan.a.scales.cast_const(), plan.b.scales.cast_const()];
    for (q, at) in [&plan.a, &plan.b].into_iter().zip(&mut scales_at) {
        if q.scale_layout == ScaleLayout::Linear {
            let copy = ScalesPlan {
                linear: q.scales,
                swizzled: room,
                rows: q.rows,
                scale_cols: q.scale_cols(),
                stride: q.scale_stride,
            };
            scales::swizzle(cuda, &copy, stream)?;
            *at = room;
            room = room.wrapping_add(copied(q));
        }
    }
    let p = Scalars {
        out: scalars,
        epilogue: Epilogue::new(plan, &plan.a, &plan.b, plan.c.as_ref(), d, 1.0),
    };
    cuda.gemm.expand.scalars.launch(stream, 1, 1, &p)?;
    let c = plan.c.map_or(d.data, |c| c.data).cast_const();
    library.run(
        &shape(plan, elements, d),
        scalars,
        [plan.a.codes, plan.b.codes, c],
        scales_at,
        d.data,
        own,
        stream,
    )
}
