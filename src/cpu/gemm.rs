//! The block-scaled matrix product: D in tiles, each from accumulators (`gemm_tile`), then the epilogue.

use super::encode::Encoder;
use super::panel::{Panel, HEIGHT};
use super::{decode, gemm_elements, Cpu, Tile};
use crate::numerics::gemm::global_factor;
use crate::numerics::{activation, e2m1, e4m3, e8m0, Accumulate, Dtype, Format, Nonfinite};
use crate::plan::{GemmOutput, GemmPlan, Matrix, Quantized};
use crate::{Error, Result};

/// Rows and columns of a tile of D. 128 columns, so that a quantized D's blocks and transforms are whole.
pub const TILE_ROWS: usize = 64;
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
}

/// Memory of one thread: 32 KiB of accumulators and 300 KiB of unpacked operands.
pub struct GemmScratch {
    /// [TILE_ROWS][TILE_COLS]
    pub acc: Vec<f32>,
    /// Twice the code values, [TILE_ROWS or TILE_COLS][DEPTH].
    a_halves: Vec<i16>,
    b_halves: Vec<i16>,
    /// Block scales (MXFP4: as f64 below), [rows][DEPTH / block].
    a_scales: Vec<f64>,
    b_scales: Vec<f64>,
    /// Element values for a pair with a BF16 operand: A's rows, and B transposed.
    pub(super) a_values: Vec<f32>,
    pub(super) b_values: Vec<f32>,
}

impl GemmScratch {
    fn new(plan: &GemmPlan) -> Self {
        let elements = is_elementwise(&plan.a, &plan.b);
        let (codes, values) = if elements { (0, DEPTH) } else { (DEPTH, 0) };
        GemmScratch {
            acc: vec![0.0; TILE_ROWS * TILE_COLS],
            a_halves: vec![0; TILE_ROWS * codes],
            b_halves: vec![0; TILE_COLS * codes],
            a_scales: vec![0.0; TILE_ROWS * codes / 16],
            b_scales: vec![0.0; TILE_COLS * codes / 16],
            a_values: vec![0.0; TILE_ROWS * values],
            b_values: vec![0.0; TILE_COLS * values],
        }
    }
}

/// Does the pair contract single elements (one operand is BF16)?
pub fn is_elementwise(a: &Quantized, b: &Quantized) -> bool {
    a.format == Format::Bf16 || b.format == Format::Bf16
}

/// What the CPU does not do of a legal plan.
pub fn supports(plan: &GemmPlan) -> Result<()> {
    if plan.provider != 0 {
        return Err(Error::NotSupported(format!(
            "desc.provider is {}, the CPU has only 0",
            plan.provider
        )));
    }
    if !plan.b_packed.is_null() {
        return Err(Error::NotSupported(
            "packed weights are not in this version".into(),
        ));
    }
    Ok(())
}

pub fn run(cpu: &Cpu, plan: &GemmPlan) {
    if let GemmOutput::Quantized(copy) = &plan.d {
        // SAFETY: the plan checked that both hold `domains()` values.
        unsafe { std::ptr::copy(copy.given_amax, copy.out.amax, copy.out.domains()) };
        super::quantize::clear_scale_padding(&copy.out);
    }
    let (down, across) = (plan.m.div_ceil(TILE_ROWS), plan.n.div_ceil(TILE_COLS));
    let tiles = down * across;
    cpu.pool.run_with(
        plan.batch * tiles,
        || GemmScratch::new(plan),
        |scratch, job| {
            let (a, b, c, d) = plan.product(job / tiles);
            let product = Product { plan, a, b, c, d };
            // Down first: neighbours share B, the weights.
            let (i, j) = (job % tiles % down, job % tiles / down);
            let tile = Tile {
                rows: i * TILE_ROWS..((i + 1) * TILE_ROWS).min(plan.m),
                cols: j * TILE_COLS..((j + 1) * TILE_COLS).min(plan.n),
            };
            match plan.accumulate {
                Accumulate::Hardware | Accumulate::HardwareK96 => {
                    gemm_elements::hardware_tile(&product, &tile, scratch);
                }
                // BLOCK keeps FAST's bound.
                _ if is_elementwise(&product.a, &product.b) => {
                    gemm_elements::tile(&product, &tile, scratch);
                }
                _ => (cpu.kernels.gemm_tile)(&product, &tile, scratch),
            }
            finish(&product, &tile, scratch);
        },
    );
}

/// BLOCK accumulators of a tile: each block's dot product exact, times both scales exactly, rounded once to f32, added
/// in f32 in ascending k.
pub fn gemm_tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let block = product.a.format.block();
    let blocks = DEPTH / block;
    scratch.acc.fill(0.0);
    for k in (0..product.plan.k).step_by(DEPTH) {
        let depth = DEPTH.min(product.plan.k - k);
        let used = depth.div_ceil(block);
        for (i, row) in tile.rows.clone().enumerate() {
            let halves = &mut scratch.a_halves[i * DEPTH..][..used * block];
            unpack(
                &product.a,
                row,
                k,
                depth,
                halves,
                &mut scratch.a_scales[i * blocks..][..used],
            );
        }
        for (j, row) in tile.cols.clone().enumerate() {
            let halves = &mut scratch.b_halves[j * DEPTH..][..used * block];
            unpack(
                &product.b,
                row,
                k,
                depth,
                halves,
                &mut scratch.b_scales[j * blocks..][..used],
            );
        }
        for i in 0..tile.rows.len() {
            let xs = &scratch.a_halves[i * DEPTH..][..used * block];
            let sx = &scratch.a_scales[i * blocks..][..used];
            for j in 0..tile.cols.len() {
                let ys = &scratch.b_halves[j * DEPTH..][..used * block];
                let sy = &scratch.b_scales[j * blocks..][..used];
                let acc = &mut scratch.acc[i * TILE_COLS + j];
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
        for (j, d) in acc.iter_mut().enumerate() {
            let col = tile.cols.start + j;
            if !one_factor {
                outer = global_factor(&a_scale, &scale_of(&product.b, col));
            }
            let mut factor = alpha * outer;
            // SAFETY: the caller vouches for M and N values; the plan checked alignment.
            unsafe {
                if !plan.row_factors.is_null() {
                    factor *= plan.row_factors.add(row).read();
                }
                if !plan.col_factors.is_null() {
                    factor *= plan.col_factors.add(col).read();
                }
            }
            let mut v = factor * *d;
            if beta != 0.0 && product.c.is_some() {
                v += beta * c[j];
            }
            if !plan.bias.is_null() {
                v += bias[j];
            }
            *d = activation::apply(plan.activation, v);
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
