//! Whole calls with every table of kernels against the same calls with the scalar one: shapes, strides, both copies,
//! every option, threads.

use super::isa_tests::{adversarial, Random, Row};
use super::{Cpu, Kernels, SCALAR};
use crate::numerics::{
    Block, Chain, Dtype, Format, Nonfinite, Options, Rounding, ScaleLayout, ScaleRule, Select,
    Signs,
};
use crate::plan::quantize::{described, Sizes};
use crate::plan::{self, Buffers, Device, Matrix, QuantizeRequest, Quantized, Seed, Source};

/// The tables under test; says which the processor lacks.
fn tables() -> Vec<Kernels> {
    let all: Vec<Kernels> = Kernels::all().filter(|k| k.name != SCALAR.name).collect();
    println!(
        "tables: {:?}",
        all.iter().map(|k| k.name).collect::<Vec<_>>()
    );
    all
}

/// A matrix with its memory: rows `stride` apart.
struct Input {
    bytes: Vec<u8>,
    dtype: Dtype,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl Input {
    fn new(kind: usize, dtype: Dtype, rows: usize, cols: usize, pad: usize) -> Input {
        let stride = cols + pad;
        let values =
            adversarial(rows * stride, (kind * 31 + rows * 7 + cols) as u64).swap_remove(kind);
        // Aligned to elements by being at the start of the allocation.
        Input {
            bytes: Row::new(dtype, &values).bytes,
            dtype,
            rows,
            cols,
            stride,
        }
    }

    fn matrix(&mut self) -> Matrix {
        let p = self.bytes.as_mut_ptr();
        let p = if self.bytes.is_empty() {
            std::ptr::without_provenance_mut(64)
        } else {
            p
        };
        Matrix::new(
            "x",
            p,
            self.dtype,
            self.rows as i64,
            self.cols as i64,
            self.stride as i64,
        )
        .expect("a matrix")
    }
}

/// Output buffers of one copy, poisoned.
#[derive(PartialEq, Debug)]
struct Output {
    codes: Vec<u8>,
    scales: Vec<u8>,
    amax: Vec<f32>,
}

impl Output {
    fn new(shape: &Quantized, pad: usize, poison: u8) -> Output {
        let s = Sizes::of(shape);
        Output {
            codes: vec![poison; s.codes_bytes + shape.rows * pad + 1],
            scales: vec![poison; s.scales_bytes + shape.rows * pad + 1],
            amax: vec![f32::from_bits(0x0101_0101 * poison as u32); s.amax_count + 1],
        }
    }

