//! The block-scaled matrix product: D in tiles, each from accumulators (`gemm_tile`), then the epilogue.

use super::encode::Encoder;
use super::operand::{self, Operand};
use super::packing::Packing;
use super::panel::{Panel, HEIGHT};
use super::weight::{self, Packed};
use super::{decode, gemm_elements, Cpu, Tile};
use crate::numerics::gemm::global_factor;
use crate::numerics::{
    activation, e2m1, e4m3, e8m0, Accumulate, Activation, Dtype, Format, Nonfinite,
};
use crate::plan::{GemmOutput, GemmPlan, Matrix, Quantized};
use crate::{Error, Result};
use std::sync::Mutex;

/// Rows and columns of a tile of D. 128 columns, so that a quantized D's blocks and transforms are whole.
pub const TILE_ROWS: usize = 128;
pub const TILE_COLS: usize = 128;
/// Elements along K that are unpacked at a time; a multiple of both blocks.
const DEPTH: usize = 512;

/// One product of a batch.
pub struct Product<'a> {
    pub plan: &'a GemmPlan,
    pub a: Quantized,
    pub b: Quantized,
    pub c: Option<Matrix>,
    pub d: GemmOutput,
    /// B's panels as `Kernels::weights` packs them, if the caller packed it for this table.
    pub b_panels: Option<*const u8>,
    /// Every block's term is a normal f32 or 0, so that an FMA rounds as the contract does. Always so for NVFP4.
    pub exact_in_f32: bool,
}

/// Memory of one thread: 64 KiB of accumulators, and what the kernels in use unpack operands into.
pub struct GemmScratch {
    /// `[TILE_ROWS][TILE_COLS]`
    pub acc: Vec<f32>,
    /// Packed operands of the SIMD kernels.
    pub packing: Packing,
    /// Of the scalar kernels; empty until they run.
    scalar: Unpacked,
    /// Element values for a pair with a BF16 operand: A's rows, and B transposed.
    pub(super) a_values: Vec<f32>,
    pub(super) b_values: Vec<f32>,
}

#[derive(Default)]
struct Unpacked {
    /// Twice the code values, [TILE_ROWS or TILE_COLS][DEPTH].
    a_halves: Vec<i16>,
    b_halves: Vec<i16>,
    /// Block scales, [rows][DEPTH / block].
    a_scales: Vec<f64>,
    b_scales: Vec<f64>,
}

impl GemmScratch {
    fn new() -> Self {
        GemmScratch {
            acc: vec![0.0; TILE_ROWS * TILE_COLS],
            packing: Packing::default(),
            scalar: Unpacked::default(),
            a_values: Vec::new(),
            b_values: Vec::new(),
        }
    }

    /// Room for `DEPTH` element values of every row of a tile.
    pub(super) fn reserve_values(&mut self) {
        self.a_values.resize(TILE_ROWS * DEPTH, 0.0);
        self.b_values.resize(TILE_COLS * DEPTH, 0.0);
    }
}

impl Unpacked {
    fn reserve(&mut self) {
        self.a_halves.resize(TILE_ROWS * DEPTH, 0);
        self.b_halves.resize(TILE_COLS * DEPTH, 0);
        self.a_scales.resize(TILE_ROWS * DEPTH / 16, 0.0);
        self.b_scales.resize(TILE_COLS * DEPTH / 16, 0.0);
    }
}

/// Scratch that waits for the next call: fresh pages would cost a small product more than its arithmetic.
#[derive(Default)]
pub struct ScratchList(Mutex<Vec<GemmScratch>>);

/// Scratch on loan from the list.
struct Loan<'a> {
    list: &'a ScratchList,
    scratch: Option<GemmScratch>,
}

impl ScratchList {
    fn lend(&self) -> Loan<'_> {
        // A list that another thread holds (or held when the process forked) is passed by.
        let kept = self.0.try_lock().ok().and_then(|mut list| list.pop());
        let mut scratch = kept.unwrap_or_else(GemmScratch::new);
        scratch.packing.forget();
        Loan {
            list: self,
            scratch: Some(scratch),
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if let (Ok(mut list), Some(scratch)) = (self.list.0.try_lock(), self.scratch.take()) {
            list.push(scratch);
        }
    }
}

