//! Rowwise quantization to nearest, and the largest magnitude of a run of elements.
//!
//! Two passes over a chunk that stays in L1 (maxima and scales, then codes), so that the latency of the scale chain is
//! never waited for.

use super::lanes::*;
use crate::cpu::rule::Rule;
use std::arch::x86_64::*;

/// Elements of one call at most.
pub const CHUNK: usize = 1024;
/// Elements whose maxima are found together.
const GROUP: usize = 128;
/// Bytes that prefetches run ahead.
const AHEAD: usize = 4096;

/// Quantizes `n` elements (at most `CHUNK`) of one row that start at a block boundary. Writes ceil(n/2) code bytes and
/// ceil(n/block) scale bytes. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`; `codes` and `scales` writable for the bytes named above.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn chunk<const DT: u8>(
    x: *const u8,
    n: usize,
    rule: &Rule,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    debug_assert!(n <= CHUNK);
    let whole = n / GROUP * GROUP;
    // SAFETY: whole groups lie in the caller's memory; the tail goes through local buffers.
    unsafe {
        let mut bad = groups::<DT>(x, whole / GROUP, rule, codes, scales);
        let rest = n - whole;
        if rest > 0 {
            let mut values = [0u8; 4 * GROUP];
            let bytes = rest * size::<DT>();
            let from = x.add(whole * size::<DT>());
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), bytes);
            let (mut c, mut s) = ([0u8; GROUP / 2], [0u8; GROUP / 16]);
            bad |= groups::<DT>(values.as_ptr(), 1, rule, c.as_mut_ptr(), s.as_mut_ptr());
            let (c, s) = (c.as_ptr(), s.as_ptr());
            let b = rule.block();
            std::ptr::copy_nonoverlapping(c, codes.add(whole / 2), rest.div_ceil(2));
            std::ptr::copy_nonoverlapping(s, scales.add(whole / b), rest.div_ceil(b));
        }
        bad
    }
}

/// Whole groups of a row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn groups<const DT: u8>(
    x: *const u8,
    groups: usize,
    rule: &Rule,
    codes: *mut u8,
    out: *mut u8,
) -> bool {
    let block = rule.block();
    let mut e = [0f32; CHUNK / 16];
    let mut bad = [0u32; CHUNK / GROUP];
    // SAFETY: group g lies inside the caller's memory; e has eight values a group; prefetches never fault.
    unsafe {
        for g in 0..groups {
            let p = x.add(g * GROUP * size::<DT>());
            let mut b = maxima::<DT>(p);
            if block == 32 {
                b = _mm256_max_epu32(b, _mm256_shuffle_epi32::<0xB1>(b));
            }
            let s = scales(b, rule);
            _mm256_storeu_ps(e.as_mut_ptr().add(8 * g), s.e);
            bad[g] = _mm256_movemask_ps(_mm256_castsi256_ps(s.bad)) as u32;
            let words = _mm_packus_epi32(
                _mm256_castsi256_si128(s.code),
                _mm256_extracti128_si256::<1>(s.code),
            );
            if block == 16 {
                let bytes = _mm_packus_epi16(words, words);
                _mm_storel_epi64(out.add(8 * g).cast(), bytes);
            } else {
                // Two equal words a block: the low byte of the first of each pair.
                let even =
                    _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
                let bytes = _mm_cvtsi128_si32(_mm_shuffle_epi8(words, even));
                out.add(4 * g).cast::<i32>().write_unaligned(bytes);
            }
        }
        for h in 0..2 * groups {
            let p = x.add(64 * h * size::<DT>());
            let v = core::array::from_fn(|i| load::<DT>(p.add(8 * i * size::<DT>())));
            let m = core::array::from_fn(|i| _mm256_broadcast_ss(&e[4 * h + i]));
            _mm256_storeu_si256(codes.add(32 * h).cast(), codes64(v, m));
        }
        let mut any = 0;
        for (g, &mask) in bad[..groups].iter().enumerate() {
            any |= mask;
            for i in (0..8).filter(|i| mask >> i & 1 != 0) {
                codes.add(64 * g + 8 * i).write_bytes(0, 8);
            }
        }
        any != 0
    }
}

/// Bits of the largest |x| of each of the eight blocks of sixteen in 128 elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn maxima<const DT: u8>(p: *const u8) -> __m256i {
    let mut v = [_mm256_setzero_si256(); 8];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: the caller's promise; a prefetch never faults.
        unsafe {
            let q = p.add(16 * i * size::<DT>());
            if DT == F32 || i % 2 == 0 {
                _mm_prefetch::<_MM_HINT_T0>(q.wrapping_add(AHEAD).cast());
            }
            let a = abs_bits(load::<DT>(q));
            let b = abs_bits(load::<DT>(q.add(8 * size::<DT>())));
            *v = _mm256_max_epu32(a, b);
        }
    }
    maxima8(v)
}

/// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn amax_bits<const DT: u8>(x: *const u8, n: usize) -> u32 {
    let mut m = [_mm256_setzero_si256(); 4];
    // SAFETY: loads stay inside the caller's `n` elements; prefetches never fault.
    unsafe {
        let mut i = 0;
        while i + 32 <= n {
            let p = x.add(i * size::<DT>());
            _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(AHEAD).cast());
            if DT == F32 {
                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(AHEAD + 64).cast());
            }
            for (k, m) in m.iter_mut().enumerate() {
                let v = load::<DT>(p.add(8 * k * size::<DT>()));
                *m = _mm256_max_epu32(*m, abs_bits(v));
            }
            i += 32;
        }
        if i < n {
            let mut rest = [0u8; 32 * 4];
            let bytes = (n - i) * size::<DT>();
            std::ptr::copy_nonoverlapping(x.add(i * size::<DT>()), rest.as_mut_ptr(), bytes);
            for (k, m) in m.iter_mut().enumerate() {
                let v = load::<DT>(rest.as_ptr().add(8 * k * size::<DT>()));
                *m = _mm256_max_epu32(*m, abs_bits(v));
            }
        }
    }
    largest(_mm256_max_epu32(
        _mm256_max_epu32(m[0], m[1]),
        _mm256_max_epu32(m[2], m[3]),
    ))
}
