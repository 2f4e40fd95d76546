//! Eight lanes for cpu/vector, and its kernels compiled for AVX2.

use super::lanes;
use super::pack::transpose8;
use crate::cpu::columns::{Columns, Options, Output};
use crate::cpu::rule::{Rule, Transform};
use crate::cpu::vector::{columnwise, hadamard, Vector};
use crate::numerics::philox::{MULTIPLIER, WEYL};
use std::arch::x86_64::*;

/// Eight 32-bit lanes.
#[derive(Clone, Copy)]
pub struct V8(pub __m256i);

impl V8 {
    #[inline(always)]
    unsafe fn f(self) -> __m256 {
        // SAFETY: the processor has AVX2, as for all of `Vector`.
        unsafe { _mm256_castsi256_ps(self.0) }
    }

    #[inline(always)]
    pub unsafe fn of(x: __m256) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_castps_si256(x) })
    }
}

// SAFETY: registers, and memory as `Vector` says it.
unsafe impl Vector for V8 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(bits: u32) -> V8 {
        // SAFETY: the caller's promise, here and below.
        V8(unsafe { _mm256_set1_epi32(bits as i32) })
    }
    #[inline(always)]
    unsafe fn splat_f32(x: f32) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn iota() -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) })
    }
    #[inline(always)]
    unsafe fn read<T>(p: *const T) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_loadu_si256(p.cast()) })
    }
    #[inline(always)]
    unsafe fn write<T>(self, p: *mut T) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(p.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn load<const DT: u8>(p: *const u8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(lanes::load::<DT>(p)) }
    }
    #[inline(always)]
    unsafe fn fadd(self, b: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_add_ps(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fsub(self, b: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_sub_ps(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fmul(self, b: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_mul_ps(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: V8, c: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_fmadd_ps(self.f(), b.f(), c.f())) }
    }
    #[inline(always)]
    unsafe fn fmin(self, b: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_min_ps(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn fmax(self, b: V8) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_max_ps(self.f(), b.f())) }
    }
    #[inline(always)]
    unsafe fn nan(self) -> V8 {
        // SAFETY: as above.
        unsafe { V8::of(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.f(), self.f())) }
    }
    #[inline(always)]
    unsafe fn truncate(self) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_cvttps_epi32(self.f()) })
    }
    #[inline(always)]
    unsafe fn and(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_and_si256(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn and_not(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_andnot_si256(b.0, self.0) })
    }
    #[inline(always)]
    unsafe fn or(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_or_si256(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn xor(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_xor_si256(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn add(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_add_epi32(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_sub_epi32(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn umax(self, b: V8) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_max_epu32(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(self) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_slli_epi32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(self) -> V8 {
        // SAFETY: as above.
        V8(unsafe { _mm256_srli_epi32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn largest(self) -> u32 {
        // SAFETY: as above.
        unsafe { lanes::largest(self.0) }
    }
    #[inline(always)]
    unsafe fn any(self) -> bool {
        // SAFETY: as above.
        unsafe { _mm256_testz_si256(self.0, self.0) == 0 }
    }
    #[inline(always)]
    unsafe fn scales(self, rule: &Rule) -> (V8, V8, V8) {
        // SAFETY: as above.
        let s = unsafe { lanes::scales(self.0, rule) };
        // SAFETY: as above.
        (V8(s.code), unsafe { V8::of(s.e) }, V8(s.bad))
    }
    /// y = x * (+-1) + partner, where the product is exact, so that a lane gets a + b or a - b with one rounding.
    #[inline(always)]
    unsafe fn within(self) -> V8 {
        // SAFETY: as above.
        unsafe {
            let x = self.f();
            let sign = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
            let x = _mm256_fmadd_ps(x, sign, _mm256_permute_ps::<0xB1>(x));
            let sign = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
            let x = _mm256_fmadd_ps(x, sign, _mm256_permute_ps::<0x4E>(x));
            let sign = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
            let other = _mm256_permute2f128_ps::<0x01>(x, x);
            V8::of(_mm256_fmadd_ps(x, sign, other))
        }
    }
    /// Even and odd lanes apart, each in the low half of a 64-bit lane whose high half is ignored on the way in and
    /// rubbish on the way out: vpmuludq reads low halves only, so that ten rounds need no shuffle.
    #[inline(always)]
    unsafe fn philox(c0: V8, c1: V8, c2: u32, c3: u32, key: [u32; 2]) -> [V8; 4] {
        // SAFETY: as above.
        unsafe {
            let (c2, c3) = (_mm256_set1_epi64x(c2 as i64), _mm256_set1_epi64x(c3 as i64));
            let m0 = _mm256_set1_epi64x(MULTIPLIER[0] as i64);
            let m1 = _mm256_set1_epi64x(MULTIPLIER[1] as i64);
            let odd0 = _mm256_srli_epi64::<32>(c0.0);
            let odd1 = _mm256_srli_epi64::<32>(c1.0);
            let mut c = [[c0.0, c1.0, c2, c3], [odd0, odd1, c2, c3]];
            let (mut k0, mut k1) = (key[0], key[1]);
            for _ in 0..10 {
                let w0 = _mm256_set1_epi64x(k0 as i64);
                let w1 = _mm256_set1_epi64x(k1 as i64);
                for c in c.iter_mut() {
                    let (p0, p1) = (_mm256_mul_epu32(c[0], m0), _mm256_mul_epu32(c[2], m1));
                    let (h0, h1) = (_mm256_srli_epi64::<32>(p0), _mm256_srli_epi64::<32>(p1));
                    let n0 = _mm256_xor_si256(_mm256_xor_si256(c[1], w0), h1);
                    let n2 = _mm256_xor_si256(_mm256_xor_si256(c[3], w1), h0);
                    *c = [n0, p1, n2, p0];
                }
                k0 = k0.wrapping_add(WEYL[0]);
                k1 = k1.wrapping_add(WEYL[1]);
            }
            let mut w = [c0; 4];
            for (i, w) in w.iter_mut().enumerate() {
                let odd = _mm256_slli_epi64::<32>(c[1][i]);
                *w = V8(_mm256_blend_epi32::<0xAA>(c[0][i], odd));
            }
            w
        }
    }
    #[inline(always)]
    unsafe fn transpose(words: &[V8; 16], out: *mut [u8; 64]) {
        // SAFETY: eight columns of 64 bytes.
        unsafe {
            for half in 0..2 {
                let mut r = [words[0].0; 8];
                for i in 0..8 {
                    r[i] = words[8 * half + i].0;
                }
                let t = transpose8(r);
                for c in 0..8 {
                    let p = out.add(c).cast::<u8>().add(32 * half);
                    _mm256_storeu_si256(p.cast(), t[c]);
                }
            }
        }
    }
}

/// `hadamard::row`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn transform_row<const DT: u8>(x: *const u8, n: usize, t: &Transform, out: *mut f32) {
    // SAFETY: the caller's promise, here and below.
    unsafe { hadamard::row::<V8, DT>(x, n, t, out) }
}

/// `columnwise::amax_bits`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn columns_amax<const DT: u8>(x: &Columns, transform: Option<&Transform>) -> u32 {
    // SAFETY: as above.
    unsafe { columnwise::amax_bits::<V8, DT>(x, transform) }
}

/// `columnwise::tile`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn columns<const DT: u8>(x: &Columns, o: &Options, out: &mut Output) -> bool {
    // SAFETY: as above.
    unsafe { columnwise::tile::<V8, DT>(x, o, out) }
}
