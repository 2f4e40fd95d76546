//! Vectors of GEMM, of the hardware's model and of activations.

use crate::cases_quantize::data;
use crate::describe::{activation_name, format_name, gemm_case, gemm_quantized_case};
use crate::json::{bytes, floats, text, Object};
use crate::Vector;
use nvfp4::numerics::gemm::Epilogue;
use nvfp4::numerics::matrix::{Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::*;

fn q(seed: u32, rows: usize, cols: usize, options: Options) -> Quantized {
    quantize(
        &Matrix::f32(&data(seed, rows * cols), rows, cols),
        &Call {
            options,
            ..Call::default()
        },
    )
    .unwrap()
}

pub fn all() -> Vec<Vector> {
    let d = Options::default();
    let mx = Options {
        format: Format::Mxfp4,
        ..d
    };
    let (m, n, k) = (3, 4, 83);
    let (a, b) = (q(70, m, k, d), q(71, n, k, d));
    let (short_a, short_b) = (q(70, m, 35, d), q(71, n, 35, d));
    let plain = Epilogue::default();
    let pair = |o: Options| (q(70, m, k, o), q(71, n, k, o));
    let simple = |mode, o: Options| {
        let (a, b) = pair(o);
        gemm_case(mode, &a, &b, &plain, Dtype::F32)
    };
    let (c, bias, rows, cols) = (data(72, m * n), data(73, n), data(74, m), data(75, n));
    let full = |activation| Epilogue {
        alpha: 1.25,
        beta: -0.75,
        c: Some(Matrix::f32(&c, m, n)),
        bias: Some(Matrix::f32(&bias, 1, n)),
        activation,
        row_factors: Some(&rows),
        col_factors: Some(&cols),
    };
    let with_amax = |q: &Quantized, amax: f32| Quantized {
        amax: vec![amax],
        ..q.clone()
    };
    let outer = |x: f32, y: f32| {
        gemm_case(
            Accumulate::Block,
            &with_amax(&a, x),
            &with_amax(&b, y),
            &plain,
            Dtype::F32,
        )
    };
    let empty = |rows| q(0, rows, 0, d);
    let beta = Epilogue {
        beta: 2.0,
        c: Some(Matrix::f32(&c, m, n)),
        bias: Some(Matrix::f32(&bias, 1, n)),
        ..plain
    };
    let mut bad = a.clone();
    bad.scales[7] = 0x7F;
    let rht = Options { hadamard: 32, ..d };
    let types = [Dtype::F32, Dtype::Bf16, Dtype::F16];
    vec![
        Vector {
            name: "gemm_block",
            section: 10,
            rule: "Each block's product exact, rounded once to f32, added in ascending k.",
            cases: vec![
                simple(Accumulate::Block, d),
                simple(
                    Accumulate::Block,
                    Options {
                        chain: Chain::Single,
                        ..d
                    },
                ),
                simple(
                    Accumulate::Block,
                    Options {
                        domain_rows: 2,
                        scale_layout: ScaleLayout::Swizzled,
                        ..d
                    },
                ),
                simple(
                    Accumulate::Block,
                    Options {
                        range_16_17: true,
                        ..d
                    },
                ),
                simple(Accumulate::Block, rht),
            ],
        },
        Vector {
            name: "gemm_block_mxfp4",
            section: 10,
            rule: "The same over blocks of 32.",
            cases: vec![
                simple(Accumulate::Block, mx),
                simple(
                    Accumulate::Block,
                    Options {
                        scale_rule: ScaleRule::EncodeCentric,
                        ..mx
                    },
                ),
            ],
        },
        Vector {
            name: "gemm_outer_factor",
            section: 3,
            rule: "The outer factor where the product of two amax overflows, \
                   vanishes or is 0.",
            cases: vec![
                outer(1e38, 1e3),
                outer(1e-30, 1e-5),
                outer(1e-30, 1e-44),
                outer(0.0, 1.0),
                outer(f32::MAX, f32::MAX),
            ],
        },
        Vector {
            name: "gemm_epilogue",
            section: 10,
            rule: "alpha', beta C, bias, activation, row and column factors, and one \
                   cast, in their order.",
            cases: [
                Activation::None,
                Activation::Gelu,
                Activation::Silu,
                Activation::Relu2,
            ]
            .iter()
            .zip([Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::F32])
            .map(|(f, t)| gemm_case(Accumulate::Block, &short_a, &short_b, &full(*f), t))
            .collect(),
        },
        Vector {
            name: "gemm_k0",
            section: 3,
            rule: "K = 0 gives beta C plus bias, or 0.",
            cases: vec![
                gemm_case(Accumulate::Block, &empty(m), &empty(n), &beta, Dtype::F32),
                gemm_case(
                    Accumulate::Hardware,
                    &empty(m),
                    &empty(n),
                    &plain,
                    Dtype::F32,
                ),
            ],
        },
        Vector {
            name: "gemm_nan_block",
            section: 3,
            rule: "A NaN block reaches its row of D and no other.",
            cases: vec![
                gemm_case(Accumulate::Block, &bad, &b, &plain, Dtype::F32),
                gemm_case(Accumulate::Hardware, &bad, &b, &plain, Dtype::Bf16),
            ],
        },
        Vector {
            name: "gemm_bf16_operand",
            section: 10,
            rule: "With a BF16 operand: fma over elements without outer scale, in \
                   ascending k.",
            cases: types
                .iter()
                .map(|t| {
                    gemm_case(
                        Accumulate::Block,
                        &q(
                            70,
                            m,
                            k,
                            Options {
                                format: Format::Bf16,
                                ..d
                            },
                        ),
                        &b,
                        &plain,
                        *t,
                    )
                })
                .collect(),
        },
        Vector {
            name: "gemm_hardware",
            section: 10,
            rule: "The matrix unit's model, K = 64 a step, and K = 96 a step.",
            cases: vec![
                simple(Accumulate::Hardware, d),
                simple(Accumulate::HardwareK96, d),
                simple(Accumulate::Hardware, mx),
                simple(Accumulate::HardwareK96, mx),
            ],
        },
        Vector {
            name: "gemm_quantized_output",
            section: 10,
            rule: "D in f32, after its activation, quantized with a given amax.",
            cases: {
                let row_groups = Options {
                    domain_rows: 2,
                    ..d
                };
                let stochastic = Options {
                    rounding: Rounding::Stochastic,
                    chain: Chain::Single,
                    ..d
                };
                let call = |options| Call {
                    options,
                    seed: 7,
                    offset: 3,
                    ..Call::default()
                };
                let amax = |options, amax| Call {
                    amax: Some(amax),
                    ..call(options)
                };
                let silu = Epilogue {
                    activation: Activation::Silu,
                    ..plain
                };
                let (a, b) = (q(70, m, 19, d), q(71, n, 19, d));
                let quantized = |e: &Epilogue, c: Call| gemm_quantized_case(&a, &b, e, &c);
                vec![
                    quantized(&plain, amax(d, &[100.0])),
                    quantized(&silu, amax(row_groups, &[64.0, 1000.0])),
                    quantized(&plain, call(stochastic)),
                    quantized(&plain, call(mx)),
                    quantized(&plain, amax(d, &[f32::INFINITY])),
                ]
            },
        },
        matrix_unit(),
        activations(),
        Vector {
            name: "reject_gemm",
            section: 10,
            rule: "Operands that must not meet.",
            cases: vec![
                gemm_case(Accumulate::Block, &a, &q(71, n, 80, d), &plain, Dtype::F32),
                gemm_case(Accumulate::Block, &a, &q(71, n, k, mx), &plain, Dtype::F32),
                gemm_case(
                    Accumulate::Block,
                    &pair(rht).0,
                    &pair(Options { hadamard: 16, ..d }).1,
                    &plain,
                    Dtype::F32,
                ),
                gemm_case(
                    Accumulate::Hardware,
                    &a,
                    &q(
                        71,
                        n,
                        k,
                        Options {
                            format: Format::Bf16,
                            ..d
                        },
                    ),
                    &plain,
                    Dtype::F32,
                ),
            ],
        },
    ]
}

/// One instruction of the model.
fn matrix_unit() -> Vector {
    let published = [
        (
            "4ee5cbd332e816a796546bbd6ce8c5350c456507ec4179aabfc139d87df841a5",
            "1831796bae03f6361c3c4f1e51f167531462382c1dfeae68d46d28c83671c808",
            [0x3bu8, 0x2a, 0x29, 0x4b],
            [0x3au8, 0x36, 0x41, 0x28],
            0u32,
        ),
        (
            "6be1679f6ae28652eb6fa7cd62de963a8cc7d2cd0e63b0bb0841d5824cbf5f95",
            "0221be3e456e4249ac21be168a2848e6d3a738500ce1a78f6aa049bbcc172643",
            [0x31, 0x3d, 0x2f, 0x3f],
            [0x29, 0x44, 0x34, 0x3f],
            0x3f800001,
        ),
        (
            "4b55c9d15ce74215e74fdf272ac6ddc45b6279d4e8afe6c765b1c3f592c8d56a",
            "e657d44f7027c843340d8a8ed7d6960e6e67825cf4088d75d7523f358551644e",
            [0x4e, 0x41, 0x46, 0x2c],
            [0x3d, 0x4a, 0x30, 0x45],
            0xcb000001,
        ),
        (
            "2222222222222222000000000000000000000000000000000000000000000000",
            "2222222222222222000000000000000000000000000000000000000000000000",
            [0x38, 0, 0, 0],
            [0x38; 4],
            0x4bfffffe,
        ),
        (
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000000",
            [0x70; 4],
            [0x70; 4],
            0x3f800001,
        ),
        (
            "2222222222222222222222222222222222222222222222222222222222222222",
            "2222222222222222222222222222222222222222222222222222222222222222",
            [0x38, 0x38, 0x7f, 0x38],
            [0x38; 4],
            0x3f800000,
        ),
    ];
    let mut cases = Vec::new();
    for (a, b, sa, sb, c) in published {
        let codes =
            |s: &str| -> Vec<u8> { s.chars().map(|h| h.to_digit(16).unwrap() as u8).collect() };
        let d = gemm_hardware::step(
            Format::Nvfp4,
            &codes(a),
            &codes(b),
            &sa,
            &sb,
            f32::from_bits(c),
        );
        cases.push(Object(vec![
            ("call", text("matrix_unit_step")),
            ("format", text(format_name(Format::Nvfp4))),
            ("a", text(a)),
            ("b", text(b)),
            ("scales_a", bytes(&sa, 4)),
            ("scales_b", bytes(&sb, 4)),
            ("c", text(format!("{c:08x}"))),
            ("output", text(format!("{:08x}", d.to_bits()))),
        ]));
    }
    Vector {
        name: "matrix_unit_step",
        section: 10,
        rule: "One instruction: one hex digit a code, k ascending; alignment to \
                   35 bits, truncation to f32.",
        cases,
    }
}

fn activations() -> Vector {
    let mut x = data(80, 80);
    x.extend([
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1e20,
        -1e20,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        86.9,
        -86.9,
        87.1,
        -87.1,
    ]);
    x.extend((0..20).map(|i| (i as f32 - 10.0) * 1.375));
    let cases = [Activation::Gelu, Activation::Silu, Activation::Relu2].map(|f| {
        let y: Vec<f32> = x.iter().map(|v| activation::apply(f, *v)).collect();
        Object(vec![
            ("call", text("activation")),
            ("activation", text(activation_name(f))),
            ("input", floats(&x, 8)),
            ("output", floats(&y, 8)),
        ])
    });
    Vector {
        name: "activations",
        section: 10,
        rule: "The named functions, bit for bit.",
        cases: cases.into(),
    }
}
