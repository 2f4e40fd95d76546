//! Exact decoding of every binary format, and encoding with every rounding.
//!
//! A finite number is `(-1)^neg * mag * 2^exp` with integers, so no host floating
//! point takes part in any conversion.

/// What the all-ones exponent means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// Infinity at mantissa 0, NaN elsewhere.
    Ieee,
    /// Only the all-ones code is NaN; no infinity.
    OneNan,
    /// Every code is a number.
    None,
}

/// A sign-magnitude binary format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Exponent width in bits.
    pub exp_bits: u32,
    /// Stored mantissa width in bits.
    pub man_bits: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Meaning of the all-ones exponent.
    pub special: Special,
    /// Result for a NaN input (without `.satfinite` on formats that lack NaN).
    pub nan: u64,
}

const fn format(exp_bits: u32, man_bits: u32, bias: i32, special: Special, nan: u64) -> Format {
    Format { exp_bits, man_bits, bias, special, nan }
}

/// FP4: 1-2-1, values 0, 0.5, 1, 1.5, 2, 3, 4, 6.
pub const E2M1: Format = format(2, 1, 1, Special::None, 0x7);
/// FP6 with two exponent bits.
pub const E2M3: Format = format(2, 3, 1, Special::None, 0x1F);
/// FP6 with three exponent bits.
pub const E3M2: Format = format(3, 2, 3, Special::None, 0x1F);
/// FP8 with four exponent bits; maximum 448.
pub const E4M3: Format = format(4, 3, 7, Special::OneNan, 0x7F);
/// FP8 with five exponent bits; maximum 57344.
pub const E5M2: Format = format(5, 2, 15, Special::Ieee, 0x7F);
/// IEEE binary16.
pub const F16: Format = format(5, 10, 15, Special::Ieee, 0x7FFF);
/// bfloat16.
pub const BF16: Format = format(8, 7, 127, Special::Ieee, 0x7FFF);
/// TF32 without the 13 zero bits that pad it to a register.
pub const TF32: Format = format(8, 10, 127, Special::Ieee, 0x3FFFF);
/// IEEE binary32.
pub const F32: Format = format(8, 23, 127, Special::Ieee, 0x7FFF_FFFF);
/// IEEE binary64.
pub const F64: Format = format(11, 52, 1023, Special::Ieee, 0x7FFF_FFFF_FFFF_FFFF);

impl Format {
    /// Mask of the exponent and mantissa bits.
    pub const fn magnitude_mask(&self) -> u64 {
        (1 << (self.exp_bits + self.man_bits)) - 1
    }

    /// Code of the largest finite magnitude.
    pub const fn max_finite(&self) -> u64 {
        match self.special {
            Special::Ieee => (((1 << self.exp_bits) - 1) << self.man_bits) - 1,
            Special::OneNan => self.magnitude_mask() - 1,
            Special::None => self.magnitude_mask(),
        }
    }

    /// Exponent of the smallest normal number.
    pub const fn min_exp(&self) -> i32 {
        1 - self.bias
    }

    /// Bit position of the sign.
    pub const fn sign_bit(&self) -> u64 {
        1 << (self.exp_bits + self.man_bits)
    }
}

/// Rounding of a value to fewer bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// To nearest, ties to even.
    Rn,
    /// Toward zero.
    Rz,
    /// Toward minus infinity.
    Rm,
    /// Toward plus infinity.
    Rp,
    /// To nearest, ties away from zero.
    Rna,
    /// Stochastic: the `width` bits of `bits` are added to the top `width` discarded
    /// bits; a carry moves away from zero, anything else truncates.
    Rs {
        /// Random integer, below `2^width`.
        bits: u32,
        /// Number of random bits.
        width: u32,
    },
}

/// Modifiers of a floating-point `cvt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cvt {
    /// Rounding.
    pub round: Round,
    /// Flush subnormal f32 inputs and outputs to a zero of the same sign.
    pub ftz: bool,
    /// Clamp to [0, 1], NaN to +0.
    pub sat: bool,
    /// Negative results become +0; NaN stays the canonical NaN.
    pub relu: bool,
    /// Overflow gives the largest finite number; formats without NaN map NaN to it.
    pub satfinite: bool,
}

impl Cvt {
    /// The plain conversion with one rounding and no modifier.
    pub const fn new(round: Round) -> Self {
        Cvt { round, ftz: false, sat: false, relu: false, satfinite: false }
    }

    /// Round to nearest even, no modifier.
    pub const RN: Cvt = Cvt::new(Round::Rn);
}