    fn buffers(&mut self, shape: &Quantized, pad: usize) -> Buffers {
        let even = if shape.format == Format::Bf16 {
            pad & !1
        } else {
            pad
        };
        Buffers {
            codes: self.codes.as_mut_ptr(),
            codes_bytes: self.codes.len(),
            scales: self.scales.as_mut_ptr(),
            scales_bytes: self.scales.len(),
            amax: self.amax.as_mut_ptr(),
            amax_count: self.amax.len(),
            code_stride: (shape.code_row_bytes() + even) as i64,
            scale_stride: (shape.scale_cols() + pad) as i64,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rowwise: Option<Options>,
    columnwise: Option<Options>,
    nonfinite: Nonfinite,
    given: Option<f32>,
    pad: usize,
}

fn run(cpu: &Cpu, case: &Case, input: &mut Input, poison: u8) -> [Option<Output>; 2] {
    let x = input.matrix();
    let given = vec![case.given.unwrap_or(0.0); x.rows.max(x.cols) + 1];
    let pointer = if case.given.is_some() {
        given.as_ptr()
    } else {
        std::ptr::null()
    };
    let request = QuantizeRequest {
        rowwise: case.rowwise.unwrap_or_default(),
        columnwise: case.columnwise.unwrap_or_default(),
        nonfinite: case.nonfinite,
        seed: Seed::Host(0x1234_5678_9ABC, 77),
        origin_row: 128 * 3,
        origin_col: 128 * 9,
        rowwise_amax: pointer,
        columnwise_amax: pointer,
        ..QuantizeRequest::default()
    };
    let shapes = [
        case.rowwise.map(|o| described(&o, x.rows, x.cols, false)),
        case.columnwise.map(|o| described(&o, x.cols, x.rows, true)),
    ];
    let mut outputs = shapes.map(|s| s.map(|s| Output::new(&s, case.pad, poison)));
    let mut buffers = [None, None];
    for ((buffer, output), shape) in buffers.iter_mut().zip(&mut outputs).zip(&shapes) {
        *buffer = output
            .as_mut()
            .zip(shape.as_ref())
            .map(|(o, s)| o.buffers(s, case.pad));
    }
    let plan = plan::quantize::plan(
        &request,
        Device::Cpu,
        Source::Matrix(x),
        buffers[0].as_ref(),
        buffers[1].as_ref(),
    )
    .unwrap_or_else(|e| panic!("{case:?}: {e}"));
    cpu.quantize(&plan).expect("a checked plan");
    outputs
}

fn copies() -> Vec<Options> {
    let base = Options::default();
    let mx = Options {
        format: Format::Mxfp4,
        ..base
    };
    let sr = Rounding::Stochastic;
    let mut all = vec![
        base,
        Options {
            chain: Chain::Div6,
            scale_layout: ScaleLayout::Swizzled,
            ..base
        },
        Options {
            chain: Chain::Single,
            ..base
        },
        Options {
            block: Block::TwoD,
            ..base
        },
        Options {
            block: Block::TwoD,
            rounding: sr,
            ..base
        },
        Options {
            block: Block::TwoD,
            hadamard: 16,
            rounding: sr,
            ..base
        },
        Options {
            rounding: sr,
            range_16_17: true,
            scale_layout: ScaleLayout::Swizzled,
            ..base
        },
        Options {
            hadamard: 16,
            ..base
        },
        Options {
            hadamard: 16,
            rounding: sr,
            ..base
        },
        Options {
            hadamard: 32,
            keep_f32: true,
            signs: Signs::Seeded,
            ..base
        },
        Options {
            hadamard: 64,
            rounding: sr,
            ..base
        },
        Options {
            hadamard: 128,
            signs: Signs::Seeded,
            block: Block::TwoD,
            ..base
        },
        Options {
            domain_rows: 1,
            ..base
        },
        Options {
            domain_rows: 16,
            hadamard: 16,
            ..base
        },
        Options {
            domain_rows: 48,
            block: Block::TwoD,
            ..base
        },
        Options {
            select: Select::FourOverSixMse,
            ..base
        },
        mx,
        Options {
            scale_rule: ScaleRule::Ceil,
            block: Block::TwoD,
            ..mx
        },
        Options {
            scale_rule: ScaleRule::Even,
            rounding: sr,
            hadamard: 32,
            ..mx
        },
        Options {
            scale_rule: ScaleRule::Even,
            hadamard: 16,
            scale_layout: ScaleLayout::Swizzled,
            ..mx
        },
        Options {
            scale_rule: ScaleRule::EncodeCentric,
            ..mx
        },
        Options {
            format: Format::Bf16,
            ..base
        },
        Options {
            format: Format::Bf16,
            hadamard: 16,
            ..base
        },
    ];
    all.dedup();
    all
}

/// Both copies, to the last bit and the last byte of padding.
fn assert_same(got: &[Option<Output>; 2], want: &[Option<Output>; 2], at: impl Fn() -> String) {
    for (got, want) in got.iter().zip(want) {
        let (Some(got), Some(want)) = (got, want) else {
            continue;
        };
        let bits = |a: &[f32]| a.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got.amax), bits(&want.amax), "amax, {}", at());
        assert!(got.scales == want.scales, "scales, {}", at());
        assert!(got.codes == want.codes, "codes, {}", at());
    }
}

#[test]
fn quantized_copies_equal_the_scalar_ones() {
    let shapes = [
        (1, 1),
        (3, 17),
        (16, 256),
        (33, 300),
        (128, 64),
        (129, 31),
        (200, 1100),
        (40, 2),
        (0, 5),
        (5, 0),
    ];
    for kernels in tables() {
        let fast = [Cpu::with_kernels(1, kernels), Cpu::with_kernels(3, kernels)];
        let slow = Cpu::with_kernels(1, SCALAR);
        let mut r = Random(1);
        for o in copies() {
            for (rows, cols) in shapes {
                for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                    let kind = r.u32() as usize % 9;
                    for kind in [0, 7, kind] {
                        let other = copies()[r.u32() as usize % copies().len()];
                        let (rowwise, columnwise) = match r.u32() % 4 {
                            0 => (Some(o), None),
                            1 => (None, Some(o)),
                            2 => (Some(o), Some(other)),
                            _ => (Some(other), Some(o)),
                        };
                        let case = Case {
                            rowwise,
                            columnwise,
                            nonfinite: if r.u32().is_multiple_of(3) {
                                Nonfinite::Saturate
                            } else {
                                Nonfinite::Propagate
                            },
                            given: r.u32().is_multiple_of(3).then_some(1.5),
                            pad: r.u32() as usize % 4,
                        };
                        let mut input = Input::new(kind, dtype, rows, cols, r.u32() as usize % 3);
                        for poison in [0xFF, 0] {
                            let want = run(&slow, &case, &mut input, poison);
                            for cpu in &fast {
                                let got = run(cpu, &case, &mut input, poison);
                                assert_same(&got, &want, || {
                                    format!(
                                        "{} [{rows}, {cols}] {dtype:?} kind {kind} {case:?}",
                                        kernels.name
                                    )
                                });
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Two quantized operands and a product through `cpu`; D's bytes.
fn product(
    cpu: &Cpu,
    formats: (Format, Format),
    shape: (usize, usize, usize),
    kind: usize,
    dtype: Dtype,
    layout: ScaleLayout,
    packed: bool,
) -> Vec<u8> {
    let (m, n, k) = shape;
    let operand = |format, rows, kind| {
        let o = Options {
            format,
            scale_layout: if format == Format::Bf16 {
                ScaleLayout::Linear
            } else {
                layout
            },
            ..Options::default()
        };
        let mut input = Input::new(kind, Dtype::F32, rows, k, 1);
        let case = Case {
            rowwise: Some(o),
            columnwise: None,
            nonfinite: Nonfinite::Propagate,
            given: None,
            pad: 2,
        };
        let [out, _] = run(&Cpu::with_kernels(1, SCALAR), &case, &mut input, 0);
        let mut out = out.expect("asked for");
        let shape = described(
            &plan::options::check("o", &o).expect("legal"),
            rows,
            k,
            false,
        );
        let buffers = out.buffers(&shape, 2);
        (shape.bind("a", &buffers).expect("fits"), out)
    };
    let (a, _a) = operand(formats.0, m, kind);
    let (b, _b) = operand(formats.1, n, if m % 2 == 0 { kind } else { 0 });
    let mut d = vec![0xA5u8; (m * (n + 1)).max(1) * dtype.size()];
    let bias: Vec<f32> = (0..n).map(|i| i as f32 * 0.25 - 1.0).collect();
    let bytes = if packed { cpu.weight_bytes(&b) } else { 0 };
    assert_eq!(packed, bytes > 0, "every format has a packed form");
    // At an odd address; the byte after it stays as it is.
    let mut weight = vec![0x5Au8; bytes + 2];
    let at = weight[1..].as_mut_ptr();
    if bytes > 0 {
        cpu.pack_weight(&b, at, bytes).expect("packs");
    }
    let request = plan::GemmRequest {
        b_packed: if bytes > 0 { at } else { std::ptr::null() },
        b_packed_bytes: bytes,
        bias: bias.as_ptr().cast(),
        ..plan::GemmRequest::default()
    };
    let out = Matrix::new("d", d.as_mut_ptr(), dtype, m as i64, n as i64, n as i64 + 1)
        .expect("a matrix");
    let plan = plan::gemm::plan(&request, Device::Cpu, a, b, None, Some(out)).expect("legal");
    cpu.supports_gemm(&plan).expect("a weight packed for it");
    cpu.gemm(&plan).expect("runs");
    assert_eq!((weight[0], weight[bytes + 1]), (0x5A, 0x5A));
    d
}

#[test]
fn every_tail_of_both_copies_equals_the_scalar_one() {
    let mx = Options {
        format: Format::Mxfp4,
        ..Options::default()
    };
    let rht = Options {
        hadamard: 16,
        ..Options::default()
    };
    let square = Options {
        block: Block::TwoD,
        ..Options::default()
    };
    let slow = Cpu::with_kernels(1, SCALAR);
    for kernels in tables() {
        let fast = Cpu::with_kernels(2, kernels);
        for n in 0..34 {
            for (rows, cols) in [(n, 50), (50, n), (n, n)] {
                for (i, o) in [Options::default(), rht, mx, square]
                    .into_iter()
                    .enumerate()
                {
                    let case = Case {
                        rowwise: Some(o),
                        columnwise: Some(o),
                        nonfinite: Nonfinite::Propagate,
                        given: None,
                        pad: n % 3,
                    };
                    let dtype = [Dtype::F32, Dtype::Bf16, Dtype::F16][(n + i) % 3];
                    let mut input = Input::new((n + i) % 9, dtype, rows, cols, n % 4);
                    for poison in [0xFF, 0] {
                        let want = run(&slow, &case, &mut input, poison);
                        let got = run(&fast, &case, &mut input, poison);
                        assert_same(&got, &want, || {
                            format!("{} [{rows}, {cols}] {dtype:?} {case:?}", kernels.name)
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn every_tail_of_a_product_equals_the_scalar_one() {
    let slow = Cpu::with_kernels(1, SCALAR);
    for kernels in tables() {
        let fast = Cpu::with_kernels(1, kernels);
        for n in 0..34 {
            for shape in [(n, 35, 80), (5, n, 80), (9, 34, n)] {
                for format in [Format::Nvfp4, Format::Mxfp4, Format::Bf16] {
                    let (formats, layout) = ((format, format), ScaleLayout::Linear);
                    let of =
                        |cpu, packed| product(cpu, formats, shape, 0, Dtype::F32, layout, packed);
                    let want = of(&slow, false);
                    for packed in [false, true] {
                        assert!(
                            of(&fast, packed) == want,
                            "{} {format:?} {shape:?} packed {packed}",
                            kernels.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn products_equal_the_scalar_ones() {
    use Format::*;
    for kernels in tables() {
        let fast = [Cpu::with_kernels(1, kernels), Cpu::with_kernels(3, kernels)];
        let slow = Cpu::with_kernels(1, SCALAR);
        for formats in [
            (Nvfp4, Nvfp4),
            (Mxfp4, Mxfp4),
            (Bf16, Bf16),
            (Nvfp4, Bf16),
            (Bf16, Mxfp4),
        ] {
            for shape in [
                (1, 300, 512),
                (130, 260, 96),
                (257, 33, 1040),
                (7, 5, 17),
                (16, 128, 0),
                (0, 3, 16),
            ] {
                // Ordinary data, huge ranges, and values that are not finite.
                for kind in [0, 4, 7] {
                    for (dtype, layout) in [
                        (Dtype::F32, ScaleLayout::Linear),
                        (Dtype::Bf16, ScaleLayout::Swizzled),
                    ] {
                        let want = product(&slow, formats, shape, kind, dtype, layout, false);
                        // The second call on a context finds the first one's packing buffers.
                        for (cpu, packed) in fast.iter().flat_map(|c| [(c, false), (c, true)]) {
                            let got = product(cpu, formats, shape, kind, dtype, layout, packed);
                            let same = match dtype {
                                Dtype::F32 => got.chunks(4).zip(want.chunks(4)).all(|(g, w)| {
                                    let value =
                                        |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                                    g == w || (value(g).is_nan() && value(w).is_nan())
                                }),
                                _ => got == want,
                            };
                            assert!(
                                same,
                                "{} {formats:?} {shape:?} kind {kind} {dtype:?} packed {packed}",
                                kernels.name
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn decoded_values_equal_the_scalar_ones() {
    let slow = Cpu::with_kernels(1, SCALAR);
    for kernels in tables() {
        let fast = [Cpu::with_kernels(1, kernels), Cpu::with_kernels(3, kernels)];
        for asked in copies() {
            let o = plan::options::check("o", &asked).expect("legal");
            for (rows, cols) in [
                (1, 1),
                (5, 31),
                (33, 256),
                (70, 300),
                (16, 1000),
                (0, 4),
                (4, 0),
            ] {
                for kind in [0, 4, 7, 8] {
                    let case = Case {
                        rowwise: Some(asked),
                        columnwise: None,
                        nonfinite: Nonfinite::Propagate,
                        given: None,
                        pad: 1,
                    };
                    let mut input = Input::new(kind, Dtype::F32, rows, cols, 0);
                    let [out, _] = run(&slow, &case, &mut input, 0xFF);
                    let mut out = out.expect("asked for");
                    // All bytes are legal codes; all but a few scale bytes as they were.
                    for (i, byte) in out.scales.iter_mut().enumerate() {
                        *byte ^= if i % 7 == 3 { i as u8 } else { 0 };
                    }
                    let buffers = out.buffers(&described(&o, rows, cols, false), 1);
                    let x = described(&o, rows, cols, false)
                        .bind("x", &buffers)
                        .expect("fits");
                    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                        for transpose in [false, true] {
                            let (r, c) = if transpose {
                                (cols, rows)
                            } else {
                                (rows, cols)
                            };
                            let decode = |cpu: &Cpu| {
                                let mut y = vec![0xA5u8; (r * (c + 1)).max(1) * dtype.size()];
                                let out = Matrix::new(
                                    "y",
                                    y.as_mut_ptr(),
                                    dtype,
                                    r as i64,
                                    c as i64,
                                    c as i64 + 1,
                                );
                                let plan =
                                    plan::dequantize::plan(x, transpose, out.expect("a matrix"));
                                cpu.dequantize(&plan.expect("legal")).expect("runs");
                                y
                            };
                            let want = decode(&slow);
                            for cpu in &fast {
                                assert!(
                                    decode(cpu) == want,
                                    "{} {o:?} [{rows}, {cols}] {dtype:?} {transpose} {kind}",
                                    kernels.name
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
