//! Whole-matrix quantization: blocks, tiles, tails, copies, domains, special values.

use super::data::{normal, wild};
use nvfp4::numerics::dequantize::dequantize;
use nvfp4::numerics::matrix::{Elements, Matrix, Quantized};
use nvfp4::numerics::quantize::{amax, quantize, quantize_with_stats, Call};
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;

pub fn run(x: &[f32], rows: usize, cols: usize, call: &Call) -> Quantized {
    quantize(&Matrix::f32(x, rows, cols), call).unwrap()
}

pub fn with(options: Options) -> Call<'static> {
    Call {
        options,
        ..Call::default()
    }
}

pub fn codes(q: &Quantized, row: usize) -> Vec<u8> {
    (0..q.cols).map(|c| q.code(row, c)).collect()
}

fn transpose(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols * rows)
        .map(|i| x[i % rows * cols + i / rows])
        .collect()
}

#[test]
fn a_block_that_can_be_checked_by_hand() {
    // A given amax of 2688 makes the outer scale 1; the largest magnitude 6 makes the block scale 1.
    let x = [
        6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0,
        -0.0,
    ];
    let q = run(
        &x,
        1,
        16,
        &Call {
            amax: Some(&[2688.0]),
            ..Call::default()
        },
    );
    assert_eq!(q.scales, [0x38]);
    assert_eq!(
        codes(&q, 0),
        [7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 10, 12, 12, 14, 14, 8]
    );
    assert_eq!(q.codes, [0x07, 0x22, 0x44, 0x66, 0xA8, 0xCA, 0xEC, 0x8E]);
    assert_eq!(dequantize(&q, Dtype::F32)[..4], [6.0, 0.0, 1.0, 1.0]);
}

#[test]
fn elements_are_encoded_with_the_rounded_scale() {
    let mut x = [0f32; 16];
    x[..2].copy_from_slice(&[6.3, 2.6]);
    let q = run(
        &x,
        1,
        16,
        &Call {
            amax: Some(&[2688.0]),
            ..Call::default()
        },
    );
    assert_eq!(
        (q.scales[0], codes(&q, 0)[0], codes(&q, 0)[1]),
        (0x38, 7, 5)
    );
    let x = [4.0; 32];
    let q = run(
        &x,
        1,
        32,
        &with(Options {
            format: Format::Mxfp4,
            ..Options::default()
        }),
    );
    assert_eq!((q.scales[0], codes(&q, 0)[0]), (127, 6));
}

#[test]
fn a_tail_is_a_block_padded_with_zeros() {
    for format in [Format::Nvfp4, Format::Mxfp4] {
        for cols in [1usize, 15, 17, 24, 31, 33, 47] {
            let rows = 3;
            let x = wild(5, rows * cols);
            let padded_cols = cols.next_multiple_of(32);
            let mut padded = vec![0f32; rows * padded_cols];
            for r in 0..rows {
                padded[r * padded_cols..][..cols].copy_from_slice(&x[r * cols..][..cols]);
            }
            let o = Options {
                format,
                ..Options::default()
            };
            let (q, p) = (
                run(&x, rows, cols, &with(o)),
                run(&padded, rows, padded_cols, &with(o)),
            );
            assert_eq!(q.amax, p.amax);
            for r in 0..rows {
                assert_eq!(codes(&q, r), codes(&p, r)[..cols]);
                for b in 0..cols.div_ceil(format.block()) {
                    assert_eq!(q.scale_byte(r, b), p.scale_byte(r, b));
                }
                if cols % 2 == 1 {
                    assert_eq!(
                        q.codes[(r + 1) * cols.div_ceil(2) - 1] >> 4,
                        0,
                        "the spare nibble"
                    );
                }
            }
        }
    }
}

#[test]
fn columnwise_is_rowwise_of_the_transpose() {
    let (rows, cols) = (37, 21);
    let x = wild(6, rows * cols);
    let t = transpose(&x, rows, cols);
    for format in [Format::Nvfp4, Format::Mxfp4] {
        for block in [Block::OneD, Block::TwoD] {
            for hadamard in [0, 16, 128] {
                let o = Options {
                    format,
                    block,
                    hadamard,
                    ..Options::default()
                };
                let q = run(
                    &x,
                    rows,
                    cols,
                    &Call {
                        columnwise: true,
                        ..with(o)
                    },
                );
                let mut expected = run(&t, cols, rows, &with(o));
                assert!(q.transposed);
                expected.transposed = true;
                assert_eq!(q, expected, "{o:?}");
            }
        }
    }
}

