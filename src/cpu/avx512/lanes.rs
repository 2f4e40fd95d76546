//! Pieces that several AVX-512 kernels share: loads of each input type as f32, the scale of sixteen blocks at once, and
//! the rounding of scaled elements to E2M1.

use crate::cpu::rule::{Kind, Rule};
use std::arch::x86_64::*;

pub use crate::cpu::vector::{size, BF16, F16, F32};

/// Smallest bit pattern of |x| that is not finite.
pub const NONFINITE: i32 = 0x7F80_0000;

/// Sixteen elements as f32.
///
/// # Safety
/// `p` must be readable for sixteen elements of type `DT`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn load<const DT: u8>(p: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        match DT {
            F32 => _mm512_loadu_ps(p.cast()),
            BF16 => widen_bf16(_mm256_loadu_si256(p.cast())),
            _ => _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())),
        }
    }
}

/// The elements of `mask` as f32, the others +0; masked-out memory is not touched.
///
/// # Safety
/// `p` must be readable for the elements in `mask`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn load_masked<const DT: u8>(p: *const u8, mask: __mmask16) -> __m512 {
    // SAFETY: the caller's promise; masked loads fault only on lanes in the mask.
    unsafe {
        match DT {
            F32 => _mm512_maskz_loadu_ps(mask, p.cast()),
            BF16 => widen_bf16(_mm256_maskz_loadu_epi16(mask, p.cast())),
            _ => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p.cast())),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn widen_bf16(x: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)))
}

/// f32 rounded to bf16 (nearest even, subnormals kept: the hardware conversion would flush them), left in the high
/// half of each lane. The rounding is an integer addition to the magnitude; a NaN is cut to the quiet pattern first, so
/// that no payload can carry out of it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn round_bf16(x: __m512) -> __m512 {
    let abs = _mm512_min_epu32(abs_bits(x), _mm512_set1_epi32(0x7FC0_0000));
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(abs), _mm512_set1_epi32(1));
    let r = _mm512_add_epi32(abs, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    let r = _mm512_and_si512(r, _mm512_set1_epi32(0x7FFF_0000));
    let sign = _mm512_set1_epi32(i32::MIN);
    let x = _mm512_castps_si512(x);
    _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xF8>(r, x, sign))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn abs_bits(x: __m512) -> __m512i {
    _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFF_FFFF))
}

/// Scales of sixteen blocks.
#[derive(Clone, Copy)]
pub struct Scales {
    /// Scale byte in each 32-bit lane.
    pub code: __m512i,
    /// Multiplier of the block's elements.
    pub e: __m512,
    /// Blocks that hold a NaN or an Inf.
    pub bad: __mmask16,
    /// Blocks in which a scaled element may reach 8 or more, so that clipping to 6 is needed before rounding.
    pub clip: __mmask16,
}

/// Scale bytes and multipliers from sixteen block maxima. `b` holds the bits of the largest |x| of each block, NaN and
/// Inf above every finite value; for MXFP4, blocks of sixteen come in pairs that have equal maxima.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn scales(b: __m512i, rule: &Rule) -> Scales {
    let bad = _mm512_cmpge_epi32_mask(b, _mm512_set1_epi32(NONFINITE));
    let (code, mut e, clip) = match rule.kind {
        Kind::Te | Kind::Div6 => nvfp4_scales(_mm512_castsi512_ps(b), rule),
        _ => {
            let (code, e) = mxfp4_scales(b, rule.kind);
            (code, e, 0)
        }
    };
    if let Some(shrink) = rule.shrink {
        e = _mm512_mul_ps(e, _mm512_set1_ps(shrink));
    }
    let nan = match rule.kind {
        Kind::Te | Kind::Div6 => 0x7F,
        _ => 0xFF,
    };
    Scales {
        code: _mm512_mask_mov_epi32(code, bad, _mm512_set1_epi32(nan)),
        e: _mm512_mask_mov_ps(e, bad, _mm512_setzero_ps()),
        bad,
        clip,
    }
}