/// Does the pair contract single elements (one operand is BF16)?
pub fn is_elementwise(a: &Quantized, b: &Quantized) -> bool {
    a.format == Format::Bf16 || b.format == Format::Bf16
}

/// What the CPU does not do of a legal plan.
pub fn supports(plan: &GemmPlan) -> Result<()> {
    supports_provider(plan.provider)?;
    let one_b = plan.batch == 1 || (plan.strides.b_codes == 0 && plan.strides.b_scales == 0);
    if !plan.b_packed.is_null() && !one_b {
        return Err(Error::Mismatch(format!(
            "desc.b_packed holds one b, the batch has {} different ones",
            plan.batch
        )));
    }
    Ok(())
}

pub fn supports_provider(provider: u32) -> Result<()> {
    if provider != 0 {
        return Err(Error::NotSupported(format!(
            "desc.provider is {provider}, the CPU has only 0"
        )));
    }
    Ok(())
}

pub fn run(cpu: &Cpu, plan: &GemmPlan) -> Result<()> {
    let packed = weight::of(&cpu.kernels, plan)?;
    if let GemmOutput::Quantized(copy) = &plan.d {
        // SAFETY: the plan checked that both hold `domains()` values.
        unsafe { std::ptr::copy(copy.given_amax, copy.out.amax, copy.out.domains()) };
        super::quantize::clear_scale_padding(&copy.out);
    }
    run_all(cpu, std::slice::from_ref(plan), packed);
    Ok(())
}

/// How a plan's products are cut into jobs.
struct Jobs {
    /// Of all plans before this one.
    before: usize,
    /// Tiles of one product, and how many of them side by side.
    tiles: usize,
    across: usize,
    exact: Vec<bool>,
}

/// The products of several plans that share no output, their tiles spread over the threads; `packed` is every plan's B.
pub fn run_all(cpu: &Cpu, plans: &[GemmPlan], packed: Option<Packed>) {
    let mut count = 0;
    let jobs: Vec<Jobs> = plans
        .iter()
        .map(|plan| {
            let (down, across) = (plan.m.div_ceil(TILE_ROWS), plan.n.div_ceil(TILE_COLS));
            let before = count;
            count += plan.batch * down * across;
            Jobs {
                before,
                tiles: down * across,
                across,
                exact: exact_in_f32(plan, packed.as_ref()),
            }
        })
        .collect();
    cpu.pool.run_with(
        count,
        || cpu.scratch.lend(),
        |loan, job| {
            let Some(scratch) = &mut loan.scratch else {
                return;
            };
            let at = jobs.partition_point(|j| j.before <= job) - 1;
            let (plan, cut) = (&plans[at], &jobs[at]);
            let job = job - cut.before;
            let (item, tile) = (job / cut.tiles, job % cut.tiles);
            let (a, b, c, d) = plan.product(item);
            let product = Product {
                plan,
                a,
                b: packed.map_or(b, |p| p.matrix(&b)),
                c,
                d,
                b_panels: packed.and_then(|p| p.panels()),
                exact_in_f32: cut.exact[item % cut.exact.len()],
            };
            // Across first: neighbours share the rows of A, which kernels keep packed.
            let (i, j) = (tile / cut.across, tile % cut.across);
            let tile = Tile {
                rows: i * TILE_ROWS..((i + 1) * TILE_ROWS).min(plan.m),
                cols: j * TILE_COLS..((j + 1) * TILE_COLS).min(plan.n),
            };
            match plan.accumulate {
                Accumulate::Hardware | Accumulate::HardwareK96 => {
                    gemm_elements::hardware_tile(&product, &tile, scratch);
                }
                // BLOCK keeps FAST's bound.
                _ => (cpu.kernels.gemm_tile)(&product, &tile, scratch),
            }
            finish(&product, &tile, scratch);
        },
    );
}

