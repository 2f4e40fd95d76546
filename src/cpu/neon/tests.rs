//! NEON kernels against the scalar contract.

use super::gemm;
use super::table::Neon;
use crate::cpu::isa_tests::*;
use crate::cpu::packing::Packing;
use crate::cpu::rows::{Rows, CHUNK};
use crate::cpu::rule::{Draw, Rule};
use crate::numerics::Dtype;

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
            bad |= Neon::quantize(dtype, p, len, 4096, rule, draw, i / 16, c, s);
        }
    }
    bad
}

#[test]
fn rows_equal_the_scalar_quantizer() {
    check_quantizer(quantize_row);
}

#[test]
fn all_bf16_inputs_under_all_scales() {
    check_all_inputs(quantize_row, Dtype::Bf16);
}

#[test]
fn all_f16_inputs_under_all_scales() {
    check_all_inputs(quantize_row, Dtype::F16);
}

#[test]
fn random_bit_patterns() {
    check_random_bits(quantize_row, 4_000_000);
}

/// `make test-long`.
#[test]
#[ignore = "long: make test-long"]
fn a_hundred_million_random_bit_patterns() {
    check_random_bits(quantize_row, 100_000_000);
}

#[test]
fn transformed_rows() {
    check_transform(Neon::transform);
}

#[test]
fn largest_magnitudes() {
    check_amax(Neon::amax_bits, Neon::finite_amax_bits);
}

fn check_products<const DOT: bool>() {
    for block in [16, 32] {
        let mut scratch = Packing::default();
        crate::cpu::gemm_tests::check(block, &mut |a, b, _, rows, cols, acc, ld| {
            scratch.forget();
            // SAFETY: the test's matrices are in memory, acc has room for the tile.
            unsafe { gemm::tile::<DOT>(a, b, rows, cols, &mut scratch, acc, ld) };
        });
        assert!(scratch.bytes() < 2 << 20, "{} bytes", scratch.bytes());
    }
}

#[test]
fn products() {
    check_products::<false>();
}

#[test]
fn products_by_dot_product_instructions() {
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        check_products::<true>();
    } else {
        println!("skipped: this processor lacks the dot product instructions");
    }
}
