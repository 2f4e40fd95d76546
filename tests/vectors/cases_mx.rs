//! Vectors of MXFP4.

use crate::cases_quantize::{bf16_case, case, data, with};
use crate::Vector;
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::*;

pub fn all() -> Vec<Vector> {
    let mx = Options {
        format: Format::Mxfp4,
        ..Options::default()
    };
    let maxima = [
        4.0,
        5.0,
        6.0,
        6.0000005,
        6.5,
        7.0,
        7.9,
        7.9999995,
        8.0,
        3.9999998,
        0.0,
        1e-45,
        f32::MAX,
    ];
    let rows: Vec<f32> = maxima
        .iter()
        .enumerate()
        .flat_map(|(i, m)| {
            let mut r = data(20 + i as u32, 32);
            let top = r.iter().fold(0f32, |a, b| a.max(b.abs()));
            r.iter_mut().for_each(|v| *v = *v / top * m * 0.99);
            r[i] = *m;
            r
        })
        .collect();
    let rule = |name, scale_rule, text| Vector {
        name,
        section: 4,
        rule: text,
        cases: vec![case(
            &rows,
            maxima.len(),
            with(Options { scale_rule, ..mx }),
        )],
    };
    let tile = data(40, 34 * 7);
    let centric = Options {
        scale_rule: ScaleRule::EncodeCentric,
        block: Block::TwoD,
        ..mx
    };
    let half = |b: f32| {
        let mut x: Vec<f32> = data(41, 64).iter().map(|v| v / 128.0).collect();
        x[5] = b;
        x
    };
    vec![
        rule(
            "mx_floor",
            ScaleRule::Floor,
            "OCP MX v1.0: exponent floor(log2 b) - 2.",
        ),
        rule(
            "mx_ceil",
            ScaleRule::Ceil,
            "One more wherever b would saturate.",
        ),
        rule(
            "mx_even",
            ScaleRule::Even,
            "b rounded to two significant bits first.",
        ),
        rule(
            "mx_encode_centric",
            ScaleRule::EncodeCentric,
            "s = 2^ceil(log2 b), codes of 6x/s, decode q/6*s.",
        ),
        Vector {
            name: "mx_tile_2d",
            section: 4,
            rule: "32x32 tiles share a scale; the byte is repeated on each row.",
            cases: vec![bf16_case(
                &tile,
                34,
                with(Options {
                    block: Block::TwoD,
                    ..mx
                }),
            )],
        },
        Vector {
            name: "mx_half_scale",
            section: 4,
            rule: "ENCODE_CENTRIC tiles take half the scale iff b / s < fl(0.87).",
            cases: [0.87f32, f32::from_bits(0.87f32.to_bits() - 1), 1.0]
                .iter()
                .map(|b| {
                    case(
                        &half(*b),
                        2,
                        with(Options {
                            half_scale: true,
                            ..centric
                        }),
                    )
                })
                .collect(),
        },
        Vector {
            name: "mx_stochastic",
            section: 7,
            rule: "MXFP4 draws the same bits: the counter counts groups of 16 columns.",
            cases: vec![case(
                &data(42, 2 * 64),
                2,
                Call {
                    seed: 7,
                    offset: 3,
                    ..with(Options {
                        rounding: Rounding::Stochastic,
                        scale_rule: ScaleRule::Ceil,
                        ..mx
                    })
                },
            )],
        },
    ]
}
