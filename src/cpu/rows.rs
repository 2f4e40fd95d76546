//! The entries of `Kernels` that an instruction set gets from kernels over rows alone: rowwise copies to nearest, amax,
//! dequantize. What these don't know (columnwise copies, square blocks, transforms, random rounding, ...) goes to the
//! scalar entry.

use super::decode::{load_quantized, row_amax, store_matrix};
use super::factors::Factors;
use super::operand::Operand;
use super::quantize::{only, raise, store_scales, wants_amax};
use super::rule::Rule;
use super::{Tile, SCALAR};
use crate::numerics::scale::tensor_scale;
use crate::numerics::{Block, Dtype, Nonfinite, Rounding, ScaleLayout};
use crate::plan::{CopyPlan, DequantizePlan, Matrix, QuantizePlan, Source};

/// Most elements of one call of `quantize`: their scale bytes fit a small buffer.
pub const CHUNK: usize = 1024;
/// Elements that `decode` leaves to its caller at a time.
pub const STRETCH: usize = 128;
/// Smallest bit pattern of |x| that is not finite.
const NONFINITE: u32 = 0x7F80_0000;

/// Kernels over elements of a row.
///
/// # Safety
/// Implementations read and write what is said here, no more. Callers give memory that holds it, on a processor that
/// can run it.
pub unsafe trait Rows {
    /// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value.
    unsafe fn amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32;

    /// Writes ceil(n / 2) code bytes and ceil(n / block) scale bytes of up to `CHUNK` elements that start at a block
    /// boundary. Returns whether a block was not finite.
    unsafe fn quantize(
        dtype: Dtype,
        x: *const u8,
        n: usize,
        rule: &Rule,
        codes: *mut u8,
        scales: *mut u8,
    ) -> bool;

    /// Decodes elements `0..n` of a row, but calls `rare(col, len)` for stretches with a factor that is NaN or near
    /// overflow. `stream`: past the caches (`out` is then a multiple of 32).
    unsafe fn decode(
        dtype: Dtype,
        q: &Operand,
        f: &Factors,
        row: usize,
        n: usize,
        out: *mut u8,
        stream: bool,
        rare: &mut dyn FnMut(usize, usize),
    );
}

fn at(x: &Matrix, row: usize, col: usize) -> *const u8 {
    x.data.wrapping_add((row * x.stride + col) * x.dtype.size())
}

/// The source matrix of a copy that the rowwise kernels know; None where the scalar code must do it.
fn known<'a>(plan: &'a QuantizePlan, copy: &CopyPlan) -> Option<&'a Matrix> {
    let o = &copy.options;
    let rule = Rule::new(o, &tensor_scale(o, 1.0)).is_some();
    let plain = o.hadamard == 0 && o.block == Block::OneD && o.rounding == Rounding::Nearest;
    match &plan.x {
        Source::Matrix(x) if rule && plain && !copy.columnwise => Some(x),
        _ => None,
    }
}

pub fn amax_tile<R: Rows>(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let plain = copy.options.hadamard == 0 && (!copy.columnwise || copy.out.domain_rows == 0);
        let done = match &plan.x {
            Source::Matrix(x) if plain => rowwise_amax::<R>(x, copy, tile),
            _ => false,
        };
        if !done {
            (SCALAR.amax_tile)(&only(plan, copy), tile);
        }
    }
}

/// False where a value is not finite and the scalar code must see to it.
fn rowwise_amax<R: Rows>(x: &Matrix, copy: &CopyPlan, tile: &Tile) -> bool {
    // A columnwise copy of one domain: any row of it stands for the domain.
    let line = |row| if copy.columnwise { 0 } else { row };
    let (mut largest, mut from) = (0u32, tile.rows.start);
    for row in tile.rows.clone() {
        if copy.out.domain_of(line(row)) != copy.out.domain_of(line(from)) {
            raise(copy, from, f32::from_bits(largest));
            (largest, from) = (0, row);
        }
        let (p, n) = (at(x, row, tile.cols.start), tile.cols.len());
        // SAFETY: a table is only handed out where the processor can run it; the tile lies inside the matrix.
        let m = unsafe { R::amax_bits(x.dtype, p, n) };
        if m >= NONFINITE {
            return false;
        }
        largest = largest.max(m);
    }
    raise(copy, line(from), f32::from_bits(largest));
    true
}

