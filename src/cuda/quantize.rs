//! Quantize, requantize and amax: which kernel takes a copy, and the order of launches.

use std::ptr::null_mut;

use super::driver::Stream;
use super::kernels::Make;
use super::{certify, params, scales, Cuda};
use crate::numerics::{Block, Chain, Dtype, Format, Nonfinite, Rounding, ScaleLayout, Select};
use crate::plan::{CopyPlan, Matrix, QuantizePlan, Seed, Source};
use crate::{Error, Result};

/// Bytes of one row's sums in the statistics' workspace (kernels/stats.cu: RowSums).
const ROW_SUMS: usize = 32;

/// Scratch memory of a call: only statistics want some.
pub fn workspace(plan: &QuantizePlan) -> usize {
    match plan.copies().next() {
        Some(copy) if !plan.stats.is_null() => copy.out.rows * ROW_SUMS,
        _ => 0,
    }
}

/// Fills the amax of every copy: given, or computed.
pub fn amax(cuda: &Cuda, plan: &QuantizePlan, stream: Stream) -> Result<()> {
    for copy in plan.copies().filter(|c| c.out.domains() > 0) {
        if copy.given_amax.is_null() {
            stream.fill32(copy.out.amax, 0, copy.out.domains())?;
        } else {
            stream.copy(copy.out.amax, copy.given_amax, copy.out.domains())?;
        }
    }
    if plan.x.rows() == 0 || plan.x.cols() == 0 {
        return Ok(());
    }
    let wanted = || {
        plan.copies()
            .filter(|c| c.out.domains() > 0 && c.given_amax.is_null())
    };
    if let (Source::Matrix(x), Some(p)) = (
        &plan.x,
        both_sides(plan, wanted().filter(|c| amax_is_fast(plan, c))),
    ) {
        let k = &cuda.kernels;
        let kernel = match (x.dtype, p.col.hadamard != 0) {
            (Dtype::Bf16, false) => &k.amax_bf16,
            (Dtype::Bf16, true) => &k.amax_bf16_transform,
            (_, false) => &k.amax_f16,
            (_, true) => &k.amax_f16_transform,
        };
        // A block has eight warps, each with strips of 16 rows x 256 columns.
        let strips = x.rows.div_ceil(16) * x.cols.div_ceil(256);
        kernel.launch(stream, strips.div_ceil(8), 1, &p)?;
    }
    for copy in wanted().filter(|c| !amax_is_fast(plan, c)) {
        launch_general(plan, copy, stream, &cuda.kernels.amax_general, null_mut())?;
    }
    Ok(())
}

pub fn run(cuda: &Cuda, plan: &QuantizePlan, stream: Stream) -> Result<()> {
    if plan.workspace_bytes < workspace(plan) || (workspace(plan) > 0 && plan.workspace.is_null()) {
        return Err(Error::BufferSize(format!(
            "workspace_bytes is {}, statistics of {} rows need {} on a GPU",
            plan.workspace_bytes,
            workspace(plan) / ROW_SUMS,
            workspace(plan)
        )));
    }
    amax(cuda, plan, stream)?;
    for copy in plan.copies() {
        scales::clear_padding(cuda, &copy.out, stream)?;
    }
    let mut saturated = null_mut();
    if !plan.stats.is_null() {
        stream.fill32(
            plan.stats,
            0,
            size_of_val(&crate::abi::nvfp4_stats::default()) / 4,
        )?;
        // SAFETY: the address of a field of the caller's struct; not read here.
        saturated = unsafe { &raw mut (*plan.stats).saturated };
    }
    // Statistics are of the first copy; only the general kernel counts.
    let counted = |copy: &CopyPlan| {
        !plan.stats.is_null()
            && plan
                .copies()
                .next()
                .is_some_and(|first| std::ptr::eq(first, copy))
    };
    let native = cuda.natives.allows(certify::CONVERSIONS);
    let fast = |c: &CopyPlan| native && quantize_is_fast(plan, c) && !counted(c);
    let wanted = || plan.copies().filter(|c| !c.out.is_empty());
    if let (Source::Matrix(x), Some(p)) = (&plan.x, both_sides(plan, wanted().filter(|c| fast(c))))
    {
        let make =
            |q: &params::Quantized| match (q.codes.is_null(), q.hadamard != 0, q.stochastic != 0) {
                (true, ..) => Make::Nothing,
                (_, false, false) => Make::Nearest,
                (_, false, true) => Make::Stochastic,
                (_, true, false) => Make::TransformNearest,
                (_, true, true) => Make::TransformStochastic,
            };
        let (f16, row, col) = (x.dtype == Dtype::F16, make(&p.row), make(&p.col));
        let tiles = x.rows.div_ceil(128) * x.cols.div_ceil(128);
        if let Some(kernel) = cuda.kernels.quantize_fast(f16, row, col) {
            kernel.launch(stream, tiles, 1, &p)?;
        } else {
            for pair in [(row, Make::Nothing), (Make::Nothing, col)] {
                if let Some(kernel) = cuda.kernels.quantize_fast(f16, pair.0, pair.1) {
                    kernel.launch(stream, tiles, 1, &p)?;
                }
            }
        }
    }
    for copy in wanted().filter(|c| !fast(c)) {
        let count = if counted(copy) { saturated } else { null_mut() };
        launch_general(plan, copy, stream, &cuda.kernels.quantize_general, count)?;
    }
    if !plan.stats.is_null() {
        stats(cuda, plan, stream)?;
    }
    Ok(())
}

