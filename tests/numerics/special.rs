//! Zeros, values that are not finite, extremes, and what is refused.

use super::data::normal;
use super::quantize::{codes, run, with};
use nvfp4::numerics::dequantize::dequantize;
use nvfp4::numerics::matrix::Matrix;
use nvfp4::numerics::quantize::{quantize, quantize_with_stats, Call};
use nvfp4::numerics::*;

#[test]
fn a_bad_value_stays_visible_and_local() {
    let (rows, cols) = (32, 64);
    let clean = normal(10, rows * cols);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for format in [Format::Nvfp4, Format::Mxfp4] {
            for block in [Block::OneD, Block::TwoD] {
                let o = Options {
                    format,
                    block,
                    ..Options::default()
                };
                let mut x = clean.clone();
                x[5 * cols + 33] = bad;
                let (q, stats) =
                    quantize_with_stats(&Matrix::f32(&x, rows, cols), &with(o)).unwrap();
                let mut zeroed = clean.clone();
                zeroed[5 * cols + 33] = 0.0;
                let p = run(&zeroed, rows, cols, &with(o));
                assert_eq!(q.amax, p.amax);
                assert_eq!(stats.nonfinite, 1);
                let (v, w) = (dequantize(&q, Dtype::F32), dequantize(&p, Dtype::F32));
                let side = format.block();
                let rows_hit = if block == Block::TwoD {
                    5 / side * side..(5 / side + 1) * side
                } else {
                    5..6
                };
                for r in 0..rows {
                    for c in 0..cols {
                        let hit = rows_hit.contains(&r) && c / side == 33 / side;
                        assert_eq!(v[r * cols + c].is_nan(), hit);
                        assert!(hit || v[r * cols + c] == w[r * cols + c]);
                        assert!(!hit || q.code(r, c) == 0);
                    }
                }
                let saturated = run(
                    &x,
                    rows,
                    cols,
                    &Call {
                        nonfinite: Nonfinite::Saturate,
                        ..with(o)
                    },
                );
                assert!(dequantize(&saturated, Dtype::F32)
                    .iter()
                    .all(|v| v.is_finite()));
                if format == Format::Nvfp4 {
                    assert_eq!(
                        saturated.amax[0],
                        if bad.is_nan() { p.amax[0] } else { f32::MAX }
                    );
                }
            }
        }
    }
}

#[test]
fn a_bad_given_amax_is_an_error_with_the_value_in_it() {
    let x = [1f32; 16];
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        let call = Call {
            amax: Some(&[bad]),
            ..Call::default()
        };
        let message = quantize(&Matrix::f32(&x, 1, 16), &call)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("amax[0]") && message.contains(&bad.to_string()),
            "{message}"
        );
    }
    let call = Call {
        amax: Some(&[1.0, 1.0]),
        ..Call::default()
    };
    assert!(quantize(&Matrix::f32(&x, 1, 16), &call)
        .unwrap_err()
        .to_string()
        .contains("2 values"));
}

#[test]
fn subnormal_inputs_are_values() {
    let x = [2f32.powi(-126); 32];
    let q = run(
        &x,
        1,
        32,
        &with(Options {
            format: Format::Mxfp4,
            ..Options::default()
        }),
    );
    assert_eq!((q.scales[0], codes(&q, 0)), (0, vec![4; 32]));
    assert_eq!(dequantize(&q, Dtype::F32), x);
    let x = [1e-40f32; 16];
    let q = run(&x, 1, 16, &Call::default());
    assert_eq!(q.amax, [1e-40]);
    assert!(dequantize(&q, Dtype::F32)
        .iter()
        .all(|v| v.is_finite() && *v >= 0.0));
}

#[test]
fn a_transform_that_overflows_follows_the_policy() {
    let x = [f32::MAX; 16];
    let o = Options {
        hadamard: 16,
        signs: Signs::Mask16(0),
        ..Options::default()
    };
    let q = run(&x, 1, 16, &with(o));
    assert_eq!((q.scales[0], q.amax[0]), (0x7F, 0.0));
    let q = run(
        &x,
        1,
        16,
        &Call {
            nonfinite: Nonfinite::Saturate,
            ..with(o)
        },
    );
    assert_eq!(q.amax[0], f32::MAX);
    assert!(dequantize(&q, Dtype::F32).iter().all(|v| v.is_finite()));
}

#[test]
fn zero_tensors_are_zero_in_every_form() {
    for (rows, cols) in [(1, 16), (33, 48), (7, 5), (0, 16), (16, 0), (0, 0)] {
        for format in [Format::Nvfp4, Format::Mxfp4] {
            for block in [Block::OneD, Block::TwoD] {
                for columnwise in [false, true] {
                    let o = Options {
                        format,
                        block,
                        ..Options::default()
                    };
                    let q = run(
                        &vec![0.0; rows * cols],
                        rows,
                        cols,
                        &Call {
                            columnwise,
                            ..with(o)
                        },
                    );
                    assert!(q.codes.iter().chain(&q.scales).all(|b| *b == 0));
                    assert!(q.amax.iter().all(|a| *a == 0.0));
                    assert!(dequantize(&q, Dtype::F32).iter().all(|v| v.to_bits() == 0));
                }
            }
        }
    }
}

#[test]
fn undefined_combinations_are_refused() {
    let x = [1f32; 16];
    let d = Options::default();
    for o in [
        Options { hadamard: 24, ..d },
        Options { c: 100.0, ..d },
        Options {
            format: Format::Mxfp4,
            select: Select::FourOverSixMae,
            ..d
        },
        Options {
            format: Format::Bf16,
            rounding: Rounding::Stochastic,
            ..d
        },
        Options {
            block: Block::TwoD,
            domain_rows: 8,
            ..d
        },
        Options {
            select: Select::MsEden,
            hadamard: 16,
            ..d
        },
    ] {
        assert!(
            quantize(&Matrix::f32(&x, 1, 16), &with(o)).is_err(),
            "{o:?}"
        );
    }
}