/// For each product of the batch (or one entry for all): no scale is so large or small that a term leaves f32's normal
/// range.
fn exact_in_f32(plan: &GemmPlan, packed: Option<&Packed>) -> Vec<bool> {
    if plan.a.format != Format::Mxfp4 || plan.b.format != Format::Mxfp4 {
        return vec![true];
    }
    (0..plan.batch)
        .map(|i| {
            let (a, b, ..) = plan.product(i);
            // SAFETY: the plan checked the operands.
            let is_safe = |q| unsafe { operand::mx_is_safe(&Operand::of(q)) };
            is_safe(&a) && packed.map_or_else(|| is_safe(&b), |p| p.safe)
        })
        .collect()
}

/// BLOCK accumulators of a tile: each block's dot product exact, times both scales exactly, rounded once to f32, added
/// in f32 in ascending k.
pub fn gemm_tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    if is_elementwise(&product.a, &product.b) {
        return gemm_elements::tile(product, tile, scratch);
    }
    scratch.scalar.reserve();
    let (unpacked, acc) = (&mut scratch.scalar, &mut scratch.acc);
    let block = product.a.format.block();
    let blocks = DEPTH / block;
    acc.fill(0.0);
    for k in (0..product.plan.k).step_by(DEPTH) {
        let depth = DEPTH.min(product.plan.k - k);
        let used = depth.div_ceil(block);
        for (i, row) in tile.rows.clone().enumerate() {
            let halves = &mut unpacked.a_halves[i * DEPTH..][..used * block];
            unpack(
                &product.a,
                row,
                k,
                depth,
                halves,
                &mut unpacked.a_scales[i * blocks..][..used],
            );
        }
        for (j, row) in tile.cols.clone().enumerate() {
            let halves = &mut unpacked.b_halves[j * DEPTH..][..used * block];
            unpack(
                &product.b,
                row,
                k,
                depth,
                halves,
                &mut unpacked.b_scales[j * blocks..][..used],
            );
        }
        for i in 0..tile.rows.len() {
            let xs = &unpacked.a_halves[i * DEPTH..][..used * block];
            let sx = &unpacked.a_scales[i * blocks..][..used];
            for j in 0..tile.cols.len() {
                let ys = &unpacked.b_halves[j * DEPTH..][..used * block];
                let sy = &unpacked.b_scales[j * blocks..][..used];
                let acc = &mut acc[i * TILE_COLS + j];
                *acc = if block == 16 {
                    dot::<16>(*acc, xs, sx, ys, sy)
                } else {
                    dot::<32>(*acc, xs, sx, ys, sy)
                };
            }
        }
    }
}

/// Adds the terms of a stretch of blocks to an accumulator.
fn dot<const BLOCK: usize>(mut acc: f32, xs: &[i16], sx: &[f64], ys: &[i16], sy: &[f64]) -> f32 {
    let pairs = xs.chunks_exact(BLOCK).zip(ys.chunks_exact(BLOCK));
    for ((x, y), (sx, sy)) in pairs.zip(sx.iter().zip(sy)) {
        let quarters: i32 = x.iter().zip(y).map(|(x, y)| *x as i32 * *y as i32).sum();
        // Exact in f64 whatever the scales, so this rounds once.
        acc += (quarters as f64 * (sx * sy)) as f32;
    }
    acc
}

/// Twice the code values of a stretch of a row, and its block scales over 2, so that a product of two is over 4. The
/// tail block is filled up with zeros.
fn unpack(
    q: &Quantized,
    row: usize,
    k: usize,
    depth: usize,
    halves: &mut [i16],
    scales: &mut [f64],
) {
    let codes = &decode::code_row(q, row)[k / 2..];
    let whole = depth / 2;
    for (pair, byte) in halves.chunks_exact_mut(2).zip(&codes[..whole]) {
        pair[0] = e2m1::decode_halves(*byte & 15) as i16;
        pair[1] = e2m1::decode_halves(*byte >> 4) as i16;
    }
    halves[2 * whole..].fill(0);
    if depth % 2 == 1 {
        halves[depth - 1] = e2m1::decode_halves(codes[whole] & 15) as i16;
    }
    let first = k / q.format.block();
    for (i, scale) in scales.iter_mut().enumerate() {
        let byte = decode::scale_byte(q, row, first + i);
        *scale = 0.5
            * match q.format {
                Format::Mxfp4 => e8m0::decode(byte) as f64,
                _ => e4m3::decode(byte) as f64,
            };
    }
}

