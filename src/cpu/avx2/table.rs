//! The AVX2 entries of `Kernels`.

use super::lanes::{BF16, F16, F32};
use super::square::SquareRows;
use super::{available, bf16, dequantize, gemm, quantize, vector, weight};
use crate::cpu::columns::{self, Columns, Output};
use crate::cpu::dequantize::{dequantize_rows, Decode};
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::rows::{self, Rows};
use crate::cpu::rule::{Draw, Rule, Transform};
use crate::cpu::vector::by_type;
use crate::cpu::{Kernels, Tile, WeightPacker, SCALAR};
use crate::numerics::{Dtype, Format};
use crate::plan::Quantized;

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    available().then_some(Kernels {
        name: "avx2",
        amax_tile: rows::amax_tile::<Avx2>,
        quantize_tile: rows::quantize_tile::<Avx2>,
        dequantize_tile: dequantize_rows::<Avx2>,
        gemm_tile: gemm_tile::<false>,
        weights: Some(WeightPacker {
            layout: *b"avx2\0\0\0\0",
            panel_bytes: weight::panel_bytes,
            pack_panel: weight::pack_panel,
        }),
        ..SCALAR
    })
}

/// The kernels over rows and columns.
pub struct Avx2;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl Rows for Avx2 {
    const COLUMNS: usize = columns::WIDTH;
    const BANDS: bool = true;
    type Square = SquareRows;

    unsafe fn amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32 {
        // SAFETY: the caller's promise, here and below.
        unsafe { amax(dtype, x, n, false) }
    }

    unsafe fn finite_amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32 {
        // SAFETY: as above.
        unsafe { amax(dtype, x, n, true) }
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
        unsafe { by_type!(dtype, vector::transform_row(x, n, t, out)) }
    }

    unsafe fn columns_amax(dtype: Dtype, x: &Columns, transform: Option<&Transform>) -> u32 {
        // SAFETY: as above.
        unsafe { by_type!(dtype, vector::columns_amax(x, transform)) }
    }

    unsafe fn columns(dtype: Dtype, x: &Columns, o: &columns::Options, out: &mut Output) -> bool {
        // SAFETY: as above.
        unsafe { by_type!(dtype, vector::columns(x, o, out)) }
    }
}

// SAFETY: as above.
unsafe impl Decode for Avx2 {
    unsafe fn decode(
        dtype: Dtype,
        q: &Operand,
        f: &Factors,
        row: usize,
        n: usize,
        out: *mut u8,
        stream: bool,
        rare: &mut dyn FnMut(usize, usize),
    ) {
        // SAFETY: as above.
        unsafe { by_type!(dtype, dequantize::row(q, f, row, n, out, stream, rare)) }
    }
}

unsafe fn amax(dtype: Dtype, x: *const u8, n: usize, finite: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        match (dtype, finite) {
            (Dtype::F32, false) => quantize::amax_bits::<F32, false>(x, n),
            (Dtype::Bf16, false) => quantize::amax_bits::<BF16, false>(x, n),
            (Dtype::F16, false) => quantize::amax_bits::<F16, false>(x, n),
            (Dtype::F32, true) => quantize::amax_bits::<F32, true>(x, n),
            (Dtype::Bf16, true) => quantize::amax_bits::<BF16, true>(x, n),
            (Dtype::F16, true) => quantize::amax_bits::<F16, true>(x, n),
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
            let b = match product.b_panels {
                None => gemm::Right::Rows(&b),
                Some(data) => gemm::Right::Packed(weight::Panels {
                    data,
                    blocks: b.scale_cols(),
                }),
            };
            gemm::tile::<VNNI>(&a, b, rows, cols, &mut scratch.packing, acc, TILE_COLS);
        }
    }
}
