//! Rowwise quantization: block maxima of 256 elements by a merge tree, their scales at once, then codes.
//!
//! Two passes over a chunk that stays in L1 (maxima and scales, then codes), so that the long latency of the scale
//! chain (a product, two additions, a division) is never waited for.

use super::encode::{codes256, random_bytes, zero_bad, Aligned};
use super::lanes::*;
use crate::cpu::rule::{Draw, Rule};
use std::arch::x86_64::*;

/// Elements of one call: 4 KiB of f32, whose scales and multipliers fit beside it in L1.
pub const CHUNK: usize = 1024;
/// Elements of one merge tree.
pub const GROUP: usize = 256;
/// Bytes that prefetches run ahead along a long row.
pub const AHEAD: usize = 4096;

/// Maxima of the sixteen blocks in 256 f32, lane i for block i. Each merge is a shuffle, a blend and a maximum, and
/// leaves half as many vectors; taking vectors 8, 4, 2, 1 apart puts block i into lane i at the end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn tree32(v: [__m512i; 16]) -> __m512i {
    let mut a = [_mm512_setzero_si512(); 8];
    for i in 0..8 {
        let t = _mm512_shuffle_i32x4::<0x4E>(v[i], v[i + 8]);
        let u = _mm512_mask_blend_epi32(0xFF00, v[i], v[i + 8]);
        a[i] = _mm512_max_epu32(t, u);
    }
    let cross = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
    let mut b = [_mm512_setzero_si512(); 4];
    for i in 0..4 {
        let t = _mm512_permutex2var_epi64(a[i], cross, a[i + 4]);
        let u = _mm512_mask_blend_epi32(0xF0F0, a[i], a[i + 4]);
        b[i] = _mm512_max_epu32(t, u);
    }
    let mut c = [_mm512_setzero_si512(); 2];
    for i in 0..2 {
        let (x, y) = (_mm512_castsi512_ps(b[i]), _mm512_castsi512_ps(b[i + 2]));
        let t = _mm512_castps_si512(_mm512_shuffle_ps::<0x4E>(x, y));
        let u = _mm512_mask_blend_epi32(0xCCCC, b[i], b[i + 2]);
        c[i] = _mm512_max_epu32(t, u);
    }
    let t = _mm512_or_si512(_mm512_srli_epi64::<32>(c[0]), _mm512_slli_epi64::<32>(c[1]));
    let u = _mm512_mask_blend_epi32(0xAAAA, c[0], c[1]);
    _mm512_max_epu32(t, u)
}

/// The same for 256 elements of 16 bits, whose magnitudes compare as integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn tree16<const DT: u8>(z: [__m512i; 8]) -> __m512i {
    let cross = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
    let mut a = [_mm512_setzero_si512(); 4];
    for j in 0..4 {
        let t = _mm512_permutex2var_epi64(z[j], cross, z[j + 4]);
        let u = _mm512_mask_blend_epi32(0xF0F0, z[j], z[j + 4]);
        a[j] = _mm512_max_epu16(t, u);
    }
    let mut b = [_mm512_setzero_si512(); 2];
    for j in 0..2 {
        let (x, y) = (_mm512_castsi512_ps(a[j]), _mm512_castsi512_ps(a[j + 2]));
        let t = _mm512_castps_si512(_mm512_shuffle_ps::<0x4E>(x, y));
        let u = _mm512_mask_blend_epi32(0xCCCC, a[j], a[j + 2]);
        b[j] = _mm512_max_epu16(t, u);
    }
    let t = _mm512_or_si512(_mm512_srli_epi64::<32>(b[0]), _mm512_slli_epi64::<32>(b[1]));
    let u = _mm512_mask_blend_epi32(0xAAAA, b[0], b[1]);
    let c = _mm512_max_epu16(t, u);
    let c = _mm512_max_epu16(_mm512_slli_epi32::<16>(c), c);
    let order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    let c = _mm512_permutexvar_epi32(order, c);
    if DT == BF16 {
        _mm512_and_si512(c, _mm512_set1_epi32(0xFFFF_0000_u32 as i32))
    } else {
        let half = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(c));
        _mm512_castps_si512(_mm512_cvtph_ps(half))
    }
}

/// Bits of the largest |x| of each of the sixteen blocks in 256 elements. Prefetches `ahead` bytes further.
///
/// # Safety
/// `p` must be readable for 256 elements of type `DT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn maxima<const DT: u8>(p: *const u8, ahead: usize) -> __m512i {
    if DT == F32 {
        let mut v = [_mm512_setzero_si512(); 16];
        for i in 0..16 {
            // SAFETY: the caller's promise; a prefetch never faults.
            unsafe {
                v[i] = abs_bits(_mm512_loadu_ps(p.add(64 * i).cast()));
                if i < 8 {
                    _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(64 * i + ahead).cast());
                }
            }
        }
        tree32(v)
    } else {
        let mut z = [_mm512_setzero_si512(); 8];
        let magnitude = _mm512_set1_epi16(0x7FFF);
        for j in 0..8 {
            // SAFETY: as above.
            unsafe {
                z[j] = _mm512_and_si512(_mm512_loadu_si512(p.add(64 * j).cast()), magnitude);
                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(64 * j + ahead).cast());
            }
        }
        tree16::<DT>(z)
    }
}

/// Maxima of blocks of 32 from those of 16: each lane of a pair takes the larger.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn pair(b: __m512i) -> __m512i {
    _mm512_max_epu32(b, _mm512_shuffle_epi32::<0xB1>(b))
}