/// E4M3 by the addition of a power of two: v + 2^(e+20), e the exponent of v, rounds v to its E4M3 spacing 2^(e-3),
/// and the sum's low bits are the code. Below 2^-6 the spacing stays that of subnormals.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn nvfp4_scales(b: __m512, rule: &Rule) -> (__m512i, __m512, __mmask16) {
    let max = _mm512_set1_ps(448.0);
    let t = match rule.kind {
        Kind::Te => _mm512_mul_ps(b, _mm512_set1_ps(rule.m)),
        _ => _mm512_mul_ps(
            _mm512_div_ps(b, _mm512_set1_ps(6.0)),
            _mm512_set1_ps(rule.s_enc),
        ),
    };
    let v = _mm512_min_ps(t, max);
    let floor = _mm512_max_ps(v, _mm512_set1_ps(0.015625));
    let power = _mm512_and_si512(_mm512_castps_si512(floor), _mm512_set1_epi32(NONFINITE));
    let magic = _mm512_mul_ps(_mm512_castsi512_ps(power), _mm512_set1_ps(1_048_576.0));
    let sum = _mm512_add_ps(v, magic);
    let s = _mm512_sub_ps(sum, magic);
    let bits = _mm512_castps_si512(sum);
    // Mantissa n in 0..=16 and exponent field e + 20 + 127: code = n + 8 (e + 6).
    let code = _mm512_sub_epi32(
        _mm512_add_epi32(
            _mm512_and_si512(bits, _mm512_set1_epi32(0xFF)),
            _mm512_srli_epi32::<20>(bits),
        ),
        _mm512_set1_epi32((147 - 6) * 8),
    );
    let den = _mm512_mul_ps(s, _mm512_set1_ps(rule.s_dec));
    let e = _mm512_div_ps(_mm512_set1_ps(1.0), den);
    let e = _mm512_min_ps(e, _mm512_set1_ps(f32::MAX));
    // With a normal scale that did not saturate, b * e < 6.5. Else (and not in a block of zeros) clip.
    let small = _mm512_cmplt_epi32_mask(code, _mm512_set1_epi32(8));
    let zero = _mm512_cmpeq_epi32_mask(_mm512_castps_si512(b), _mm512_setzero_si512());
    let large = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(t, max);
    (code, e, (small & !zero) | large)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn mxfp4_scales(b: __m512i, kind: Kind) -> (__m512i, __m512) {
    let two = _mm512_set1_epi32(2);
    let byte = match kind {
        Kind::MxCeil => {
            // b > 6 * 2^(floor(log2 b) - 2) iff its mantissa is above 1.5.
            let mantissa = _mm512_and_si512(b, _mm512_set1_epi32(0x7F_FFFF));
            let up = _mm512_cmpgt_epi32_mask(mantissa, _mm512_set1_epi32(0x40_0000));
            let e = _mm512_sub_epi32(_mm512_srli_epi32::<23>(b), two);
            _mm512_mask_add_epi32(e, up, e, _mm512_set1_epi32(1))
        }
        Kind::MxEven => {
            // Two significant bits, ties to even; a carry moves into the exponent by itself.
            let odd = _mm512_and_si512(_mm512_srli_epi32::<22>(b), _mm512_set1_epi32(1));
            let r = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x1F_FFFF)));
            _mm512_sub_epi32(_mm512_srli_epi32::<23>(r), two)
        }
        _ => _mm512_sub_epi32(_mm512_srli_epi32::<23>(b), two),
    };
    let byte = _mm512_max_epi32(byte, _mm512_setzero_si512());
    // 2^(127 - byte): byte is at most 253 for a finite b, so the field stays normal.
    let e = _mm512_slli_epi32::<23>(_mm512_sub_epi32(_mm512_set1_epi32(254), byte));
    (byte, _mm512_castsi512_ps(e))
}

