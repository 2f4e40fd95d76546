//! The AVX-512 entries of `Kernels`.

use super::square::SquareRows;
use super::{amax, available, columnwise, copy16, dequantize, gemm, hadamard, quantize};
use crate::cpu::columns::{self, Columns, Output};
use crate::cpu::decode::row_amax;
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::rows::{self, Rows};
use crate::cpu::rule::{Draw, Rule, Transform};
use crate::cpu::vector::by_type;
use crate::cpu::{Kernels, Tile, WeightPacker, SCALAR};
use crate::numerics::{Dtype, Format, Nonfinite};
use crate::plan::{DequantizePlan, Matrix, Quantized};

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    available().then_some(Kernels {
        name: "avx512",
        amax_tile: rows::amax_tile::<Avx512>,
        quantize_tile: rows::quantize_tile::<Avx512>,
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

/// The kernels over rows and columns.
pub struct Avx512;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl Rows for Avx512 {
    const COLUMNS: usize = columnwise::WIDTH;
    const BANDS: bool = false;
    type Square = SquareRows;

    unsafe fn amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32 {
        // SAFETY: the caller's promise, here and below.
        unsafe { by_type!(dtype, amax::amax_bits(x, n)) }
    }

    unsafe fn finite_amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32 {
        // SAFETY: as above.
        unsafe { by_type!(dtype, amax::finite_amax_bits(x, n)) }
    }

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
    ) -> bool {
        // SAFETY: as above.
        unsafe {
            by_type!(
                dtype,
                quantize::chunk(x, n, ahead, rule, draw, first_block, codes, scales)
            )
        }
    }

    unsafe fn transform(dtype: Dtype, x: *const u8, n: usize, t: &Transform, out: *mut f32) {
        // SAFETY: as above.
        unsafe { by_type!(dtype, hadamard::row(x, n, t, out)) }
    }

    unsafe fn columns_amax(dtype: Dtype, x: &Columns, transform: Option<&Transform>) -> u32 {
        // SAFETY: as above.
        unsafe { by_type!(dtype, columnwise::amax_bits(x, transform)) }
    }

    unsafe fn columns(dtype: Dtype, x: &Columns, o: &columns::Options, out: &mut Output) -> bool {
        // SAFETY: as above.
        unsafe { by_type!(dtype, columnwise::tile(x, o, out)) }
    }

    unsafe fn cast(
        x: &Matrix,
        out: &Quantized,
        columnwise: bool,
        nonfinite: Nonfinite,
        tile: &Tile,
    ) -> bool {
        // SAFETY: as above.
        unsafe { copy16::tile(x, out, columnwise, nonfinite, tile) }
    }
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
