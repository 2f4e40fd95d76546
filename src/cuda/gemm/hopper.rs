//! NVFP4 pairs on Hopper (kernels/gemm_sm90a.cu): B becomes bf16 tiles in the workspace, a stripe at a time, A is
//! dequantized where it is used.

use super::params::{rows_are_aligned, Align, Epilogue, Expand, Hopper, Operand};
use super::{item, numerics_of, Candidate, Mode, ALIGN};
use crate::cuda::driver::Stream;
use crate::cuda::Cuda;
use crate::numerics::{Format, ScaleLayout};
use crate::plan::{GemmPlan, Matrix, Quantized};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 3,
    name: "wgmma",
    accepts,
    run,
};

/// A stripe of B is at most this large, unless a single tile of columns is larger.
const STRIPE_BYTES: usize = 32 << 20;

/// Columns of D in a tile.
fn tile_columns(mode: Mode) -> usize {
    match mode {
        Mode::Fast => 256,
        _ => 128,
    }
}

/// Where everything lies in the workspace.
struct Layout {
    /// Groups of 128 along K.
    groups: usize,
    /// Rows of B in a stripe, a multiple of the tile.
    stripe_rows: usize,

    /// Offset of the aligned copy, if the operand needs one: codes, then scales.
    a_copy: Option<usize>,
    b_copy: Option<usize>,
    total: usize,
}

impl Layout {
    fn new(plan: &GemmPlan) -> Layout {
        let tile = tile_columns(numerics_of(plan));
        let groups = plan.k.div_ceil(128).max(1);
        let row_bytes = 256 * groups;
        let rounded = plan.n.next_multiple_of(tile);
        let most = (STRIPE_BYTES / row_bytes / tile * tile).clamp(tile, rounded);
        // Stripes of equal size, so that the last one is not a small rest.
        let stripes = rounded.div_ceil(most);
        let stripe_rows = (rounded / tile).div_ceil(stripes) * tile;
        let stripe_bytes = stripe_rows * row_bytes;
        let mut total = stripe_bytes;
        let mut copy = |q: &Quantized, strides: [i64; 2]| {
            (!is_aligned(q, strides, plan.batch)).then(|| {
                let at = total;
                total += (q.rows * groups * 72).next_multiple_of(ALIGN);
                at
            })
        };
        let s = &plan.strides;
        let a_copy = copy(&plan.a, [s.a_codes, s.a_scales]);
        let b_copy = copy(&plan.b, [s.b_codes, s.b_scales]);
        Layout {
            groups,
            stripe_rows,

            a_copy,
            b_copy,
            total,
        }
    }
}

/// Whole groups of 128 along K, codes that 16-byte loads and scales that 4-byte loads can read.
pub fn is_aligned(q: &Quantized, strides: [i64; 2], batch: usize) -> bool {
    let scales = match q.scale_layout {
        ScaleLayout::Swizzled => true,
        ScaleLayout::Linear => q.scale_stride.is_multiple_of(4),
    };
    let batched = batch == 1 || (strides[0] % 16 == 0 && strides[1] % 4 == 0);
    q.cols.is_multiple_of(128)
        && rows_are_aligned(q)
        && scales
        && (q.scales as usize).is_multiple_of(4)
        && batched
}

fn accepts(cuda: &Cuda, plan: &GemmPlan, _: bool) -> std::result::Result<usize, String> {
    cuda.gemm.hopper.as_ref().map_err(Clone::clone)?;
    if numerics_of(plan) == Mode::Hardware {
        return Err("not FAST or BLOCK".into());
    }
    if plan.a.format != Format::Nvfp4 || plan.b.format != Format::Nvfp4 {
        return Err("not a pair of NVFP4 operands".into());
    }
    if plan.k == 0 {
        return Err("K is 0".into());
    }
    if plan.m.max(plan.n) < 64 && plan.k < 1024 {
        return Err(format!(
            "[{}, {}] with K {} is too small to gain",
            plan.m, plan.n, plan.k
        ));
    }
    Ok(Layout::new(plan).total)
}

