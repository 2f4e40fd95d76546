//! 16-bit formats, TF32, f32 and f64, and the integer conversions.

use super::exact::{decode, encode, Cvt, Format, Round, Value, BF16, E2M1, E4M3, E5M2, F16, F32, F64, TF32};

/// Random bits of `cvt.rs.f16x2.f32`: 13 for each element, `a` from bits 28:16.
pub const F16_RANDOM_BITS: u32 = 13;
/// Random bits of `cvt.rs.bf16x2.f32`: 16 for each element, `a` from bits 31:16.
pub const BF16_RANDOM_BITS: u32 = 16;

/// Replaces an f32 subnormal by a zero of its sign.
pub fn flush_f32(x: u32) -> u32 {
    if x & 0x7F80_0000 == 0 {
        x & 0x8000_0000
    } else {
        x
    }
}

fn from_f32(x: u32, to: &Format, cvt: &Cvt) -> u64 {
    finish(decode((if cvt.ftz { flush_f32(x) } else { x }) as u64, &F32), to, cvt)
}

/// `.sat` acts on the exact value: clamping before rounding and after it agree,
/// because 0 and 1 are exact in every format.
fn finish(value: Value, to: &Format, cvt: &Cvt) -> u64 {
    let one = Value::Finite { neg: false, mag: 1, exp: 0 };
    let value = if !cvt.sat {
        value
    } else {
        match value {
            Value::Nan => Value::Finite { neg: false, mag: 0, exp: 0 },
            v if v.is_negative() => Value::Finite { neg: false, mag: 0, exp: 0 },
            Value::Inf(_) => one,
            Value::Finite { mag, exp, .. } if mag != 0 && 63 - mag.leading_zeros() as i32 + exp >= 0 => one,
            v => v,
        }
    };
    encode(value, to, cvt)
}

/// `cvt.f16.f32`. `.ftz` flushes the input; f16 subnormal results are kept.
pub fn f32_to_f16(x: u32, cvt: &Cvt) -> u16 {
    from_f32(x, &F16, cvt) as u16
}

/// `cvt.bf16.f32`.
pub fn f32_to_bf16(x: u32, cvt: &Cvt) -> u16 {
    from_f32(x, &BF16, cvt) as u16
}

/// `cvt.f16x2.f32 d, a, b`: `a` in the upper half.
pub fn f16x2_from_f32(a: u32, b: u32, cvt: &Cvt) -> u32 {
    (f32_to_f16(a, cvt) as u32) << 16 | f32_to_f16(b, cvt) as u32
}

/// `cvt.bf16x2.f32 d, a, b`: `a` in the upper half.
pub fn bf16x2_from_f32(a: u32, b: u32, cvt: &Cvt) -> u32 {
    (f32_to_bf16(a, cvt) as u32) << 16 | f32_to_bf16(b, cvt) as u32
}

/// `cvt.tf32.f32`: an f32 register whose low 13 bits are zero.
pub fn f32_to_tf32(x: u32, cvt: &Cvt) -> u32 {
    match decode(x as u64, &F32) {
        Value::Nan => 0x7FFF_FFFF,
        _ => (from_f32(x, &TF32, cvt) as u32) << 13,
    }
}

/// `cvt.f32.f64`. `.ftz` flushes a subnormal result.
pub fn f64_to_f32(x: u64, cvt: &Cvt) -> u32 {
    let r = finish(decode(x, &F64), &F32, cvt) as u32;
    if cvt.ftz {
        flush_f32(r)
    } else {
        r
    }
}

/// Any format to any other: for pairs that have no function of their own.
pub fn float_to_float(x: u64, from: &Format, to: &Format, cvt: &Cvt) -> u64 {
    finish(decode(x, from), to, cvt)
}

/// Exact widening.
pub fn f16_to_f32(x: u16) -> u32 {
    encode(decode(x as u64, &F16), &F32, &Cvt::RN) as u32
}

/// Exact widening: the bits move up. NaN becomes canonical.
pub fn bf16_to_f32(x: u16) -> u32 {
    encode(decode(x as u64, &BF16), &F32, &Cvt::RN) as u32
}

/// Exact value of a 4-bit code.
pub fn e2m1_to_f32(x: u8) -> u32 {
    encode(decode(x as u64, &E2M1), &F32, &Cvt::RN) as u32
}

