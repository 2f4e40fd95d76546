//! AVX-512 kernels against the scalar contract.

use super::table::Avx512;
use super::*;
use crate::cpu::isa_tests::*;
use crate::cpu::packing::{Buffer, Packing};
use crate::cpu::rows::{Rows, CHUNK};
use crate::cpu::rule::{Draw, Rule};
use crate::numerics::Dtype;

/// True where the kernels can run; else says so in one line.
fn can_run() -> bool {
    if !available() {
        println!("skipped: this processor lacks AVX-512 with VBMI and VNNI");
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
            bad |= Avx512::quantize(dtype, p, len, 4096, rule, draw, i / 16, c, s);
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
        check_transform(Avx512::transform);
    }
}

#[test]
fn largest_magnitudes() {
    if can_run() {
        check_amax(Avx512::amax_bits, Avx512::finite_amax_bits);
    }
}

#[test]
fn products() {
    if !can_run() {
        return;
    }
    for block in [16, 32] {
        let mut scratch = Packing::default();
        let mut weight = Buffer::default();
        crate::cpu::gemm_tests::check(block, &mut |a, b, packed, rows, cols, acc, ld| {
            scratch.forget();
            // SAFETY: the test's matrices are in memory, acc has room for the tile.
            unsafe {
                let mut right = gemm::Right::Rows(b);
                if packed {
                    let w = weight.reserve(gemm::packed_weight_bytes(b) + 1).add(1);
                    for p in 0..b.rows.div_ceil(32) {
                        gemm::pack_weight_panel(b, p, w.add(p * gemm::panel_bytes(b)));
                    }
                    right = gemm::Right::Packed(w);
                }
                gemm::tile(a, right, rows, cols, &mut scratch, acc, ld);
            }
        });
        assert!(scratch.bytes() < 2 << 20, "{} bytes", scratch.bytes());
    }
}

#[test]
fn bf16_products() {
    if !can_run() {
        return;
    }
    let mut r = Random(7);
    let mut scratch = Packing::default();
    for (m, n, k) in [
        (1, 1, 1),
        (5, 33, 17),
        (12, 64, 768),
        (30, 47, 1600),
        (25, 96, 31),
        (3, 4, 0),
    ] {
        let mut make = |rows: usize, stride: usize| -> Vec<u16> {
            (0..rows * stride)
                .map(|_| (r.normal().to_bits() >> 16) as u16)
                .collect()
        };
        let (sa, sb) = (k + 3, k + 1);
        let (a, b) = (make(m, sa), make(n, sb));
        let view = |x: &[u16], rows, stride| gemm::bf16::Values {
            data: x.as_ptr().cast(),
            stride: 2 * stride,
            rows,
            cols: k,
        };
        let ld = n.next_multiple_of(32);
        let mut acc = vec![f32::NAN; m * ld];
        // SAFETY: the views describe a and b, acc has room.
        unsafe {
            gemm::bf16::tile(
                &view(&a, m, sa),
                &view(&b, n, sb),
                0..m,
                0..n,
                &mut scratch,
                acc.as_mut_ptr(),
                ld,
            );
        }
        let value = |b: u16| f32::from_bits((b as u32) << 16);
        for i in 0..m {
            for j in 0..n {
                let want = (0..k).fold(0f32, |s, l| {
                    value(a[i * sa + l]).mul_add(value(b[j * sb + l]), s)
                });
                assert_eq!(
                    acc[i * ld + j].to_bits(),
                    want.to_bits(),
                    "[{m}, {n}, {k}] ({i}, {j})"
                );
            }
        }
    }
}
