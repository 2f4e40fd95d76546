//! Philox4x32-10 on sixteen counters at once (docs/format.md, section 7).

use std::arch::x86_64::*;

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// Eight counters, one in the low half of each 64-bit lane; high halves are ignored on the way in and hold rubbish on
/// the way out (vpmuludq reads low halves only, so ten rounds need no shuffle).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn rounds(mut c: [__m512i; 4], key: [u32; 2]) -> [__m512i; 4] {
    let (m0, m1) = (_mm512_set1_epi64(M0 as i64), _mm512_set1_epi64(M1 as i64));
    let (mut k0, mut k1) = (key[0], key[1]);
    for _ in 0..10 {
        let p0 = _mm512_mul_epu32(c[0], m0);
        let p1 = _mm512_mul_epu32(c[2], m1);
        let n0 = _mm512_ternarylogic_epi64::<0x96>(
            _mm512_srli_epi64::<32>(p1),
            c[1],
            _mm512_set1_epi64(k0 as i64),
        );
        let n2 = _mm512_ternarylogic_epi64::<0x96>(
            _mm512_srli_epi64::<32>(p0),
            c[3],
            _mm512_set1_epi64(k1 as i64),
        );
        c = [n0, p1, n2, p0];
        k0 = k0.wrapping_add(W0);
        k1 = k1.wrapping_add(W1);
    }
    c
}

/// The four words of sixteen counters. `c0` and `c1` are words 0 and 1 of each lane; words 2 and 3 are the same for
/// all. The returned vectors hold word w of lane i in their 32-bit lane i.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn philox(c0: __m512i, c1: __m512i, c2: u32, c3: u32, key: [u32; 2]) -> [__m512i; 4] {
    let (c2, c3) = (_mm512_set1_epi64(c2 as i64), _mm512_set1_epi64(c3 as i64));
    let even = rounds([c0, c1, c2, c3], key);
    let odd = rounds(
        [
            _mm512_srli_epi64::<32>(c0),
            _mm512_srli_epi64::<32>(c1),
            c2,
            c3,
        ],
        key,
    );
    let mut w = even;
    for i in 0..4 {
        w[i] = _mm512_mask_blend_epi32(0xAAAA, even[i], _mm512_slli_epi64::<32>(odd[i]));
    }
    w
}
