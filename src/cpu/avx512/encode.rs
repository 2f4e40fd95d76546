//! Codes of elements whose multipliers are known: 256 at a time, to nearest or with random bits.

use super::lanes::*;
use super::philox::philox;
use super::quantize::GROUP;
use crate::cpu::rule::Draw;
use std::arch::x86_64::*;

#[repr(align(64))]
pub struct Aligned<T>(pub T);

/// Random bytes of sixteen blocks of a row, in the order of their elements: block i's sixteen at `out[16 i..]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn random_bytes(draw: &Draw, first_block: usize, out: &mut Aligned<[u8; 256]>) {
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let first = draw.block.wrapping_add(first_block as u32);
    let counter = draw.counter();
    let w = philox(
        _mm512_add_epi32(_mm512_set1_epi32(first as i32), lane),
        _mm512_set1_epi32(counter[0] as i32),
        counter[1],
        counter[2],
        draw.key,
    );
    // Element 4w + i takes byte (0, 2, 1, 3)[i] of word w.
    let swap = _mm512_set4_epi32(0x0F0D_0E0C, 0x0B09_0A08, 0x0705_0604, 0x0301_0200);
    let w = w.map(|x| _mm512_shuffle_epi8(x, swap));
    // 4 x 16 transposition of words: block i's words 0..3 side by side.
    let (a, b) = (
        _mm512_unpacklo_epi32(w[0], w[1]),
        _mm512_unpackhi_epi32(w[0], w[1]),
    );
    let (c, d) = (
        _mm512_unpacklo_epi32(w[2], w[3]),
        _mm512_unpackhi_epi32(w[2], w[3]),
    );
    let quads = [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ];
    // quads[j] holds blocks j, j + 4, j + 8, j + 12 in its four 128-bit lanes.
    for (j, q) in quads.into_iter().enumerate() {
        let p = out.0.as_mut_ptr();
        // SAFETY: blocks 0..16 of 16 bytes lie inside the 256-byte array.
        unsafe {
            _mm_store_si128(p.add(16 * j).cast(), _mm512_extracti32x4_epi32::<0>(q));
            _mm_store_si128(
                p.add(16 * (j + 4)).cast(),
                _mm512_extracti32x4_epi32::<1>(q),
            );
            _mm_store_si128(
                p.add(16 * (j + 8)).cast(),
                _mm512_extracti32x4_epi32::<2>(q),
            );
            _mm_store_si128(
                p.add(16 * (j + 12)).cast(),
                _mm512_extracti32x4_epi32::<3>(q),
            );
        }
    }
}

/// Codes of 256 elements whose multipliers are in `e`, to 128 bytes.
///
/// # Safety
/// `p` must be readable for 256 elements of type `DT`, `out` writable for 128 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn codes256<const DT: u8, const CLIP: bool, const SR: bool>(
    p: *const u8,
    e: &[f32],
    random: &Aligned<[u8; 256]>,
    out: *mut u8,
) {
    let table = {
        // SAFETY: a 64-byte constant.
        unsafe { _mm512_loadu_si512(RAW_TO_CODE.as_ptr().cast()) }
    };
    // Byte (block j, pair t) from 64-bit lane t: blocks 0..3 in its low half, 4..7 in the high one.
    let pack = {
        // SAFETY: a 64-byte constant.
        unsafe { _mm512_loadu_si512(PACK.as_ptr().cast()) }
    };
    let raw = |i: usize, byte: usize| -> __m512i {
        // SAFETY: block i < 16 of the caller's 256 elements; `e` and `random` hold sixteen blocks.
        let (x, e) = unsafe {
            (
                load::<DT>(p.add(16 * i * size::<DT>())),
                _mm512_set1_ps(*e.get_unchecked(i)),
            )
        };
        if SR {
            // SAFETY: as above.
            let r = unsafe {
                _mm512_cvtepu8_epi32(_mm_load_si128(random.0.as_ptr().add(16 * i).cast()))
            };
            match byte {
                0 => stochastic::<0>(x, e, r),
                1 => stochastic::<1>(x, e, r),
                2 => stochastic::<2>(x, e, r),
                _ => stochastic::<3>(x, e, r),
            }
        } else {
            match byte {
                0 => nearest::<CLIP, 0>(x, e),
                1 => nearest::<CLIP, 1>(x, e),
                2 => nearest::<CLIP, 2>(x, e),
                _ => nearest::<CLIP, 3>(x, e),
            }
        }
    };
    for h in 0..2 {
        let i = 8 * h;
        let a = codes4(
            [raw(i, 0), raw(i + 1, 1), raw(i + 2, 2), raw(i + 3, 3)],
            table,
        );
        let b = codes4(
            [raw(i + 4, 0), raw(i + 5, 1), raw(i + 6, 2), raw(i + 7, 3)],
            table,
        );
        // Element 2t + 1 (high half of 64-bit lane t) into the high nibbles of element 2t's bytes.
        let a = _mm512_or_si512(a, _mm512_srli_epi64::<28>(a));
        let b = _mm512_or_si512(b, _mm512_srli_epi64::<28>(b));
        let r = _mm512_mask_blend_epi32(0xAAAA, a, _mm512_slli_epi64::<32>(b));
        // SAFETY: the caller's promise for `out`.
        unsafe {
            _mm512_storeu_si512(out.add(64 * h).cast(), _mm512_permutexvar_epi8(pack, r));
        }
    }
}

const PACK: [u8; 64] = {
    let mut p = [0u8; 64];
    let mut i = 0;
    while i < 64 {
        let (j, t) = (i / 8, i % 8);
        p[i] = (t * 8 + j) as u8;
        i += 1;
    }
    p
};

/// Codes of the blocks named in `bad` become 0.
///
/// # Safety
/// `codes` must be writable for 128 bytes a group.
#[cold]
pub unsafe fn zero_bad(bad: &[__mmask16], codes: *mut u8) {
    for (g, &mask) in bad.iter().enumerate() {
        for i in (0..16).filter(|i| mask >> i & 1 != 0) {
            // SAFETY: block i of group g.
            unsafe { codes.add(128 * g + 8 * i).write_bytes(0, 8) };
        }
    }
}

/// Codes of 256 f32 under given multipliers; `draw` starts at their first.
///
/// # Safety
/// `p` must be readable for 256 f32, `out` writable for 128 bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn encode_group(
    p: *const u8,
    e: &[f32; GROUP / 16],
    clip: bool,
    draw: Option<&Draw>,
    out: *mut u8,
) {
    let mut random = Aligned([0u8; 256]);
    // SAFETY: the caller's promise.
    unsafe {
        match draw {
            Some(draw) => {
                random_bytes(draw, 0, &mut random);
                codes256::<F32, true, true>(p, e, &random, out);
            }
            None if clip => codes256::<F32, true, false>(p, e, &random, out),
            None => codes256::<F32, false, false>(p, e, &random, out),
        }
    }
}
