//! The NEON entries of `Kernels`.

use super::quantize::{BF16, F16, F32};
use super::square::SquareRows;
use super::vector::V4;
use super::{dequantize, gemm, quantize};
use crate::cpu::columns::{self, Columns, Output};
use crate::cpu::dequantize::{dequantize_rows, Decode};
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::rows::{self, Rows};
use crate::cpu::rule::{Draw, Rule, Transform};
use crate::cpu::vector::{by_type, columnwise, hadamard};
use crate::cpu::{Kernels, Tile, SCALAR};
use crate::numerics::Dtype;
use std::arch::is_aarch64_feature_detected;

/// The table.
pub fn table() -> Option<Kernels> {
    Some(Kernels {
        name: "neon",
        amax_tile: rows::amax_tile::<Neon>,
        quantize_tile: rows::quantize_tile::<Neon>,
        dequantize_tile: dequantize_rows::<Neon>,
        gemm_tile: match is_aarch64_feature_detected!("dotprod") {
            true => gemm_tile::<true>,
            false => gemm_tile::<false>,
        },
        ..SCALAR
    })
}

/// The kernels over rows and columns.
pub struct Neon;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl Rows for Neon {
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
        _ahead: usize,
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
                quantize::run(x, n, rule, draw, first_block, codes, scales)
            )
        }
    }

    unsafe fn transform(dtype: Dtype, x: *const u8, n: usize, t: &Transform, out: *mut f32) {
        // SAFETY: as above.
        unsafe { by_type!(dtype, transform_row(x, n, t, out)) }
    }

    unsafe fn columns_amax(dtype: Dtype, x: &Columns, transform: Option<&Transform>) -> u32 {
        // SAFETY: as above.
        unsafe { by_type!(dtype, columns_amax(x, transform)) }
    }

    unsafe fn columns(dtype: Dtype, x: &Columns, o: &columns::Options, out: &mut Output) -> bool {
        // SAFETY: as above.
        unsafe { by_type!(dtype, columns_tile(x, o, out)) }
    }
}

// SAFETY: as above.
unsafe impl Decode for Neon {
    unsafe fn decode(
        dtype: Dtype,
        q: &Operand,
        f: &Factors,
        row: usize,
        n: usize,
        out: *mut u8,
        _stream: bool,
        rare: &mut dyn FnMut(usize, usize),
    ) {
        // SAFETY: as above.
        unsafe { by_type!(dtype, dequantize::row(q, f, row, n, out, rare)) }
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

unsafe fn transform_row<const DT: u8>(x: *const u8, n: usize, t: &Transform, out: *mut f32) {
    // SAFETY: the caller's promise, here and below.
    unsafe { hadamard::row::<V4, DT>(x, n, t, out) }
}

unsafe fn columns_amax<const DT: u8>(x: &Columns, transform: Option<&Transform>) -> u32 {
    // SAFETY: as above.
    unsafe { columnwise::amax_bits::<V4, DT>(x, transform) }
}

unsafe fn columns_tile<const DT: u8>(x: &Columns, o: &columns::Options, out: &mut Output) -> bool {
    // SAFETY: as above.
    unsafe { columnwise::tile::<V4, DT>(x, o, out) }
}

/// `DOT`: by the dot product instructions.
fn gemm_tile<const DOT: bool>(product: &Product, tile: &Tile, scratch: &mut GemmScratch) {
    if is_elementwise(&product.a, &product.b) || !product.exact_in_f32 {
        return (SCALAR.gemm_tile)(product, tile, scratch);
    }
    let acc = scratch.acc.as_mut_ptr();
    let (rows, cols) = (tile.rows.clone(), tile.cols.clone());
    let (a, b) = (Operand::of(&product.a), Operand::of(&product.b));
    // SAFETY: the plan checked the operands; acc holds a tile; `table` asked for DOT.
    unsafe { gemm::tile::<DOT>(&a, &b, rows, cols, &mut scratch.packing, acc, TILE_COLS) }
}
