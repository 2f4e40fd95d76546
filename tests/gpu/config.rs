//! One call of the library: shapes, strides, alignments, data and options; drawn at random or taken from the grid.

use nvfp4::numerics::*;
use nvfp4::plan::quantize::described;
use nvfp4::plan::{options, Quantized};

/// xorshift64*: the tests' own numbers, the same on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
    pub fn pick<T: std::marker::Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    /// About N(0, 1).
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..6)
            .map(|_| (self.next() >> 40) as f32 / (1u32 << 24) as f32)
            .sum();
        (sum - 3.0) * std::f32::consts::SQRT_2
    }
}

/// What the values of a matrix look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Data {
    Normal,
    /// 40 binades.
    Wide,
    /// Subnormal and near it.
    Tiny,
    Huge,
    Sparse,
    /// Multiples of 1/4 up to 6: ties everywhere.
    Ties,
    /// A few NaN and Inf.
    Bad,
    Zero,
}

pub const DATA: [Data; 8] = [
    Data::Normal,
    Data::Wide,
    Data::Tiny,
    Data::Huge,
    Data::Sparse,
    Data::Ties,
    Data::Bad,
    Data::Zero,
];

pub fn value(r: &mut Random, data: Data) -> f32 {
    let x = r.normal();
    match data {
        Data::Normal => x,
        Data::Wide => x * 2f32.powi(r.below(40) as i32 - 20),
        Data::Tiny => x * 2f32.powi(-126 - r.below(20) as i32),
        Data::Huge => x * 2f32.powi(126),
        Data::Sparse if r.below(20) > 0 => [0.0, -0.0][r.below(2)],
        Data::Sparse => x,
        Data::Ties => (r.below(49) as f32 - 24.0) / 4.0,
        Data::Bad if r.one_in(97) => {
            r.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN])
        }
        Data::Bad => x,
        Data::Zero => [0.0, -0.0][r.below(2)],
    }
}

/// Bytes of one element of `dtype`; f16 saturates so that huge data stays finite there.
pub fn push_element(to: &mut Vec<u8>, dtype: Dtype, v: f32) {
    match dtype {
        Dtype::F32 => to.extend(v.to_le_bytes()),
        Dtype::Bf16 => to.extend(half::bf16::from_f32(v).to_bits().to_le_bytes()),
        Dtype::F16 => {
            let v = if v.is_finite() {
                v.clamp(-65504.0, 65504.0)
            } else {
                v
            };
            to.extend(half::f16::from_f32(v).to_bits().to_le_bytes())
        }
    }
}

/// One copy of the output and its packing.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    pub options: Options,
    /// Added to the packed strides.
    pub code_pad: usize,
    pub scale_pad: usize,
    /// Of the codes' first byte from a multiple of 256.
    pub shift: usize,
    /// Amax given by the caller, as a factor on 1.
    pub given: Option<f32>,
}

