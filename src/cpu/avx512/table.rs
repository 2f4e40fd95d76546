//! The AVX-512 entries of `Kernels`: a tile of a plan cut into what the kernels take. What they do not know (choices
//! between two scales, MS-EDEN, statistics, requantizing, ...) goes to the scalar entry.

use super::lanes::{self, BF16, F16, F32};
use super::square::SquareRows;
use super::{amax, available, columnwise, copy16, dequantize, gemm, hadamard, quantize};
use crate::cpu::decode::row_amax;
use crate::cpu::encode::host_seed;
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::quantize::{only, raise, store_scales, wants_amax};
use crate::cpu::rule::{Draw, Rule, Transform};
use crate::cpu::{Kernels, Tile, WeightPacker, SCALAR};
use crate::numerics::rounding::Draw as Key;
use crate::numerics::scale::tensor_scale;
use crate::numerics::{Block, Dtype, Format, Nonfinite, Rounding, ScaleLayout};
use crate::plan::{CopyPlan, DequantizePlan, Matrix, QuantizePlan, Quantized, Source};

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    available().then_some(Kernels {
        name: "avx512",
        amax_tile,
        quantize_tile,
        dequantize_tile,
        gemm_tile,
        weights: Some(WeightPacker {
            layout: *b"avx512\0\0",
            panel_bytes: gemm::panel_bytes,
            pack_panel: gemm::pack_weight_panel,
        }),
        ..SCALAR
    })
}

/// Calls a kernel generic over the element type.
macro_rules! by_type {
    ($dtype:expr, $($f:ident)::+ ($($arg:expr),* $(,)?)) => {
        match $dtype {
            Dtype::F32 => $($f)::+::<F32>($($arg),*),
            Dtype::Bf16 => $($f)::+::<BF16>($($arg),*),
            Dtype::F16 => $($f)::+::<F16>($($arg),*),
        }
    };
    ($dtype:expr, $object:ident . $f:ident ($($arg:expr),* $(,)?)) => {
        match $dtype {
            Dtype::F32 => $object.$f::<F32>($($arg),*),
            Dtype::Bf16 => $object.$f::<BF16>($($arg),*),
            Dtype::F16 => $object.$f::<F16>($($arg),*),
        }
    };
}

/// What the tile functions need of a copy that the kernels know.
struct Known<'a> {
    x: &'a Matrix,
    copy: &'a CopyPlan,
    transform: Option<Transform>,
    key: Key,
    draws: bool,
    nonfinite: Nonfinite,
}

impl<'a> Known<'a> {
    /// None where the scalar code must do this copy.
    fn new(plan: &'a QuantizePlan, copy: &'a CopyPlan) -> Option<Known<'a>> {
        let Source::Matrix(x) = &plan.x else {
            return None;
        };
        let o = &copy.options;
        let (seed, offset) = host_seed(plan.seed);
        let transform = Transform::new(o, seed, offset);
        Some(Known {
            x,
            copy,
            transform,
            key: Key {
                seed,
                offset,
                columnwise: copy.columnwise,
            },
            draws: o.rounding == Rounding::Stochastic,
            nonfinite: plan.nonfinite,
        })
    }

    /// Can the kernels quantize it?
    fn quantizes(&self) -> bool {
        let o = &self.copy.options;
        if o.format == Format::Bf16 {
            return self.transform.is_none();
        }
        if Rule::new(o, &tensor_scale(o, 1.0)).is_none() {
            return false;
        }
        let (out, square) = (&self.copy.out, o.block == Block::TwoD);
        if !self.copy.columnwise {
            // Rows of a tile share a scale domain.
            return !square || out.domain_rows % o.format.block() == 0;
        }
        let one_domain = out.domain_rows % 16 == 0;
        let rows = self.copy.origin.0 + out.rows as u64;
        let one_counter = self.copy.origin.0 >> 32 == rows >> 32;
        // Tiles without a transform draw in the source's orientation; tiles of 32 columns are wider than a vector.
        let square_known = o.format == Format::Nvfp4 && (self.transform.is_some() || !self.draws);
        one_domain && one_counter && (!square || square_known)
    }

    fn rule(&self, row: usize) -> Rule {
        let o = &self.copy.options;
        Rule::new(o, &tensor_scale(o, row_amax(&self.copy.out, row))).expect("asked for before")
    }

    fn draw(&self, row: usize, col: usize) -> Option<Draw> {
        let (r, c) = self.copy.origin;
        self.draws
            .then(|| Draw::new(&self.key, r + row as u64, c + col as u64))
    }

    fn at(&self, row: usize, col: usize) -> *const u8 {
        self.x
            .data
            .wrapping_add((row * self.x.stride + col) * self.x.dtype.size())
    }
}

