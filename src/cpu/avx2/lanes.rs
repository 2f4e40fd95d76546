//! Pieces that the AVX2 kernels share: loads of each input type as f32, the scales of eight blocks at once, and the
//! rounding of scaled elements to E2M1. The formulas are those of cpu/avx512/lanes.rs, which explains them.

use crate::cpu::rule::{Kind, Rule};
use std::arch::x86_64::*;

pub use crate::cpu::vector::{size, BF16, F16, F32};

/// Smallest bit pattern of |x| that is not finite.
pub const NONFINITE: i32 = 0x7F80_0000;

/// Eight elements as f32.
///
/// # Safety
/// `p` must be readable for eight elements of type `DT`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn load<const DT: u8>(p: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        match DT {
            F32 => _mm256_loadu_ps(p.cast()),
            BF16 => {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            }
            _ => _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn abs_bits(x: __m256) -> __m256i {
    _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFF_FFFF))
}

/// The largest lane, unsigned.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn largest(x: __m256i) -> u32 {
    let m = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
    let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0x4E>(m));
    let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0xB1>(m));
    _mm_cvtsi128_si32(m) as u32
}

/// Maxima of the eight lanes of each of eight vectors: lane i for vector i.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn maxima8(v: [__m256i; 8]) -> __m256i {
    // Each merge is a shuffle, a blend and a maximum, and leaves half as many vectors.
    let mut a = [_mm256_setzero_si256(); 4];
    for i in 0..4 {
        let t = _mm256_permute2x128_si256::<0x21>(v[i], v[i + 4]);
        let u = _mm256_blend_epi32::<0xF0>(v[i], v[i + 4]);
        a[i] = _mm256_max_epu32(t, u);
    }
    let mut b = [_mm256_setzero_si256(); 2];
    for i in 0..2 {
        let (x, y) = (_mm256_castsi256_ps(a[i]), _mm256_castsi256_ps(a[i + 2]));
        let t = _mm256_castps_si256(_mm256_shuffle_ps::<0x4E>(x, y));
        let u = _mm256_blend_epi32::<0xCC>(a[i], a[i + 2]);
        b[i] = _mm256_max_epu32(t, u);
    }
    let t = _mm256_or_si256(_mm256_srli_epi64::<32>(b[0]), _mm256_slli_epi64::<32>(b[1]));
    let u = _mm256_blend_epi32::<0xAA>(b[0], b[1]);
    _mm256_max_epu32(t, u)
}

/// Scales of eight blocks.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Scale byte in each 32-bit lane.
    pub code: __m256i,
    /// Multiplier of the block's elements.
    pub e: __m256,
    /// All ones for blocks that hold a NaN or an Inf.
    pub bad: __m256i,
}

