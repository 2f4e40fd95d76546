//! Rowwise quantization, and the largest magnitude of a run of elements.
//!
//! Two passes over a chunk that stays in L1 (maxima and scales, then codes), so that the latency of the scale chain is
//! never waited for.

use super::lanes::*;
use super::vector::V8;
use crate::cpu::rows::CHUNK;
use crate::cpu::rule::{Draw, Rule};
use crate::cpu::vector::{nearest, stochastic, Vector};
use std::arch::x86_64::*;

/// Elements whose maxima are found together.
const GROUP: usize = 128;
/// Bytes that prefetches of `amax_bits` run ahead.
const AHEAD: usize = 4096;

/// Quantizes `n` elements (at most `CHUNK`) of one row that start at a block boundary, `first_block` blocks of sixteen
/// after the first of `draw`. Prefetches run `ahead` bytes ahead. Writes ceil(n/2) code bytes and ceil(n/block) scale
/// bytes. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`; `codes` and `scales` writable for the bytes named above.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn chunk<const DT: u8>(
    x: *const u8,
    n: usize,
    ahead: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    first_block: usize,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    debug_assert!(n <= CHUNK);
    let whole = n / GROUP * GROUP;
    // SAFETY: whole groups lie in the caller's memory; the tail goes through local buffers.
    unsafe {
        let count = whole / GROUP;
        let mut bad = groups::<DT>(x, count, ahead, rule, draw, first_block, codes, scales);
        let rest = n - whole;
        if rest > 0 {
            let mut values = [0u8; 4 * GROUP];
            let bytes = rest * size::<DT>();
            let from = x.add(whole * size::<DT>());
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), bytes);
            let (mut c, mut s) = ([0u8; GROUP / 2], [0u8; GROUP / 16]);
            let first = first_block + whole / 16;
            let (values, s_out) = (values.as_ptr(), s.as_mut_ptr());
            bad |= groups::<DT>(values, 1, 0, rule, draw, first, c.as_mut_ptr(), s_out);
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
    ahead: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    first_block: usize,
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
            let mut b = maxima::<DT>(p, ahead);
            if block == 32 {
                b = _mm256_max_epu32(b, _mm256_shuffle_epi32::<0xB1>(b));
            }
            let s = scales(b, rule);
            _mm256_storeu_ps(e.as_mut_ptr().add(8 * g), s.e);
            bad[g] = _mm256_movemask_ps(_mm256_castsi256_ps(s.bad)) as u32;
            store_scales(s.code, block, out.add(g * GROUP / block));
        }
        if let Some(draw) = draw {
            for g in 0..groups {
                let random = random_bytes(draw, first_block + 8 * g);
                for h in 0..2 {
                    let (p, e) = (
                        x.add((128 * g + 64 * h) * size::<DT>()),
                        &e[8 * g + 4 * h..],
                    );
                    let o = codes.add(64 * g + 32 * h);
                    encode64::<DT, true>(p, e, random[64 * h..].as_ptr(), o);
                }
            }
        } else {
            for h in 0..2 * groups {
                let (p, o) = (x.add(64 * h * size::<DT>()), codes.add(32 * h));
                encode64::<DT, false>(p, &e[4 * h..], std::ptr::null(), o);
            }
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

/// Writes the scale bytes of eight blocks of 16 (or four of 32, each in two lanes).
///
/// # Safety
/// `out` must be writable for 8 bytes (4 where `block` is 32).
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn store_scales(code: __m256i, block: usize, out: *mut u8) {
    let words = _mm_packus_epi32(
        _mm256_castsi256_si128(code),
        _mm256_extracti128_si256::<1>(code),
    );
    // SAFETY: the caller's promise.
    unsafe {
        if block == 16 {
            _mm_storel_epi64(out.cast(), _mm_packus_epi16(words, words));
        } else {
            // Two equal words a block: the low byte of the first of each pair.
            let even = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
            let bytes = _mm_cvtsi128_si32(_mm_shuffle_epi8(words, even));
            out.cast::<i32>().write_unaligned(bytes);
        }
    }
}

/// Codes of 64 elements to 32 bytes; `random`: 64 bytes, for stochastic rounding.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn encode64<const DT: u8, const SR: bool>(
    p: *const u8,
    e: &[f32],
    random: *const u8,
    out: *mut u8,
) {
    // SAFETY: the caller's 64 elements, four multipliers, 64 random bytes, 32 bytes of codes.
    unsafe {
        let (mut x, mut m) = ([_mm256_setzero_ps(); 8], [_mm256_setzero_si256(); 8]);
        for i in 0..8 {
            x[i] = load::<DT>(p.add(8 * i * size::<DT>()));
            let e = V8::of(_mm256_broadcast_ss(&e[i / 2]));
            let code = if SR {
                let r = _mm256_cvtepu8_epi32(_mm_loadl_epi64(random.add(8 * i).cast()));
                stochastic(V8::of(x[i]), e, V8(r))
            } else {
                nearest(V8::of(x[i]), e)
            };
            m[i] = code.and(V8::splat(7)).0;
        }
        _mm256_storeu_si256(out.cast(), codes64(&x, &m));
    }
}

