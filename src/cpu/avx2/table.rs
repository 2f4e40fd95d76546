//! The AVX2 entries of `Kernels`. What the kernels do not know (columnwise copies, square blocks, transforms, random
//! rounding, ...) goes to the scalar entry.

use super::lanes::{BF16, F16, F32, NONFINITE};
use super::{available, bf16, dequantize, gemm, quantize};
use crate::cpu::decode::{load_quantized, row_amax, store_matrix};
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::quantize::{only, raise, store_scales, wants_amax};
use crate::cpu::rule::Rule;
use crate::cpu::{Kernels, Tile, SCALAR};
use crate::numerics::scale::tensor_scale;
use crate::numerics::{Block, Dtype, Format, Nonfinite, Rounding, ScaleLayout};
use crate::plan::{CopyPlan, DequantizePlan, Matrix, QuantizePlan, Quantized, Source};

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    available().then_some(Kernels {
        name: "avx2",
        amax_tile,
        quantize_tile,
        dequantize_tile,
        gemm_tile: gemm_tile::<false>,
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

fn amax_tile(plan: &QuantizePlan, tile: &Tile) {
    for copy in plan.copies().filter(|c| wants_amax(c)) {
        let plain = copy.options.hadamard == 0 && (!copy.columnwise || copy.out.domain_rows == 0);
        let done = match &plan.x {
            Source::Matrix(x) if plain => rowwise_amax(x, copy, tile),
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
        // SAFETY: the table is only handed out where `available` says so; the tile lies inside the matrix.
        let m = unsafe { by_type!(x.dtype, quantize::amax_bits(p, n)) };
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
    let mut bytes = [0u8; quantize::CHUNK / 16];
    let linear = out.scale_layout == ScaleLayout::Linear;
    for row in tile.rows.clone() {
        if out.domain_rows != 0 {
            rule = rule_of(row);
        }
        for col in tile.cols.clone().step_by(quantize::CHUNK) {
            let n = quantize::CHUNK.min(tile.cols.end - col);
            // SAFETY: the table is only handed out where `available` says so; the piece lies inside matrix and copy.
            unsafe {
                let codes = out.codes.add(row * out.code_stride + col / 2);
                let scales = match linear {
                    true => out.scales.add(row * out.scale_stride + col / block),
                    false => bytes.as_mut_ptr(),
                };
                let p = at(x, row, col);
                let bad = by_type!(x.dtype, quantize::chunk(p, n, &rule, codes, scales));
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

fn dequantize_tile(plan: &DequantizePlan, tile: &Tile) {
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
            let mut values = [0f32; dequantize::STRETCH];
            let values = &mut values[..len];
            load_quantized(q, row, col, values);
            if bf16 {
                for v in values.iter_mut() {
                    *v = v.clamp(-largest, largest);
                }
            }
            store_matrix(out, row, col, values);
        };
        // SAFETY: the table is only handed out where `available` says so; the plan checked operand and output.
        unsafe {
            let o = out.at(row, 0);
            by_type!(
                out.dtype,
                dequantize::row(&x, &f, row, plan.cols, o, stream, &mut rare)
            );
        }
    }
}

/// `VNNI`: by AVX-VNNI.
pub fn gemm_tile<const VNNI: bool>(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    let acc = scratch.acc.as_mut_ptr();
    let (rows, cols) = (tile.rows.clone(), tile.cols.clone());
    let (a, b) = (&product.a, &product.b);
    let both_bf16 = a.format == Format::Bf16 && b.format == Format::Bf16;
    let scalar = (is_elementwise(a, b) && !both_bf16) || !product.exact_in_f32;
    if scalar {
        return (SCALAR.gemm_tile)(product, tile, scratch);
    }
    // SAFETY: the table is only handed out where `available` says so; the plan checked the operands; acc holds a tile.
    unsafe {
        if both_bf16 {
            let values = |q: &Quantized| bf16::Values {
                data: q.codes,
                stride: q.code_stride,
                rows: q.rows,
                cols: q.cols,
            };
            let (a, b) = (values(a), values(b));
            bf16::tile(&a, &b, rows, cols, &mut scratch.packing, acc, TILE_COLS);
        } else {
            let (a, b) = (Operand::of(a), Operand::of(b));
            gemm::tile::<VNNI>(&a, &b, rows, cols, &mut scratch.packing, acc, TILE_COLS);
        }
    }
}
