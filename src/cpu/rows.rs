//! The entries of `Kernels` that an instruction set gets from kernels over pieces of a copy: amax, quantize, dequantize.
//! What these don't know (choices between two scales, MS-EDEN, statistics, requantizing, ...) goes to the scalar entry.

use super::columns::{self, columnwise_amax, columnwise_tile, Columns, Output};
use super::known::Known;
use super::quantize::{only, raise, store_scales, wants_amax};
use super::rule::{Draw, Rule, Transform};
use super::{Tile, SCALAR};
use crate::numerics::{Block, Dtype, Format, Nonfinite, ScaleLayout};
use crate::plan::{Matrix, QuantizePlan, Quantized};

/// Most elements of one call of `quantize` and `transform`: their scale bytes fit a small buffer.
pub const CHUNK: usize = 1024;
/// Bytes that prefetches run ahead along a long row.
const AHEAD: usize = 4096;
/// Smallest bit pattern of |x| that is not finite.
pub const NONFINITE: u32 = 0x7F80_0000;

/// Kernels over elements of a row, and over columns.
///
/// # Safety
/// Implementations read and write what is said here, no more. Callers give memory that holds it, on a processor that
/// can run it.
pub unsafe trait Rows {
    /// Columns of a columnwise copy that are handled together: 16 or 32.
    const COLUMNS: usize;
    /// Whether they are brought together first (`columns::Band`).
    const BANDS: bool;
    type Square: Square;

    /// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value.
    unsafe fn amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32;

    /// The same over finite elements only.
    unsafe fn finite_amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32;

    /// Writes ceil(n / 2) code bytes and ceil(n / block) scale bytes of up to `CHUNK` elements that start at a block
    /// boundary, the `first_block`-th 16 elements of `draw`. Returns whether a block was not finite. Prefetches `ahead`
    /// bytes further.
    unsafe fn quantize(
        dtype: Dtype,
        x: *const u8,
        n: usize,
        ahead: usize,
        rule: &Rule,
        draw: Option<&Draw>,
        first_block: usize,
        codes: *mut u8,
        scales: *mut u8,
    ) -> bool;

    /// Transforms `n` elements, whole blocks.
    unsafe fn transform(dtype: Dtype, x: *const u8, n: usize, t: &Transform, out: *mut f32);

    /// Bits of the largest magnitude of the columns after the transform, NaN and Inf above every finite value.
    unsafe fn columns_amax(dtype: Dtype, x: &Columns, transform: Option<&Transform>) -> u32;

    /// Quantizes columns. Returns whether a block was not finite.
    unsafe fn columns(dtype: Dtype, x: &Columns, o: &columns::Options, out: &mut Output) -> bool;

    /// Casts a tile to bf16; false where the scalar code must do it.
    unsafe fn cast(
        _x: &Matrix,
        _out: &Quantized,
        _columnwise: bool,
        _nonfinite: Nonfinite,
        _tile: &Tile,
    ) -> bool {
        false
    }
}

/// Up to 32 rows of square tiles, held in f32 because they share scales.
///
/// # Safety
/// As `Rows`.
pub unsafe trait Square {
    /// Elements of a row: a multiple of every transform's length.
    const GROUP: usize;
    fn new() -> Self;
    /// Takes row `r` (in ascending order from 0), `n` elements at `p`, the others +0.
    unsafe fn load(&mut self, dtype: Dtype, r: usize, p: *const u8, n: usize);
    /// Scales of the tiles of the rows taken. Returns whether a tile was not finite.
    unsafe fn scale(&mut self, rule: &Rule) -> bool;
    /// One scale byte a tile.
    fn scales(&self) -> &[u8];
    /// Writes the codes of row `r`, ceil(n / 2) bytes; `draw` starts at its first element.
    unsafe fn codes(&self, r: usize, n: usize, draw: Option<&Draw>, out: *mut u8);
}

/// Elements of a piece of a row after the transform, in f32.
#[repr(C, align(64))]
struct Stage([f32; CHUNK]);

/// Transforms `n` elements from `p`; returns their number with padding.
///
/// # Safety
/// `p` must be readable for `n` elements; the processor must be able to run this.
unsafe fn transform_piece<R: Rows>(
    dtype: Dtype,
    p: *const u8,
    n: usize,
    t: &Transform,
    out: &mut Stage,
) -> usize {
    let whole = n / t.n * t.n;
    let y = out.0.as_mut_ptr();
    // SAFETY: the caller's promise; the tail goes through a buffer of its own, in which zeros are +0 of every type.
    unsafe {
        R::transform(dtype, p, whole, t, y);
        if whole == n {
            return n;
        }
        let mut tail = [0u32; 128];
        let bytes = (n - whole) * dtype.size();
        std::ptr::copy_nonoverlapping(p.add(whole * dtype.size()), tail.as_mut_ptr().cast(), bytes);
        R::transform(dtype, tail.as_ptr().cast(), t.n, t, y.add(whole));
    }
    whole + t.n
}

