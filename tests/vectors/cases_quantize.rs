//! What the vectors of quantize share, and the calls that must be refused.

use crate::describe::{quantize_bytes_case, quantize_case};
use crate::json::Json;
use crate::Vector;
use nvfp4::numerics::matrix::{Elements, Matrix};
use nvfp4::numerics::philox::philox4x32_10;
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::rounding::bf16_bits;
use nvfp4::numerics::*;

/// Test data: signs, zeros and about six octaves, from Philox words and exact operations only.
pub fn data(seed: u32, n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| {
            let w = philox4x32_10([seed, 1], [i as u32, 0, 0, 0]);
            let magnitude =
                (1.0 + (w[0] >> 12) as f32 / 1048576.0) * 2f32.powi((w[1] % 6) as i32 - 3);
            match w[2] % 16 {
                0 => 0.0,
                v if v % 2 == 0 => magnitude,
                _ => -magnitude,
            }
        })
        .collect()
}

pub fn case(x: &[f32], rows: usize, call: Call) -> Json {
    quantize_case(&Matrix::f32(x, rows, x.len() / rows), &call)
}

/// The same with the values rounded to bfloat16 and without the decoded values: smaller files.
pub fn bf16_case(x: &[f32], rows: usize, call: Call) -> Json {
    let bits: Vec<u16> = x.iter().map(|v| bf16_bits(*v)).collect();
    quantize_bytes_case(
        &Matrix::new(Elements::Bf16(&bits), rows, x.len() / rows),
        &call,
    )
}

pub fn with(options: Options) -> Call<'static> {
    Call {
        options,
        ..Call::default()
    }
}

/// A row of 16 that starts with `head` and is 0 from there on.
pub fn row16(head: &[f32]) -> Vec<f32> {
    padded(head, 16)
}

pub fn padded(head: &[f32], n: usize) -> Vec<f32> {
    head.iter()
        .copied()
        .chain(std::iter::repeat(0.0))
        .take(n)
        .collect()
}

pub fn rejected() -> Vector {
    let x = [1f32; 16];
    let d = Options::default();
    let amax = |a| {
        case(
            &x,
            1,
            Call {
                amax: Some(a),
                ..with(d)
            },
        )
    };
    Vector {
        name: "reject_quantize",
        section: 3,
        rule: "What must be refused on a CPU, with a sentence that holds the \
                   value; statuses are those of the C ABI.",
        cases: vec![
            amax(&[f32::NAN]),
            amax(&[f32::INFINITY]),
            amax(&[-1.0]),
            amax(&[1.0, 2.0]),
            case(&x, 1, with(Options { hadamard: 24, ..d })),
            case(&x, 1, with(Options { c: 1000.0, ..d })),
            case(
                &x,
                1,
                with(Options {
                    format: Format::Mxfp4,
                    select: Select::FourOverSixMae,
                    ..d
                }),
            ),
            case(
                &x,
                1,
                with(Options {
                    select: Select::MsEden,
                    ..d
                }),
            ),
            case(
                &x,
                1,
                with(Options {
                    block: Block::TwoD,
                    domain_rows: 8,
                    ..d
                }),
            ),
        ],
    }
}
