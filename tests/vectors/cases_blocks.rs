//! Vectors of blocks, tiles, chains, domains and layouts.

use crate::cases_quantize::{bf16_case, case, data, row16, with};
use crate::Vector;
use nvfp4::numerics::matrix::Matrix;
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::*;

pub fn all() -> Vec<Vector> {
    let d = Options::default();
    let chain = |chain| with(Options { chain, ..d });
    let two_d = Options {
        block: Block::TwoD,
        ..d
    };
    let (x, y, z) = (chains_differ(), data(5, 3 * 17), data(6, 18 * 20));
    let over = |select, c| Options { select, c, ..d };
    vec![
        Vector {
            name: "chain_te_vs_div6",
            section: 2,
            rule: "The chains round b * (S_enc * fl(1/6)) once and (b / 6) * S_enc \
                   twice; here scale bytes differ.",
            cases: vec![
                case(&x, 1, chain(Chain::Te)),
                case(&x, 1, chain(Chain::Div6)),
            ],
        },
        Vector {
            name: "ordinary_blocks",
            section: 2,
            rule: "One matrix under each chain and MXFP4: what most blocks look like.",
            cases: [Chain::Te, Chain::Div6, Chain::Single]
                .map(|c| Options { chain: c, ..d })
                .into_iter()
                .chain(
                    [ScaleRule::Floor, ScaleRule::Ceil, ScaleRule::Even].map(|r| Options {
                        format: Format::Mxfp4,
                        scale_rule: r,
                        ..d
                    }),
                )
                .map(|o| bf16_case(&data(14, 8 * 64), 8, with(o)))
                .collect(),
        },
        Vector {
            name: "chain_single",
            section: 2,
            rule: "SINGLE has no outer scale: E43(b / 6), decode q * s; above 2688 \
                   it saturates.",
            cases: vec![
                case(&data(7, 48), 1, chain(Chain::Single)),
                case(&row16(&[3000.0, -2900.0, 100.0]), 1, chain(Chain::Single)),
            ],
        },
        Vector {
            name: "rounded_scale",
            section: 2,
            rule: "Elements are encoded with the scale as rounded, the one the \
                   decoder sees.",
            cases: vec![
                case(
                    &row16(&[6.3, 2.6]),
                    1,
                    Call {
                        amax: Some(&[2688.0]),
                        ..with(d)
                    },
                ),
                case(
                    &[4.0; 32],
                    1,
                    with(Options {
                        format: Format::Mxfp4,
                        scale_rule: ScaleRule::Ceil,
                        ..d
                    }),
                ),
            ],
        },
        Vector {
            name: "tail_17",
            section: 3,
            rule: "A tail block is quantized as if padded with +0; the spare nibble is 0.",
            cases: vec![
                case(&y, 3, with(d)),
                case(
                    &y,
                    3,
                    with(Options {
                        format: Format::Mxfp4,
                        ..d
                    }),
                ),
                case(
                    &y,
                    3,
                    Call {
                        columnwise: true,
                        ..with(d)
                    },
                ),
                case(&[5.0], 1, with(d)),
            ],
        },
        Vector {
            name: "tile_2d",
            section: 2,
            rule: "A 16x16 tile has one scale, repeated on its rows; the columnwise \
                   copy is the transpose.",
            cases: vec![
                bf16_case(&z, 18, with(two_d)),
                bf16_case(
                    &z,
                    18,
                    Call {
                        columnwise: true,
                        ..with(two_d)
                    },
                ),
            ],
        },
        Vector {
            name: "columnwise",
            section: 5,
            rule: "A columnwise copy is the rowwise copy of the transposed matrix.",
            cases: vec![case(
                &data(8, 20 * 3),
                20,
                Call {
                    columnwise: true,
                    ..with(d)
                },
            )],
        },
        Vector {
            name: "rows_domain",
            section: 5,
            rule: "Groups of rows have their own amax.",
            cases: vec![
                case(
                    &data(9, 5 * 32),
                    5,
                    with(Options {
                        domain_rows: 2,
                        ..d
                    }),
                ),
                case(
                    &data(9, 5 * 32),
                    5,
                    Call {
                        amax: Some(&[100.0, 1.0, 0.0]),
                        ..with(Options {
                            domain_rows: 2,
                            ..d
                        })
                    },
                ),
            ],
        },
        Vector {
            name: "swizzle_33x2",
            section: 12,
            rule: "The 128x4 order of scale bytes, padding 0.",
            cases: vec![bf16_case(
                &data(10, 33 * 18),
                33,
                with(Options {
                    scale_layout: ScaleLayout::Swizzled,
                    ..d
                }),
            )],
        },
        Vector {
            name: "four_over_six",
            section: 8,
            rule: "Of two scales, the one with the smaller error, in f32 and in \
                   order; C = 1536 and chain DIV6 unless named.",
            cases: [
                Select::FourOverSixMae,
                Select::FourOverSixMse,
                Select::FourOverSixAbsMax,
            ]
            .iter()
            .flat_map(|s| {
                [
                    case(&data(11, 32), 1, with(over(*s, 0.0))),
                    case(&data(11, 32), 1, with(over(*s, 2688.0))),
                ]
            })
            .chain([case(
                &data(12, 18 * 17),
                18,
                with(Options {
                    block: Block::TwoD,
                    ..over(Select::FourOverSixMae, 0.0)
                }),
            )])
            .collect(),
        },
        Vector {
            name: "ms_eden",
            section: 9,
            rule: "Nearest codes after a seeded transform of 128, scale bytes \
                   corrected stochastically.",
            cases: vec![case(
                &data(13, 2 * 200),
                2,
                Call {
                    seed: 5,
                    offset: 9,
                    origin: (3, 128),
                    ..with(Options {
                        select: Select::MsEden,
                        hadamard: 128,
                        signs: Signs::Seeded,
                        ..d
                    })
                },
            )],
        },
    ]
}

/// A row of bf16 values on which TE and DIV6 choose other scale bytes.
fn chains_differ() -> Vec<f32> {
    let bytes = |x: &[f32], chain| {
        quantize(
            &Matrix::f32(x, 1, x.len()),
            &with(Options {
                chain,
                ..Options::default()
            }),
        )
        .unwrap()
        .scales
    };
    (0..)
        .map(|seed| {
            data(seed, 64)
                .iter()
                .map(|v| rounding::round_bf16(*v))
                .collect::<Vec<f32>>()
        })
        .find(|x| bytes(x, Chain::Te) != bytes(x, Chain::Div6))
        .unwrap()
}
