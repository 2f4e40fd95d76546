//! NEON kernels against the scalar contract.

use super::quantize::{self, BF16, F32};
use crate::cpu::isa_tests::*;
use crate::cpu::rule::{Draw, Rule};
use crate::numerics::{special, Dtype};

/// By way of f32 for f16, which the kernels leave to the scalar code.
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
    unsafe {
        match dtype {
            Dtype::F32 => quantize::run::<F32>(x, n, rule, codes, scales),
            Dtype::Bf16 => quantize::run::<BF16>(x, n, rule, codes, scales),
            Dtype::F16 => {
                let bytes = std::slice::from_raw_parts(x, 2 * n);
                let value = |b: &[u8]| {
                    crate::numerics::rounding::f16_value(u16::from_le_bytes([b[0], b[1]]))
                };
                let wide: Vec<f32> = bytes.chunks(2).map(value).collect();
                quantize::run::<F32>(wide.as_ptr().cast(), n, rule, codes, scales)
            }
        }
    }
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
    check_amax(&[Dtype::F32, Dtype::Bf16], |dtype, p, n| {
        // SAFETY: the test's row holds n elements.
        unsafe {
            match dtype {
                Dtype::F32 => quantize::amax_bits::<F32>(p, n),
                _ => quantize::amax_bits::<BF16>(p, n),
            }
        }
    });
}

fn check_amax(types: &[Dtype], f: impl Fn(Dtype, *const u8, usize) -> u32) {
    for &dtype in types {
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
