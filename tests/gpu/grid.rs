//! Shapes x types x alignments x named options, so that every kernel and every edge of its tiles is met for sure.

use nvfp4::numerics::*;

use super::config::{Config, Copy, Data};

const SHAPES: [(usize, usize); 14] = [
    (1, 1),
    (1, 16),
    (16, 1),
    (16, 16),
    (33, 48),
    (64, 40),
    (128, 128),
    (129, 257),
    (144, 272),
    (256, 512),
    (384, 136),
    (1000, 304),
    (5, 2048),
    (2048, 8),
];

fn options() -> Vec<Options> {
    let d = Options::default();
    let mut all = vec![
        d,
        Options {
            rounding: Rounding::Stochastic,
            ..d
        },
        Options { hadamard: 16, ..d },
        Options {
            hadamard: 16,
            rounding: Rounding::Stochastic,
            scale_layout: ScaleLayout::Swizzled,
            ..d
        },
        Options {
            hadamard: 128,
            signs: Signs::Seeded,
            ..d
        },
        Options {
            block: Block::TwoD,
            ..d
        },
        Options {
            block: Block::TwoD,
            scale_layout: ScaleLayout::Swizzled,
            chain: Chain::Div6,
            ..d
        },
        Options {
            chain: Chain::Single,
            ..d
        },
        Options {
            domain_rows: 1,
            ..d
        },
        Options {
            domain_rows: 128,
            scale_layout: ScaleLayout::Swizzled,
            ..d
        },
        Options {
            range_16_17: true,
            rounding: Rounding::Stochastic,
            ..d
        },
        Options {
            select: Select::FourOverSixMae,
            ..d
        },
        Options {
            select: Select::FourOverSixMse,
            block: Block::TwoD,
            ..d
        },
        Options {
            select: Select::MsEden,
            hadamard: 128,
            signs: Signs::Seeded,
            ..d
        },
        Options {
            format: Format::Bf16,
            ..d
        },
        Options {
            hadamard: 32,
            keep_f32: true,
            ..d
        },
    ];
    for scale_rule in [
        ScaleRule::Floor,
        ScaleRule::Ceil,
        ScaleRule::Even,
        ScaleRule::EncodeCentric,
    ] {
        all.push(Options {
            format: Format::Mxfp4,
            scale_rule,
            ..d
        });
    }
    all.push(Options {
        format: Format::Mxfp4,
        block: Block::TwoD,
        rounding: Rounding::Stochastic,
        ..d
    });
    all
}

pub fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for (i, (rows, cols)) in SHAPES.into_iter().enumerate() {
        for (j, o) in options().into_iter().enumerate() {
            for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
                for copies in 1..4 {
                    for aligned in [true, false] {
                        let copy = Copy {
                            code_pad: if aligned { 0 } else { 2 },
                            ..Copy::new(o)
                        };
                        all.push(Config {
                            rowwise: (copies & 1 != 0).then_some(copy),
                            columnwise: (copies & 2 != 0).then_some(copy),
                            stride_pad: if aligned { 0 } else { 3 },
                            shift: if aligned { 0 } else { 1 },
                            data: [Data::Normal, Data::Ties, Data::Bad, Data::Wide][(i + j) % 4],
                            poison: if (i + j) % 2 == 0 { 0xFF } else { 0 },
                            device_seed: (i + copies) % 2 == 0 && o.signs != Signs::Seeded,
                            key: (i * 1000 + j * 10 + copies) as u64 + 1,
                            ..Config::new(rows, cols, dtype)
                        });
                    }
                }
            }
        }
    }
    all
}