fn stats(cuda: &Cuda, plan: &QuantizePlan, stream: Stream) -> Result<()> {
    let Some(copy) = plan.copies().next() else {
        return Ok(());
    };
    let p = params::Stats {
        quantize: general_params(plan, copy, null_mut()),
        rows: plan.workspace,
        out: plan.stats,
    };
    cuda.kernels
        .stats_rows
        .launch(stream, copy.out.rows.div_ceil(128), 1, &p)?;
    cuda.kernels.stats_total.launch(stream, 1, 1, &p)
}

/// What all kernels of a call share.
fn base(plan: &QuantizePlan) -> params::Quantize {
    let (seed_offset, seed, offset) = match plan.seed {
        Seed::Host(seed, offset) => (std::ptr::null(), seed, offset),
        Seed::Device(p, other) => (p, 0, other),
    };
    // Origins are stored in each copy's orientation.
    let origin = plan.copies().next().map_or((0, 0), |c| match c.columnwise {
        false => c.origin,
        true => (c.origin.1, c.origin.0),
    });
    params::Quantize {
        x: match &plan.x {
            Source::Matrix(x) => params::Matrix::new(x),
            Source::Quantized(x) => params::Matrix::quantized(x),
        },
        row: params::Quantized::NONE,
        col: params::Quantized::NONE,
        seed_offset,
        seed,
        offset,
        origin_row: origin.0 as i64,
        origin_col: origin.1 as i64,
        saturated: null_mut(),
        saturate: (plan.nonfinite == Nonfinite::Saturate) as u32,
        pad: 0,
    }
}

/// Parameters of a kernel that makes these copies from one read; None if there are none.
fn both_sides<'a>(
    plan: &QuantizePlan,
    copies: impl Iterator<Item = &'a CopyPlan>,
) -> Option<params::Quantize> {
    let mut p = None;
    for copy in copies {
        let p = p.get_or_insert_with(|| base(plan));
        let side = if copy.columnwise {
            &mut p.col
        } else {
            &mut p.row
        };
        *side = params::Quantized::of(copy);
    }
    p
}

/// The general kernels make one copy, `row`; a quantized source is `col`.
pub(super) fn general_params(
    plan: &QuantizePlan,
    copy: &CopyPlan,
    saturated: *mut u64,
) -> params::Quantize {
    params::Quantize {
        row: params::Quantized::of(copy),
        col: match &plan.x {
            Source::Matrix(_) => params::Quantized::NONE,
            Source::Quantized(x) => params::Quantized::new(x),
        },
        saturated,
        ..base(plan)
    }
}

fn launch_general(
    plan: &QuantizePlan,
    copy: &CopyPlan,
    stream: Stream,
    kernel: &super::kernels::Kernel,
    saturated: *mut u64,
) -> Result<()> {
    let p = general_params(plan, copy, saturated);
    let tiles = copy.out.rows.div_ceil(32) * copy.out.cols.div_ceil(128);
    kernel.launch(stream, tiles, 4, &p)
}

/// Rows that cp.async and 16-byte loads can read: 16-bit elements, aligned.
fn rows_are_aligned(x: &Matrix) -> bool {
    x.dtype.size() == 2
        && (x.data as usize).is_multiple_of(16)
        && x.stride.is_multiple_of(8)
        && x.cols.is_multiple_of(8)
}

fn one_domain(copy: &CopyPlan) -> bool {
    copy.out.domain_rows == 0
}

/// Is this one of kernels/amax.cu's cases?
fn amax_is_fast(plan: &QuantizePlan, copy: &CopyPlan) -> bool {
    let Source::Matrix(x) = &plan.x else {
        return false;
    };
    let transform = match (copy.columnwise, copy.options.hadamard) {
        (_, 0) => true,
        (columnwise, n) => columnwise && n == 16 && !copy.options.keep_f32,
    };
    rows_are_aligned(x) && plan.nonfinite == Nonfinite::Propagate && one_domain(copy) && transform
}

/// Is this one of kernels/quantize_fast.cu's cases?
fn quantize_is_fast(plan: &QuantizePlan, copy: &CopyPlan) -> bool {
    let Source::Matrix(x) = &plan.x else {
        return false;
    };
    let (o, q) = (&copy.options, &copy.out);
    let codes = (q.codes as usize).is_multiple_of(8) && q.code_stride.is_multiple_of(8);
    // Blocks are whole along the copy's rows; tiles also across them.
    let whole = q.source_cols.is_multiple_of(16);
    let tiles = match o.block {
        Block::OneD => true,
        Block::TwoD => o.rounding == Rounding::Nearest && o.hadamard == 0,
    };
    rows_are_aligned(x)
        && plan.nonfinite == Nonfinite::Propagate
        && o.format == Format::Nvfp4
        && matches!(o.chain, Chain::Te | Chain::Div6 | Chain::Single)
        && o.select == Select::Single
        && matches!(o.scale_layout, ScaleLayout::Linear | ScaleLayout::Swizzled)
        && (o.hadamard == 0 || (o.hadamard == 16 && !o.keep_f32))
        && one_domain(copy)
        && codes
        && whole
        && tiles
}
