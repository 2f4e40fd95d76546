//! Columnwise copies: a tile is cut into pieces of some columns by 128 rows, which kernels take and give.

use super::known::Known;
use super::quantize::{raise, store_scales};
use super::rows::{Rows, NONFINITE};
use super::rule::{Draw, Rule, Transform};
use super::Tile;
use crate::numerics::{Block, Nonfinite, ScaleLayout};
use std::mem::MaybeUninit;

/// Rows of a piece: 64 bytes of codes of a column.
pub const HEIGHT: usize = 128;
/// Most columns of a piece.
pub const WIDTH: usize = 32;

/// Columns of a source, from row 0 of the piece on.
#[derive(Clone, Copy)]
pub struct Columns {
    pub data: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    /// Rows that exist, at most `HEIGHT`.
    pub rows: usize,
    /// Columns that exist, at most `WIDTH`.
    pub cols: usize,
}

impl Columns {
    /// Rows of the copy that the piece makes: those of the source, padded for the transform.
    pub fn height(&self, transform: Option<&Transform>) -> usize {
        match transform {
            Some(t) => self.rows.next_multiple_of(t.n),
            None => self.rows,
        }
    }
}

/// What a copy does to the columns.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    pub rule: &'a Rule,
    pub transform: Option<&'a Transform>,
    /// Key of stochastic rounding; `row` is the first column's number, `block` the first row's div 16.
    pub draw: Option<&'a Draw>,
    /// Square tiles: sixteen columns share a scale (blocks of 16 only).
    pub square: bool,
}

/// Results of a piece.
#[repr(C, align(64))]
pub struct Output {
    /// 64 bytes of codes of each column.
    pub codes: [[u8; 64]; WIDTH],
    /// Scale bytes of each column: one a block.
    pub scales: [[u8; 8]; WIDTH],
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    pub const fn new() -> Output {
        Output {
            codes: [[0; 64]; WIDTH],
            scales: [[0; 8]; WIDTH],
        }
    }
}

/// Columns that are brought together before they are cut into pieces.
const BAND: usize = 128;

/// 128 rows by up to `BAND` columns of a source, row after row without gaps.
///
/// Rows of a large matrix are often a power of two apart, and then share so few sets of a cache that a line read for
/// some of its columns is gone before the others are due. Rows of the band do not.
#[repr(C, align(64))]
struct Band([f32; BAND * HEIGHT]);

/// Calls `f(copy's row, copy's column, columns)` for each piece of a tile.
///
/// # Safety
/// The tile must lie inside the source.
unsafe fn each_piece<R: Rows>(
    k: &Known,
    tile: &Tile,
    mut f: impl FnMut(usize, usize, &Columns) -> bool,
) -> bool {
    let size = k.x.dtype.size();
    let far = k.x.stride * size > BAND * size;
    let mut band = MaybeUninit::<Band>::uninit();
    let band = band.as_mut_ptr().cast::<u8>();
    for row in tile.rows.clone().step_by(HEIGHT) {
        let rows = HEIGHT.min(tile.rows.end - row);
        for first in tile.cols.clone().step_by(BAND) {
            let cols = BAND.min(tile.cols.end - first);
            let (mut data, mut stride) = (k.at(row, first).cast_mut(), k.x.stride * size);
            if R::BANDS && far {
                for r in 0..rows {
                    // SAFETY: inside the source and the band.
                    unsafe {
                        let (from, to) = (data.add(r * stride), band.add(r * BAND * size));
                        match cols {
                            BAND if size == 2 => copy::<{ 2 * BAND }>(from, to),
                            BAND => copy::<{ 4 * BAND }>(from, to),
                            _ => std::ptr::copy_nonoverlapping(from, to, cols * size),
                        }
                    }
                }
                (data, stride) = (band, BAND * size);
            }
            for col in (0..cols).step_by(R::COLUMNS) {
                let piece = Columns {
                    data: data.wrapping_add(col * size),
                    stride,
                    rows,
                    cols: R::COLUMNS.min(cols - col),
                };
                if !f(first + col, row, &piece) {
                    return false;
                }
            }
        }
    }
    true
}

/// # Safety
/// N bytes at both.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
}

/// False where a value is not finite and the scalar code must see to it.
///
/// # Safety
/// As `columnwise_tile`.
pub unsafe fn columnwise_amax<R: Rows>(k: &Known, tile: &Tile) -> bool {
    let mut largest = 0u32;
    let each = k.copy.out.domain_rows != 0;
    let take = |row: usize, _: usize, piece: &Columns| {
        // SAFETY: the piece lies inside the matrix.
        let m = unsafe { R::columns_amax(k.x.dtype, piece, k.transform.as_ref()) };
        if m >= NONFINITE {
            return false;
        }
        largest = largest.max(m);
        if each {
            raise(k.copy, row, f32::from_bits(m));
        }
        true
    };
    // SAFETY: the caller's promise.
    let finite = unsafe { each_piece::<R>(k, tile, take) };
    if finite && !each {
        raise(k.copy, tile.cols.start, f32::from_bits(largest));
    }
    finite
}

/// False where the scalar code must replace values that are not finite.
///
/// # Safety
/// The tile must lie inside the source and the copy; the processor must be able to run the kernels.
pub unsafe fn columnwise_tile<R: Rows>(k: &Known, tile: &Tile) -> bool {
    let out = &k.copy.out;
    let block = out.format.block();
    let mut result = Output::new();
    let mut rule = k.rule(tile.cols.start);
    let take = |row: usize, col: usize, piece: &Columns| {
        if out.domain_rows != 0 {
            rule = k.rule(row);
        }
        let draw = k.draw(row, col);
        let options = Options {
            rule: &rule,
            transform: k.transform.as_ref(),
            draw: draw.as_ref(),
            square: k.copy.options.block == Block::TwoD,
        };
        let n = piece.height(options.transform);
        let (code_bytes, scale_bytes) = (n.div_ceil(2), n.div_ceil(block));
        // SAFETY: the piece lies inside matrix and copy.
        unsafe {
            let bad = R::columns(k.x.dtype, piece, &options, &mut result);
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
    };
    // SAFETY: the caller's promise.
    unsafe { each_piece::<R>(k, tile, take) }
}
