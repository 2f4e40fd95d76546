//! Stochastic rounding: means, keys, and the range that never clips.

use super::data::normal;
use nvfp4::numerics::dequantize::dequantize;
use nvfp4::numerics::matrix::Matrix;
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::scale::{encode_multiplier, scaled, tensor_scale};
use nvfp4::numerics::*;

const DRAWS: usize = 4096;

fn options() -> Options {
    Options {
        rounding: Rounding::Stochastic,
        ..Options::default()
    }
}

#[test]
fn the_mean_of_every_element_is_its_value() {
    let (rows, cols) = (4, 64);
    let x = normal(30, rows * cols);
    for columnwise in [false, true] {
        let call = Call {
            options: options(),
            columnwise,
            seed: 11,
            ..Call::default()
        };
        let first = quantize(&Matrix::f32(&x, rows, cols), &call).unwrap();
        let n = rows * cols;
        let (mut sum, mut sum_squares) = (vec![0f64; n], vec![0f64; n]);
        for offset in 0..DRAWS as u64 {
            let q = quantize(&Matrix::f32(&x, rows, cols), &Call { offset, ..call }).unwrap();
            assert_eq!(q.scales, first.scales, "scales are not random");
            for i in 0..n {
                let v = e2m1::decode(q.code(i / q.cols, i % q.cols)) as f64;
                sum[i] += v;
                sum_squares[i] += v * v;
            }
        }
        let t = tensor_scale(&options(), first.amax[0]);
        let mut clipped = 0;
        for i in 0..n {
            let (r, c) = (i / first.cols, i % first.cols);
            let source = if columnwise { x[c * cols + r] } else { x[i] };
            let v = scaled(
                &options(),
                source,
                encode_multiplier(&options(), first.scale_byte(r, c / 16), &t),
            ) as f64;
            let mean = sum[i] / DRAWS as f64;
            if v.abs() > 6.0 {
                clipped += 1;
                assert_eq!(mean.abs(), 6.0, "a clipped element is 6 in every draw");
                continue;
            }
            let variance = (sum_squares[i] / DRAWS as f64 - mean * mean).max(0.0);
            let step = if v.abs() < 2.0 {
                0.5
            } else {
                (v.abs() / 2.0).log2().floor().exp2()
            };
            let standard_error =
                (variance.max(0.25 * step * step / DRAWS as f64) / DRAWS as f64).sqrt();
            assert!(
                (mean - v).abs() <= 5.0 * standard_error + step / 256.0,
                "element {i}: {v} has mean {mean}"
            );
            assert!(
                mean.abs() <= v.abs() + 5.0 * standard_error,
                "the bias is towards zero"
            );
        }
        assert!(
            clipped > 0,
            "the data has clipped elements, so that they are tested"
        );
    }
}

#[test]
fn with_16_17_the_error_of_the_mean_keeps_falling() {
    let n = 1024;
    let x = normal(31, n);
    let o = Options {
        range_16_17: true,
        ..options()
    };
    let mut sum = vec![0f64; n];
    let mut errors = Vec::new();
    for draw in 0..1024u64 {
        let call = Call {
            options: o,
            seed: 5,
            offset: draw,
            ..Call::default()
        };
        let q = quantize(&Matrix::f32(&x, 1, n), &call).unwrap();
        sum.iter_mut()
            .zip(dequantize(&q, Dtype::F32))
            .for_each(|(s, v)| *s += v as f64);
        if [1, 4, 16, 64, 256, 1024].contains(&(draw + 1)) {
            let k = (draw + 1) as f64;
            let e: f64 = sum
                .iter()
                .zip(&x)
                .map(|(s, x)| (s / k - *x as f64).powi(2))
                .sum();
            errors.push((e / x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>()).sqrt());
        }
    }
    for pair in errors[..5].windows(2) {
        assert!(
            (1.7..2.3).contains(&(pair[0] / pair[1])),
            "one bit for each four times the draws: {errors:?}"
        );
    }
    // From here on the 2^-8 step of the random bits begins to show.
    assert!(errors[4] / errors[5] > 1.3, "{errors:?}");
}

