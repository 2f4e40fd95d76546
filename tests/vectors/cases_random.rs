//! Vectors of the transform and of random bits.

use crate::cases_quantize::{case, data, with};
use crate::json::{floats, text, Flag, Json, List, Number, Object};
use crate::Vector;
use nvfp4::numerics::philox::philox4x32_10;
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::*;

pub fn all() -> Vec<Vector> {
    let d = Options::default();
    let sr = Options {
        rounding: Rounding::Stochastic,
        ..d
    };
    let rht = |hadamard, signs| {
        with(Options {
            hadamard,
            signs,
            ..d
        })
    };
    let x = data(50, 4 * 32);
    let seed = Call {
        seed: 7,
        offset: 3,
        ..with(sr)
    };
    let far = (1u64 << 32 | 16, 1u64 << 20);
    vec![
        Vector {
            name: "rht16_default_mask",
            section: 6,
            rule: "Signs 0xD7E8, butterflies in f32, bf16 rounding, amax after it; \
                   the copy has K rounded up to 16 columns.",
            cases: vec![
                case(&data(51, 2 * 20), 2, rht(16, Signs::Default)),
                case(
                    &data(51, 20 * 2),
                    20,
                    Call {
                        columnwise: true,
                        ..rht(16, Signs::Default)
                    },
                ),
            ],
        },
        Vector {
            name: "rht_masks",
            section: 6,
            rule: "Longer transforms, plain, masked and seeded signs, and f32 kept.",
            cases: vec![
                case(&data(52, 40), 1, rht(32, Signs::Mask16(0))),
                case(
                    &data(52, 64),
                    1,
                    rht(64, Signs::Mask([0x12345678, 0x9ABCDEF0, 0, 0])),
                ),
                case(
                    &data(52, 130),
                    1,
                    Call {
                        seed: 1 << 33 | 5,
                        offset: 1 << 34 | 6,
                        ..rht(128, Signs::Seeded)
                    },
                ),
                case(
                    &data(52, 16),
                    1,
                    with(Options {
                        hadamard: 16,
                        keep_f32: true,
                        ..d
                    }),
                ),
            ],
        },
        hadamard_vector(),
        Vector {
            name: "sr_seed7_offset3",
            section: 7,
            rule: "Random bits are a function of seed, offset and global \
                   coordinates; the columnwise copy draws others.",
            cases: vec![
                case(&x, 4, seed),
                case(
                    &x,
                    4,
                    Call {
                        columnwise: true,
                        ..seed
                    },
                ),
                case(
                    &x,
                    4,
                    Call {
                        origin: far,
                        seed: u64::MAX / 3,
                        offset: (1 << 62) - 1,
                        ..seed
                    },
                ),
                case(&x[..2 * 17], 2, seed),
            ],
        },
        Vector {
            name: "sr_range_16_17",
            section: 7,
            rule: "The encode multiplier times fl(16/17), the decode factor times 17/16.",
            cases: vec![case(
                &x,
                4,
                Call {
                    options: Options {
                        range_16_17: true,
                        ..sr
                    },
                    ..seed
                },
            )],
        },
        Vector {
            name: "sr_tile_2d",
            section: 2,
            rule: "With tiles the rowwise copy draws, and the columnwise copy is its \
                   transpose.",
            cases: vec![
                case(
                    &x,
                    4,
                    Call {
                        options: Options {
                            block: Block::TwoD,
                            ..sr
                        },
                        ..seed
                    },
                ),
                case(
                    &x,
                    4,
                    Call {
                        options: Options {
                            block: Block::TwoD,
                            ..sr
                        },
                        columnwise: true,
                        ..seed
                    },
                ),
            ],
        },
        Vector {
            name: "sr_rht_four_over_six",
            section: 8,
            rule: "Four over six, transform and stochastic rounding compose: the \
                   choice is made on nearest codes.",
            cases: vec![case(
                &x,
                4,
                Call {
                    options: Options {
                        hadamard: 16,
                        select: Select::FourOverSixMae,
                        scale_layout: ScaleLayout::Swizzled,
                        ..sr
                    },
                    columnwise: true,
                    ..seed
                },
            )],
        },
        Vector {
            name: "philox",
            section: 7,
            rule: "Philox4x32-10.",
            cases: [
                ([0, 0], [0, 0, 0, 0]),
                ([!0, !0], [!0, !0, !0, !0]),
                ([7, 0], [2, 5, 3, 1 << 31]),
            ]
            .iter()
            .map(|(k, c)| {
                Object(vec![
                    ("call", text("philox4x32_10")),
                    ("key", words(k)),
                    ("counter", words(c)),
                    ("output", words(&philox4x32_10(*k, *c))),
                ])
            })
            .collect(),
        },
    ]
}

fn words(w: &[u32]) -> Json {
    List(w.iter().map(|v| Number(*v as i64)).collect())
}

fn hadamard_vector() -> Vector {
    let mut cases = Vec::new();
    for (n, signs) in [
        (16usize, Signs::Default),
        (32, Signs::Default),
        (64, Signs::Mask16(0)),
        (128, Signs::Seeded),
    ] {
        for inverse in [false, true] {
            let words_used = hadamard::sign_words(signs, n, 7, 3);
            let x = data(60, n);
            let mut y = x.clone();
            if inverse {
                hadamard::inverse(&mut y, &words_used);
            } else {
                hadamard::forward(&mut y, &words_used);
            }
            cases.push(Object(vec![
                ("call", text("hadamard")),
                ("n", Number(n as i64)),
                ("signs", words(&words_used)),
                ("inverse", Flag(inverse)),
                ("input", floats(&x, n)),
                ("output", floats(&y, n)),
            ]));
        }
    }
    Vector {
        name: "hadamard",
        section: 6,
        rule: "One block, forward and inverse, in f32 without rounding to bf16.",
        cases,
    }
}
