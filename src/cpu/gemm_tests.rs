//! Products of every ISA against the scalar contract, bit for bit.

use super::isa_tests::Random;
use super::operand::Operand;
use crate::numerics::layout::{scale_bytes, swizzled_offset};
use crate::numerics::{e2m1, e4m3, e8m0, ScaleLayout};
use std::ops::Range;

/// A random quantized matrix with its memory.
pub struct Matrix {
    pub codes: Vec<u8>,
    pub scales: Vec<u8>,
    pub rows: usize,
    pub cols: usize,
    pub block: usize,
    pub code_stride: usize,
    pub scale_stride: usize,
    pub swizzled: bool,
}

impl Matrix {
    pub fn random(
        r: &mut Random,
        rows: usize,
        cols: usize,
        block: usize,
        swizzled: bool,
        nan: bool,
    ) -> Matrix {
        let code_stride = cols.div_ceil(2) + 3;
        let n = cols.div_ceil(block);
        let scale_stride = n + 1;
        let bytes = if swizzled {
            scale_bytes(ScaleLayout::Swizzled, rows, n)
        } else {
            rows * scale_stride
        };
        let scales = (0..bytes)
            .map(|_| {
                let b = r.u32() as u8;
                match (block, nan) {
                    // All scale bytes, the ignored sign bit included.
                    (16, true) => b,
                    (16, false) if b & 0x7F == 0x7F => 1,
                    (16, false) => b,
                    (_, true) if b == 0 => 255,
                    _ => 127 - 20 + b % 40,
                }
            })
            .collect();
        Matrix {
            codes: (0..rows * code_stride).map(|_| r.u32() as u8).collect(),
            scales,
            rows,
            cols,
            block,
            code_stride,
            scale_stride,
            swizzled,
        }
    }

    pub fn operand(&self) -> Operand {
        Operand {
            codes: self.codes.as_ptr(),
            code_stride: self.code_stride,
            scales: self.scales.as_ptr(),
            scale_stride: self.scale_stride,
            swizzled: self.swizzled,
            rows: self.rows,
            cols: self.cols,
            block: self.block,
        }
    }

    fn halves(&self, row: usize, col: usize) -> i32 {
        e2m1::decode_halves(self.codes[row * self.code_stride + col / 2] >> (4 * (col % 2)) & 15)
    }

    fn scale(&self, row: usize, block: usize) -> f64 {
        let i = if self.swizzled {
            swizzled_offset(row, block, self.cols.div_ceil(self.block))
        } else {
            row * self.scale_stride + block
        };
        match self.block {
            16 => e4m3::decode(self.scales[i]) as f64,
            _ => e8m0::decode(self.scales[i]) as f64,
        }
    }
}

impl Matrix {
    /// Element (i, j) of the product with `b` transposed, and the sum of its terms' magnitudes, in f64.
    #[cfg(target_arch = "x86_64")]
    pub fn exact(&self, b: &Matrix, i: usize, j: usize) -> (f64, f64) {
        let value = |m: &Matrix, row, k| m.halves(row, k) as f64 * 0.5 * m.scale(row, k / m.block);
        (0..self.cols)
            .map(|k| value(self, i, k) * value(b, j, k))
            .fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
    }
}

/// Mode BLOCK as the contract has it.
pub fn expected(a: &Matrix, b: &Matrix, i: usize, j: usize) -> f32 {
    let mut acc = 0f32;
    for k in 0..a.cols.div_ceil(a.block) {
        let range = k * a.block..((k + 1) * a.block).min(a.cols);
        let quarters: i32 = range.map(|c| a.halves(i, c) * b.halves(j, c)).sum();
        acc += (quarters as f64 * 0.25 * a.scale(i, k) * b.scale(j, k)) as f32;
    }
    acc
}

/// (a, b, packed B or not, rows, cols, acc, ld)
pub type Tile<'a> =
    &'a mut dyn FnMut(&Operand, &Operand, bool, Range<usize>, Range<usize>, *mut f32, usize);

pub fn check(block: usize, f: Tile) {
    let mut r = Random(4242);
    let sizes = [
        (1, 32, 16),
        (1, 70, 4096 + 48),
        (2, 33, 31),
        (3, 31, 33),
        (5, 64, 129),
        (7, 1, 1),
        (8, 100, 256),
        (9, 40, 1000),
        (13, 128, 640),
        (31, 65, 8192 + 160),
        (40, 129, 513),
        (128, 96, 272),
        (6, 5, 0),
    ];
    for (m, n, k) in sizes {
        for (swizzled, nan) in [(false, false), (true, true)] {
            let a = Matrix::random(&mut r, m, k, block, swizzled, nan);
            let b = Matrix::random(&mut r, n, k, block, swizzled, nan);
            let want: Vec<f32> = (0..m * n).map(|i| expected(&a, &b, i / n, i % n)).collect();
            for packed in [false, true] {
                let width = n.next_multiple_of(32);
                for poison in [f32::from_bits(!0), 0.0] {
                    let mut acc = vec![poison; m * width + 1];
                    // Two tiles of columns where there are enough, to use kept rows of A.
                    let cut = if n > 64 { 64 } else { n };
                    for cols in [0..cut, cut..n] {
                        if !cols.is_empty() {
                            let p = acc[cols.start..].as_mut_ptr();
                            f(&a.operand(), &b.operand(), packed, 0..m, cols, p, width);
                        }
                    }
                    for (i, want) in want.iter().enumerate() {
                        let got = acc[i / n * width + i % n];
                        assert!(
                            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                            "[{m}, {n}, {k}] block {block} packed {packed} ({}, {}): {got:e}, want {want:e}",
                            i / n,
                            i % n
                        );
                    }
                    assert_eq!(acc[m * width].to_bits(), poison.to_bits());
                }
            }
        }
    }
}
