//! Pairs of FP4 operands on the FP4 units of sm_100 and sm_103 (kernels/gemm_sm100a.cu), in tiles of three sizes. The
//! accumulator is that of mode HARDWARE, which keeps FAST's bound.
//!
//! The kernels read codes and swizzled scales where they are, by tensor copies. Those want 16-byte aligned addresses, row
//! strides and batch strides, K even, and in the last 64 of K no block without a scale, for what stands there instead takes
//! part. What is otherwise, and linear scales, is copied into the workspace first, each operand in one launch
//! (kernels/gemm_pack_sm100a.cu).

use std::ptr::null_mut;

use super::params::{rows_are_aligned, AnyOperand, Epilogue, Pack, Portable, Tensor};
use super::{numerics_of, Candidate, Mode, ALIGN};
use crate::cuda::driver::Stream;
use crate::cuda::params;
use crate::cuda::tensor_map::{Element, TensorMap};
use crate::cuda::Cuda;
use crate::numerics::{Block, Format, Rounding, ScaleLayout, Select};
use crate::plan::{CopyPlan, GemmPlan, Matrix, Quantized};
use crate::Result;

pub const CANDIDATE: Candidate = Candidate {
    provider: 7,
    name: "tcgen05",
    accepts: |cuda, plan, _| accepts(cuda, plan),
    run: |cuda, plan, d, workspace, stream| run(cuda, &WIDE, plan, d, None, workspace, stream),
};

/// The same by pairs of CTAs.
pub const PAIR: Candidate = Candidate {
    provider: 8,
    name: "tcgen05-pair",
    accepts: |cuda, plan, forced| accepts_if_best(cuda, plan, &PAIRED, forced),
    run: |cuda, plan, d, workspace, stream| run(cuda, &PAIRED, plan, d, None, workspace, stream),
};

/// The same by narrow tiles, for few rows or columns.
pub const NARROW: Candidate = Candidate {
    provider: 9,
    name: "tcgen05-narrow",
    accepts: |cuda, plan, forced| accepts_if_best(cuda, plan, &SLIM, forced),
    run: |cuda, plan, d, workspace, stream| run(cuda, &SLIM, plan, d, None, workspace, stream),
};

/// How the kernels of one kind divide D.
struct Way {
    /// Of GemmKernels' `tensor.ways`.
    index: usize,
    /// CTAs that share a tile.
    group: usize,
    rows: usize,
    columns: usize,
    /// Time of a tile for each of its CTAs, about: its MMAs, and what it brings of A and B.
    cost: f64,
}

const WIDE: Way = Way {
    index: 0,
    group: 1,
    rows: 128,
    columns: 128,
    cost: 1.3,
};
const SLIM: Way = Way {
    index: 1,
    group: 1,
    rows: 128,
    columns: 64,
    cost: 0.9,
};
const PAIRED: Way = Way {
    index: 2,
    group: 2,
    rows: 256,
    columns: 256,
    cost: 2.0,
};

impl Way {
    fn tiles(&self, plan: &GemmPlan) -> usize {
        plan.m.div_ceil(self.rows) * plan.n.div_ceil(self.columns) * plan.batch
    }

    /// How many tiles are made at once.
    fn groups(&self, cuda: &Cuda) -> usize {
        (cuda.device.multiprocessors as usize / self.group).max(1)
    }

    fn time(&self, cuda: &Cuda, plan: &GemmPlan) -> f64 {
        self.tiles(plan).div_ceil(self.groups(cuda)) as f64 * self.cost
    }
}

/// Of a scale tile.
const ROWS: usize = 128;
/// Codes of a row in one copy, in bytes.
const ROW_BYTES: u32 = 128;
const SCALE_TILE: usize = 512;

fn accepts(cuda: &Cuda, plan: &GemmPlan) -> std::result::Result<usize, String> {
    cuda.gemm.tensor.as_ref().map_err(Clone::clone)?;
    if numerics_of(plan) == Mode::Block {
        return Err("not FAST or HARDWARE".into());
    }
    match (plan.a.format, plan.b.format) {
        (Format::Nvfp4, Format::Nvfp4) | (Format::Mxfp4, Format::Mxfp4) => Ok(sides(plan)[1].end),
        (a, b) => Err(format!("{a:?} x {b:?} is not a pair of one FP4 format")),
    }
}

