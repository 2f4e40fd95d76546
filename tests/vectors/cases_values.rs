//! Vectors of single values: ties, ends of the range, special values.

use crate::cases_quantize::{case, data, padded, row16, with};
use crate::describe::quantize_case;
use crate::Vector;
use nvfp4::numerics::matrix::{Elements, Matrix};
use nvfp4::numerics::quantize::Call;
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;

pub fn all() -> Vec<Vector> {
    let d = Options::default();
    let two_d = Options {
        block: Block::TwoD,
        ..d
    };
    let mx = Options {
        format: Format::Mxfp4,
        ..d
    };
    let div6 = Options {
        chain: Chain::Div6,
        ..d
    };
    let one = Call {
        amax: Some(&[2688.0]),
        ..with(d)
    };
    let ties: [f32; 16] = [
        6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0,
        -0.0,
    ];
    let above: Vec<f32> = ties
        .iter()
        .map(|v| {
            if *v == 6.0 || *v == 0.0 {
                *v
            } else {
                f32::from_bits(v.to_bits() + 1)
            }
        })
        .collect();
    let below: Vec<f32> = ties
        .iter()
        .map(|v| {
            if *v == 6.0 || *v == 0.0 {
                *v
            } else {
                f32::from_bits(v.to_bits() - 1)
            }
        })
        .collect();
    let mut zero_block = vec![0f32; 16];
    zero_block[3] = -0.0;
    zero_block.extend([0.006; 16]);
    let nan = |bad: f32, n| {
        let mut x = data(2, n);
        x[n / 2 + 1] = bad;
        x
    };
    vec![
        Vector {
            name: "tie_to_even",
            section: 1,
            rule: "Ties go to the even code; one ulp to either side decides; -0 \
                   keeps its sign.",
            cases: vec![
                case(&ties, 1, one),
                case(&above, 1, one),
                case(&below, 1, one),
            ],
        },
        Vector {
            name: "zero_block",
            section: 2,
            rule: "A zero block has scale byte 0 and codes 0, or 8 for -0; a zero \
                   tensor has amax 0.",
            cases: vec![
                case(&zero_block, 1, with(d)),
                case(&zero_block, 1, with(div6)),
                case(&[0.0; 16], 1, with(d)),
            ],
        },
        Vector {
            name: "scale_saturates_448",
            section: 3,
            rule: "A given amax below the data saturates: the scale at 448, codes at 6.",
            cases: vec![case(
                &padded(&[10.0, -1.0, 0.5, 0.25], 16),
                1,
                Call {
                    amax: Some(&[1.0]),
                    ..with(d)
                },
            )],
        },
        Vector {
            name: "scale_underflows",
            section: 2,
            rule: "A scale that rounds to 0 is written as 0; the codes are what the \
                   formula gives, and the block decodes to 0.",
            cases: vec![case(&row16(&[1e-3, -1e-3, 1e-39, -0.0]), 1, one)],
        },
        Vector {
            name: "tiny_amax",
            section: 2,
            rule: "Where S_enc clamps at FLT_MAX everything stays finite.",
            cases: [1e-36, 8e-36, 1e-44, 1e-20]
                .iter()
                .flat_map(|v| [case(&[*v; 16], 1, with(d)), case(&[*v; 16], 1, with(div6))])
                .collect(),
        },
        Vector {
            name: "huge_amax",
            section: 2,
            rule: "An amax near FLT_MAX neither overflows nor loses its block.",
            cases: vec![case(&row16(&[f32::MAX, -1e38, 3e37, 1e36]), 1, with(d))],
        },
        Vector {
            name: "subnormal_input",
            section: 3,
            rule: "Subnormal inputs are values.",
            cases: vec![
                case(&row16(&[1e-39, -3e-40, 1e-45, 1e-38]), 1, with(d)),
                case(
                    &[2f32.powi(-126); 32],
                    1,
                    with(Options {
                        format: Format::Mxfp4,
                        ..d
                    }),
                ),
            ],
        },
        Vector {
            name: "nan_block",
            section: 3,
            rule: "A block with a value that is not finite has the NaN scale and \
                   codes 0; amax is over finite elements.",
            cases: vec![
                case(&nan(f32::NAN, 32), 1, with(d)),
                case(&nan(f32::INFINITY, 32), 1, with(d)),
                case(&nan(f32::NEG_INFINITY, 64), 2, with(two_d)),
                case(&nan(f32::NAN, 64), 1, with(mx)),
            ],
        },
        Vector {
            name: "nonfinite_saturate",
            section: 3,
            rule: "SATURATE: Inf becomes the input type's largest value and NaN 0, \
                   before and after a transform.",
            cases: {
                let mut x = nan(f32::NEG_INFINITY, 32);
                x[3] = f32::NAN;
                let f16: Vec<u16> = x.iter().map(|v| f16_bits(*v)).collect();
                let saturate = Call {
                    nonfinite: Nonfinite::Saturate,
                    ..with(d)
                };
                vec![
                    case(&x, 1, saturate),
                    quantize_case(&Matrix::new(Elements::F16(&f16), 1, 32), &saturate),
                    case(
                        &[f32::MAX; 16],
                        1,
                        Call {
                            options: Options {
                                hadamard: 16,
                                signs: Signs::Mask16(0),
                                ..d
                            },
                            ..saturate
                        },
                    ),
                ]
            },
        },
        Vector {
            name: "input_types",
            section: 2,
            rule: "16-bit inputs are converted to f32 exactly and go the same way.",
            cases: {
                let x = data(3, 32);
                let bf16: Vec<u16> = x.iter().map(|v| bf16_bits(*v)).collect();
                let f16: Vec<u16> = x.iter().map(|v| f16_bits(*v)).collect();
                vec![
                    quantize_case(&Matrix::new(Elements::Bf16(&bf16), 1, 32), &with(d)),
                    quantize_case(&Matrix::new(Elements::F16(&f16), 1, 32), &with(d)),
                    case(
                        &x,
                        1,
                        with(Options {
                            format: Format::Bf16,
                            ..d
                        }),
                    ),
                ]
            },
        },
    ]
}