/// Scale bytes and multipliers from eight block maxima: bits of the largest |x|, NaN and Inf above every finite value.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn scales(b: __m256i, rule: &Rule) -> Scales {
    let bad = _mm256_cmpgt_epi32(b, _mm256_set1_epi32(NONFINITE - 1));
    let nvfp4 = matches!(rule.kind, Kind::Te | Kind::Div6);
    let (code, mut e) = if nvfp4 {
        nvfp4_scales(_mm256_castsi256_ps(b), rule)
    } else {
        mxfp4_scales(b, rule.kind)
    };
    if let Some(shrink) = rule.shrink {
        e = _mm256_mul_ps(e, _mm256_set1_ps(shrink));
    }
    let nan = _mm256_set1_epi32(if nvfp4 { 0x7F } else { 0xFF });
    Scales {
        code: _mm256_blendv_epi8(code, nan, bad),
        e: _mm256_andnot_ps(_mm256_castsi256_ps(bad), e),
        bad,
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nvfp4_scales(b: __m256, rule: &Rule) -> (__m256i, __m256) {
    let t = match rule.kind {
        Kind::Te => _mm256_mul_ps(b, _mm256_set1_ps(rule.m)),
        _ => _mm256_mul_ps(
            _mm256_div_ps(b, _mm256_set1_ps(6.0)),
            _mm256_set1_ps(rule.s_enc),
        ),
    };
    let v = _mm256_min_ps(t, _mm256_set1_ps(448.0));
    // v + 2^(e+20) rounds to the E4M3 spacing; below 2^-6 that of subnormals.
    let floor = _mm256_max_ps(v, _mm256_set1_ps(0.015625));
    let power = _mm256_and_si256(_mm256_castps_si256(floor), _mm256_set1_epi32(NONFINITE));
    let magic = _mm256_mul_ps(_mm256_castsi256_ps(power), _mm256_set1_ps(1_048_576.0));
    let sum = _mm256_add_ps(v, magic);
    let s = _mm256_sub_ps(sum, magic);
    let bits = _mm256_castps_si256(sum);
    let code = _mm256_sub_epi32(
        _mm256_add_epi32(
            _mm256_and_si256(bits, _mm256_set1_epi32(0xFF)),
            _mm256_srli_epi32::<20>(bits),
        ),
        _mm256_set1_epi32((147 - 6) * 8),
    );
    let den = _mm256_mul_ps(s, _mm256_set1_ps(rule.s_dec));
    let e = _mm256_div_ps(_mm256_set1_ps(1.0), den);
    (code, _mm256_min_ps(e, _mm256_set1_ps(f32::MAX)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn mxfp4_scales(b: __m256i, kind: Kind) -> (__m256i, __m256) {
    let two = _mm256_set1_epi32(2);
    let byte = match kind {
        Kind::MxCeil => {
            let mantissa = _mm256_and_si256(b, _mm256_set1_epi32(0x7F_FFFF));
            let up = _mm256_cmpgt_epi32(mantissa, _mm256_set1_epi32(0x40_0000));
            // `up` is -1 where the exponent goes up by one.
            _mm256_sub_epi32(_mm256_sub_epi32(_mm256_srli_epi32::<23>(b), two), up)
        }
        Kind::MxEven => {
            let odd = _mm256_and_si256(_mm256_srli_epi32::<22>(b), _mm256_set1_epi32(1));
            let r = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x1F_FFFF)));
            _mm256_sub_epi32(_mm256_srli_epi32::<23>(r), two)
        }
        _ => _mm256_sub_epi32(_mm256_srli_epi32::<23>(b), two),
    };
    let byte = _mm256_max_epi32(byte, _mm256_setzero_si256());
    let e = _mm256_slli_epi32::<23>(_mm256_sub_epi32(_mm256_set1_epi32(254), byte));
    (byte, _mm256_castsi256_ps(e))
}

/// Codes of 32 elements, one a byte: elements 8i + j (j < 4) at byte 4i + j, the others 16 further. `m`: the codes'
/// magnitudes, plus 2, in the low three bits, the others 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn codes32(x: &[__m256], m: &[__m256i]) -> __m256i {
    let code = _mm256_packs_epi16(
        _mm256_packs_epi32(m[0], m[1]),
        _mm256_packs_epi32(m[2], m[3]),
    );
    let code = _mm256_sub_epi8(code, _mm256_set1_epi8(2));
    let code = _mm256_and_si256(code, _mm256_set1_epi8(7));
    // Saturation keeps signs, -0's too.
    let s = |i: usize| _mm256_castps_si256(x[i]);
    let sign = _mm256_packs_epi16(
        _mm256_packs_epi32(s(0), s(1)),
        _mm256_packs_epi32(s(2), s(3)),
    );
    let sign = _mm256_and_si256(sign, _mm256_set1_epi8(-128));
    _mm256_or_si256(code, _mm256_srli_epi16::<4>(sign))
}

/// Codes of 64 elements, packed, from eight vectors and their codes' magnitudes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn codes64(x: &[__m256; 8], m: &[__m256i; 8]) -> __m256i {
    let (a, b) = (codes32(&x[..4], &m[..4]), codes32(&x[4..], &m[4..]));
    // Low nibble first: byte 2t + 16 * byte 2t + 1.
    let weights = _mm256_set1_epi16(0x1001);
    let bytes = _mm256_packus_epi16(
        _mm256_maddubs_epi16(a, weights),
        _mm256_maddubs_epi16(b, weights),
    );
    // Pairs of bytes: halves of vectors 0-3, 4-7 | other halves of the same. Bring a vector's halves together.
    let halves = _mm256_permute4x64_epi64::<0xD8>(bytes);
    let order = _mm256_setr_epi8(
        0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12,
        13, 6, 7, 14, 15,
    );
    _mm256_shuffle_epi8(halves, order)
}
