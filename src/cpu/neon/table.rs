//! The NEON entries of `Kernels`. What the kernels do not know (columnwise copies, square blocks, transforms, random
//! rounding, f16 sources, ...) goes to the scalar entry.

use super::quantize::{self, BF16, F32, NONFINITE};
use crate::cpu::decode::row_amax;
use crate::cpu::quantize::{only, raise, store_scales, wants_amax};
use crate::cpu::rule::Rule;
use crate::cpu::{Kernels, Tile, SCALAR};
use crate::numerics::scale::tensor_scale;
use crate::numerics::{Block, Dtype, Nonfinite, Rounding, ScaleLayout};
use crate::plan::{CopyPlan, Matrix, QuantizePlan, Source};

/// Elements of one call: their scale bytes fit a small buffer.
const CHUNK: usize = 1024;

/// The table.
pub fn table() -> Option<Kernels> {
    Some(Kernels {
        name: "neon",
        amax_tile,
        quantize_tile,
        ..SCALAR
    })
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
        Source::Matrix(x) if rule && plain && !copy.columnwise && x.dtype != Dtype::F16 => Some(x),
        _ => None,
    }
}

fn amax_tile(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let plain = copy.options.hadamard == 0 && (!copy.columnwise || copy.out.domain_rows == 0);
        let done = match &plan.x {
            Source::Matrix(x) if plain && x.dtype != Dtype::F16 => rowwise_amax(x, copy, tile),
            _ => false,
        };
        if !done {
            (SCALAR.amax_tile)(&only(plan, copy), tile);
        }
    }
}

/// False where a value is not finite and the scalar code must see to it.
fn rowwise_amax(x: &Matrix, copy: &CopyPlan, tile: &Tile) -> bool {
    // A columnwise copy of one domain: any row of it stands for the domain.
    let line = |row| if copy.columnwise { 0 } else { row };
    let (mut largest, mut from) = (0u32, tile.rows.start);
    for row in tile.rows.clone() {
        if copy.out.domain_of(line(row)) != copy.out.domain_of(line(from)) {
            raise(copy, from, f32::from_bits(largest));
            (largest, from) = (0, row);
        }
        let (p, n) = (at(x, row, tile.cols.start), tile.cols.len());
        // SAFETY: the tile lies inside the matrix.
        let m = unsafe {
            match x.dtype {
                Dtype::F32 => quantize::amax_bits::<F32>(p, n),
                _ => quantize::amax_bits::<BF16>(p, n),
            }
        };
        if m >= NONFINITE as u32 {
            return false;
        }
        largest = largest.max(m);
    }
    raise(copy, line(from), f32::from_bits(largest));
    true
}

fn quantize_tile(plan: &QuantizePlan, tile: &Tile) -> u64 {
    if !plan.stats.is_null() {
        return (SCALAR.quantize_tile)(plan, tile);
    }
    for copy in plan.copies() {
        let done = known(plan, copy).is_some_and(|x| rowwise_tile(x, copy, plan.nonfinite, tile));
        if !done {
            (SCALAR.quantize_tile)(&only(plan, copy), tile);
        }
    }
    0
}

/// False where the scalar code must replace values that are not finite.
fn rowwise_tile(x: &Matrix, copy: &CopyPlan, nonfinite: Nonfinite, tile: &Tile) -> bool {
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
            // SAFETY: the piece lies inside matrix and copy.
            unsafe {
                let codes = out.codes.add(row * out.code_stride + col / 2);
                let scales = match linear {
                    true => out.scales.add(row * out.scale_stride + col / block),
                    false => bytes.as_mut_ptr(),
                };
                let p = at(x, row, col);
                let bad = match x.dtype {
                    Dtype::F32 => quantize::run::<F32>(p, n, &rule, codes, scales),
                    _ => quantize::run::<BF16>(p, n, &rule, codes, scales),
                };
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
