//! 4- and 8-bit formats: conversions to them, from them, and stochastic rounding.

use super::exact::{decode, encode, Cvt, Format, Round, Value, BF16, E2M1, E4M3, E5M2, F16, F32};

/// Which byte of `rbits` rounds each element of `cvt.rs.e2m1x4.f32 d, {a, b, e, f}`,
/// in that order. Inferred from the documentation's halves (upper byte of each for
/// a, b; lower for e, f) and from the instruction pair the assembler emits; no
/// hardware test of it has been published.
pub const E2M1X4_RANDOM_BYTE: [u32; 4] = [3, 1, 2, 0];

/// Which 16-bit half of `rbits` rounds each element of the 8-bit `x4` conversions.
pub const FP8X4_RANDOM_HALF: [u32; 4] = [1, 1, 0, 0];

/// The two 8-bit floating-point formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fp8 {
    /// Four exponent bits.
    E4m3,
    /// Five exponent bits.
    E5m2,
}

impl Fp8 {
    /// Layout of the format.
    pub const fn format(self) -> &'static Format {
        match self {
            Fp8::E4m3 => &E4M3,
            Fp8::E5m2 => &E5M2,
        }
    }
}

fn satfinite(round: Round, relu: bool) -> Cvt {
    Cvt { relu, satfinite: true, ..Cvt::new(round) }
}

fn narrow(bits: u32, from: &Format, to: &Format, round: Round, relu: bool) -> u32 {
    encode(decode(bits as u64, from), to, &satfinite(round, relu)) as u32
}

fn pair_from_halves(x: u32, from: &Format, to: &Format, relu: bool) -> u32 {
    let width = 1 + to.exp_bits + to.man_bits;
    narrow(x >> 16, from, to, Round::Rn, relu) << width | narrow(x & 0xFFFF, from, to, Round::Rn, relu)
}

/// One f32 to E2M1, to nearest even; NaN gives +6, overflow gives 6.
pub fn e2m1_from_f32(x: u32, relu: bool) -> u8 {
    narrow(x, &F32, &E2M1, Round::Rn, relu) as u8
}

/// Two f32 to a byte: `a` in bits 7:4, `b` in bits 3:0.
pub fn e2m1x2_from_f32(a: u32, b: u32, relu: bool) -> u8 {
    e2m1_from_f32(a, relu) << 4 | e2m1_from_f32(b, relu)
}

/// Upper half to bits 7:4, lower half to bits 3:0.
pub fn e2m1x2_from_f16x2(x: u32, relu: bool) -> u8 {
    pair_from_halves(x, &F16, &E2M1, relu) as u8
}

/// Upper half to bits 7:4, lower half to bits 3:0.
pub fn e2m1x2_from_bf16x2(x: u32, relu: bool) -> u8 {
    pair_from_halves(x, &BF16, &E2M1, relu) as u8
}

/// Bits 7:4 to the upper half, bits 3:0 to the lower half; exact.
pub fn f16x2_from_e2m1x2(x: u8, relu: bool) -> u32 {
    let half = |code: u8| widen(code as u64, &E2M1, &F16, relu);
    half(x >> 4) << 16 | half(x & 15)
}

/// One f32 to FP8, to nearest even, saturating; NaN gives 0x7F.
pub fn fp8_from_f32(kind: Fp8, x: u32, relu: bool) -> u8 {
    narrow(x, &F32, kind.format(), Round::Rn, relu) as u8
}

/// Two f32 to 16 bits: `a` in 15:8, `b` in 7:0.
pub fn fp8x2_from_f32(kind: Fp8, a: u32, b: u32, relu: bool) -> u16 {
    (fp8_from_f32(kind, a, relu) as u16) << 8 | fp8_from_f32(kind, b, relu) as u16
}

/// Upper half to bits 15:8, lower half to bits 7:0.
pub fn fp8x2_from_f16x2(kind: Fp8, x: u32, relu: bool) -> u16 {
    pair_from_halves(x, &F16, kind.format(), relu) as u16
}