/// Exact value of an E4M3 byte.
pub fn e4m3_to_f32(x: u8) -> u32 {
    encode(decode(x as u64, &E4M3), &F32, &Cvt::RN) as u32
}

/// Exact value of an E5M2 byte.
pub fn e5m2_to_f32(x: u8) -> u32 {
    encode(decode(x as u64, &E5M2), &F32, &Cvt::RN) as u32
}

/// 2^(x - 127); 0xFF is NaN.
pub fn ue8m0_to_f32(x: u8) -> u32 {
    match x {
        0xFF => 0x7FFF_FFFF,
        0 => 0x0040_0000,
        x => (x as u32) << 23,
    }
}

/// `cvt.rs.f16x2.f32 d, a, b, rbits`.
pub fn f16x2_rs(a: u32, b: u32, rbits: u32, relu: bool, satfinite: bool) -> u32 {
    pair_rs(a, b, rbits, &F16, F16_RANDOM_BITS, relu, satfinite)
}

/// `cvt.rs.bf16x2.f32 d, a, b, rbits`.
pub fn bf16x2_rs(a: u32, b: u32, rbits: u32, relu: bool, satfinite: bool) -> u32 {
    pair_rs(a, b, rbits, &BF16, BF16_RANDOM_BITS, relu, satfinite)
}

fn pair_rs(a: u32, b: u32, rbits: u32, to: &Format, width: u32, relu: bool, satfinite: bool) -> u32 {
    let one = |x: u32, bits: u32| {
        let round = Round::Rs { bits: bits & ((1 << width) - 1), width };
        encode(decode(x as u64, &F32), to, &Cvt { relu, satfinite, ..Cvt::new(round) }) as u32
    };
    one(a, rbits >> 16) << 16 | one(b, rbits)
}

/// Integer `(-1)^negative * magnitude` to a floating format. Zero is +0.
pub fn int_to_float(negative: bool, magnitude: u64, to: &Format, round: Round) -> u64 {
    encode(Value::Finite { neg: negative && magnitude != 0, mag: magnitude, exp: 0 }, to, &Cvt::new(round))
}

/// `cvt.{rni,rzi,rmi,rpi}.f32.f32`: rounds to an integral f32. The sign of zero is
/// kept; NaN is canonical.
pub fn f32_to_integral(x: u32, irnd: Round, ftz: bool, sat: bool) -> u32 {
    let x = if ftz { flush_f32(x) } else { x };
    let integral = match decode(x as u64, &F32) {
        Value::Finite { neg, mag, exp } if exp < 0 => Value::Finite { neg, mag: round_to_int(neg, mag, exp, irnd), exp: 0 },
        v => v,
    };
    finish(integral, &F32, &Cvt { sat, ..Cvt::RN }) as u32
}

fn round_to_int(neg: bool, mag: u64, exp: i32, irnd: Round) -> u64 {
    let wide = (mag as u128) << 1; // one more bit, so that the half is visible at exp -1
    let drop = (1 - exp).min(100) as u32;
    let kept = (wide >> drop) as u64;
    let rest = wide & ((1u128 << drop) - 1);
    let half = 1u128 << (drop - 1);
    let up = match irnd {
        Round::Rz => false,
        Round::Rm => neg && rest != 0,
        Round::Rp => !neg && rest != 0,
        Round::Rna => rest >= half,
        _ => rest > half || (rest == half && kept & 1 == 1),
    };
    kept + up as u64
}

/// Float to integer of `bits` (8..64) with saturation to its range; NaN gives 0 for
/// targets below 64 bits and 0x8000... for 64. Returns the two's complement, masked.
pub fn float_to_int(value: Value, bits: u32, signed: bool, irnd: Round) -> u64 {
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let (min, max): (i128, i128) = if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    let n = match value {
        Value::Nan => return if bits == 64 { 1 << 63 } else { 0 },
        Value::Inf(neg) => {
            if neg {
                min
            } else {
                max
            }
        }
        Value::Finite { neg, mag, exp } => {
            let magnitude = if exp < 0 {
                round_to_int(neg, mag, exp, irnd) as i128
            } else if mag == 0 {
                0
            } else if exp > 62 {
                i128::MAX
            } else {
                (mag as i128) << exp
            };
            if neg {
                (-magnitude).max(min)
            } else {
                magnitude.min(max)
            }
        }
    };
    n.clamp(min, max) as u64 & mask
}
