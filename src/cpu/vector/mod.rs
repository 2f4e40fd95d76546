//! Kernels written once for instruction sets whose vectors are short (AVX2, NEON): everything here is generic over
//! `Vector` and inlined into functions that enable the instructions.

pub mod columnwise;
pub mod hadamard;
pub mod square;

use super::rule::Rule;

/// Input element types as const parameters.
pub const F32: u8 = 0;
pub const BF16: u8 = 1;
pub const F16: u8 = 2;

/// Smallest bit pattern of |x| that is not finite.
pub const NONFINITE: u32 = 0x7F80_0000;

/// Bytes of one element of type `DT`.
pub const fn size<const DT: u8>() -> usize {
    if DT == F32 {
        4
    } else {
        2
    }
}

/// Calls a function generic over the element type.
macro_rules! by_type {
    ($dtype:expr, $($f:ident)::+ ($($arg:expr),* $(,)?)) => {
        match $dtype {
            $crate::numerics::Dtype::F32 => $($f)::+::<{ $crate::cpu::vector::F32 }>($($arg),*),
            $crate::numerics::Dtype::Bf16 => $($f)::+::<{ $crate::cpu::vector::BF16 }>($($arg),*),
            $crate::numerics::Dtype::F16 => $($f)::+::<{ $crate::cpu::vector::F16 }>($($arg),*),
        }
    };
    ($dtype:expr, $object:ident . $f:ident ($($arg:expr),* $(,)?)) => {
        match $dtype {
            $crate::numerics::Dtype::F32 => $object.$f::<{ $crate::cpu::vector::F32 }>($($arg),*),
            $crate::numerics::Dtype::Bf16 => $object.$f::<{ $crate::cpu::vector::BF16 }>($($arg),*),
            $crate::numerics::Dtype::F16 => $object.$f::<{ $crate::cpu::vector::F16 }>($($arg),*),
        }
    };
}
pub(crate) use by_type;

/// A vector of 32-bit lanes, read as f32 or as unsigned integers as the operation says.
///
/// # Safety
/// All functions must run on a processor that has the instructions, inlined into a function that enables them.
pub unsafe trait Vector: Copy {
    const LANES: usize;

    unsafe fn splat(bits: u32) -> Self;
    unsafe fn splat_f32(x: f32) -> Self;
    /// 0, 1, 2, ...
    unsafe fn iota() -> Self;
    /// LANES words, at any address of an f32 or u32.
    unsafe fn read<T>(p: *const T) -> Self;
    unsafe fn write<T>(self, p: *mut T);
    /// LANES elements of type `DT`, at any address, as f32.
    unsafe fn load<const DT: u8>(p: *const u8) -> Self;

    unsafe fn fadd(self, b: Self) -> Self;
    unsafe fn fsub(self, b: Self) -> Self;
    unsafe fn fmul(self, b: Self) -> Self;
    /// self * b + c, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// For lanes that are not NaN.
    unsafe fn fmin(self, b: Self) -> Self;
    unsafe fn fmax(self, b: Self) -> Self;
    /// All ones where a lane is a NaN.
    unsafe fn nan(self) -> Self;
    /// Towards zero, of lanes below 2^31.
    unsafe fn truncate(self) -> Self;

    unsafe fn and(self, b: Self) -> Self;
    /// self & !b.
    unsafe fn and_not(self, b: Self) -> Self;
    unsafe fn or(self, b: Self) -> Self;
    unsafe fn xor(self, b: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn umax(self, b: Self) -> Self;
    unsafe fn shl<const N: i32>(self) -> Self;
    unsafe fn shr<const N: i32>(self) -> Self;
    /// The largest lane, unsigned.
    unsafe fn largest(self) -> u32;
    /// Is any bit set?
    unsafe fn any(self) -> bool;

    /// Scale bytes (one a lane), multipliers, and all ones where a block is not finite, from the bits of block maxima.
    unsafe fn scales(self, rule: &Rule) -> (Self, Self, Self);
    /// The butterfly's strides below LANES.
    unsafe fn within(self) -> Self;
    /// The four words of Philox4x32-10 of LANES counters; words 2 and 3 of the counters are the same for all.
    unsafe fn philox(c0: Self, c1: Self, c2: u32, c3: u32, key: [u32; 2]) -> [Self; 4];
    /// Lane c of the vectors, in order, to `out[c]`.
    unsafe fn transpose(words: &[Self; 16], out: *mut [u8; 64]);
}

/// Bits of |x|.
#[inline(always)]
pub unsafe fn abs<V: Vector>(x: V) -> V {
    // SAFETY: the caller's processor has the instructions; so everywhere in these modules.
    unsafe { x.and(V::splat(0x7FFF_FFFF)) }
}

/// f32 rounded to bf16, to nearest even, left in the high half of each lane. A NaN, whose payload could carry out of it,
/// becomes all ones.
#[inline(always)]
pub unsafe fn round_bf16<V: Vector>(x: V) -> V {
    // SAFETY: registers only.
    unsafe {
        let odd = x.shr::<16>().and(V::splat(1));
        let r = x.add(odd.add(V::splat(0x7FFF)));
        r.and(V::splat(0xFFFF_0000)).or(x.nan())
    }
}

/// 2^max(exponent, 0) of a magnitude.
#[inline(always)]
unsafe fn power<V: Vector>(y: V) -> V {
    // SAFETY: registers only.
    unsafe { y.fmax(V::splat_f32(1.0)).and(V::splat(NONFINITE)) }
}

/// Scaled magnitudes, at most 6, to nearest even: the low three bits of each lane are the code's plus 2.
///
/// P = 2^max(exponent, 0); adding 2^22 P rounds to multiples of P/2, whose number n is then in the low bits, and the
/// code is n + 2 log2 P: from bit 23 on is the exponent field, 149 + log2 P, twice that 298 + 2 log2 P, 2 modulo 8.
#[inline(always)]
pub unsafe fn nearest<V: Vector>(x: V, e: V) -> V {
    // SAFETY: registers only.
    unsafe {
        let y = abs(x.fmul(e)).fmin(V::splat_f32(6.0));
        let s = power(y).fma(V::splat_f32(4_194_304.0), y);
        s.add(s.shr::<22>())
    }
}

/// Stochastically with a random byte in each lane: the low three bits of each lane are the code's plus 2.
///
/// The magnitude in units of 1/256 of its spacing P/2, truncated, plus the byte: what carries rounds up.
#[inline(always)]
pub unsafe fn stochastic<V: Vector>(x: V, e: V, random: V) -> V {
    // SAFETY: registers only.
    unsafe {
        let y = abs(x.fmul(e)).fmin(V::splat_f32(6.0));
        let p = power(y);
        // 512 / P by its exponent: (127 + 9) - (log2 P).
        let units = V::splat((127 + 9 + 127) << 23).sub(p);
        let n = y.fmul(units).truncate().add(random).shr::<8>();
        // 2 (127 + log2 P), which is 6 modulo 8; 4 more make it 2.
        n.add(p.shr::<22>()).add(V::splat(4))
    }
}