fn run(cuda: &Cuda, plan: &GemmPlan, d: &Matrix, workspace: *mut u8, stream: Stream) -> Result<()> {
    let Ok(k) = &cuda.gemm.hopper else {
        return Ok(()); // `accepts` has said no
    };
    let mode = numerics_of(plan);
    let (gemm, expand) = match mode {
        Mode::Fast => (&k.gemm_fast, &k.expand_fast),
        _ => (&k.gemm_block, &k.expand_block),
    };
    let tile = tile_columns(mode);
    let layout = Layout::new(plan);
    let groups = layout.groups;
    for i in 0..plan.batch {
        let (qa, qb, c, d) = item(plan, d, i);
        // An operand that every product shares is copied once.
        let fresh = |codes: i64, scales: i64| i == 0 || codes != 0 || scales != 0;
        let s = &plan.strides;
        let a = aligned(
            cuda,
            &qa,
            layout.a_copy,
            groups,
            workspace,
            fresh(s.a_codes, s.a_scales),
            stream,
        )?;
        let b = aligned(
            cuda,
            &qb,
            layout.b_copy,
            groups,
            workspace,
            fresh(s.b_codes, s.b_scales),
            stream,
        )?;
        for n0 in (0..plan.n).step_by(layout.stripe_rows) {
            let n = layout.stripe_rows.min(plan.n - n0);
            let n_pad = n.next_multiple_of(tile);
            let whole = n0 == 0 && n == plan.n;
            if !whole || fresh(s.b_codes, s.b_scales) {
                let p = Expand {
                    b,
                    tiles: workspace,
                    n0: n0 as i32,
                    n: n as i32,
                    n_pad: n_pad as i32,
                    k_groups: groups as i32,
                };
                expand.launch(stream, groups.div_ceil(4) * (n_pad / 16), u32::MAX, &p)?;
            }
            let p = Hopper {
                a,
                b_tiles: workspace,
                m: plan.m as i32,
                n0: n0 as i32,
                n: n as i32,
                k_groups: groups as i32,
                m_pairs: plan.m.div_ceil(256) as i32,
                n_tiles: (n_pad / tile) as i32,
                epilogue: Epilogue::new(plan, &qa, &qb, c.as_ref(), &d, 16384.0),
            };
            // Two CTAs a cluster, one on each multiprocessor.
            let clusters = (p.m_pairs as usize * p.n_tiles as usize)
                .min(cuda.device.multiprocessors as usize / 2)
                .max(1);
            gemm.launch(stream, 2 * clusters, u32::MAX, &p)?;
        }
    }
    Ok(())
}

/// The operand as the kernels read it: itself, or its copy in the workspace.
fn aligned(
    cuda: &Cuda,
    q: &Quantized,
    copy: Option<usize>,
    groups: usize,
    workspace: *mut u8,
    fresh: bool,
    stream: Stream,
) -> Result<Operand> {
    let (Some(at), Ok(k)) = (copy, &cuda.gemm.hopper) else {
        return Ok(Operand::new(q));
    };
    let out_codes = workspace.wrapping_add(at);
    let out_scales = out_codes.wrapping_add(q.rows * groups * 64);
    if fresh {
        let p = Align {
            codes: q.codes,
            scales: q.scales,
            stride: q.code_stride as i64,
            scale_stride: q.scale_stride as i64,
            out_codes,
            out_scales,
            rows: q.rows as i32,
            k: q.cols as i32,
            k_groups: groups as i32,
            swizzled: (q.scale_layout == ScaleLayout::Swizzled) as i32,
        };
        let across = (groups * 8).div_ceil(256);
        k.align
            .launch(stream, across * q.rows.min(4096), u32::MAX, &p)?;
    }
    Ok(Operand {
        codes: out_codes,
        scales: out_scales,
        stride: (groups * 64) as i64,
        scale_stride: (groups * 8) as i64,
        scale_step: 8,
        scale_second: 4,
        swizzled: 0,
    })
}