/// Upper half to bits 15:8, lower half to bits 7:0.
pub fn fp8x2_from_bf16x2(kind: Fp8, x: u32, relu: bool) -> u16 {
    pair_from_halves(x, &BF16, kind.format(), relu) as u16
}

/// Bits 15:8 to the upper half, 7:0 to the lower half; exact.
pub fn f16x2_from_fp8x2(kind: Fp8, x: u16, relu: bool) -> u32 {
    let half = |code: u16| widen(code as u64, kind.format(), &F16, relu);
    half(x >> 8) << 16 | half(x & 0xFF)
}

fn widen(code: u64, from: &Format, to: &Format, relu: bool) -> u32 {
    encode(decode(code, from), to, &Cvt { relu, ..Cvt::RN }) as u32
}

/// UE8M0 from the magnitude of an f32: `Rz` takes the power of two below, `Rp` the
/// one above. Zero and everything up to 2^-127 gives code 0; NaN gives 0xFF;
/// overflow gives 0xFE with `satfinite` and 0xFF without.
pub fn ue8m0_from_f32(x: u32, round: Round, satfinite: bool) -> u8 {
    let (mag, exp) = match decode(x as u64, &F32) {
        Value::Nan => return 0xFF,
        Value::Inf(_) => return 0xFF - satfinite as u8,
        Value::Finite { mag: 0, .. } => return 0,
        Value::Finite { mag, exp, .. } => (mag, exp),
    };
    let floor = 63 - mag.leading_zeros() as i32 + exp;
    let up = round == Round::Rp && !mag.is_power_of_two();
    let code = floor + up as i32 + 127;
    code.clamp(0, 0xFF - satfinite as i32) as u8
}

/// `a` in bits 15:8, `b` in bits 7:0.
pub fn ue8m0x2_from_f32(a: u32, b: u32, round: Round, satfinite: bool) -> u16 {
    (ue8m0_from_f32(a, round, satfinite) as u16) << 8 | ue8m0_from_f32(b, round, satfinite) as u16
}

/// Upper half to bits 15:8, lower half to bits 7:0.
pub fn ue8m0x2_from_bf16x2(x: u32, round: Round, satfinite: bool) -> u16 {
    ue8m0x2_from_f32(x & 0xFFFF_0000, x << 16, round, satfinite)
}

/// Bits 15:8 to the upper half, 7:0 to the lower half; code 0 is the subnormal 2^-127.
pub fn bf16x2_from_ue8m0x2(x: u16) -> u32 {
    let half = |code: u16| match code {
        0xFF => 0x7FFF,
        0 => 0x40,
        c => (c as u32) << 7,
    };
    half(x >> 8) << 16 | half(x & 0xFF)
}

/// Stochastic E2M1: element i of `[a, b, e, f]` uses byte [`E2M1X4_RANDOM_BYTE`]`[i]`
/// of `rbits` and lands in bits `15 - 4i : 12 - 4i`.
pub fn e2m1x4_rs(x: [u32; 4], rbits: u32, relu: bool) -> u16 {
    let mut d = 0;
    for (&x, byte) in x.iter().zip(E2M1X4_RANDOM_BYTE) {
        let round = Round::Rs { bits: rbits >> (8 * byte) & 0xFF, width: 8 };
        d = d << 4 | narrow(x, &F32, &E2M1, round, relu) as u16;
    }
    d
}

/// Stochastic FP8: element i of `[a, b, e, f]` uses half [`FP8X4_RANDOM_HALF`]`[i]`
/// of `rbits` and lands in bits `31 - 8i : 24 - 8i`.
pub fn fp8x4_rs(kind: Fp8, x: [u32; 4], rbits: u32, relu: bool) -> u32 {
    let mut d = 0;
    for (&x, half) in x.iter().zip(FP8X4_RANDOM_HALF) {
        let round = Round::Rs { bits: rbits >> (16 * half) & 0xFFFF, width: 16 };
        d = d << 8 | narrow(x, &F32, kind.format(), round, relu);
    }
    d
}
