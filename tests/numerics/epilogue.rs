//! GEMM: what follows the accumulator.

use super::data::normal;
use super::gemm::{operands, q};
use nvfp4::numerics::gemm::{gemm, gemm_quantized, global_factor, Epilogue};
use nvfp4::numerics::matrix::{Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::scale::DecodeScale;
use nvfp4::numerics::*;

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
