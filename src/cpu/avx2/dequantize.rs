//! Codes and scale bytes of a row back to values.

use super::lanes::*;
use super::pack::scales8;
use crate::cpu::factors::Factors;
use crate::cpu::operand::Operand;
use crate::numerics::scale::RANGE_DECODE;
use std::arch::x86_64::*;

/// Elements of one stretch: eight blocks of 16 or four of 32.
pub const STRETCH: usize = 128;

/// Factors of eight blocks of 16 (or, twice each, of four of 32); None if any is NaN or so large that a product with 6
/// needs clamping.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn factors(bytes: [u8; 8], f: &Factors) -> Option<__m256> {
    let s = if f.e8m0 {
        let [a, b, c, d, ..] = bytes;
        let word = _mm_cvtsi64_si128(i64::from_le_bytes([a, a, b, b, c, c, d, d]));
        let wide = _mm256_cvtepu8_epi32(word);
        // Byte 0 stands for 2^-127, a subnormal; 255 turns into Inf, which is caught below.
        let zero = _mm256_cmpeq_epi32(wide, _mm256_setzero_si256());
        let least = _mm256_and_si256(zero, _mm256_set1_epi32(0x0040_0000));
        _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32::<23>(wide), least))
    } else {
        scales8::<1>(bytes)
    };
    let mut v = _mm256_mul_ps(
        _mm256_mul_ps(s, _mm256_set1_ps(f.first)),
        _mm256_set1_ps(f.second),
    );
    if f.range {
        v = _mm256_mul_ps(v, _mm256_set1_ps(RANGE_DECODE));
    }
    let odd = _mm256_cmp_ps::<_CMP_NLT_UQ>(v, _mm256_set1_ps(f.largest / 8.0));
    (_mm256_movemask_ps(odd) == 0).then_some(v)
}

/// Writes 128 finite values from 64 code bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn decode128<const DT: u8>(codes: *const u8, factor: __m256, out: *mut u8, stream: bool) {
    let mut each = [0f32; 8];
    let table = _mm256_setr_ps(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0);
    let shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    // SAFETY: 64 bytes of codes, 128 elements of output.
    unsafe {
        _mm256_storeu_ps(each.as_mut_ptr(), factor);
        for i in 0..16 {
            let word = codes.add(4 * i).cast::<i32>().read_unaligned();
            let x = _mm256_srlv_epi32(_mm256_set1_epi32(word), shift);
            let sign = _mm256_slli_epi32::<28>(_mm256_and_si256(x, _mm256_set1_epi32(8)));
            let v = _mm256_permutevar8x32_ps(table, x);
            let v = _mm256_mul_ps(v, _mm256_broadcast_ss(&each[i / 2]));
            let v = _mm256_xor_ps(v, _mm256_castsi256_ps(sign));
            let o = out.add(8 * i * size::<DT>());
            match (DT, stream) {
                (F32, true) => _mm256_stream_ps(o.cast(), v),
                (F32, false) => _mm256_storeu_ps(o.cast(), v),
                (_, true) => _mm_stream_si128(o.cast(), narrow::<DT>(v)),
                (_, false) => _mm_storeu_si128(o.cast(), narrow::<DT>(v)),
            }
        }
    }
}

/// Eight finite values as bf16 or f16, to nearest even.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow<const DT: u8>(v: __m256) -> __m128i {
    if DT == F16 {
        return _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
    }
    let u = _mm256_castps_si256(v);
    let tie = _mm256_and_si256(_mm256_srli_epi32::<16>(u), _mm256_set1_epi32(1));
    let u = _mm256_add_epi32(_mm256_add_epi32(u, tie), _mm256_set1_epi32(0x7FFF));
    let u = _mm256_srli_epi32::<16>(u);
    _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256::<1>(u))
}

/// Decodes elements `0..n` of a row into `out`, but calls `rare(col, len)` for stretches with a factor that is NaN or
/// near overflow. `stream`: past the caches (`out` is then a multiple of 32).
///
/// # Safety
/// `row` must lie inside `q`, `n` not be above its columns, `out` be writable for n elements of type `DT`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn row<const DT: u8>(
    q: &Operand,
    f: &Factors,
    row: usize,
    n: usize,
    out: *mut u8,
    stream: bool,
    rare: &mut dyn FnMut(usize, usize),
) {
    let mut bytes = [0u8; 8];
    // SAFETY: blocks of the row; the tail goes through local buffers; prefetches never fault.
    unsafe {
        let codes = q.code_row(row, 0);
        for col in (0..n).step_by(STRETCH) {
            q.read_scales(row, col / q.block, &mut bytes[..STRETCH / q.block]);
            let left = (n - col).min(STRETCH);
            let (p, o) = (codes.add(col / 2), out.add(col * size::<DT>()));
            _mm_prefetch::<_MM_HINT_T0>(p.wrapping_add(2048).cast());
            match factors(bytes, f) {
                None => rare(col, left),
                Some(factor) if left == STRETCH => decode128::<DT>(p, factor, o, stream),
                Some(factor) => {
                    let (mut c, mut y) = ([0u8; STRETCH / 2], [0u8; STRETCH * 4]);
                    std::ptr::copy_nonoverlapping(p, c.as_mut_ptr(), left.div_ceil(2));
                    decode128::<DT>(c.as_ptr(), factor, y.as_mut_ptr(), false);
                    std::ptr::copy_nonoverlapping(y.as_ptr(), o, left * size::<DT>());
                }
            }
        }
        if stream {
            _mm_sfence();
        }
    }
}
