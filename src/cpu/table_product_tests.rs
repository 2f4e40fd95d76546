//! Products and dequantize with every table of kernels against the same calls with the scalar one.

use super::table_tests::{copies, run, tables, Case, Input};
use super::{Cpu, SCALAR};
use crate::numerics::{Dtype, Format, Nonfinite, Options, ScaleLayout};
use crate::plan::quantize::described;
use crate::plan::{self, Device, Matrix};

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
