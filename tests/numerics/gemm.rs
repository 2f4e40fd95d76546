//! GEMM: the BLOCK accumulator, the outer factor, the epilogue, and the model of the hardware.

use super::data::{normal, wild};
use nvfp4::numerics::gemm::{
    block_term, check_operands, gemm, gemm_quantized, global_factor, Epilogue,
};
use nvfp4::numerics::gemm_fast::{exact, first_violation};
use nvfp4::numerics::matrix::{Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::scale::DecodeScale;
use nvfp4::numerics::*;

fn q(x: &[f32], rows: usize, cols: usize, options: Options) -> Quantized {
    quantize(
        &Matrix::f32(x, rows, cols),
        &Call {
            options,
            ..Call::default()
        },
    )
    .unwrap()
}

fn operands(m: usize, n: usize, k: usize, o: Options) -> (Quantized, Quantized) {
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
                Ok(acc) => assert_eq!(first_violation(k, &acc, &e), None, "{o:?} {mode:?}"),
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
fn outer_factors() {
    let d = |amax, c| DecodeScale {
        c,
        ..DecodeScale::new(&Options::default(), amax)
    };
    assert_eq!(global_factor(&d(2688.0, 2688.0), &d(2688.0, 2688.0)), 1.0);
    assert_eq!(
        global_factor(&d(3.0, 2688.0), &d(5.0, 1536.0)),
        15.0 / (2688.0 * 1536.0)
    );
    // The product overflows or vanishes, the factor does not.
    assert_eq!(
        global_factor(&d(1e38, 2688.0), &d(1e3, 2688.0)),
        (1e38f32 * (1.0 / 2688.0)) * (1e3f32 * (1.0 / 2688.0))
    );
    assert!(global_factor(&d(1e-30, 2688.0), &d(1e-5, 2688.0)) > 0.0);
    assert_eq!(global_factor(&d(0.0, 2688.0), &d(1.0, 2688.0)), 0.0);
    let one = DecodeScale::new(
        &Options {
            format: Format::Mxfp4,
            ..Options::default()
        },
        7.0,
    );
    assert_eq!(global_factor(&one, &one), 1.0);
    let centric = DecodeScale {
        scale_rule: ScaleRule::EncodeCentric,
        ..one
    };
    assert_eq!(
        global_factor(&centric, &centric),
        (1.0f32 / 6.0) * (1.0 / 6.0)
    );
    let range = DecodeScale {
        range_16_17: true,
        ..one
    };
    assert_eq!(global_factor(&range, &range), 1.0625 * 1.0625);
}

#[test]
fn the_epilogue_in_its_order() {
    let (m, n, k) = (3, 4, 40);
    let (a, b) = operands(m, n, k, Options::default());
    let plain = gemm(
        Accumulate::Block,
        &a,
        &b,
        &Epilogue {
            alpha: 1.0,
            ..Epilogue::default()
        },
    )
    .unwrap();
    let g = global_factor(&a.decode_scale(0), &b.decode_scale(0));
    let acc = gemm(
        Accumulate::Block,
        &Quantized {
            amax: vec![2688.0],
            ..a.clone()
        },
        &Quantized {
            amax: vec![2688.0],
            ..b.clone()
        },
        &Epilogue::default(),
    )
    .unwrap();
    let (c, bias) = (normal(42, m * n), normal(43, n));
    let (rows, cols) = (normal(44, m), normal(45, n));
    let e = Epilogue {
        alpha: 1.7,
        beta: 0.3,
        c: Some(Matrix::f32(&c, m, n)),
        bias: Some(Matrix::f32(&bias, 1, n)),
        activation: Activation::Silu,
        row_factors: Some(&rows),
        col_factors: Some(&cols),
    };
    let d = gemm(Accumulate::Block, &a, &b, &e).unwrap();
    for (i, row) in rows.iter().enumerate() {
        for (j, col) in cols.iter().enumerate() {
            let at = i * n + j;
            assert_eq!(plain[at], g * acc[at]);
            let alpha = 1.7f32 * g * row * col;
            assert_eq!(
                d[at],
                activation::silu(alpha * acc[at] + 0.3 * c[at] + bias[j])
            );
        }
    }
    let nan = vec![f32::NAN; m * n];
    let unread = Epilogue {
        beta: 0.0,
        c: Some(Matrix::f32(&nan, m, n)),
        ..Epilogue::default()
    };
    assert_eq!(
        gemm(Accumulate::Block, &a, &b, &unread).unwrap(),
        plain,
        "beta = 0 does not read C"
    );
}

#[test]
fn k_of_zero_gives_beta_c_and_bias() {
    let empty = |rows| q(&[], rows, 0, Options::default());
    let (c, bias) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [10f32, 20.0, 30.0]);
    let e = Epilogue {
        beta: 2.0,
        c: Some(Matrix::f32(&c, 2, 3)),
        bias: Some(Matrix::f32(&bias, 1, 3)),
        ..Epilogue::default()
    };
    assert_eq!(
        gemm(Accumulate::Block, &empty(2), &empty(3), &e).unwrap(),
        [12.0, 24.0, 36.0, 18.0, 30.0, 42.0]
    );
    assert_eq!(
        gemm(
            Accumulate::Hardware,
            &empty(2),
            &empty(3),
            &Epilogue::default()
        )
        .unwrap(),
        [0.0; 6]
    );
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

fn digits(hex: &str) -> Vec<u8> {
    hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect()
}

#[test]
fn golden_vectors_of_the_matrix_unit() {
    for (a, b, sa, sb, c, d) in [
        (
            "4ee5cbd332e816a796546bbd6ce8c5350c456507ec4179aabfc139d87df841a5",
            "1831796bae03f6361c3c4f1e51f167531462382c1dfeae68d46d28c83671c808",
            [0x3b, 0x2a, 0x29, 0x4b],
            [0x3a, 0x36, 0x41, 0x28],
            0u32,
            0xc2736c00u32,
        ),
        (
            "6be1679f6ae28652eb6fa7cd62de963a8cc7d2cd0e63b0bb0841d5824cbf5f95",
            "0221be3e456e4249ac21be168a2848e6d3a738500ce1a78f6aa049bbcc172643",
            [0x31, 0x3d, 0x2f, 0x3f],
            [0x29, 0x44, 0x34, 0x3f],
            0x3f800001,
            0xc3d64c1f,
        ),
        (
            "4b55c9d15ce74215e74fdf272ac6ddc45b6279d4e8afe6c765b1c3f592c8d56a",
            "e657d44f7027c843340d8a8ed7d6960e6e67825cf4088d75d7523f358551644e",
            [0x4e, 0x41, 0x46, 0x2c],
            [0x3d, 0x4a, 0x30, 0x45],
            0xcb000001,
            0xcafffa0b,
        ),
    ] {
        let got = gemm_hardware::step(
            Format::Nvfp4,
            &digits(a),
            &digits(b),
            &sa,
            &sb,
            f32::from_bits(c),
        );
        assert_eq!(got.to_bits(), d, "{:08x} instead of {d:08x}", got.to_bits());
    }
}

#[test]
fn the_matrix_unit_truncates() {
    let one = [2u8; 64];
    let step = |sa: [u8; 4], sb: [u8; 4], c: f32| {
        gemm_hardware::step(Format::Nvfp4, &one, &one, &sa, &sb, c)
    };
    assert_eq!(step([0x38; 4], [0x38; 4], 0.0), 64.0);
    // 2^24 + 63 * ... : the sum is cut, not rounded.
    assert_eq!(
        step([0x38, 0, 0, 0], [0x38; 4], 16777216.0 * 2.0 - 2.0),
        16777216.0 * 2.0 + 12.0
    );
    assert_eq!(step([0x08, 0, 0, 0], [0x31; 4], 16777216.0), 16777216.0);
    assert_eq!(step([0x08, 0, 0, 0], [0x31; 4], -16777216.0), -16777215.0);
    assert_eq!(step([0x7F, 0, 0, 0], [0x38; 4], 1.0).to_bits(), 0x7FFF_FFFF);
    assert_eq!(
        step([0xB8; 4], [0x38; 4], 0.0),
        64.0,
        "the sign bit of a scale is ignored"
    );
    assert_eq!(
        step([0; 4], [0; 4], f32::from_bits(5)).to_bits(),
        5,
        "subnormal accumulators are kept"
    );
    assert_eq!(
        step([0x38; 4], [0x38; 4], f32::NEG_INFINITY),
        f32::NEG_INFINITY
    );
    // Scale exponents far above the accumulator's drop its low bits even if the products vanish.
    let zeros = [0u8; 64];
    let c = f32::from_bits(0x3F80_0001);
    assert_eq!(
        gemm_hardware::step(Format::Nvfp4, &zeros, &zeros, &[0x70; 4], &[0x70; 4], c),
        1.0
    );
    assert_eq!(
        gemm_hardware::step(Format::Nvfp4, &zeros, &zeros, &[0x60; 4], &[0x60; 4], c),
        c
    );
}

#[test]
fn a_quantized_output_is_the_quantized_product() {
    let (m, n, k) = (5, 34, 48);
    let (a, b) = operands(m, n, k, Options::default());
    let e = Epilogue {
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let d = gemm(Accumulate::Block, &a, &b, &e).unwrap();
    let amax = [special::amax(d.iter().copied())];
    let given = Call {
        amax: Some(&amax),
        ..Call::default()
    };
    let got = gemm_quantized(Accumulate::Block, &a, &b, &e, &given).unwrap();
    assert_eq!(
        got,
        quantize(&Matrix::f32(&d, m, n), &Call::default()).unwrap()
    );
    assert!(gemm_quantized(Accumulate::Block, &a, &b, &e, &Call::default()).is_err());
    let options = Options {
        format: Format::Mxfp4,
        ..Options::default()
    };
    let mx = Call {
        options,
        ..Call::default()
    };
    assert!(
        gemm_quantized(Accumulate::Block, &a, &b, &e, &mx).is_ok(),
        "MXFP4 has no amax"
    );
}
