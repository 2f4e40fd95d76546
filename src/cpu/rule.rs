//! How a block's amax becomes its scale byte and the multiplier of its elements, reduced to the few constants a SIMD
//! loop needs (docs/format.md, sections 2 and 4). Built once a scale domain; every ISA reads the same values.

use crate::numerics::hadamard::{normalizer, sign_words};
use crate::numerics::philox::split;
use crate::numerics::scale::{resolve, TensorScale, ONE_SIXTH, RANGE_ENCODE};
use crate::numerics::{Chain, Format, Options, ScaleRule, Select};

/// The formula of the scale byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NVFP4, chain TE: s = E43(fl(b * m)).
    Te,
    /// NVFP4, chains DIV6 and SINGLE (with s_enc = 1): s = E43(fl(fl(b / 6) * s_enc)).
    Div6,
    /// MXFP4 with the exponent rule FLOOR.
    MxFloor,
    /// MXFP4 with the exponent rule CEIL.
    MxCeil,
    /// MXFP4 with the exponent rule EVEN.
    MxEven,
}

/// One scale domain's encoding constants.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub kind: Kind,
    /// fl(s_enc * fl(1/6)); chain TE only.
    pub m: f32,
    pub s_enc: f32,
    /// fl(1 / s_enc).
    pub s_dec: f32,
    /// fl(16/17) where the range option is on: multiplied into the element multiplier.
    pub shrink: Option<f32>,
}

impl Rule {
    /// The rule of a scale domain, or None where only the scalar code knows the formula (a choice between two scales,
    /// MS-EDEN, ENCODE_CENTRIC, pass-through formats).
    pub fn new(o: &Options, t: &TensorScale) -> Option<Rule> {
        if o.select != Select::Single {
            return None;
        }
        let kind = match (o.format, resolve(o).chain, o.scale_rule) {
            (Format::Bf16, ..) => return None,
            (Format::Nvfp4, Chain::Te, _) => Kind::Te,
            (Format::Nvfp4, ..) => Kind::Div6,
            (Format::Mxfp4, _, ScaleRule::Floor) => Kind::MxFloor,
            (Format::Mxfp4, _, ScaleRule::Ceil) => Kind::MxCeil,
            (Format::Mxfp4, _, ScaleRule::Even) => Kind::MxEven,
            (Format::Mxfp4, _, ScaleRule::EncodeCentric) => return None,
        };
        Some(Rule {
            kind,
            m: t.encode * ONE_SIXTH,
            s_enc: t.encode,
            s_dec: t.decode,
            shrink: o.range_16_17.then_some(RANGE_ENCODE),
        })
    }

    /// Elements that share a scale byte along the row.
    pub const fn block(&self) -> usize {
        match self.kind {
            Kind::Te | Kind::Div6 => 16,
            _ => 32,
        }
    }
}

/// Key and place of stochastic rounding for one row of a copy (docs/format.md, section 7).
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// (seed low, seed high).
    pub key: [u32; 2],
    /// Words 2 and 3 of the counter without the row's high part: (offset low, offset high and the copy's top bit).
    pub offset: [u32; 2],
    /// Global row of the copy.
    pub row: u64,
    /// Global column div 16 of the first block.
    pub block: u32,
}

impl Draw {
    /// The key of row `row` of a copy, from global column `col` on (a multiple of 16).
    pub fn new(d: &crate::numerics::rounding::Draw, row: u64, col: u64) -> Draw {
        let [low, high] = split(d.offset);
        Draw {
            key: split(d.seed),
            offset: [low, high ^ (d.columnwise as u32) << 31],
            row,
            block: (col / 16) as u32,
        }
    }

    /// Words 1, 2 and 3 of every counter of this row; word 0 is the block's number.
    pub const fn counter(&self) -> [u32; 3] {
        [
            self.row as u32,
            self.offset[0],
            self.offset[1] ^ (self.row >> 32) as u32,
        ]
    }
}

/// A random Hadamard transform, ready to run (docs/format.md, section 6).
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    /// 16, 32, 64 or 128.
    pub n: usize,
    /// Bit i % 32 of word i / 32 set: element i changes its sign.
    pub signs: [u32; 4],
    /// fl(1 / sqrt(n)).
    pub normalizer: f32,
    /// The result stays f32 instead of being rounded to bf16.
    pub keep_f32: bool,
}

impl Transform {
    /// The transform that a copy's options ask for, or None; seeded signs are drawn from `seed` and `offset`.
    pub fn new(o: &Options, seed: u64, offset: u64) -> Option<Transform> {
        let n = o.hadamard as usize;
        (n != 0).then(|| Transform {
            n,
            signs: sign_words(o.signs, n, seed, offset),
            normalizer: normalizer(n),
            keep_f32: o.keep_f32,
        })
    }
}