/// A decoded number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Not a number.
    Nan,
    /// Infinity; true when negative.
    Inf(bool),
    /// `(-1)^neg * mag * 2^exp`.
    Finite {
        /// Sign; kept for zeros.
        neg: bool,
        /// Integer magnitude.
        mag: u64,
        /// Power of two of its unit.
        exp: i32,
    },
}

impl Value {
    /// True for negative numbers, minus zero and minus infinity.
    pub fn is_negative(self) -> bool {
        matches!(self, Value::Inf(true) | Value::Finite { neg: true, .. })
    }
}

/// Decodes the low bits of `bits` in `format`.
pub fn decode(bits: u64, format: &Format) -> Value {
    let neg = bits & format.sign_bit() != 0;
    let code = bits & format.magnitude_mask();
    let field = code >> format.man_bits;
    let man = code & ((1 << format.man_bits) - 1);
    let top = (1 << format.exp_bits) - 1;
    match format.special {
        Special::Ieee if field == top => {
            return if man == 0 { Value::Inf(neg) } else { Value::Nan };
        }
        Special::OneNan if code == format.magnitude_mask() => return Value::Nan,
        _ => {}
    }
    let (mag, e) = if field == 0 { (man, format.min_exp()) } else { (man | 1 << format.man_bits, field as i32 - format.bias) };
    Value::Finite { neg, mag, exp: e - format.man_bits as i32 }
}

/// Rounds `mag * 2^-drop` to an integer.
fn round_shift(mag: u64, drop: u32, neg: bool, round: Round) -> u64 {
    let wide = mag as u128;
    let kept = if drop >= 64 { 0 } else { mag >> drop };
    // The discarded part as a fraction of 2^drop. Past 100 bits only its being
    // non-zero matters, and magnitudes have at most 64 bits.
    let drop = drop.min(100);
    let rest = wide & ((1u128 << drop) - 1);
    if rest == 0 {
        return kept;
    }
    let half = 1u128 << (drop - 1);
    let up = match round {
        Round::Rz => false,
        Round::Rm => neg,
        Round::Rp => !neg,
        Round::Rn => rest > half || (rest == half && kept & 1 == 1),
        Round::Rna => rest >= half,
        Round::Rs { bits, width } => {
            let top = if drop >= width { rest >> (drop - width) } else { rest << (width - drop) };
            top + bits as u128 >= 1 << width
        }
    };
    kept + up as u64
}

/// Encodes `value` into `format`: rounding, overflow, NaN, `.relu` and `.satfinite`.
/// `.sat` and `.ftz` belong to the f32 wrappers in [`super::wide`].
pub fn encode(value: Value, format: &Format, cvt: &Cvt) -> u64 {
    let (neg, mag, exp) = match value {
        Value::Nan => {
            return if cvt.satfinite && format.special == Special::None { format.max_finite() } else { format.nan };
        }
        v if cvt.relu && v.is_negative() => return 0,
        Value::Inf(neg) => return overflow(neg, format, cvt, true),
        Value::Finite { neg, mag, exp } => (neg, mag, exp),
    };
    let sign = if neg { format.sign_bit() } else { 0 };
    if mag == 0 {
        return sign;
    }
    let man = format.man_bits as i32;
    let leading = 63 - mag.leading_zeros() as i32 + exp;
    // Exponent of the unit in the last place of the result.
    let mut unit = (leading - man).max(format.min_exp() - man);
    let mut n = if exp >= unit {
        // Too large to shift means too large for any format: the field check below sees it.
        mag << (exp - unit) as u32
    } else {
        round_shift(mag, (unit - exp) as u32, neg, cvt.round)
    };
    if n >> (man + 1) != 0 {
        n >>= 1;
        unit += 1;
    }
    let code = if n >> man == 0 {
        n
    } else {
        let field = unit + man + format.bias;
        if field >= 1 << format.exp_bits {
            return overflow(neg, format, cvt, false);
        }
        (field as u64) << man | (n & ((1 << man) - 1))
    };
    if code > format.max_finite() {
        return overflow(neg, format, cvt, false);
    }
    sign | code
}

fn overflow(neg: bool, format: &Format, cvt: &Cvt, infinite: bool) -> u64 {
    let sign = if neg { format.sign_bit() } else { 0 };
    let toward_zero = match cvt.round {
        Round::Rz => true,
        Round::Rm => !neg,
        Round::Rp => neg,
        _ => false,
    };
    if cvt.satfinite || (toward_zero && !infinite) {
        return sign | format.max_finite();
    }
    match format.special {
        Special::Ieee => sign | (format.max_finite() + 1),
        Special::OneNan => format.nan,
        Special::None => sign | format.max_finite(),
    }
}