/// Elements of a piece of a row after the transform's padding, in f32 on the stack.
#[repr(C, align(64))]
struct Stage([f32; quantize::CHUNK]);

/// Transforms `n` elements from `p`; returns their number with padding.
///
/// # Safety
/// `p` must be readable for `n` elements; the processor must be able to run this.
unsafe fn transform_piece(
    dtype: Dtype,
    p: *const u8,
    n: usize,
    t: &Transform,
    out: &mut Stage,
) -> usize {
    let whole = n / t.n * t.n;
    let y = out.0.as_mut_ptr();
    // SAFETY: the caller's promise; the tail goes through a buffer of its own.
    unsafe {
        by_type!(dtype, hadamard::row(p, whole, t, y));
        if whole == n {
            return n;
        }
        let mut tail = [0f32; 128];
        let q = p.add(whole * dtype.size());
        by_type!(dtype, quantize::widen_tail(q, n - whole, tail.as_mut_ptr()));
        hadamard::row::<F32>(tail.as_ptr().cast(), t.n, t, y.add(whole));
    }
    whole + t.n
}

fn amax_tile(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let done = Known::new(plan, copy).is_some_and(|k| {
            // SAFETY: the table is only handed out where `available` says so; the plan checked the matrix.
            unsafe {
                match (copy.columnwise, k.transform.is_some()) {
                    (false, _) => rowwise_amax(&k, tile),
                    (true, false) if copy.out.domain_rows == 0 => rowwise_amax(&k, tile),
                    (true, _) if copy.out.domain_rows % 16 == 0 => columnwise_amax(&k, tile),
                    _ => false,
                }
            }
        });
        if !done {
            (SCALAR.amax_tile)(&only(plan, copy), tile);
        }
    }
}

/// Row by row; for a columnwise copy too, if it has one domain and no transform. False where a value is not finite and
/// the scalar code must see to it.
unsafe fn rowwise_amax(k: &Known, tile: &Tile) -> bool {
    let dtype = k.x.dtype;
    let domain = |row| {
        if k.copy.columnwise {
            0
        } else {
            k.copy.out.domain_of(row)
        }
    };
    let (mut largest, mut from) = (0u32, tile.rows.start);
    let mut stage = Stage([0.0; quantize::CHUNK]);
    for row in tile.rows.clone() {
        if domain(row) != domain(from) {
            raise(k.copy, from, f32::from_bits(largest));
            (largest, from) = (0, row);
        }
        // SAFETY: the tile lies inside the matrix.
        unsafe {
            let Some(t) = k.transform.filter(|_| !k.copy.columnwise) else {
                let (p, n) = (k.at(row, tile.cols.start), tile.cols.len());
                let mut m = by_type!(dtype, amax::amax_bits(p, n));
                if m >= lanes::NONFINITE as u32 {
                    if k.nonfinite == Nonfinite::Saturate {
                        return false;
                    }
                    m = by_type!(dtype, amax::finite_amax_bits(p, n));
                }
                largest = largest.max(m);
                continue;
            };
            for col in tile.cols.clone().step_by(quantize::CHUNK) {
                let n = quantize::CHUNK.min(tile.cols.end - col);
                let n = transform_piece(dtype, k.at(row, col), n, &t, &mut stage);
                let mut m = amax::amax_bits::<F32>(stage.0.as_ptr().cast(), n);
                if m >= lanes::NONFINITE as u32 {
                    if k.nonfinite == Nonfinite::Saturate {
                        return false;
                    }
                    m = amax::finite_amax_bits::<F32>(stage.0.as_ptr().cast(), n);
                }
                largest = largest.max(m);
            }
        }
    }
    raise(k.copy, from, f32::from_bits(largest));
    true
}