#[test]
fn without_it_clipping_leaves_a_bias() {
    let n = 1024;
    let x = normal(31, n);
    let mut sum = vec![0f64; n];
    for offset in 0..1024u64 {
        let q = quantize(
            &Matrix::f32(&x, 1, n),
            &Call {
                options: options(),
                seed: 5,
                offset,
                ..Call::default()
            },
        )
        .unwrap();
        sum.iter_mut()
            .zip(dequantize(&q, Dtype::F32))
            .for_each(|(s, v)| *s += v as f64);
    }
    let e: f64 = sum
        .iter()
        .zip(&x)
        .map(|(s, x)| (s / 1024.0 - *x as f64).powi(2))
        .sum();
    let bias = (e / x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>()).sqrt();
    assert!(bias > 0.006, "{bias}");
}

#[test]
fn seed_offset_and_copy_change_the_bits_and_repeat_them() {
    let x = normal(32, 64 * 64);
    let m = Matrix::f32(&x, 64, 64);
    let call = Call {
        options: options(),
        seed: 1,
        offset: 2,
        ..Call::default()
    };
    let q = quantize(&m, &call).unwrap();
    assert_eq!(q, quantize(&m, &call).unwrap());
    for other in [
        Call { seed: 2, ..call },
        Call { offset: 3, ..call },
        Call {
            seed: 1 << 32,
            ..call
        },
        Call {
            offset: 1 << 61,
            ..call
        },
        Call {
            origin: (0, 16),
            ..call
        },
        Call {
            origin: (1 << 33, 0),
            ..call
        },
    ] {
        let p = quantize(&m, &other).unwrap();
        let differing = (0..4096)
            .filter(|i| p.code(i / 64, i % 64) != q.code(i / 64, i % 64))
            .count();
        assert!(
            differing > 1000,
            "{differing} of 4096 codes differ for {other:?}"
        );
    }
}

#[test]
fn ms_eden_is_unbiased_over_rotations() {
    // The mean over n rotations, each undone, approaches the data as 1/sqrt(n) with no floor in sight.
    let n = 256;
    let x = normal(33, n);
    let o = Options {
        select: Select::MsEden,
        hadamard: 128,
        signs: Signs::Seeded,
        ..Options::default()
    };
    let mut sum = vec![0f64; n];
    let mut errors = Vec::new();
    for offset in 0..4096u64 {
        let q = quantize(
            &Matrix::f32(&x, 1, n),
            &Call {
                options: o,
                seed: 21,
                offset,
                ..Call::default()
            },
        )
        .unwrap();
        let mut y = dequantize(&q, Dtype::F32);
        y.chunks_mut(128)
            .for_each(|block| hadamard::inverse(block, &q.signs));
        sum.iter_mut().zip(&y).for_each(|(s, v)| *s += *v as f64);
        if (offset + 1).is_power_of_two() && (offset + 1).trailing_zeros() % 2 == 0 {
            let k = (offset + 1) as f64;
            let e: f64 = sum
                .iter()
                .zip(&x)
                .map(|(s, x)| (s / k - *x as f64).powi(2))
                .sum();
            errors.push((e / x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>()).sqrt());
        }
    }
    assert_eq!(errors.len(), 7);
    for pair in errors.windows(2) {
        assert!((1.6..2.5).contains(&(pair[0] / pair[1])), "{errors:?}");
    }
    // The mean neither shrinks nor stretches the data.
    let gain: f64 = sum
        .iter()
        .zip(&x)
        .map(|(s, x)| s / 4096.0 * *x as f64)
        .sum::<f64>()
        / x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>();
    assert!((gain - 1.0).abs() < 1e-3, "{gain}");
}
