//! GEMM: the accumulator.

use super::data::{normal, wild};
use nvfp4::numerics::gemm::{block_term, check_operands, gemm, Epilogue};
use nvfp4::numerics::gemm_fast::{allowed, exact, first_violation};
use nvfp4::numerics::matrix::{Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::*;

pub fn q(x: &[f32], rows: usize, cols: usize, options: Options) -> Quantized {
    quantize(
        &Matrix::f32(x, rows, cols),
        &Call {
            options,
            ..Call::default()
        },
    )
    .unwrap()
}

pub fn operands(m: usize, n: usize, k: usize, o: Options) -> (Quantized, Quantized) {
    (
        q(&normal(40, m * k), m, k, o),
        q(&normal(41, n * k), n, k, o),
    )
}

fn formats() -> [Options; 8] {
    let d = Options::default();
    let mx = Options {
        format: Format::Mxfp4,
        ..d
    };
    [
        d,
        Options {
            chain: Chain::Single,
            ..d
        },
        Options {
            range_16_17: true,
            ..d
        },
        Options {
            select: Select::FourOverSixMae,
            ..d
        },
        Options {
            domain_rows: 2,
            scale_layout: ScaleLayout::Swizzled,
            ..d
        },
        mx,
        Options {
            scale_rule: ScaleRule::EncodeCentric,
            ..mx
        },
        Options {
            format: Format::Bf16,
            ..d
        },
    ]
}

#[test]
fn block_products_agree_with_the_decoded_operands() {
    let (m, n, k) = (5, 7, 83);
    for o in formats() {
        let (a, b) = operands(m, n, k, o);
        let d = gemm(Accumulate::Block, &a, &b, &Epilogue::default()).unwrap();
        for i in 0..m {
            for j in 0..n {
                let (mut sum, mut magnitude) = (0f64, 0f64);
                for c in 0..k {
                    let p = a.value(i, c) as f64 * b.value(j, c) as f64;
                    sum += p;
                    magnitude += p.abs();
                }
                let got = d[i * n + j] as f64;
                assert!(
                    sum != 0.0 && (got - sum).abs() <= 2e-6 * magnitude,
                    "{o:?}: {got} instead of {sum}"
                );
            }
        }
    }
}

/// The same codes and scales with an outer factor of 1, so that D is the accumulator.
fn without_outer_scale(q: &Quantized) -> Quantized {
    let options = Options {
        range_16_17: false,
        scale_rule: ScaleRule::Floor,
        domain_rows: 0,
        ..q.options
    };
    Quantized {
        options,
        amax: if q.amax.is_empty() {
            vec![]
        } else {
            vec![q.options.c]
        },
        ..q.clone()
    }
}

#[test]
fn every_mode_keeps_the_bound_of_fast() {
    let (m, n, k) = (4, 6, 530);
    for o in formats() {
        let (a, b) = operands(m, n, k, o);
        let e = exact(&a, &b).unwrap();
        let (a, b) = (without_outer_scale(&a), without_outer_scale(&b));
        for mode in [
            Accumulate::Default,
            Accumulate::Block,
            Accumulate::Hardware,
            Accumulate::HardwareK96,
        ] {
            let hardware = matches!(mode, Accumulate::Hardware | Accumulate::HardwareK96);
            match gemm(mode, &a, &b, &Epilogue::default()) {
                Ok(acc) => assert_eq!(
                    first_violation(&acc, &e, |_, e| allowed(k, e.magnitude)),
                    None,
                    "{o:?} {mode:?}"
                ),
                Err(e) => assert!(hardware && o.format == Format::Bf16, "{e}"),
            }
        }
        assert!(gemm(Accumulate::Fast, &a, &b, &Epilogue::default()).is_err());
    }
}

#[test]
fn ones_times_ones_is_k() {
    // Codes 1.0 (2) with scale 1.0 (0x38) and amax 2688, so that nothing is scaled.
    for k in [1usize, 15, 16, 17, 64, 272, 528, 1040] {
        let x = vec![1f32; 3 * k];
        let call = Call {
            amax: Some(&[2688.0]),
            ..Call::default()
        };
        let mut a = quantize(&Matrix::f32(&x, 3, k), &call).unwrap();
        a.codes.iter_mut().for_each(|c| *c = 0x22);
        a.scales.iter_mut().for_each(|s| *s = 0x38);
        let b = Quantized {
            rows: 2,
            codes: a.codes[..2 * k.div_ceil(2)].to_vec(),
            scales: a.scales[..2 * k.div_ceil(16)].to_vec(),
            ..a.clone()
        };
        for mode in [
            Accumulate::Block,
            Accumulate::Hardware,
            Accumulate::HardwareK96,
        ] {
            assert_eq!(
                gemm(mode, &a, &b, &Epilogue::default()).unwrap(),
                vec![k as f32; 6],
                "{mode:?} K = {k}"
            );
        }
    }
}

#[test]
fn the_block_accumulator_adds_in_ascending_order() {
    // Terms 2^24, 1, 1: in ascending order both ones are lost, in any other order they are not.
    let mut x = vec![0f32; 48];
    (x[0], x[16], x[32]) = (4096.0 * 2.0, 1.0, 1.0);
    let mut y = vec![0f32; 48];
    (y[0], y[16], y[32]) = (2048.0, 1.0, 1.0);
    let o = Options {
        format: Format::Mxfp4,
        ..Options::default()
    };
    let (x32, y32) = (spread(&x), spread(&y));
    let d = gemm(
        Accumulate::Block,
        &q(&x32, 1, 96, o),
        &q(&y32, 1, 96, o),
        &Epilogue::default(),
    )
    .unwrap();
    assert_eq!(d, [16777216.0]);
    let reversed = |v: &[f32]| v.iter().rev().copied().collect::<Vec<_>>();
    let d = gemm(
        Accumulate::Block,
        &q(&reversed(&x32), 1, 96, o),
        &q(&reversed(&y32), 1, 96, o),
        &Epilogue::default(),
    );
    assert_eq!(d.unwrap(), [16777218.0]);
}

/// Blocks of 16 moved to blocks of 32.
fn spread(x: &[f32]) -> Vec<f32> {
    x.chunks(16)
        .flat_map(|b| b.iter().copied().chain([0.0; 16]).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_block_term_is_rounded_once() {
    assert_eq!(block_term(1, 2f64.powi(-9), 2f64.powi(-9)), 2f32.powi(-20));
    assert_eq!(block_term(2304, 448.0, 448.0), 576.0 * 448.0 * 448.0);
    assert_eq!(
        block_term(4608, 2f64.powi(127), 2f64.powi(1)),
        f32::INFINITY
    );
    assert_eq!(
        block_term(3, 2f64.powi(-127), 2f64.powi(-22)),
        2f32.powi(-149),
        "0.75 * 2^-149 rounds up"
    );
    assert_eq!(block_term(1, 2f64.powi(-127), 2f64.powi(-22)), 0.0);
}

#[test]
fn nan_blocks_reach_their_row_only() {
    let (m, n, k) = (3, 4, 64);
    let mut x = normal(46, m * k);
    x[k + 20] = f32::INFINITY;
    let b = q(&normal(47, n * k), n, k, Options::default());
    for mode in [Accumulate::Block, Accumulate::Hardware] {
        let d = gemm(
            mode,
            &q(&x, m, k, Options::default()),
            &b,
            &Epilogue::default(),
        )
        .unwrap();
        for (i, v) in d.iter().enumerate() {
            assert_eq!(v.is_nan(), i / n == 1);
        }
    }
}

#[test]
fn transformed_operands_contract_the_padded_length() {
    let (m, n, k) = (4, 3, 50);
    let (x, y) = (normal(48, m * k), normal(49, n * k));
    let o = Options {
        hadamard: 32,
        ..Options::default()
    };
    let (a, b) = (q(&x, m, k, o), q(&y, n, k, o));
    assert_eq!(a.cols, 64);
    let d = gemm(Accumulate::Block, &a, &b, &Epilogue::default()).unwrap();
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k)
                .map(|c| x[i * k + c] as f64 * y[j * k + c] as f64)
                .sum();
            let norm = |v: &[f32]| v.iter().map(|v| (*v as f64).powi(2)).sum::<f64>().sqrt();
            let scale = norm(&x[i * k..][..k]) * norm(&y[j * k..][..k]);
            assert!(
                (d[i * n + j] as f64 - want).abs() < 0.1 * scale,
                "the transform cancels in the product"
            );
        }
    }
    let other = q(
        &y,
        n,
        k,
        Options {
            signs: Signs::Mask16(1),
            ..o
        },
    );
    assert!(check_operands(&a, &other).is_err());
    assert!(check_operands(&a, &q(&y, n, k, Options::default())).is_err());
}

#[test]
fn a_weight_only_product_is_a_chain_of_fma() {
    let (m, n, k) = (3, 5, 37);
    let o = Options::default();
    let a = q(
        &wild(50, m * k),
        m,
        k,
        Options {
            format: Format::Bf16,
            ..o
        },
    );
    let b = q(&normal(51, n * k), n, k, o);
    let d = gemm(Accumulate::Block, &a, &b, &Epilogue::default()).unwrap();
    for i in 0..m {
        for j in 0..n {
            let mut acc = 0f32;
            for c in 0..k {
                let w = e2m1::decode(b.code(j, c)) * e4m3::decode(b.scale_byte(j, c / 16));
                acc = a.value(i, c).mul_add(w, acc);
            }
            assert_eq!(d[i * n + j], (b.amax[0] / 2688.0) * acc);
        }
    }
}
