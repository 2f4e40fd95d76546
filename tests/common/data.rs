//! Test data: a seeded generator, kinds of values, dense matrices with strides and odd addresses.

use std::ffi::c_void;
use std::mem::size_of;

use nvfp4::abi::*;
use nvfp4::numerics::matrix::{self, Elements};
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;

/// A small generator of test data (xorshift64*), seeded.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// N(0, 1), by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    }
}

/// Kinds of data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Normal,
    /// Magnitudes over 60 octaves.
    Wide,
    /// Half codes, quarters and other ties at power-of-two scales.
    Ties,
    /// Subnormals, the largest values, zeros of both signs.
    Extremes,
    /// Extremes and values that are not finite.
    Nonfinite,
    /// Mostly zero.
    Sparse,
    Zero,
}

pub const KINDS: [Kind; 7] = [
    Kind::Normal,
    Kind::Wide,
    Kind::Ties,
    Kind::Extremes,
    Kind::Nonfinite,
    Kind::Sparse,
    Kind::Zero,
];

impl Kind {
    pub fn value(self, random: &mut Random) -> f32 {
        match self {
            Kind::Normal => random.normal(),
            Kind::Wide => random.normal() * 2f32.powi(random.below(60) as i32 - 30),
            Kind::Ties => {
                (random.below(49) as f32 * 0.25 - 6.0) * 2f32.powi(random.below(4) as i32)
            }
            Kind::Extremes => random.pick(&[
                0.0,
                -0.0,
                f32::from_bits(1),
                -f32::from_bits(0x7F_FFFF),
                1e-38,
                -3e38,
                f32::MAX,
                1.0,
                -6.0,
                65504.0,
            ]),
            Kind::Nonfinite => match random.below(40) {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                3 => Kind::Extremes.value(random),
                _ => random.normal(),
            },
            Kind::Sparse => [0.0, 0.0, 0.0, random.normal()][random.below(4)],
            Kind::Zero => 0.0,
        }
    }
}

/// An unquantized matrix whose rows are `stride` elements apart and that starts `shift` elements into its memory.
/// Elements outside it are NaN.
#[derive(Clone, Debug)]
pub struct Dense {
    pub dtype: Dtype,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
    pub shift: usize,
    pub f32s: Vec<f32>,
    pub u16s: Vec<u16>,
}

impl Dense {
    pub fn new(dtype: Dtype, rows: usize, cols: usize, stride: usize, shift: usize) -> Dense {
        assert!(stride >= cols);
        let len = shift + rows * stride;
        let wide = dtype == Dtype::F32;
        Dense {
            dtype,
            rows,
            cols,
            stride,
            shift,
            f32s: if wide {
                vec![f32::NAN; len]
            } else {
                Vec::new()
            },
            u16s: if wide { Vec::new() } else { vec![0x7FFF; len] },
        }
    }

    pub fn filled(dtype: Dtype, rows: usize, cols: usize, values: impl FnMut() -> f32) -> Dense {
        Dense::new(dtype, rows, cols, cols, 0).fill(values)
    }

    pub fn from(rows: usize, cols: usize, values: &[f32]) -> Dense {
        let mut values = values.iter().copied();
        Dense::filled(Dtype::F32, rows, cols, || values.next().unwrap())
    }

    pub fn fill(mut self, mut values: impl FnMut() -> f32) -> Dense {
        for r in 0..self.rows {
            for c in 0..self.cols {
                self.set(r, c, values());
            }
        }
        self
    }

    pub fn set(&mut self, r: usize, c: usize, v: f32) {
        let i = self.shift + r * self.stride + c;
        match self.dtype {
            Dtype::F32 => self.f32s[i] = v,
            Dtype::Bf16 => self.u16s[i] = bf16_bits(v),
            Dtype::F16 => self.u16s[i] = f16_bits(v),
        }
    }

    pub fn get(&self, r: usize, c: usize) -> f32 {
        self.reference().at(r, c)
    }

    /// All elements as f32, packed.
    pub fn values(&self) -> Vec<f32> {
        (0..self.rows * self.cols)
            .map(|i| self.get(i / self.cols, i % self.cols))
            .collect()
    }

    pub fn transposed(&self) -> Dense {
        let mut t = Dense::new(self.dtype, self.cols, self.rows, self.rows, 0);
        for r in 0..self.rows {
            for c in 0..self.cols {
                t.set(c, r, self.get(r, c));
            }
        }
        t
    }

    /// Rows and columns cut out of it, in their own memory.
    pub fn slice(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) -> Dense {
        let mut s = Dense::new(self.dtype, rows.len(), cols.len(), cols.len(), 0);
        for r in rows.clone() {
            for c in cols.clone() {
                s.set(r - rows.start, c - cols.start, self.get(r, c));
            }
        }
        s
    }

    /// As the contract sees it.
    pub fn reference(&self) -> matrix::Matrix<'_> {
        let data = match self.dtype {
            Dtype::F32 => Elements::F32(&self.f32s[self.shift..]),
            Dtype::Bf16 => Elements::Bf16(&self.u16s[self.shift..]),
            Dtype::F16 => Elements::F16(&self.u16s[self.shift..]),
        };
        matrix::Matrix {
            data,
            rows: self.rows,
            cols: self.cols,
            stride: self.stride,
        }
    }

    /// As C sees it.
    pub fn c(&self) -> nvfp4_matrix {
        let data = match self.dtype {
            Dtype::F32 => self.f32s[self.shift..].as_ptr().cast::<c_void>(),
            _ => self.u16s[self.shift..].as_ptr().cast::<c_void>(),
        };
        nvfp4_matrix {
            struct_size: size_of::<nvfp4_matrix>(),
            data: data.cast_mut(),
            dtype: self.dtype as u32,
            reserved: 0,
            rows: self.rows as i64,
            cols: self.cols as i64,
            stride: self.stride as i64,
        }
    }

    /// The bits of every element, padding included: to see that nothing else was written.
    pub fn bits(&self) -> Vec<u32> {
        let wide = self.f32s.iter().map(|v| v.to_bits());
        wide.chain(self.u16s.iter().map(|v| *v as u32)).collect()
    }
}