/// Random bytes of eight blocks of a row, in the order of their elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn random_bytes(draw: &Draw, first_block: usize) -> [u8; GROUP] {
    let mut out = [0u8; GROUP];
    let first = draw.block.wrapping_add(first_block as u32);
    let counter = draw.counter();
    // SAFETY: the processor has AVX2; blocks 0..8 of 16 bytes of the array.
    unsafe {
        let c0 = V8::splat(first).add(V8::iota());
        let w = V8::philox(c0, V8::splat(counter[0]), counter[1], counter[2], draw.key);
        // Element 4w + i takes byte (0, 2, 1, 3)[i] of word w.
        let swap = _mm256_set_epi32(
            0x0F0D_0E0C,
            0x0B09_0A08,
            0x0705_0604,
            0x0301_0200,
            0x0F0D_0E0C,
            0x0B09_0A08,
            0x0705_0604,
            0x0301_0200,
        );
        let w = [
            _mm256_shuffle_epi8(w[0].0, swap),
            _mm256_shuffle_epi8(w[1].0, swap),
            _mm256_shuffle_epi8(w[2].0, swap),
            _mm256_shuffle_epi8(w[3].0, swap),
        ];
        let (a, b) = (
            _mm256_unpacklo_epi32(w[0], w[1]),
            _mm256_unpackhi_epi32(w[0], w[1]),
        );
        let (c, d) = (
            _mm256_unpacklo_epi32(w[2], w[3]),
            _mm256_unpackhi_epi32(w[2], w[3]),
        );
        // The four words of blocks j and j + 4.
        let quads = [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ];
        for (j, q) in quads.into_iter().enumerate() {
            let p = out.as_mut_ptr().add(16 * j);
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(q));
            _mm_storeu_si128(p.add(64).cast(), _mm256_extracti128_si256::<1>(q));
        }
    }
    out
}

/// Codes of 128 f32 under given multipliers; `draw` starts at their first.
///
/// # Safety
/// `p` must be readable for 128 f32, `out` writable for 64 bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn encode_group(p: *const u8, e: &[f32; 8], draw: Option<&Draw>, out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(draw) = draw {
            let random = random_bytes(draw, 0);
            for h in 0..2 {
                let (p, r) = (p.add(256 * h), random[64 * h..].as_ptr());
                encode64::<F32, true>(p, &e[4 * h..], r, out.add(32 * h));
            }
        } else {
            for h in 0..2 {
                let p = p.add(256 * h);
                encode64::<F32, false>(p, &e[4 * h..], std::ptr::null(), out.add(32 * h));
            }
        }
    }
}

/// Bits of the largest |x| of each of the eight blocks of sixteen in 128 elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn maxima<const DT: u8>(p: *const u8, ahead: usize) -> __m256i {
    let mut v = [_mm256_setzero_si256(); 8];
    for (i, v) in v.iter_mut().enumerate() {
        // SAFETY: the caller's promise; a prefetch never faults.
        unsafe {
            let q = p.add(16 * i * size::<DT>());
            if DT == F32 || i % 2 == 0 {
                _mm_prefetch::<_MM_HINT_T0>(q.wrapping_add(ahead).cast());
            }
            let a = abs_bits(load::<DT>(q));
            let b = abs_bits(load::<DT>(q.add(8 * size::<DT>())));
            *v = _mm256_max_epu32(a, b);
        }
    }
    maxima8(v)
}

/// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value (`FINITE`: left out).
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn amax_bits<const DT: u8, const FINITE: bool>(x: *const u8, n: usize) -> u32 {
    let mut m = [_mm256_setzero_si256(); 4];
    let raise = |m: &mut __m256i, v: __m256| {
        let mut a = abs_bits(v);
        if FINITE {
            let bad = _mm256_cmpgt_epi32(a, _mm256_set1_epi32(NONFINITE - 1));
            a = _mm256_andnot_si256(bad, a);
        }
        *m = _mm256_max_epu32(*m, a);
    };
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
                raise(m, load::<DT>(p.add(8 * k * size::<DT>())));
            }
            i += 32;
        }
        if i < n {
            let mut rest = [0u8; 32 * 4];
            let bytes = (n - i) * size::<DT>();
            std::ptr::copy_nonoverlapping(x.add(i * size::<DT>()), rest.as_mut_ptr(), bytes);
            for (k, m) in m.iter_mut().enumerate() {
                raise(m, load::<DT>(rest.as_ptr().add(8 * k * size::<DT>())));
            }
        }
    }
    largest(_mm256_max_epu32(
        _mm256_max_epu32(m[0], m[1]),
        _mm256_max_epu32(m[2], m[3]),
    ))
}
