//! Four lanes for cpu/vector.

use super::half;
use super::quantize::scales;
use crate::cpu::rule::Rule;
use crate::cpu::vector::{Vector, F16, F32};
use crate::numerics::philox::{MULTIPLIER, WEYL};
use std::arch::aarch64::*;

/// Four 32-bit lanes.
#[derive(Clone, Copy)]
pub struct V4(pub uint32x4_t);

impl V4 {
    #[inline(always)]
    pub unsafe fn f(self) -> float32x4_t {
        // SAFETY: NEON is part of AArch64, here and below.
        unsafe { vreinterpretq_f32_u32(self.0) }
    }

    #[inline(always)]
    pub unsafe fn of(x: float32x4_t) -> V4 {
        // SAFETY: as above.
        V4(unsafe { vreinterpretq_u32_f32(x) })
    }
}

// SAFETY: registers, and memory as `Vector` says it.
unsafe impl Vector for V4 {
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(bits: u32) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vdupq_n_u32(bits)) }
    }
    #[inline(always)]
    unsafe fn splat_f32(x: f32) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vdupq_n_f32(x)) }
    }
    #[inline(always)]
    unsafe fn iota() -> V4 {
        // SAFETY: as above.
        unsafe { V4(vld1q_u32([0, 1, 2, 3].as_ptr())) }
    }
    #[inline(always)]
    unsafe fn read<T>(p: *const T) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vreinterpretq_u32_u8(vld1q_u8(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn write<T>(self, p: *mut T) {
        // SAFETY: as above.
        unsafe { vst1q_u8(p.cast(), vreinterpretq_u8_u32(self.0)) }
    }
    #[inline(always)]
    unsafe fn load<const DT: u8>(p: *const u8) -> V4 {
        // SAFETY: the caller's promise: four elements at p, at any address.
        V4::of(unsafe {
            match DT {
                F32 => vreinterpretq_f32_u8(vld1q_u8(p)),
                F16 => half::widen(four(p)),
                _ => vreinterpretq_f32_u32(vshll_n_u16::<16>(four(p))),
            }
        })
    }
    #[inline(always)]
    unsafe fn fadd(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vaddq_f32(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fsub(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vsubq_f32(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fmul(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vmulq_f32(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: V4, c: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vfmaq_f32(c.f(), self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fmin(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vminnmq_f32(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fmax(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4::of(vmaxnmq_f32(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn nan(self) -> V4 {
        // SAFETY: as above.
        V4(unsafe { vmvnq_u32(vceqq_f32(self.f(), self.f())) })
    }
    #[inline(always)]
    unsafe fn truncate(self) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vcvtq_u32_f32(self.f())) }
    }
    #[inline(always)]
    unsafe fn and(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vandq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn and_not(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vbicq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn or(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vorrq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn xor(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(veorq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vaddq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vsubq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn umax(self, b: V4) -> V4 {
        // SAFETY: as above.
        unsafe { V4(vmaxq_u32(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(self) -> V4 {
        // SAFETY: as above.
        V4(unsafe { vshlq_n_u32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(self) -> V4 {
        // SAFETY: as above.
        V4(unsafe { vshrq_n_u32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn largest(self) -> u32 {
        // SAFETY: as above.
        unsafe { vmaxvq_u32(self.0) }
    }
    #[inline(always)]
    unsafe fn any(self) -> bool {
        // SAFETY: as above.
        unsafe { vmaxvq_u32(self.0) != 0 }
    }
    #[inline(always)]
    unsafe fn scales(self, rule: &Rule) -> (V4, V4, V4) {
        // SAFETY: as above.
        let (code, e, bad) = unsafe { scales(self.0, rule) };
        // SAFETY: as above.
        (V4(code), unsafe { V4::of(e) }, V4(bad))
    }
    /// A lane gets a + b, or a - b as b - a with a turned sign: exact either way.
    #[inline(always)]
    unsafe fn within(self) -> V4 {
        // SAFETY: as above.
        unsafe {
            let sign = V4(vld1q_u32([0, 1 << 31, 0, 1 << 31].as_ptr()));
            let other = V4(vrev64q_u32(self.0));
            let x = other.fadd(self.xor(sign));
            let sign = V4(vld1q_u32([0, 0, 1 << 31, 1 << 31].as_ptr()));
            let other = V4(vextq_u32::<2>(x.0, x.0));
            other.fadd(x.xor(sign))
        }
    }
    #[inline(always)]
    unsafe fn philox(c0: V4, c1: V4, c2: u32, c3: u32, key: [u32; 2]) -> [V4; 4] {
        // SAFETY: as above.
        unsafe {
            // High and low words of the lanes' products.
            let product = |x: V4, m: u32| {
                let low = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(x.0), m));
                let high = vreinterpretq_u32_u64(vmull_high_n_u32(x.0, m));
                [V4(vuzp2q_u32(low, high)), V4(vuzp1q_u32(low, high))]
            };
            let mut c = [c0, c1, V4::splat(c2), V4::splat(c3)];
            let (mut k0, mut k1) = (key[0], key[1]);
            for _ in 0..10 {
                let (p0, p1) = (product(c[0], MULTIPLIER[0]), product(c[2], MULTIPLIER[1]));
                c = [
                    p1[0].xor(c[1]).xor(V4::splat(k0)),
                    p1[1],
                    p0[0].xor(c[3]).xor(V4::splat(k1)),
                    p0[1],
                ];
                k0 = k0.wrapping_add(WEYL[0]);
                k1 = k1.wrapping_add(WEYL[1]);
            }
            c
        }
    }
    #[inline(always)]
    unsafe fn transpose(words: &[V4; 16], out: *mut [u8; 64]) {
        // SAFETY: four columns of 64 bytes.
        unsafe {
            for quarter in 0..4 {
                let w: [uint32x4_t; 4] = core::array::from_fn(|i| words[4 * quarter + i].0);
                let mut columns = [0u32; 16];
                // Interleaves: word i of lane c to 4 c + i.
                vst4q_u32(columns.as_mut_ptr(), uint32x4x4_t(w[0], w[1], w[2], w[3]));
                for c in 0..4 {
                    let p = out.add(c).cast::<u8>().add(16 * quarter);
                    V4::read(columns.as_ptr().add(4 * c)).write(p);
                }
            }
        }
    }
}

/// Four elements of 16 bits.
#[inline(always)]
unsafe fn four(p: *const u8) -> uint16x4_t {
    // SAFETY: the caller's promise.
    unsafe { vreinterpret_u16_u8(vld1_u8(p)) }
}
