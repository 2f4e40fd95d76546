//! Relative mean squared errors on N(0, 1), 2048 x 4096.

use super::data::normal;
use nvfp4::numerics::matrix::Matrix;
use nvfp4::numerics::quantize::{quantize_with_stats, Call};
use nvfp4::numerics::*;

fn rel_mse(x: &[f32], rows: usize, cols: usize, options: Options) -> f64 {
    let call = Call {
        options,
        seed: 1,
        ..Call::default()
    };
    let (_, s) = quantize_with_stats(&Matrix::f32(x, rows, cols), &call).unwrap();
    s.sum_squared_error / s.sum_squares
}

#[test]
fn figures_on_normal_data() {
    let (rows, cols) = (2048, 4096);
    let x = normal(1, rows * cols);
    let d = Options::default();
    let sr = Rounding::Stochastic;
    for (expected, what, o) in [
        (9.04e-3, "1x16", d),
        (
            12.39e-3,
            "16x16",
            Options {
                block: Block::TwoD,
                ..d
            },
        ),
        (
            13.2e-3,
            "MXFP4 floor",
            Options {
                format: Format::Mxfp4,
                ..d
            },
        ),
        (
            23.5e-3,
            "SR with 16/17",
            Options {
                rounding: sr,
                range_16_17: true,
                ..d
            },
        ),
    ] {
        let got = rel_mse(&x, rows, cols, o);
        println!("{what}: {got:.4e}, expected {expected:.4e}");
        assert!(
            (got / expected - 1.0).abs() < 0.01,
            "{what}: {got} instead of {expected}"
        );
    }
}

#[test]
fn figures_of_the_unbiased_schemes() {
    let (rows, cols) = (512, 2048);
    let x = normal(2, rows * cols);
    let d = Options::default();
    let eden = Options {
        select: Select::MsEden,
        hadamard: 128,
        signs: Signs::Seeded,
        ..d
    };
    let sr = Options {
        rounding: Rounding::Stochastic,
        ..d
    };
    for (expected, what, o) in [(9.75e-3, "MS-EDEN", eden), (18.8e-3, "SR", sr)] {
        let got = rel_mse(&x, rows, cols, o);
        println!("{what}: {got:.4e}, expected {expected:.4e}");
        assert!(
            (got / expected - 1.0).abs() < 0.02,
            "{what}: {got} instead of {expected}"
        );
    }
    let four_over_six = rel_mse(
        &x,
        rows,
        cols,
        Options {
            select: Select::FourOverSixMse,
            ..d
        },
    );
    assert!(
        four_over_six < 0.9 * rel_mse(&x, rows, cols, d),
        "{four_over_six}"
    );
}
