//! Codes and scale bytes back to values, along rows or transposed.

use super::gemm::pack::transpose16;
use super::lanes::*;
use super::quantize::mask16;
use crate::cpu::factors::Factors;
use crate::cpu::operand::Operand;
use crate::numerics::e2m1;
use crate::numerics::scale::RANGE_DECODE;
use std::arch::x86_64::*;

/// Factors of sixteen blocks of 16 (or, twice each, of eight of 32), and whether any is NaN or so large that a product
/// with 6 needs clamping.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn factors(bytes: __m128i, f: &Factors) -> (__m512, bool) {
    let s = if f.e8m0 {
        let wide = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
        let bits = _mm512_slli_epi32::<23>(wide);
        let zero = _mm512_cmpeq_epi32_mask(wide, _mm512_setzero_si512());
        let nan = _mm512_cmpeq_epi32_mask(wide, _mm512_set1_epi32(255));
        let bits = _mm512_mask_mov_epi32(bits, zero, _mm512_set1_epi32(0x0040_0000));
        _mm512_castsi512_ps(_mm512_mask_mov_epi32(
            bits,
            nan,
            _mm512_set1_epi32(0x7FC0_0000),
        ))
    } else {
        super::gemm::pack::scales16::<1>(bytes)
    };
    let mut v = _mm512_mul_ps(
        _mm512_mul_ps(s, _mm512_set1_ps(f.first)),
        _mm512_set1_ps(f.second),
    );
    if f.range {
        v = _mm512_mul_ps(v, _mm512_set1_ps(RANGE_DECODE));
    }
    let odd = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(v, _mm512_set1_ps(f.largest / 8.0));
    (v, odd != 0)
}

/// Sixteen codes times their factor.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn decode16(codes: __m128i, factor: __m512) -> __m512 {
    // SAFETY: sixteen f32.
    let table = unsafe { _mm512_loadu_ps(e2m1::VALUES.as_ptr()) };
    let spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    let shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    let x = _mm512_permutexvar_epi32(spread, _mm512_castsi128_si512(codes));
    _mm512_mul_ps(
        _mm512_permutexvar_ps(_mm512_srlv_epi32(x, shift), table),
        factor,
    )
}

/// The rare part of decoding: values beyond the largest are clamped, NaN stays.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn clamp(v: __m512, largest: f32) -> __m512 {
    // min and max return their second operand if one is NaN.
    let v = _mm512_min_ps(_mm512_set1_ps(largest), v);
    _mm512_max_ps(_mm512_set1_ps(-largest), v)
}

/// Sixteen values as the low halves of 32-bit words: bf16 or f16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn narrow<const DT: u8>(v: __m512, odd: bool) -> __m256i {
    if DT == F16 {
        return _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
    }
    let u = if odd {
        super::copy16::cast(v)
    } else {
        // No NaN and no overflow: nearest even by an addition.
        let u = _mm512_castps_si512(v);
        let tie = _mm512_and_si512(_mm512_srli_epi32::<16>(u), _mm512_set1_epi32(1));
        _mm512_add_epi32(_mm512_add_epi32(u, tie), _mm512_set1_epi32(0x7FFF))
    };
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(u))
}

/// Decodes elements `0..n` of a row into `out`. `stream`: past the caches (`out` is then a multiple of 64).
///
/// # Safety
/// `row` must lie inside `q`, `n` not be above its columns, `out` be writable for n elements of type `DT`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn row<const DT: u8>(
    q: &Operand,
    f: &Factors,
    row: usize,
    n: usize,
    out: *mut u8,
    stream: bool,
) {
    let mut bytes = [0u8; 16];
    let mut factor = [0f32; 16];
    let width = 256 / q.block;
    let last = n.div_ceil(2);
    // SAFETY: blocks of the row; loads and stores are masked at its end; prefetches never fault.
    unsafe {
        let codes = q.code_row(row, 0);
        for col in (0..n).step_by(256) {
            q.read_scales(row, col / q.block, &mut bytes[..width]);
            let (v, odd) = factors(_mm_loadu_si128(bytes.as_ptr().cast()), f);
            _mm512_storeu_ps(factor.as_mut_ptr(), v);
            _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(col / 2 + 2048).cast());
            _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(col / 2 + 2112).cast());
            let whole = n - col >= 256;
            for (i, factor) in factor.iter().enumerate() {
                let at = col + 16 * i;
                if at >= n {
                    break;
                }
                let left = n - at;
                let p = codes.add(at / 2);
                let x = if left >= 16 {
                    _mm_loadl_epi64(p.cast())
                } else {
                    let mask = (1u16 << (last - at / 2)) - 1;
                    _mm_maskz_loadu_epi8(mask, p.cast())
                };
                let mut v = decode16(x, _mm512_set1_ps(*factor));
                if odd && DT != F16 {
                    v = clamp(v, f.largest);
                } else if odd {
                    v = clamp(v, f32::MAX);
                }
                let o = out.add(at * size::<DT>());
                match (DT == F32, whole, stream) {
                    (true, true, true) => _mm512_stream_ps(o.cast(), v),
                    (true, ..) => _mm512_mask_storeu_ps(o.cast(), mask16(left), v),
                    (false, true, true) => _mm256_stream_si256(o.cast(), narrow::<DT>(v, odd)),
                    (false, ..) => {
                        _mm256_mask_storeu_epi16(o.cast(), mask16(left), narrow::<DT>(v, odd));
                    }
                }
            }
        }
        if stream {
            _mm_sfence();
        }
    }
}

/// Decodes columns `col..col + width` (at most 16, from a multiple of 16) of rows `row..row + height` (at most 16) into
/// the transposed output, `out` being element (col, row) and `stride` the bytes from one of its rows to the next.
///
/// # Safety
/// The piece must lie inside `q`, `out` be writable for it. `f` holds each row's factors.
#[allow(clippy::too_many_arguments)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn transposed<const DT: u8>(
    q: &Operand,
    f: &[Factors; 16],
    row: usize,
    height: usize,
    col: usize,
    width: usize,
    out: *mut u8,
    stride: usize,
) {
    let mut words = [_mm512_setzero_si512(); 16];
    let mut any = false;
    // SAFETY: rows and columns of the piece; the mask ends at the row's last byte.
    unsafe {
        for (r, word) in words.iter_mut().enumerate().take(height) {
            let mut bytes = [0u8; 16];
            q.read_scales(row + r, col / q.block, &mut bytes[..1]);
            let (factor, odd) = factors(_mm_loadu_si128(bytes.as_ptr().cast()), &f[r]);
            let mask = (1u16 << width.div_ceil(2)) - 1;
            let x = _mm_maskz_loadu_epi8(mask, q.code_row(row + r, col).cast());
            let mut v = decode16(x, _mm512_broadcastss_ps(_mm512_castps512_ps128(factor)));
            // Blocks beyond the one read have scale byte 0, which is never odd.
            if odd {
                any = true;
                v = clamp(v, if DT == F16 { f32::MAX } else { f[r].largest });
            }
            *word = _mm512_castps_si512(v);
        }
        for (c, v) in transpose16(words).into_iter().enumerate().take(width) {
            let (o, mask) = (out.add(c * stride), mask16(height));
            let v = _mm512_castsi512_ps(v);
            if DT == F32 {
                _mm512_mask_storeu_ps(o.cast(), mask, v);
            } else {
                _mm256_mask_storeu_epi16(o.cast(), mask, narrow::<DT>(v, any));
            }
        }
    }
}
