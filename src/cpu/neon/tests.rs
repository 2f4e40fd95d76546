//! NEON kernels against the scalar contract.

use super::gemm;
use super::table::Neon;
use crate::cpu::isa_tests::*;
use crate::cpu::packing::Packing;
use crate::cpu::rows::Rows;
use crate::cpu::rule::{Draw, Rule};
use crate::numerics::{special, Dtype};

unsafe fn quantize_row(
    dtype: Dtype,
    x: *const u8,
    n: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    assert!(draw.is_none(), "the scalar code draws");
    // SAFETY: the test's buffers hold n elements.
    unsafe { Neon::quantize(dtype, x, n, rule, codes, scales) }
}

#[test]
fn rows_equal_the_scalar_quantizer() {
    check_quantizer_to_nearest(quantize_row);
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
fn largest_magnitudes() {
    // SAFETY: the test's row holds n elements.
    check_amax(|dtype, p, n| unsafe { Neon::amax_bits(dtype, p, n) });
}

fn check_amax(f: impl Fn(Dtype, *const u8, usize) -> u32) {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        for n in (0..34).chain([64, 127, 128, 129, 700]) {
            for x in adversarial(n, 5 + n as u64) {
                let row = Row::new(dtype, &x);
                // An odd address.
                let mut bytes = vec![0xFF; 1];
                bytes.extend(&row.bytes);
                let got = f(dtype, bytes[1..].as_ptr(), n);
                if row.values.iter().all(|v| v.is_finite()) {
                    let want = special::amax(row.values.iter().copied());
                    assert_eq!(got, want.to_bits());
                } else {
                    assert!(got >= 0x7F80_0000);
                }
            }
        }
    }
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
