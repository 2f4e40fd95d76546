//! Number-format conversions of the `cvt` family, bit by bit.
//!
//! Every function takes and returns raw bits and depends on nothing else.
//! `x2` results put operand `a` in the upper part and `b` in the lower part, as
//! `cvt.*x2.f32 d, a, b` does; `x4` results put `a` uppermost and `f` lowermost,
//! as `cvt.rs.*x4.f32 d, {a, b, e, f}, rbits` does.
//!
//! | instruction | function |
//! |---|---|
//! | `cvt.rn.satfinite{.relu}.e2m1x2.f32 d, a, b` | [`e2m1x2_from_f32`]`(a, b, relu) -> u8` |
//! | `cvt.rn.satfinite{.relu}.e2m1x2.{f16x2,bf16x2} d, a` | [`e2m1x2_from_f16x2`], [`e2m1x2_from_bf16x2`]`(a, relu) -> u8` |
//! | `cvt.rn{.relu}.f16x2.e2m1x2 d, a` | [`f16x2_from_e2m1x2`]`(a, relu) -> u32` |
//! | `cvt.rn.satfinite{.relu}.{e4m3x2,e5m2x2}.f32 d, a, b` | [`fp8x2_from_f32`]`(kind, a, b, relu) -> u16` |
//! | `cvt.rn.satfinite{.relu}.{e4m3x2,e5m2x2}.{f16x2,bf16x2} d, a` | [`fp8x2_from_f16x2`], [`fp8x2_from_bf16x2`]`(kind, a, relu) -> u16` |
//! | `cvt.rn{.relu}.f16x2.{e4m3x2,e5m2x2} d, a` | [`f16x2_from_fp8x2`]`(kind, a, relu) -> u32` |
//! | `cvt.{rz,rp}{.satfinite}.ue8m0x2.{f32,bf16x2}` | [`ue8m0x2_from_f32`], [`ue8m0x2_from_bf16x2`] |
//! | `cvt.rn.bf16x2.ue8m0x2 d, a` | [`bf16x2_from_ue8m0x2`] |
//! | `cvt.rs{.relu}.satfinite.e2m1x4.f32` | [`e2m1x4_rs`]`([a, b, e, f], rbits, relu) -> u16` |
//! | `cvt.rs{.relu}.satfinite.{e4m3x4,e5m2x4}.f32` | [`fp8x4_rs`]`(kind, [a, b, e, f], rbits, relu) -> u32` |
//! | `cvt.rs{.relu}{.satfinite}.{bf16x2,f16x2}.f32 d, a, b, rbits` | [`bf16x2_rs`], [`f16x2_rs`] |
//! | `cvt.<rnd>{.ftz}{.sat}{.relu}{.satfinite}` to bf16, f16, tf32 or f32 | [`f32_to_f16`], [`f32_to_bf16`], [`f32_to_tf32`], [`f64_to_f32`], all taking [`Cvt`] |
//! | widening: `cvt.f32.{f16,bf16}`, `cvt.f16x2`... | [`f16_to_f32`], [`bf16_to_f32`], [`e2m1_to_f32`], [`e4m3_to_f32`], [`e5m2_to_f32`], [`ue8m0_to_f32`] |
//! | `cvt.<rnd>.{f16,bf16,f32,f64}.{u,s}{8..64}` | [`int_to_float`]`(negative, magnitude, format, round) -> u64` |
//! | `cvt.<irnd>{.ftz}{.sat}.f32.f32` | [`f32_to_integral`] |
//! | `cvt.<irnd>{.ftz}.{u,s}{8..64}.{f16,bf16,f32,f64}` | [`float_to_int`]`(value, bits, signed, irnd) -> u64` with [`exact::decode`] |
//!
//! Canonical NaNs: f16 and bf16 0x7FFF, f32 0x7FFF_FFFF, E4M3 and E5M2 0x7F; E2M1
//! has none and takes +6. `.relu` also clears the sign of a zero.
//!
//! The parts: [`exact`] (decode to sign * magnitude * 2^exponent, encode with any
//! rounding), [`narrow`] (4- and 8-bit results and back), [`wide`] (16 bits and up).

pub mod exact;
pub mod narrow;
pub mod wide;

pub use exact::{Cvt, Format, Round, Value};
pub use narrow::*;
pub use wide::*;

#[cfg(test)]
mod tests;