fn accepts_if_best(
    cuda: &Cuda,
    plan: &GemmPlan,
    way: &Way,
    forced: bool,
) -> std::result::Result<usize, String> {
    let need = accepts(cuda, plan)?;
    let time = way.time(cuda, plan);
    let best = [&WIDE, &SLIM, &PAIRED]
        .iter()
        .all(|other| time <= other.time(cuda, plan));
    match forced || best {
        true => Ok(need),
        false => Err(format!(
            "tiles of {} x {} would take longer",
            way.rows, way.columns
        )),
    }
}

/// Can the epilogue of this candidate quantize D itself (kernels/gemm_quantize.cuh)?
pub fn quantizes(provider: u32, copy: &CopyPlan) -> bool {
    let o = &copy.options;
    [&CANDIDATE, &PAIR, &NARROW]
        .iter()
        .any(|c| c.provider == provider)
        && o.format == Format::Nvfp4
        && o.block == Block::OneD
        && o.rounding == Rounding::Nearest
        && o.select == Select::Single
        && o.hadamard == 0
}

/// As the candidate's `run`, D quantized; amax and the padding of its scales are there already.
pub fn run_quantized(
    cuda: &Cuda,
    provider: u32,
    plan: &GemmPlan,
    d: &Matrix,
    copy: &CopyPlan,
    workspace: *mut u8,
    stream: Stream,
) -> Result<()> {
    let way = match provider {
        8 => &PAIRED,
        9 => &SLIM,
        _ => &WIDE,
    };
    run(cuda, way, plan, d, Some(copy), workspace, stream)
}

/// What of an operand is read where.
struct Side {
    /// 1 if all products of the batch share it.
    items: usize,
    /// Offset of its copy in the workspace, if it needs one.
    codes: Option<usize>,
    scales: Option<usize>,
    /// Bytes of the workspace, those of the operand before it included.
    end: usize,
}

impl Side {
    fn new(q: &Quantized, strides: [i64; 2], batch: usize, start: usize) -> Side {
        let items = match strides {
            [0, 0] => 1,
            _ => batch,
        };
        // The next product's operand, as a tensor copy can step to it.
        let steps = |stride: i64| items == 1 || (stride > 0 && stride % 16 == 0);
        let codes_fit =
            rows_are_aligned(q) && q.cols > 0 && q.cols.is_multiple_of(2) && steps(strides[0]);
        let scales_fit = q.scale_layout == ScaleLayout::Swizzled
            && (q.scales as usize).is_multiple_of(16)
            && q.cols > 0
            && q.scale_cols().is_multiple_of(64 / q.format.block())
            && steps(strides[1]);
        let mut end = start;
        let mut take = |fits: bool, bytes: usize| {
            (!fits).then(|| {
                let at = end;
                end += bytes.next_multiple_of(ALIGN);
                at
            })
        };
        let codes = take(codes_fit, items * q.rows * packed_chunks(q) * 16);
        let tiles = q.rows.div_ceil(ROWS) * scale_tiles(q);
        let scales = take(scales_fit, items * tiles * SCALE_TILE);
        Side {
            items,
            codes,
            scales,
            end,
        }
    }
}

fn sides(plan: &GemmPlan) -> [Side; 2] {
    let s = &plan.strides;
    let a = Side::new(&plan.a, [s.a_codes, s.a_scales], plan.batch, 0);
    let b = Side::new(&plan.b, [s.b_codes, s.b_scales], plan.batch, a.end);
    [a, b]
}

/// Of 32 codes, in a row of a copy.
fn packed_chunks(q: &Quantized) -> usize {
    q.cols.div_ceil(32).max(1)
}

/// Along a row.
fn scale_tiles(q: &Quantized) -> usize {
    q.scale_cols().div_ceil(4).max(1)
}