/// Calls `f(copy's row, copy's column, columns)` for each 128 x 16 piece of a tile.
fn each_piece(
    k: &Known,
    tile: &Tile,
    mut f: impl FnMut(usize, usize, &columnwise::Columns) -> bool,
) -> bool {
    for row in tile.rows.clone().step_by(columnwise::HEIGHT) {
        for col in tile.cols.clone().step_by(16) {
            let piece = columnwise::Columns {
                data: k.at(row, col),
                stride: k.x.stride * k.x.dtype.size(),
                rows: columnwise::HEIGHT.min(tile.rows.end - row),
                cols: 16.min(tile.cols.end - col),
            };
            if !f(col, row, &piece) {
                return false;
            }
        }
    }
    true
}

/// False where a value is not finite and the scalar code must see to it.
unsafe fn columnwise_amax(k: &Known, tile: &Tile) -> bool {
    let mut largest = 0u32;
    let each = k.copy.out.domain_rows != 0;
    let finite = each_piece(k, tile, |row, _, piece| {
        // SAFETY: the piece lies inside the matrix.
        let m = unsafe {
            by_type!(
                k.x.dtype,
                columnwise::amax_bits(piece, k.transform.as_ref())
            )
        };
        if m >= lanes::NONFINITE as u32 {
            return false;
        }
        largest = largest.max(m);
        if each {
            raise(k.copy, row, f32::from_bits(m));
        }
        true
    });
    if finite && !each {
        raise(k.copy, tile.cols.start, f32::from_bits(largest));
    }
    finite
}

fn quantize_tile(plan: &QuantizePlan, tile: &Tile) -> u64 {
    if !plan.stats.is_null() {
        return (SCALAR.quantize_tile)(plan, tile);
    }
    for copy in plan.copies() {
        let done = Known::new(plan, copy)
            .filter(Known::quantizes)
            .is_some_and(|k| {
                // SAFETY: the table is only handed out where `available` says so; the plan checked matrix and buffers.
                unsafe {
                    match (copy.options.format, copy.columnwise, copy.options.block) {
                        (Format::Bf16, columnwise, _) => {
                            copy16::tile(k.x, &copy.out, columnwise, k.nonfinite, tile)
                        }
                        (_, true, _) => columnwise_tile(&k, tile),
                        (_, false, Block::OneD) => rowwise_tile(&k, tile),
                        (_, false, Block::TwoD) => square_tile(&k, tile),
                    }
                }
            });
        if !done {
            (SCALAR.quantize_tile)(&only(plan, copy), tile);
        }
    }
    0
}

