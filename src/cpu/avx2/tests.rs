//! AVX2 and AVX-VNNI kernels against the scalar contract.

use super::table::Avx2;
use super::*;
use crate::cpu::avxvnni;
use crate::cpu::isa_tests::*;
use crate::cpu::packing::{Buffer, Packing};
use crate::cpu::rows::{Rows, CHUNK};
use crate::cpu::rule::{Draw, Rule};
use crate::numerics::Dtype;

/// True where the kernels can run; else says so in one line.
fn can_run() -> bool {
    if !available() {
        println!("skipped: this processor lacks AVX2, FMA or F16C");
    }
    available()
}

unsafe fn quantize_row(
    dtype: Dtype,
    x: *const u8,
    n: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    let mut bad = false;
    for i in (0..n).step_by(CHUNK) {
        let len = (n - i).min(CHUNK);
        // SAFETY: the test's buffers hold n elements.
        unsafe {
            let (c, s) = (codes.add(i / 2), scales.add(i / rule.block()));
            let p = x.add(i * dtype.size());
            bad |= Avx2::quantize(dtype, p, len, 4096, rule, draw, i / 16, c, s);
        }
    }
    bad
}

#[test]
fn rows_equal_the_scalar_quantizer() {
    if can_run() {
        check_quantizer(quantize_row);
    }
}

#[test]
fn all_bf16_inputs_under_all_scales() {
    if can_run() {
        check_all_inputs(quantize_row, Dtype::Bf16);
    }
}

#[test]
fn all_f16_inputs_under_all_scales() {
    if can_run() {
        check_all_inputs(quantize_row, Dtype::F16);
    }
}

#[test]
fn random_bit_patterns() {
    if can_run() {
        check_random_bits(quantize_row, 4_000_000);
    }
}

/// `make test-long`.
#[test]
#[ignore = "long: make test-long"]
fn a_hundred_million_random_bit_patterns() {
    if can_run() {
        check_random_bits(quantize_row, 100_000_000);
    }
}

#[test]
fn transformed_rows() {
    if can_run() {
        check_transform(Avx2::transform);
    }
}

#[test]
fn largest_magnitudes() {
    if can_run() {
        check_amax(Avx2::amax_bits, Avx2::finite_amax_bits);
    }
}

fn check_products<const VNNI: bool>() {
    for block in [16, 32] {
        let mut scratch = Packing::default();
        let mut packed_b = Buffer::default();
        crate::cpu::gemm_tests::check(block, &mut |a, b, packed, rows, cols, acc, ld| {
            scratch.forget();
            // SAFETY: the test's matrices are in memory, acc has room for the tile.
            unsafe {
                let mut right = gemm::Right::Rows(b);
                if packed {
                    let (panels, bytes) = (b.rows.div_ceil(32), weight::panel_bytes(b));
                    let data = packed_b.reserve(panels * bytes + 1).add(1);
                    for p in 0..panels {
                        weight::pack_panel(b, p, data.add(p * bytes));
                    }
                    let blocks = b.scale_cols();
                    right = gemm::Right::Packed(weight::Panels { data, blocks });
                }
                gemm::tile::<VNNI>(a, right, rows, cols, &mut scratch, acc, ld);
            }
        });
        assert!(scratch.bytes() < 2 << 20, "{} bytes", scratch.bytes());
    }
}

#[test]
fn products() {
    if can_run() {
        check_products::<false>();
    }
}

#[test]
fn products_by_avxvnni() {
    if avxvnni::available() {
        check_products::<true>();
    } else {
        println!("skipped: this processor lacks AVX-VNNI");
    }
}

/// Every code pair at once, so that sums of a block reach their extremes.
#[test]
fn largest_sums() {
    if !can_run() {
        return;
    }
    for (x, y) in [(0x77u8, 0x77u8), (0x77, 0xFF), (0xFF, 0xFF), (0x70, 0x0F)] {
        for block in [16usize, 32] {
            let k = 4 * block;
            let matrix = |rows: usize, code| crate::cpu::gemm_tests::Matrix {
                codes: vec![code; rows * k / 2],
                scales: vec![if block == 16 { 0x7E } else { 130 }; rows * k / block],
                rows,
                cols: k,
                block,
                code_stride: k / 2,
                scale_stride: k / block,
                swizzled: false,
            };
            let (a, b) = (matrix(4, x), matrix(17, y));
            let mut acc = vec![f32::NAN; 4 * 32];
            let mut scratch = Packing::default();
            let want = crate::cpu::gemm_tests::expected(&a, &b, 0, 0);
            // SAFETY: the matrices are in memory, acc has room for the tile.
            unsafe {
                let p = acc.as_mut_ptr();
                let b = b.operand();
                let b = gemm::Right::Rows(&b);
                gemm::tile::<false>(&a.operand(), b, 0..4, 0..17, &mut scratch, p, 32);
            }
            for i in 0..4 {
                assert!(
                    acc[32 * i..][..17].iter().all(|v| *v == want),
                    "{x:x} {y:x}"
                );
            }
        }
    }
}