impl Copy {
    pub fn new(options: Options) -> Copy {
        Copy {
            options,
            code_pad: 0,
            scale_pad: 0,
            shift: 0,
            given: None,
        }
    }
    pub fn shape(&self, rows: usize, cols: usize, columnwise: bool) -> Option<Quantized> {
        let o = options::check("copy", &self.options).ok()?;
        let (rows, cols) = if columnwise {
            (cols, rows)
        } else {
            (rows, cols)
        };
        Some(described(&o, rows, cols, columnwise))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub rows: usize,
    pub cols: usize,
    pub dtype: Dtype,
    /// Added to cols.
    pub stride_pad: usize,
    /// Of the first element from a multiple of 256 bytes, in elements.
    pub shift: usize,
    pub data: Data,
    pub rowwise: Option<Copy>,
    pub columnwise: Option<Copy>,
    pub nonfinite: Nonfinite,
    pub seed: u64,
    pub offset: u64,
    /// Seed and offset are read from device memory.
    pub device_seed: bool,
    pub origin: (usize, usize),
    pub stats: bool,
    pub poison: u8,
    /// Seed of the data.
    pub key: u64,
}

impl Config {
    pub fn new(rows: usize, cols: usize, dtype: Dtype) -> Config {
        Config {
            rows,
            cols,
            dtype,
            stride_pad: 0,
            shift: 0,
            data: Data::Normal,
            rowwise: None,
            columnwise: None,
            nonfinite: Nonfinite::Propagate,
            seed: 0x1234_5678_9ABC_DEF0,
            offset: 77,
            device_seed: false,
            origin: (0, 0),
            stats: false,
            poison: 0xFF,
            key: 1,
        }
    }
}

pub fn random_options(r: &mut Random) -> Options {
    let mut o = Options {
        format: r.pick(&[
            Format::Nvfp4,
            Format::Nvfp4,
            Format::Nvfp4,
            Format::Nvfp4,
            Format::Mxfp4,
            Format::Bf16,
        ]),
        scale_layout: r.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
        hadamard: r.pick(&[0, 0, 0, 16, 16, 32, 64, 128]),
        ..Options::default()
    };
    if o.format == Format::Bf16 {
        return o;
    }
    o.block = r.pick(&[Block::OneD, Block::OneD, Block::TwoD]);
    o.rounding = r.pick(&[Rounding::Nearest, Rounding::Stochastic]);
    o.range_16_17 = r.one_in(6);
    o.keep_f32 = r.one_in(6);
    o.signs = match r.below(5) {
        0 => Signs::Mask16(r.next() as u16),
        1 => Signs::Mask(std::array::from_fn(|_| r.next() as u32)),
        2 => Signs::Seeded,
        _ => Signs::Default,
    };
    if o.format == Format::Mxfp4 {
        o.scale_rule = r.pick(&[
            ScaleRule::Floor,
            ScaleRule::Ceil,
            ScaleRule::Even,
            ScaleRule::EncodeCentric,
        ]);
        o.half_scale =
            o.scale_rule == ScaleRule::EncodeCentric && o.block == Block::TwoD && r.one_in(2);
        return o;
    }
    o.chain = r.pick(&[Chain::Te, Chain::Te, Chain::Div6, Chain::Single]);
    o.domain_rows = match r.below(5) {
        0 => r.pick(&[16, 32, 48, 128]),
        1 if o.block == Block::OneD => r.pick(&[1, 3]),
        _ => 0,
    };
    o.c = r.pick(&[0.0, 0.0, 2688.0, 1536.0]);
    o.select = match r.below(8) {
        0 => Select::FourOverSixMae,
        1 => Select::FourOverSixMse,
        2 => Select::FourOverSixAbsMax,
        3 => Select::MsEden,
        _ => Select::Single,
    };
    if o.select == Select::MsEden {
        o.hadamard = 128;
        o.signs = r.pick(&[
            Signs::Seeded,
            Signs::Mask([0x1234_5678, 0x9ABC_DEF0, 7, 0xFFFF_0000]),
        ]);
        (o.block, o.rounding, o.range_16_17, o.chain, o.c) =
            (Block::OneD, Rounding::Nearest, false, Chain::Te, 0.0);
    }
    o
}

/// A copy with random packing; half of them as the fast kernels want it.
fn random_copy(r: &mut Random) -> Copy {
    let plain = r.one_in(2);
    let odd = |r: &mut Random, n| if plain { 0 } else { r.below(n) };
    Copy {
        options: random_options(r),
        code_pad: 2 * odd(r, 9),
        scale_pad: odd(r, 5),
        shift: 2 * odd(r, 9),
        given: r.one_in(6).then(|| r.pick(&[1.0, 0.25, 7.5, 0.0, 1e-38])),
    }
}

/// Any legal call.
pub fn random_config(r: &mut Random) -> Config {
    loop {
        let aligned = r.one_in(2);
        let size = |r: &mut Random| match r.below(6) {
            0 => r.below(20),
            1 => 16 * r.below(24),
            2 => 128 * (1 + r.below(3)),
            _ => 1 + r.below(300),
        };
        let (mut rows, mut cols) = (size(r), size(r));
        if aligned {
            (rows, cols) = (rows.next_multiple_of(16), cols.next_multiple_of(16));
        }
        let which = 1 + r.below(3);
        let mut c = Config {
            stride_pad: if aligned { 8 * r.below(3) } else { r.below(9) },
            shift: if aligned { 0 } else { r.below(9) },
            data: r.pick(&DATA),
            rowwise: (which & 1 != 0).then(|| random_copy(r)),
            columnwise: (which & 2 != 0).then(|| random_copy(r)),
            nonfinite: r.pick(&[
                Nonfinite::Propagate,
                Nonfinite::Propagate,
                Nonfinite::Saturate,
            ]),
            seed: r.next(),
            offset: r.next() >> 3,
            device_seed: r.one_in(2),
            origin: if r.one_in(3) {
                (384 * r.below(1 << 20), 384 * r.below(1 << 20))
            } else {
                (0, 0)
            },
            stats: r.one_in(8),
            poison: r.pick(&[0, 0xFF]),
            key: r.next(),
            ..Config::new(
                rows,
                cols,
                r.pick(&[Dtype::F32, Dtype::Bf16, Dtype::Bf16, Dtype::F16]),
            )
        };
        // Half of the pairs share their options, as real recipes do.
        if let (Some(a), Some(b)) = (&c.rowwise, &mut c.columnwise) {
            if r.one_in(2) {
                b.options = a.options;
            }
        }
        let copies = || c.rowwise.iter().chain(&c.columnwise);
        if copies().any(|k| k.options.signs == Signs::Seeded && k.options.hadamard != 0) {
            c.device_seed = false;
        }
        // The bits of a NaN that arithmetic makes are not part of the contract, and BF16 shows them.
        if copies().any(|k| k.options.format == Format::Bf16 && k.options.hadamard != 0)
            && matches!(c.data, Data::Bad | Data::Huge)
        {
            c.data = Data::Normal;
        }
        let legal = |k: &Option<Copy>, columnwise| {
            k.is_none_or(|k| k.shape(c.rows, c.cols, columnwise).is_some())
        };
        if legal(&c.rowwise, false) && legal(&c.columnwise, true) {
            return c;
        }
    }
}