/// False where the scalar code must replace values that are not finite.
unsafe fn rowwise_tile(k: &Known, tile: &Tile) -> bool {
    let (out, dtype) = (&k.copy.out, k.x.dtype);
    let block = out.format.block();
    let mut stage = Stage([0.0; quantize::CHUNK]);
    let mut rule = k.rule(tile.rows.start);
    let mut bytes = [0u8; quantize::CHUNK / 16];
    // Along a long row the next elements; in a narrow tile the same columns four rows on.
    let ahead = match tile.cols.len() * dtype.size() {
        0..=4096 if tile.cols.len() < k.x.stride => 4 * k.x.stride * dtype.size(),
        _ => quantize::AHEAD,
    };
    for row in tile.rows.clone() {
        if out.domain_rows != 0 {
            rule = k.rule(row);
        }
        let draw = k.draw(row, 0);
        let draw = draw.as_ref();
        for col in tile.cols.clone().step_by(quantize::CHUNK) {
            let n = quantize::CHUNK.min(tile.cols.end - col);
            let p = k.at(row, col);
            // SAFETY: the piece lies inside matrix and copy.
            unsafe {
                let codes = out.codes.add(row * out.code_stride + col / 2);
                let linear = out.scale_layout == ScaleLayout::Linear;
                let scales = match linear {
                    true => out.scales.add(row * out.scale_stride + col / block),
                    false => bytes.as_mut_ptr(),
                };
                let (n, bad) = match &k.transform {
                    Some(t) => {
                        let n = transform_piece(dtype, p, n, t, &mut stage);
                        let x = stage.0.as_ptr().cast();
                        (
                            n,
                            quantize::chunk::<F32>(x, n, 0, &rule, draw, col / 16, codes, scales),
                        )
                    }
                    None => (
                        n,
                        by_type!(
                            dtype,
                            quantize::chunk(p, n, ahead, &rule, draw, col / 16, codes, scales)
                        ),
                    ),
                };
                if bad && k.nonfinite == Nonfinite::Saturate {
                    return false;
                }
                if !linear {
                    store_scales(out, row, col / block, &bytes[..n.div_ceil(block)]);
                }
            }
        }
    }
    true
}

/// Square tiles of a rowwise copy.
unsafe fn square_tile(k: &Known, tile: &Tile) -> bool {
    let (out, dtype) = (&k.copy.out, k.x.dtype);
    let side = out.format.block();
    let mut rows = SquareRows::new();
    for row in tile.rows.clone().step_by(side) {
        let height = side.min(tile.rows.end - row);
        let rule = k.rule(row);
        for col in tile.cols.clone().step_by(quantize::GROUP) {
            let n = quantize::GROUP.min(tile.cols.end - col);
            let mut padded = n;
            let mut stage = Stage([0.0; quantize::CHUNK]);
            // SAFETY: the piece lies inside matrix and copy.
            unsafe {
                for r in 0..height {
                    let p = k.at(row + r, col);
                    match &k.transform {
                        Some(t) => {
                            padded = transform_piece(dtype, p, n, t, &mut stage);
                            rows.load::<F32>(r, stage.0.as_ptr().cast(), padded);
                        }
                        None => by_type!(dtype, rows.load(r, p, n)),
                    }
                }
                let bad = rows.scale(&rule);
                if bad && k.nonfinite == Nonfinite::Saturate {
                    return false;
                }
                for r in 0..height {
                    let draw = k.draw(row + r, col);
                    let codes = out.codes.add((row + r) * out.code_stride + col / 2);
                    rows.codes(r, padded, draw.as_ref(), codes);
                    store_scales(
                        out,
                        row + r,
                        col / side,
                        &rows.scales()[..padded.div_ceil(side)],
                    );
                }
            }
        }
    }
    true
}

unsafe fn columnwise_tile(k: &Known, tile: &Tile) -> bool {
    let out = &k.copy.out;
    let block = out.format.block();
    let mut result = columnwise::Output::new();
    let mut rule = k.rule(tile.cols.start);
    each_piece(k, tile, |row, col, piece| {
        if out.domain_rows != 0 {
            rule = k.rule(row);
        }
        let draw = k.draw(row, col);
        let options = columnwise::Options {
            rule: &rule,
            transform: k.transform.as_ref(),
            draw: draw.as_ref(),
            square: k.copy.options.block == Block::TwoD,
        };
        let n = k
            .transform
            .map_or(piece.rows, |t| piece.rows.next_multiple_of(t.n));
        let (code_bytes, scale_bytes) = (n.div_ceil(2), n.div_ceil(block));
        // SAFETY: the piece lies inside matrix and copy.
        unsafe {
            let bad = by_type!(k.x.dtype, columnwise::tile(piece, &options, &mut result));
            if bad && k.nonfinite == Nonfinite::Saturate {
                return false;
            }
            for c in 0..piece.cols {
                let p = out.codes.add((row + c) * out.code_stride + col / 2);
                if code_bytes == 64 {
                    p.cast::<[u8; 64]>().write_unaligned(result.codes[c]);
                } else {
                    std::ptr::copy_nonoverlapping(result.codes[c].as_ptr(), p, code_bytes);
                }
                if out.scale_layout == ScaleLayout::Linear && scale_bytes == 8 {
                    let p = out.scales.add((row + c) * out.scale_stride + col / block);
                    p.cast::<[u8; 8]>().write_unaligned(result.scales[c]);
                } else {
                    store_scales(out, row + c, col / block, &result.scales[c][..scale_bytes]);
                }
            }
        }
        true
    })
}

