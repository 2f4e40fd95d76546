//! Inputs of the self tests, the same every time.

use super::{Block, Chain, Format, Options, Rounding, ScaleLayout, Select, Signs};

/// The options that are checked: each chain, format and choice once.
pub fn variants() -> Vec<(&'static str, Options)> {
    let plain = Options::default();
    let stochastic = Options {
        rounding: Rounding::Stochastic,
        ..plain
    };
    vec![
        ("1x16", plain),
        (
            "16x16 swizzled",
            Options {
                block: Block::TwoD,
                scale_layout: ScaleLayout::Swizzled,
                ..plain
            },
        ),
        (
            "DIV6",
            Options {
                chain: Chain::Div6,
                ..plain
            },
        ),
        (
            "SINGLE",
            Options {
                chain: Chain::Single,
                ..plain
            },
        ),
        ("stochastic", stochastic),
        (
            "transform 16, stochastic",
            Options {
                hadamard: 16,
                ..stochastic
            },
        ),
        (
            "transform 128, seeded",
            Options {
                hadamard: 128,
                signs: Signs::Seeded,
                ..plain
            },
        ),
        (
            "row groups",
            Options {
                domain_rows: 16,
                ..plain
            },
        ),
        (
            "four over six",
            Options {
                select: Select::FourOverSixMae,
                ..plain
            },
        ),
        (
            "MS-EDEN",
            Options {
                select: Select::MsEden,
                hadamard: 128,
                signs: Signs::Seeded,
                ..plain
            },
        ),
        (
            "MXFP4",
            Options {
                format: Format::Mxfp4,
                ..plain
            },
        ),
        (
            "BF16",
            Options {
                format: Format::Bf16,
                ..plain
            },
        ),
    ]
}

/// Numbers with ties, zeros of both signs, subnormals, a NaN and an Inf among ordinary ones; the same every time.
pub fn data(rows: usize, cols: usize, special: bool) -> Vec<f32> {
    let mut state = 12345u32;
    (0..rows * cols)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match i {
                20 if special => f32::NAN,
                300 if special => f32::NEG_INFINITY,
                _ => match i % 13 {
                    0 => 0.25 * (i % 25) as f32,
                    1 => -0.0,
                    2 => f32::from_bits(i as u32 + 1),
                    _ => (state >> 8) as f32 / 65536.0 - 128.0,
                },
            }
        })
        .collect()
}
