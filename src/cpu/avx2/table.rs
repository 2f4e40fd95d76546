//! The AVX2 entries of `Kernels`.

use super::lanes::{BF16, F16, F32};
use super::{available, bf16, dequantize, gemm, quantize};
use crate::cpu::factors::Factors;
use crate::cpu::gemm::{is_elementwise, GemmScratch, Product, TILE_COLS};
use crate::cpu::operand::Operand;
use crate::cpu::rows::{self, Rows};
use crate::cpu::rule::Rule;
use crate::cpu::{Kernels, Tile, SCALAR};
use crate::numerics::{Dtype, Format};
use crate::plan::Quantized;

/// The table; None where the processor cannot run it.
pub fn table() -> Option<Kernels> {
    available().then_some(Kernels {
        name: "avx2",
        amax_tile: rows::amax_tile::<Avx2>,
        quantize_tile: rows::quantize_tile::<Avx2>,
        dequantize_tile: rows::dequantize_tile::<Avx2>,
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

/// The kernels over rows.
pub struct Avx2;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl Rows for Avx2 {
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
        unsafe { by_type!(dtype, quantize::chunk(x, n, rule, codes, scales)) }
    }

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