/// Output bytes from which on dequantize writes past the caches: it will not be read back from them.
const STREAM: usize = 32 << 20;

fn dequantize_tile(plan: &DequantizePlan, tile: &Tile) {
    let (q, out) = (&plan.x, &plan.out);
    let largest = match out.dtype {
        Dtype::Bf16 => Dtype::Bf16.max(),
        _ => f32::MAX,
    };
    let factors = |row| Factors::new(&q.decode_scale(row_amax(q, row)), largest);
    if tile.rows.is_empty() || factors(tile.rows.start).is_none() {
        return (SCALAR.dequantize_tile)(plan, tile);
    }
    let x = Operand::of(q);
    let row_bytes = out.stride * out.dtype.size();
    let aligned = (out.data as usize).is_multiple_of(64) && row_bytes % 64 == 0;
    let stream = aligned && plan.cols * x.rows * out.dtype.size() >= STREAM;
    // SAFETY: the table is only handed out where `available` says so; the plan checked operand and output.
    unsafe {
        if !plan.transpose {
            for row in tile.rows.clone() {
                let Some(f) = factors(row) else { return };
                let o = out.at(row, 0);
                by_type!(
                    out.dtype,
                    dequantize::row(&x, &f, row, plan.cols, o, stream)
                );
            }
            return;
        }
        for row in tile.rows.clone().step_by(16) {
            let height = 16.min(tile.rows.end - row);
            let Some(first) = factors(row) else { return };
            let mut f = [first; 16];
            for (r, f) in f.iter_mut().enumerate().take(height) {
                *f = factors(row + r).unwrap_or(first);
            }
            for col in (0..plan.cols).step_by(16) {
                let (width, o) = (16.min(plan.cols - col), out.at(col, row));
                by_type!(
                    out.dtype,
                    dequantize::transposed(&x, &f, row, height, col, width, o, row_bytes)
                );
            }
        }
    }
}

pub fn gemm_tile(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let acc = scratch.acc.as_mut_ptr();
    let (rows, cols) = (tile.rows.clone(), tile.cols.clone());
    if is_elementwise(&product.a, &product.b) {
        if product.a.format != Format::Bf16 || product.b.format != Format::Bf16 {
            return (SCALAR.gemm_tile)(product, tile, scratch);
        }
        let values = |q: &Quantized| gemm::bf16::Values {
            data: q.codes,
            stride: q.code_stride,
            rows: q.rows,
            cols: q.cols,
        };
        let (a, b) = (values(&product.a), values(&product.b));
        // SAFETY: the table is only handed out where `available` says so; the plan checked the operands; acc holds a
        // tile.
        return unsafe {
            gemm::bf16::tile(&a, &b, rows, cols, &mut scratch.packing, acc, TILE_COLS)
        };
    }
    let (a, b) = (Operand::of(&product.a), Operand::of(&product.b));
    if !product.exact_in_f32 {
        return (SCALAR.gemm_tile)(product, tile, scratch);
    }
    let right = match product.b_panels {
        None => gemm::Right::Rows(&b),
        Some(p) => gemm::Right::Packed(p),
    };
    // SAFETY: as above.
    unsafe { gemm::tile(&a, right, rows, cols, &mut scratch.packing, acc, TILE_COLS) }
}
