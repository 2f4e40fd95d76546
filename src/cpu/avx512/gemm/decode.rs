//! Products with few rows (decoding with a kept weight): the packed weight's codes are opened in registers, so that
//! each byte of it is read once and nothing is written but the sums.

use super::kernel::*;
use super::pack::{open_block, scales16};
use std::arch::x86_64::*;

/// Bytes that prefetches run ahead in the panel's codes.
const AHEAD: usize = 2048;

/// acc (up to eight rows) += A times k-blocks `first..first + blocks` of a packed panel of `total` k-blocks.
///
/// # Safety
/// As `kernel::group`, with `panel` a packed panel.
#[allow(clippy::too_many_arguments)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn rows<const S: usize>(
    rows: usize,
    a: *const u8,
    panel: *const u8,
    total: usize,
    first: usize,
    blocks: usize,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let codes = panel.add(first * 256 * S);
        let scales = panel.add(total * 256 * S + first * 32);
        match rows {
            1 => product::<S, 1>(a, codes, scales, blocks, acc, ld),
            2 => product::<S, 2>(a, codes, scales, blocks, acc, ld),
            3 => product::<S, 3>(a, codes, scales, blocks, acc, ld),
            4 => product::<S, 4>(a, codes, scales, blocks, acc, ld),
            5 => product::<S, 5>(a, codes, scales, blocks, acc, ld),
            6 => product::<S, 6>(a, codes, scales, blocks, acc, ld),
            7 => product::<S, 7>(a, codes, scales, blocks, acc, ld),
            _ => product::<S, 8>(a, codes, scales, blocks, acc, ld),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn product<const S: usize, const R: usize>(
    mut a: *const u8,
    mut codes: *const u8,
    mut scales: *const u8,
    blocks: usize,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller's promise; prefetches never fault.
    unsafe {
        let mut sum = [[_mm512_setzero_ps(); 2]; R];
        for (r, s) in sum.iter_mut().enumerate() {
            *s = [
                _mm512_loadu_ps(acc.add(r * ld)),
                _mm512_loadu_ps(acc.add(r * ld + 16)),
            ];
        }
        let (quarter, magic) = (_mm512_set1_ps(0.25), _mm512_set1_ps(-MAGIC));
        for _ in 0..blocks {
            for i in 0..4 * S {
                _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + 64 * i).cast());
            }
            let s0 = _mm512_mul_ps(scales16::<S>(_mm_loadu_si128(scales.cast())), quarter);
            let s1 = _mm512_mul_ps(
                scales16::<S>(_mm_loadu_si128(scales.add(16).cast())),
                quarter,
            );
            let (c0, c1) = (_mm512_mul_ps(s0, magic), _mm512_mul_ps(s1, magic));
            let mut t = [[_mm512_setzero_si512(); 2]; R];
            for (r, t) in t.iter_mut().enumerate() {
                *t = [_mm512_set1_epi32(*a.add(128 * S + 4 * r).cast::<i32>()); 2];
            }
            for part in 0..S {
                let v: [[__m512i; 2]; 4] = open_block(codes.add(256 * part));
                for (r, t) in t.iter_mut().enumerate() {
                    for (q, v) in v.iter().enumerate() {
                        let p = a.add(16 * S * r + 16 * part + 4 * q);
                        let x = _mm512_set1_epi32(*p.cast::<i32>());
                        t[0] = _mm512_dpbusd_epi32(t[0], v[0], x);
                        t[1] = _mm512_dpbusd_epi32(t[1], v[1], x);
                    }
                }
            }
            for (r, s) in sum.iter_mut().enumerate() {
                let f0 = _mm512_fmadd_ps(_mm512_castsi512_ps(t[r][0]), s0, c0);
                let f1 = _mm512_fmadd_ps(_mm512_castsi512_ps(t[r][1]), s1, c1);
                let scale = _mm512_set1_ps(*a.add(128 * S + 32 + 4 * r).cast::<f32>());
                s[0] = _mm512_fmadd_ps(f0, scale, s[0]);
                s[1] = _mm512_fmadd_ps(f1, scale, s[1]);
            }
            a = a.add(a_bytes(S));
            codes = codes.add(256 * S);
            scales = scales.add(32);
        }
        for (r, s) in sum.iter().enumerate() {
            _mm512_storeu_ps(acc.add(r * ld), s[0]);
            _mm512_storeu_ps(acc.add(r * ld + 16), s[1]);
        }
    }
}
