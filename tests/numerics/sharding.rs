//! A slice quantized with its origin equals the slice of the whole, byte for byte.

use super::data::wild;
use nvfp4::numerics::matrix::{Elements, Matrix};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::*;

#[test]
fn slices_equal_the_whole() {
    let (rows, cols) = (256, 256);
    let x = wild(20, rows * cols);
    let whole = Matrix::f32(&x, rows, cols);
    let amax = [whole_amax(&x) * 2.0];
    let d = Options {
        rounding: Rounding::Stochastic,
        ..Options::default()
    };
    for o in [
        d,
        Options {
            rounding: Rounding::Nearest,
            ..d
        },
        Options {
            format: Format::Mxfp4,
            ..d
        },
        Options {
            block: Block::TwoD,
            ..d
        },
        Options {
            block: Block::TwoD,
            select: Select::FourOverSixMae,
            ..d
        },
        Options { hadamard: 64, ..d },
        Options {
            hadamard: 128,
            signs: Signs::Seeded,
            rounding: Rounding::Nearest,
            select: Select::MsEden,
            ..d
        },
    ] {
        for columnwise in [false, true] {
            for origin in [(1u64 << 32, 1u64 << 20), (0, 0)] {
                let call = Call {
                    options: o,
                    columnwise,
                    seed: 3,
                    offset: 1 << 40,
                    origin,
                    amax: Some(&amax),
                    ..Call::default()
                };
                let full = quantize(&whole, &call).unwrap();
                let (r0, c0, h, w) = (128, 128, 64, 128);
                // Along a transformed axis, cut at a multiple of the transform, and to its end.
                let (h, w) = if o.hadamard == 128 { (128, w) } else { (h, w) };
                let part = Matrix {
                    data: Elements::F32(&x[r0 * cols + c0..]),
                    rows: h,
                    cols: w,
                    stride: cols,
                };
                let origin = (origin.0 + r0 as u64, origin.1 + c0 as u64);
                let q = quantize(&part, &Call { origin, ..call }).unwrap();
                let (r0, c0) = if columnwise { (c0, r0) } else { (r0, c0) };
                let side = o.format.block();
                for r in 0..q.rows {
                    for c in 0..q.cols {
                        assert_eq!(
                            q.code(r, c),
                            full.code(r0 + r, c0 + c),
                            "{o:?} {columnwise} {r} {c}"
                        );
                        assert_eq!(
                            q.scale_byte(r, c / side),
                            full.scale_byte(r0 + r, (c0 + c) / side)
                        );
                    }
                }
            }
        }
    }
}

fn whole_amax(x: &[f32]) -> f32 {
    special::amax(x.iter().copied())
}