/// Scaled elements to the raw form of their codes: P = 2^max(exponent, 0) with y's sign, and y + 2^22 P is y rounded to
/// its E2M1 spacing P/2 by the addition itself (nearest even, sign kept, also of -0). Of the sum, the sign, the low
/// three mantissa bits and the low two exponent bits name the code; rotated to bits 0, 1-3 and 4-5 of byte `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn nearest<const CLIP: bool, const BYTE: i32>(x: __m512, e: __m512) -> __m512i {
    let mut y = _mm512_mul_ps(x, e);
    if CLIP {
        // The smaller magnitude of y and 6, with y's sign.
        y = _mm512_range_ps::<0x02>(y, _mm512_set1_ps(6.0));
    }
    let s = _mm512_castps_si512(_mm512_fmadd_ps(power(y), _mm512_set1_ps(4_194_304.0), y));
    place::<BYTE>(s)
}

/// 2^max(exponent of y, 0) with y's sign: the larger magnitude of y and 1, its mantissa cleared.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn power(y: __m512) -> __m512 {
    let r = _mm512_range_ps::<0x03>(y, _mm512_set1_ps(1.0));
    _mm512_castsi512_ps(_mm512_and_si512(
        _mm512_castps_si512(r),
        _mm512_set1_epi32(0xFF80_0000_u32 as i32),
    ))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn place<const BYTE: i32>(s: __m512i) -> __m512i {
    let r = match BYTE {
        0 => _mm512_rol_epi32::<1>(s),
        1 => _mm512_rol_epi32::<9>(s),
        2 => _mm512_rol_epi32::<17>(s),
        _ => _mm512_rol_epi32::<25>(s),
    };
    _mm512_or_si512(r, _mm512_rol_epi32::<12>(r))
}

/// Stochastic rounding: y's magnitude in units of 1/256 of its spacing by an addition that truncates, plus the random
/// byte in each lane of `random`; what carries into bit 8 rounds up. Same raw form as `nearest`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn stochastic<const BYTE: i32>(x: __m512, e: __m512, random: __m512i) -> __m512i {
    const TRUNCATE: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    let y = _mm512_range_ps::<0x02>(_mm512_mul_ps(x, e), _mm512_set1_ps(6.0));
    let s = _mm512_fmadd_round_ps::<TRUNCATE>(power(y), _mm512_set1_ps(16384.0), y);
    let t = _mm512_add_epi32(_mm512_castps_si512(s), random);
    // Bits 8-10 of the sum are the mantissa's; bring them to 0-2 and keep sign and exponent where `place` wants them.
    let low = _mm512_and_si512(_mm512_srli_epi32::<8>(t), _mm512_set1_epi32(7));
    let high = _mm512_set1_epi32(0xFF80_0000_u32 as i32);
    place::<BYTE>(_mm512_ternarylogic_epi32::<0xF8>(low, t, high))
}

/// Table from the raw form to codes: index = sign | n << 1 | E << 4 with E = max(exponent, 0) + 1.
pub const RAW_TO_CODE: [u8; 64] = {
    let mut t = [0u8; 64];
    let mut i = 0;
    while i < 64 {
        let (sign, n, e) = (i & 1, (i >> 1) & 7, i >> 4);
        let m = if e == 0 { 7 } else { n + 2 * (e - 1) };
        t[i] = (if m > 7 { 7 } else { m } | sign << 3) as u8;
        i += 1;
    }
    t
};

/// Four vectors of raw forms, already in bytes 0..3 of each lane, to codes: byte i of lane t is the code of element t
/// of vector i.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn codes4(r: [__m512i; 4], table: __m512i) -> __m512i {
    let ab = _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi32(0xFF), r[0], r[1]);
    let cd = _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi32(0x00FF_0000), r[2], r[3]);
    let all = _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi32(0xFFFF), ab, cd);
    _mm512_permutexvar_epi8(all, table)
}