pub fn quantize_tile<R: Rows>(plan: &QuantizePlan, tile: &Tile) -> u64 {
    if !plan.stats.is_null() {
        return (SCALAR.quantize_tile)(plan, tile);
    }
    for copy in plan.copies() {
        let done =
            known(plan, copy).is_some_and(|x| rowwise_tile::<R>(x, copy, plan.nonfinite, tile));
        if !done {
            (SCALAR.quantize_tile)(&only(plan, copy), tile);
        }
    }
    0
}

/// False where the scalar code must replace values that are not finite.
fn rowwise_tile<R: Rows>(x: &Matrix, copy: &CopyPlan, nonfinite: Nonfinite, tile: &Tile) -> bool {
    let (out, o) = (&copy.out, &copy.options);
    let block = out.format.block();
    let rule_of = |row| {
        Rule::new(o, &tensor_scale(o, row_amax(out, row))).expect("a rule that `known` asked for")
    };
    let mut rule = rule_of(tile.rows.start);
    let mut bytes = [0u8; CHUNK / 16];
    let linear = out.scale_layout == ScaleLayout::Linear;
    for row in tile.rows.clone() {
        if out.domain_rows != 0 {
            rule = rule_of(row);
        }
        for col in tile.cols.clone().step_by(CHUNK) {
            let n = CHUNK.min(tile.cols.end - col);
            // SAFETY: a table is only handed out where the processor can run it; the piece lies inside matrix and copy.
            unsafe {
                let codes = out.codes.add(row * out.code_stride + col / 2);
                let scales = match linear {
                    true => out.scales.add(row * out.scale_stride + col / block),
                    false => bytes.as_mut_ptr(),
                };
                let p = at(x, row, col);
                let bad = R::quantize(x.dtype, p, n, &rule, codes, scales);
                if bad && nonfinite == Nonfinite::Saturate {
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

/// Output bytes from which on dequantize writes past the caches: it will not be read back from them.
const STREAM: usize = 32 << 20;

pub fn dequantize_tile<R: Rows>(plan: &DequantizePlan, tile: &Tile) {
    let (q, out) = (&plan.x, &plan.out);
    let bf16 = out.dtype == Dtype::Bf16;
    let largest = if bf16 { Dtype::Bf16.max() } else { f32::MAX };
    let factors = |row| Factors::new(&q.decode_scale(row_amax(q, row)), largest);
    if plan.transpose || tile.rows.is_empty() || factors(tile.rows.start).is_none() {
        return (SCALAR.dequantize_tile)(plan, tile);
    }
    let x = Operand::of(q);
    let row_bytes = out.stride * out.dtype.size();
    let aligned = (out.data as usize).is_multiple_of(32) && row_bytes % 32 == 0;
    let stream = aligned && plan.cols * x.rows * out.dtype.size() >= STREAM;
    for row in tile.rows.clone() {
        let Some(f) = factors(row) else { return };
        let mut rare = |col, len| {
            let mut values = [0f32; STRETCH];
            let values = &mut values[..len];
            load_quantized(q, row, col, values);
            if bf16 {
                for v in values.iter_mut() {
                    *v = v.clamp(-largest, largest);
                }
            }
            store_matrix(out, row, col, values);
        };
        // SAFETY: a table is only handed out where the processor can run it; the plan checked operand and output.
        unsafe {
            let o = out.at(row, 0);
            R::decode(out.dtype, &x, &f, row, plan.cols, o, stream, &mut rare);
        }
    }
}