/// The maps of an operand's codes and scales; copies first what needs it.
fn maps(
    cuda: &Cuda,
    q: &Quantized,
    x: &AnyOperand,
    side: &Side,
    workspace: *mut u8,
    stream: Stream,
    rows_each: usize,
) -> Result<[TensorMap; 2]> {
    let at = |offset: Option<usize>| offset.map(|at| workspace.wrapping_add(at));
    let (codes, scales) = (at(side.codes), at(side.scales));
    let (chunks, across, down) = (packed_chunks(q), scale_tiles(q), q.rows.div_ceil(ROWS));
    if let (Ok(k), true) = (&cuda.gemm.tensor, codes.is_some() || scales.is_some()) {
        let p = Pack {
            x: *x,
            codes: codes.unwrap_or(null_mut()),
            scales: scales.unwrap_or(null_mut()),
            rows: q.rows as i32,
            k: q.cols as i32,
            items: side.items as i32,
            chunks: chunks as i32,
        };
        let pieces = (q.rows * chunks).max(down * across * 128) * side.items;
        k.pack.launch(stream, pieces.div_ceil(256), 4, &p)?;
    }
    // Bytes of a row; bytes to the next row and the next product.
    let (width, row, item) = match codes {
        Some(_) => (chunks * 16, chunks * 16, q.rows * chunks * 16),
        None => (q.cols / 2, q.code_stride, x.codes_batch as usize),
    };
    let item = match side.items {
        1 => q.rows * row,
        _ => item,
    };
    let code_map = TensorMap::new(
        Element::SwizzledByte,
        codes.map_or(q.codes, |p| p.cast_const()),
        [width, q.rows, side.items].map(|n| n as u64),
        &[row as u64, item as u64],
        [ROW_BYTES, rows_each as u32, 1],
    )?;
    let all = down * across * SCALE_TILE;
    let item = match (scales, side.items) {
        (None, 2..) => x.scales_batch as usize,
        _ => all,
    };
    // As many tiles along K as 256 codes have.
    let high = 256 / q.format.block() as u32 / 4;
    let scale_map = TensorMap::new(
        Element::Word,
        scales.map_or(q.scales, |p| p.cast_const()),
        [SCALE_TILE / 4, across, down, side.items].map(|n| n as u64),
        &[SCALE_TILE, across * SCALE_TILE, item].map(|n| n as u64),
        [SCALE_TILE as u32 / 4, high, 1, 1],
    )?;
    Ok([code_map, scale_map])
}

fn run(
    cuda: &Cuda,
    way: &Way,
    plan: &GemmPlan,
    d: &Matrix,
    quantized: Option<&CopyPlan>,
    workspace: *mut u8,
    stream: Stream,
) -> Result<()> {
    let Ok(k) = &cuda.gemm.tensor else {
        return Ok(()); // `accepts` has said no
    };
    let (a, b, s) = (&plan.a, &plan.b, &plan.strides);
    let kernel = &k.ways[way.index][(a.format == Format::Mxfp4) as usize];
    let product = Portable {
        a: AnyOperand::new(a, [s.a_codes, s.a_scales, s.a_amax]),
        b: AnyOperand::new(b, [s.b_codes, s.b_scales, s.b_amax]),
        c_batch: s.c,
        d_batch: s.d,
        m: plan.m as i32,
        n: plan.n as i32,
        k: plan.k as i32,
        batch: plan.batch as i32,
        m_tiles: plan.m.div_ceil(way.rows) as i32,
        n_tiles: plan.n.div_ceil(way.columns) as i32,
        epilogue: Epilogue::new(plan, a, b, plan.c.as_ref(), d, 1.0),
    };
    let [a_side, b_side] = sides(plan);
    let [a_codes, a_scales] = maps(
        cuda,
        a,
        &product.a,
        &a_side,
        workspace,
        stream,
        way.rows / way.group,
    )?;
    let [b_codes, b_scales] = maps(
        cuda,
        b,
        &product.b,
        &b_side,
        workspace,
        stream,
        way.columns / way.group,
    )?;
    let groups = way.groups(cuda);
    let p = Tensor {
        a: a_codes,
        b: b_codes,
        a_scales,
        b_scales,
        product,
        a_items: (a_side.items > 1) as i32,
        b_items: (b_side.items > 1) as i32,
        // The tiles in flight make about a square, which shares most.
        band: groups.isqrt() as i32,
        steps: plan.k.div_ceil(64).max(1) as i32,
        quantized: quantized.map_or(params::Quantized::NONE, params::Quantized::of),
        pad: [0; 6],
    };
    let tiles = way.tiles(plan);
    kernel.launch(stream, way.group * tiles.min(groups), u32::MAX, &p)
}