/// Everything after the accumulator, for one tile.
fn finish(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let plan = product.plan;
    // SAFETY: the caller vouches for one f32 behind each; the plan checked their alignment.
    let (alpha, beta) = unsafe { (plan.alpha.read(), plan.beta.read()) };
    let cols = tile.cols.len();
    let mut bias = [0f32; TILE_COLS];
    if !plan.bias.is_null() {
        let view = Matrix {
            data: plan.bias.cast_mut(),
            dtype: plan.bias_dtype,
            rows: 1,
            cols: plan.n,
            stride: plan.n,
        };
        decode::load_matrix(&view, 0, tile.cols.start, &mut bias[..cols]);
    }
    let mut c = [0f32; TILE_COLS];
    let one_factor = product.a.domain_rows == 0 && product.b.domain_rows == 0;
    let scale_of = |q: &Quantized, row| q.decode_scale(decode::row_amax(q, row));
    for (i, row) in tile.rows.clone().enumerate() {
        let acc = &mut scratch.acc[i * TILE_COLS..][..cols];
        let a_scale = scale_of(&product.a, row);
        let mut outer = global_factor(&a_scale, &scale_of(&product.b, tile.cols.start));
        if let (true, Some(view)) = (beta != 0.0, &product.c) {
            decode::load_matrix(view, row, tile.cols.start, &mut c[..cols]);
        }
        let at_row = |outer: f32| {
            let factor = alpha * outer;
            match plan.row_factors.is_null() {
                true => factor,
                // SAFETY: the caller vouches for M values; the plan checked alignment.
                false => factor * unsafe { plan.row_factors.add(row).read() },
            }
        };
        // One pass an operation: each is a plain loop that the compiler turns into vectors.
        if one_factor && plan.col_factors.is_null() {
            let factor = at_row(outer);
            acc.iter_mut().for_each(|d| *d *= factor);
        } else {
            for (j, d) in acc.iter_mut().enumerate() {
                let col = tile.cols.start + j;
                if !one_factor {
                    outer = global_factor(&a_scale, &scale_of(&product.b, col));
                }
                let mut factor = at_row(outer);
                if !plan.col_factors.is_null() {
                    // SAFETY: as above, N values.
                    factor *= unsafe { plan.col_factors.add(col).read() };
                }
                *d *= factor;
            }
        }
        if beta != 0.0 && product.c.is_some() {
            acc.iter_mut().zip(&c).for_each(|(d, c)| *d += beta * c);
        }
        if !plan.bias.is_null() {
            acc.iter_mut().zip(&bias).for_each(|(d, b)| *d += b);
        }
        if plan.activation != Activation::None {
            for d in acc.iter_mut() {
                *d = activation::apply(plan.activation, *d);
            }
        }
        if let GemmOutput::Matrix(d) = &product.d {
            decode::store_matrix(d, row, tile.cols.start, acc);
        }
    }
    if let GemmOutput::Quantized(copy) = &product.d {
        let (seed, offset) = plan.seed;
        let encoder = Encoder::with_seed(copy, Nonfinite::Propagate, seed, offset);
        let mut panel = Panel::empty();
        for first in (0..tile.rows.len()).step_by(HEIGHT) {
            let height = HEIGHT.min(tile.rows.len() - first);
            panel.begin(copy, tile.rows.start + first, height, tile.cols.start, cols);
            for (i, values) in panel.values[..height].iter_mut().enumerate() {
                values[..cols].copy_from_slice(&scratch.acc[(first + i) * TILE_COLS..][..cols]);
            }
            panel.finish(copy, Nonfinite::Propagate, Dtype::F32, cols);
            encoder.encode(&panel);
        }
    }
}