/// Writes the scale bytes of sixteen blocks of 16 (or eight of 32).
///
/// # Safety
/// `out` must be writable for 16 bytes (8 where `block` is 32).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn store_scales(code: __m512i, block: usize, out: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if block == 16 {
            _mm_storeu_si128(out.cast(), _mm512_cvtepi32_epi8(code));
        } else {
            _mm_storel_epi64(out.cast(), _mm512_cvtepi64_epi8(code));
        }
    }
}

/// Scale bytes and multipliers of a whole number of groups of 256 elements. Returns (non-finite, clip) of any block;
/// `bad[g]` names group g's non-finite blocks.
///
/// # Safety
/// `p` must be readable for 256 * groups elements, `out` writable for their scale bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn scale_pass<const DT: u8>(
    p: *const u8,
    groups: usize,
    ahead: usize,
    rule: &Rule,
    e: &mut Aligned<[f32; CHUNK / 16]>,
    bad: &mut [__mmask16; CHUNK / GROUP],
    out: *mut u8,
) -> (bool, bool) {
    let block = rule.block();
    let (mut any_bad, mut any_clip) = (0, 0);
    for g in 0..groups {
        // SAFETY: group g lies inside the caller's memory; e has sixteen lanes a group.
        unsafe {
            let mut b = maxima::<DT>(p.add(g * GROUP * size::<DT>()), ahead);
            if block == 32 {
                b = pair(b);
            }
            let s = scales(b, rule);
            store_scales(s.code, block, out.add(g * GROUP / block));
            _mm512_store_ps(e.0.as_mut_ptr().add(16 * g), s.e);
            bad[g] = s.bad;
            any_bad |= s.bad;
            any_clip |= s.clip;
        }
    }
    (any_bad != 0, any_clip != 0)
}

/// Quantizes whole groups of a row.
///
/// # Safety
/// `x` must be readable for 256 * groups elements (groups <= 4), `codes` and `scales` writable for their outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn whole<const DT: u8, const SR: bool>(
    x: *const u8,
    groups: usize,
    ahead: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    first_block: usize,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    let mut e = Aligned([0.0; CHUNK / 16]);
    let mut bad = [0; CHUNK / GROUP];
    let mut random = Aligned([0u8; 256]);
    // SAFETY: the caller's promise, group by group.
    unsafe {
        let (any_bad, any_clip) =
            scale_pass::<DT>(x, groups, ahead, rule, &mut e, &mut bad, scales);
        for g in 0..groups {
            let (p, o) = (x.add(g * GROUP * size::<DT>()), codes.add(128 * g));
            let m = &e.0[16 * g..16 * g + 16];
            if SR {
                if let Some(draw) = draw {
                    random_bytes(draw, first_block + 16 * g, &mut random);
                }
                codes256::<DT, true, true>(p, m, &random, o);
            } else {
                if DT == F32 {
                    for i in 8..16 {
                        _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(64 * i + ahead).cast());
                    }
                }
                if any_clip {
                    codes256::<DT, true, false>(p, m, &random, o);
                } else {
                    codes256::<DT, false, false>(p, m, &random, o);
                }
            }
        }
        if any_bad {
            zero_bad(&bad[..groups], codes);
        }
        any_bad
    }
}

/// Quantizes `n` elements (at most `CHUNK`) of one row that start at a block boundary; `draw` is the key of stochastic
/// rounding, `first_block` the number of 16-blocks between `draw.block` and these. Prefetches run
/// `ahead` bytes ahead. Writes ceil(n/2) code bytes and
/// ceil(n/block) scale bytes. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`; `codes` and `scales` writable for the bytes named above.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
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
    let groups = n / GROUP;
    let rest = n % GROUP;
    // SAFETY: whole groups lie in the caller's memory; the tail goes through local buffers.
    unsafe {
        let mut bad = match draw {
            Some(_) => whole::<DT, true>(x, groups, ahead, rule, draw, first_block, codes, scales),
            None => whole::<DT, false>(x, groups, ahead, rule, None, first_block, codes, scales),
        };
        if rest > 0 {
            let done = groups * GROUP;
            let mut buffer = Aligned([0.0f32; GROUP]);
            let mut out = Aligned([0u8; GROUP / 2 + 16]);
            widen_tail::<DT>(x.add(done * size::<DT>()), rest, buffer.0.as_mut_ptr());
            let (c, s) = out.0.split_at_mut(GROUP / 2);
            let (c, s) = (c.as_mut_ptr(), s.as_mut_ptr());
            let p = buffer.0.as_ptr().cast();
            let block = first_block + done / 16;
            bad |= match draw {
                Some(_) => whole::<F32, true>(p, 1, 0, rule, draw, block, c, s),
                None => whole::<F32, false>(p, 1, 0, rule, None, block, c, s),
            };
            if rest % 2 == 1 {
                // The spare nibble is 0 whatever the padding drew.
                *c.add(rest / 2) &= 0x0F;
            }
            std::ptr::copy_nonoverlapping(c, codes.add(done / 2), rest.div_ceil(2));
            let b = rule.block();
            std::ptr::copy_nonoverlapping(s, scales.add(done / b), rest.div_ceil(b));
        }
        bad
    }
}

/// `n` elements as f32.
///
/// # Safety
/// `x` must be readable and `out` writable for `n` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn widen_tail<const DT: u8>(x: *const u8, n: usize, out: *mut f32) {
    for i in (0..n).step_by(16) {
        let mask = mask16(n - i);
        // SAFETY: the mask holds what is left of the caller's `n`.
        unsafe {
            let v = load_masked::<DT>(x.add(i * size::<DT>()), mask);
            _mm512_mask_storeu_ps(out.add(i), mask, v);
        }
    }
}

/// The first min(n, 16) lanes.
#[inline]
pub const fn mask16(n: usize) -> __mmask16 {
    if n >= 16 {
        0xFFFF
    } else {
        (1 << n) - 1
    }
}
