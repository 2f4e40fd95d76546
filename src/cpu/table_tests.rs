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
pub fn tables() -> Vec<Kernels> {
    let all: Vec<Kernels> = Kernels::all().filter(|k| k.name != SCALAR.name).collect();
    println!(
        "tables: {:?}",
        all.iter().map(|k| k.name).collect::<Vec<_>>()
    );
    all
}

/// A matrix with its memory: rows `stride` apart.
pub struct Input {
    bytes: Vec<u8>,
    dtype: Dtype,
    rows: usize,
    cols: usize,
    stride: usize,
}

impl Input {
    pub fn new(kind: usize, dtype: Dtype, rows: usize, cols: usize, pad: usize) -> Input {
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

    pub fn matrix(&mut self) -> Matrix {
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
pub struct Output {
    pub codes: Vec<u8>,
    pub scales: Vec<u8>,
    pub amax: Vec<f32>,
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

    pub fn buffers(&mut self, shape: &Quantized, pad: usize) -> Buffers {
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
pub struct Case {
    pub rowwise: Option<Options>,
    pub columnwise: Option<Options>,
    pub nonfinite: Nonfinite,
    pub given: Option<f32>,
    pub pad: usize,
}

pub fn run(cpu: &Cpu, case: &Case, input: &mut Input, poison: u8) -> [Option<Output>; 2] {
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

pub fn copies() -> Vec<Options> {
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