pub fn amax_tile<R: Rows>(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let done = Known::new(plan, copy).is_some_and(|k| {
            // SAFETY: a table is only handed out where the processor can run it; the plan checked the matrix.
            unsafe {
                match (copy.columnwise, k.transform.is_some()) {
                    (false, _) => rowwise_amax::<R>(&k, tile),
                    (true, false) if copy.out.domain_rows == 0 => rowwise_amax::<R>(&k, tile),
                    (true, _) if copy.out.domain_rows % R::COLUMNS == 0 => {
                        columnwise_amax::<R>(&k, tile)
                    }
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
unsafe fn rowwise_amax<R: Rows>(k: &Known, tile: &Tile) -> bool {
    let dtype = k.x.dtype;
    // A columnwise copy of one domain: any row of it stands for the domain.
    let line = |row| if k.copy.columnwise { 0 } else { row };
    let domain = |row| k.copy.out.domain_of(line(row));
    let (mut largest, mut from) = (0u32, tile.rows.start);
    let mut stage = Stage([0.0; CHUNK]);
    // None: not finite, and to be replaced.
    let amax = |dtype, p, n| {
        // SAFETY: the caller's pieces.
        let m = unsafe { R::amax_bits(dtype, p, n) };
        match k.nonfinite {
            _ if m < NONFINITE => Some(m),
            Nonfinite::Saturate => None,
            // SAFETY: as above.
            Nonfinite::Propagate => Some(unsafe { R::finite_amax_bits(dtype, p, n) }),
        }
    };
    for row in tile.rows.clone() {
        if domain(row) != domain(from) {
            raise(k.copy, line(from), f32::from_bits(largest));
            (largest, from) = (0, row);
        }
        let Some(t) = k.transform.filter(|_| !k.copy.columnwise) else {
            let Some(m) = amax(dtype, k.at(row, tile.cols.start), tile.cols.len()) else {
                return false;
            };
            largest = largest.max(m);
            continue;
        };
        for col in tile.cols.clone().step_by(CHUNK) {
            let n = CHUNK.min(tile.cols.end - col);
            // SAFETY: the piece lies inside the matrix.
            let n = unsafe { transform_piece::<R>(dtype, k.at(row, col), n, &t, &mut stage) };
            let Some(m) = amax(Dtype::F32, stage.0.as_ptr().cast(), n) else {
                return false;
            };
            largest = largest.max(m);
        }
    }
    raise(k.copy, line(from), f32::from_bits(largest));
    true
}

pub fn quantize_tile<R: Rows>(plan: &QuantizePlan, tile: &Tile) -> u64 {
    if !plan.stats.is_null() {
        return (SCALAR.quantize_tile)(plan, tile);
    }
    for copy in plan.copies() {
        let done = Known::new(plan, copy)
            .filter(|k| k.quantizes(R::COLUMNS))
            .is_some_and(|k| {
                // SAFETY: a table is only handed out where the processor can run it; the plan checked matrix and
                // buffers.
                unsafe {
                    match (copy.options.format, copy.columnwise, copy.options.block) {
                        (Format::Bf16, columnwise, _) => {
                            R::cast(k.x, &copy.out, columnwise, k.nonfinite, tile)
                        }
                        (_, true, _) => columnwise_tile::<R>(&k, tile),
                        (_, false, Block::OneD) => rowwise_tile::<R>(&k, tile),
                        (_, false, Block::TwoD) => square_tile::<R>(&k, tile),
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
unsafe fn rowwise_tile<R: Rows>(k: &Known, tile: &Tile) -> bool {
    let (out, dtype) = (&k.copy.out, k.x.dtype);
    let block = out.format.block();
    let mut stage = Stage([0.0; CHUNK]);
    let mut rule = k.rule(tile.rows.start);
    let mut bytes = [0u8; CHUNK / 16];
    // Along a long row the next elements; in a narrow tile the same columns four rows on.
    let ahead = match tile.cols.len() * dtype.size() {
        0..=4096 if tile.cols.len() < k.x.stride => 4 * k.x.stride * dtype.size(),
        _ => AHEAD,
    };
    for row in tile.rows.clone() {
        if out.domain_rows != 0 {
            rule = k.rule(row);
        }
        let draw = k.draw(row, 0);
        let draw = draw.as_ref();
        for col in tile.cols.clone().step_by(CHUNK) {
            let n = CHUNK.min(tile.cols.end - col);
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
                        let n = transform_piece::<R>(dtype, p, n, t, &mut stage);
                        let x = stage.0.as_ptr().cast();
                        let f32 = Dtype::F32;
                        (
                            n,
                            R::quantize(f32, x, n, 0, &rule, draw, col / 16, codes, scales),
                        )
                    }
                    None => (
                        n,
                        R::quantize(dtype, p, n, ahead, &rule, draw, col / 16, codes, scales),
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
unsafe fn square_tile<R: Rows>(k: &Known, tile: &Tile) -> bool {
    let (out, dtype) = (&k.copy.out, k.x.dtype);
    let side = out.format.block();
    let mut rows = R::Square::new();
    for row in tile.rows.clone().step_by(side) {
        let height = side.min(tile.rows.end - row);
        let rule = k.rule(row);
        for col in tile.cols.clone().step_by(R::Square::GROUP) {
            let n = R::Square::GROUP.min(tile.cols.end - col);
            let mut padded = n;
            let mut stage = Stage([0.0; CHUNK]);
            // SAFETY: the piece lies inside matrix and copy.
            unsafe {
                for r in 0..height {
                    let p = k.at(row + r, col);
                    match &k.transform {
                        Some(t) => {
                            padded = transform_piece::<R>(dtype, p, n, t, &mut stage);
                            rows.load(Dtype::F32, r, stage.0.as_ptr().cast(), padded);
                        }
                        None => rows.load(dtype, r, p, n),
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
                    let scales = &rows.scales()[..padded.div_ceil(side)];
                    store_scales(out, row + r, col / side, scales);
                }
            }
        }
    }
    true
}