#[test]
fn tiles_share_their_scale_and_transpose() {
    let (rows, cols) = (40, 24);
    let x = wild(7, rows * cols);
    for select in [
        Select::Single,
        Select::FourOverSixMae,
        Select::FourOverSixMse,
        Select::FourOverSixAbsMax,
    ] {
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            let o = Options {
                block: Block::TwoD,
                select,
                rounding,
                ..Options::default()
            };
            let call = Call {
                seed: 9,
                offset: 4,
                origin: (16, 32),
                ..with(o)
            };
            let q = run(&x, rows, cols, &call);
            let t = run(
                &x,
                rows,
                cols,
                &Call {
                    columnwise: true,
                    ..call
                },
            );
            for r in 0..rows {
                for c in 0..cols {
                    assert_eq!(q.scale_byte(r, c / 16), q.scale_byte(r / 16 * 16, c / 16));
                    assert_eq!(q.scale_byte(r, c / 16), t.scale_byte(c, r / 16));
                    assert_eq!(
                        q.code(r, c),
                        t.code(c, r),
                        "{select:?} {rounding:?} at {r}, {c}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_swizzled_layout_holds_the_linear_bytes() {
    let (rows, cols) = (133, 90);
    let x = wild(8, rows * cols);
    let linear = run(&x, rows, cols, &Call::default());
    let swizzled = run(
        &x,
        rows,
        cols,
        &with(Options {
            scale_layout: ScaleLayout::Swizzled,
            ..Options::default()
        }),
    );
    assert_eq!(swizzled.codes, linear.codes);
    assert_eq!(
        swizzled.scales,
        layout::swizzle(&linear.scales, rows, cols.div_ceil(16))
    );
}

#[test]
fn row_groups_have_their_own_amax() {
    let (rows, cols) = (10, 32);
    let x = wild(9, rows * cols);
    for g in [1usize, 3, 10, 100] {
        let q = run(
            &x,
            rows,
            cols,
            &with(Options {
                domain_rows: g,
                ..Options::default()
            }),
        );
        assert_eq!(q.amax.len(), rows.div_ceil(g));
        for (i, group) in x.chunks(g * cols).enumerate() {
            let alone = run(group, group.len() / cols, cols, &Call::default());
            assert_eq!(q.amax[i], alone.amax[0]);
            for r in 0..alone.rows {
                assert_eq!(codes(&q, i * g + r), codes(&alone, r));
            }
        }
    }
}

#[test]
fn sixteen_bit_inputs_equal_their_f32_values() {
    let (rows, cols) = (5, 40);
    let x = normal(11, rows * cols);
    let bf16: Vec<u16> = x.iter().map(|v| bf16_bits(*v)).collect();
    let f16: Vec<u16> = x.iter().map(|v| f16_bits(*v)).collect();
    for data in [Elements::Bf16(&bf16), Elements::F16(&f16)] {
        let m = Matrix::new(data, rows, cols);
        let wide: Vec<f32> = (0..rows * cols).map(|i| m.at(i / cols, i % cols)).collect();
        assert_eq!(
            quantize(&m, &Call::default()).unwrap(),
            run(&wide, rows, cols, &Call::default())
        );
    }
    let strided = Matrix {
        data: Elements::F32(&x),
        rows,
        cols: 17,
        stride: cols,
    };
    let dense: Vec<f32> = (0..rows)
        .flat_map(|r| x[r * cols..][..17].to_vec())
        .collect();
    assert_eq!(
        quantize(&strided, &Call::default()).unwrap(),
        run(&dense, rows, 17, &Call::default())
    );
}

#[test]
fn a_transform_pads_to_whole_blocks_and_its_amax_is_after_it() {
    let (rows, cols) = (3, 20);
    let x = normal(12, rows * cols);
    let o = Options {
        hadamard: 16,
        ..Options::default()
    };
    let q = run(&x, rows, cols, &with(o));
    assert_eq!((q.cols, q.source_cols), (32, 20));
    assert_eq!(q.signs, [0xD7E8, 0, 0, 0]);
    let mut y = vec![0f32; rows * 32];
    for r in 0..rows {
        y[r * 32..][..cols].copy_from_slice(&x[r * cols..][..cols]);
    }
    for block in y.chunks_mut(16) {
        hadamard::forward(block, &q.signs);
        block.iter_mut().for_each(|v| *v = rounding::round_bf16(*v));
    }
    let expected = run(&y, rows, 32, &Call::default());
    assert_eq!(
        (&q.codes, &q.scales, &q.amax),
        (&expected.codes, &expected.scales, &expected.amax)
    );
    assert_eq!(
        amax(&Matrix::f32(&x, rows, cols), &with(o)).unwrap(),
        q.amax
    );
}

#[test]
fn stats_count_what_happened() {
    let mut x = [0f32; 16];
    x[..4].copy_from_slice(&[10.0, 1.0, 1e-9, f32::from_bits(1)]);
    let call = Call {
        amax: Some(&[1.0]),
        ..Call::default()
    };
    let (q, s) = quantize_with_stats(&Matrix::f32(&x, 1, 16), &call).unwrap();
    assert_eq!(dequantize(&q, Dtype::F32)[..3], [1.0, 1.0, 0.0]);
    assert_eq!((s.nonfinite, s.saturated, s.underflowed), (0, 1, 2));
    assert!((s.sum_squares - 101.0).abs() < 1e-6 && (s.sum_squared_error - 81.0).abs() < 1e-6);
}
