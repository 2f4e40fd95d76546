//! The largest magnitude of a run of elements.

use super::lanes::*;
use super::quantize::mask16;
use std::arch::x86_64::*;

/// Bits of the largest |x| of `n` elements as f32, NaN and Inf above every finite value.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn amax_bits<const DT: u8>(x: *const u8, n: usize) -> u32 {
    // SAFETY: loads stay inside the caller's `n` elements; prefetches never fault.
    unsafe {
        let mut m = [_mm512_setzero_si512(); 4];
        let mut i = 0;
        if DT == F32 {
            while i + 64 <= n {
                for (k, m) in m.iter_mut().enumerate() {
                    let p = x.add(4 * i + 64 * k);
                    *m = _mm512_max_epu32(*m, abs_bits(_mm512_loadu_ps(p.cast())));
                    _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(4096).cast());
                }
                i += 64;
            }
        } else {
            let magnitude = _mm512_set1_epi16(0x7FFF);
            while i + 128 <= n {
                for (k, m) in m.iter_mut().enumerate() {
                    let p = x.add(2 * i + 64 * k);
                    let v = _mm512_and_si512(_mm512_loadu_si512(p.cast()), magnitude);
                    *m = _mm512_max_epu16(*m, v);
                    _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(4096).cast());
                }
                i += 128;
            }
            // To lanes of f32 bits, so that the tail can join.
            for m in &mut m {
                *m = widen_magnitudes::<DT>(*m);
            }
        }
        while i < n {
            let v = load_masked::<DT>(x.add(i * size::<DT>()), mask16(n - i));
            m[0] = _mm512_max_epu32(m[0], abs_bits(v));
            i += 16;
        }
        let a = _mm512_max_epu32(m[0], m[1]);
        let b = _mm512_max_epu32(m[2], m[3]);
        _mm512_reduce_max_epu32(_mm512_max_epu32(a, b))
    }
}

/// 32 magnitudes of 16 bits to the larger of each pair, as f32 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn widen_magnitudes<const DT: u8>(m: __m512i) -> __m512i {
    let high = _mm512_max_epu16(m, _mm512_slli_epi32::<16>(m));
    if DT == BF16 {
        _mm512_and_si512(high, _mm512_set1_epi32(0xFFFF_0000_u32 as i32))
    } else {
        let half = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(high));
        _mm512_castps_si512(_mm512_cvtph_ps(half))
    }
}

/// Bits of the largest finite |x|; for data that `amax_bits` found to hold a NaN or an Inf.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn finite_amax_bits<const DT: u8>(x: *const u8, n: usize) -> u32 {
    let mut m = _mm512_setzero_si512();
    for i in (0..n).step_by(16) {
        // SAFETY: the mask holds what is left of the caller's `n`.
        let v = abs_bits(unsafe { load_masked::<DT>(x.add(i * size::<DT>()), mask16(n - i)) });
        let finite = _mm512_cmplt_epi32_mask(v, _mm512_set1_epi32(NONFINITE));
        m = _mm512_mask_max_epu32(m, finite, m, v);
    }
    _mm512_reduce_max_epu32(m)
}
