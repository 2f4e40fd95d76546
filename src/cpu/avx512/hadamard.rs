//! The random Hadamard transform (docs/format.md, section 6), along a row and down columns. Same operations in the same
//! order as the contract, so the same bits: strides 1, 2, 4, ... in f32, then one product that makes zeros +0.

use super::lanes::*;
use crate::cpu::rule::Transform;
use std::arch::x86_64::*;

/// Lane i of vector v of a block negated where bit 16 v + i of the signs is set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn sign(x: __m512, words: &[u32; 4], vector: usize) -> __m512 {
    let mask = (words[vector / 2] >> (16 * (vector % 2))) as __mmask16;
    let bits = _mm512_castps_si512(x);
    _mm512_castsi512_ps(_mm512_mask_xor_epi32(
        bits,
        mask,
        bits,
        _mm512_set1_epi32(i32::MIN),
    ))
}

/// Strides 1, 2, 4 and 8 inside a vector: y = x * (+-1) + partner, where the product is exact, so that a lane gets
/// a + b or a - b with one rounding.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn within(x: __m512) -> __m512 {
    let plus_minus =
        |mask: __mmask16| _mm512_mask_blend_ps(mask, _mm512_set1_ps(1.0), _mm512_set1_ps(-1.0));
    let x = _mm512_fmadd_ps(x, plus_minus(0xAAAA), _mm512_permute_ps::<0xB1>(x));
    let x = _mm512_fmadd_ps(x, plus_minus(0xCCCC), _mm512_permute_ps::<0x4E>(x));
    let x = _mm512_fmadd_ps(x, plus_minus(0xF0F0), _mm512_shuffle_f32x4::<0xB1>(x, x));
    _mm512_fmadd_ps(x, plus_minus(0xFF00), _mm512_shuffle_f32x4::<0x4E>(x, x))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn finish<const KEEP: bool>(x: __m512, t: &Transform) -> __m512 {
    let y = _mm512_fmadd_ps(x, _mm512_set1_ps(t.normalizer), _mm512_setzero_ps());
    if KEEP {
        y
    } else {
        round_bf16(y)
    }
}

/// Transforms `n` elements of a row, a multiple of the transform's length, into f32.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`, `out` writable for `n` f32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn row<const DT: u8>(x: *const u8, n: usize, t: &Transform, out: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match t.keep_f32 {
            true => row_of::<DT, true>(x, n, t, out),
            false => row_of::<DT, false>(x, n, t, out),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn row_of<const DT: u8, const KEEP: bool>(
    x: *const u8,
    n: usize,
    t: &Transform,
    out: *mut f32,
) {
    let vectors = t.n / 16;
    let mut i = 0;
    // SAFETY: whole blocks of t.n elements inside the caller's memory; prefetches never fault.
    unsafe {
        if vectors == 1 {
            while i < n {
                let p = x.add(i * size::<DT>());
                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(4096).cast());
                let v = within(sign(load::<DT>(p), &t.signs, 0));
                _mm512_storeu_ps(out.add(i), finish::<KEEP>(v, t));
                i += 16;
            }
            return;
        }
        while i < n {
            let mut v = [_mm512_setzero_ps(); 8];
            for (j, v) in v.iter_mut().enumerate().take(vectors) {
                let p = x.add((i + 16 * j) * size::<DT>());
                _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(4096).cast());
                *v = within(sign(load::<DT>(p), &t.signs, j));
            }
            let mut stride = 1;
            while stride < vectors {
                for j in (0..vectors).filter(|j| j & stride == 0) {
                    let (a, b) = (v[j], v[j + stride]);
                    v[j] = _mm512_add_ps(a, b);
                    v[j + stride] = _mm512_sub_ps(a, b);
                }
                stride *= 2;
            }
            for (j, v) in v.iter().enumerate().take(vectors) {
                _mm512_storeu_ps(out.add(i + 16 * j), finish::<KEEP>(*v, t));
            }
            i += t.n;
        }
    }
}

/// Transforms sixteen rows of sixteen columns down the columns, in registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn down16(v: &mut [__m512; 16], t: &Transform) {
    let minus = _mm512_set1_epi32(i32::MIN);
    for (i, v) in v.iter_mut().enumerate() {
        // A branch on the bit would mispredict for seeded signs; the masked form does not.
        let mask = 0u16.wrapping_sub((t.signs[0] >> i & 1) as u16);
        let bits = _mm512_castps_si512(*v);
        *v = _mm512_castsi512_ps(_mm512_mask_xor_epi32(bits, mask, bits, minus));
    }
    macro_rules! stage {
        ($h:literal) => {
            for i in 0..16 {
                if i & $h == 0 {
                    let (a, b) = (v[i], v[i + $h]);
                    v[i] = _mm512_add_ps(a, b);
                    v[i + $h] = _mm512_sub_ps(a, b);
                }
            }
        };
    }
    stage!(1);
    stage!(2);
    stage!(4);
    stage!(8);
    for v in v.iter_mut() {
        *v = match t.keep_f32 {
            true => finish::<true>(*v, t),
            false => finish::<false>(*v, t),
        };
    }
}

/// Transforms `t.n` rows of sixteen columns down the columns, in a buffer of one vector a row.
///
/// # Safety
/// `buffer` must be readable and writable for 16 * t.n f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn down(buffer: *mut f32, t: &Transform) {
    // SAFETY: every index below is under t.n.
    unsafe {
        for i in (0..t.n).filter(|i| t.signs[i / 32] >> (i % 32) & 1 == 1) {
            let p = buffer.add(16 * i);
            let minus = _mm512_set1_epi32(i32::MIN);
            let x = _mm512_xor_si512(_mm512_loadu_si512(p.cast()), minus);
            _mm512_storeu_si512(p.cast(), x);
        }
        let mut stride = 1;
        while stride < t.n {
            for i in (0..t.n).filter(|i| i & stride == 0) {
                let (p, q) = (buffer.add(16 * i), buffer.add(16 * (i + stride)));
                let (a, b) = (_mm512_loadu_ps(p), _mm512_loadu_ps(q));
                _mm512_storeu_ps(p, _mm512_add_ps(a, b));
                _mm512_storeu_ps(q, _mm512_sub_ps(a, b));
            }
            stride *= 2;
        }
        for i in 0..t.n {
            let p = buffer.add(16 * i);
            let x = _mm512_loadu_ps(p);
            let y = match t.keep_f32 {
                true => finish::<true>(x, t),
                false => finish::<false>(x, t),
            };
            _mm512_storeu_ps(p, y);
        }
    }
}
