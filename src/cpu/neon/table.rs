//! The NEON entries of `Kernels`.

use super::quantize::{BF16, F16, F32};
use super::{dequantize, gemm, quantize};
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::rows::{self, Rows};
use crate::cpu::rule::Rule;
use crate::cpu::{Kernels, Tile, SCALAR};
use crate::numerics::Dtype;
use std::arch::is_aarch64_feature_detected;

/// The table.
pub fn table() -> Option<Kernels> {
    Some(Kernels {
        name: "neon",
        amax_tile: rows::amax_tile::<Neon>,
        quantize_tile: rows::quantize_tile::<Neon>,
        dequantize_tile: rows::dequantize_tile::<Neon>,
        gemm_tile: match is_aarch64_feature_detected!("dotprod") {
            true => gemm_tile::<true>,
            false => gemm_tile::<false>,
        },
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

/// The kernels over rows.
pub struct Neon;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl Rows for Neon {
    unsafe fn amax_bits(dtype: Dtype, x: *const u8, n: usize) -> u32 {
        // SAFETY: the caller's promise, here and below.
        unsafe { by_type!(dtype, quantize::amax_bits(x, n)) }
    }

    unsafe fn quantize(
        dtype: Dtype,
        x: *const u8,
        n: usize,
        rule: &Rule,
        codes: *mut u8,
        scales: *mut u8,
    ) -> bool {
        // SAFETY: as above.
        unsafe { by_type!(dtype, quantize::run(x, n, rule, codes, scales)) }
    }

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
