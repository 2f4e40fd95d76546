//! Packing for the block-scaled product at 256 bits: groups of three rows of A, panels of sixteen columns (rows of the
//! stored matrix) of B, both k-block after k-block, straight from quantized rows.

use super::kernel::*;
use crate::cpu::operand::{Operand, SAFE_LOW};
use std::arch::x86_64::*;

/// Twice the value of each code, as i8.
const SIGNED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The sixteen table bytes in both halves, plus `offset`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn table(offset: i8) -> __m256i {
    // SAFETY: sixteen bytes.
    let t = unsafe { _mm_loadu_si128(SIGNED.as_ptr().cast()) };
    _mm256_broadcastsi128_si256(_mm_add_epi8(t, _mm_set1_epi8(offset)))
}

/// 32 bytes of codes (64 elements) of a row from element `first`; bytes past the row's end, the spare nibble of an odd
/// row and rows past the last are 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn codes32(m: &Operand, row: usize, first: usize) -> __m256i {
    let left = m.cols.saturating_sub(first);
    if row >= m.rows || left == 0 {
        return _mm256_setzero_si256();
    }
    // SAFETY: the row has `left` more elements.
    unsafe {
        let p = m.code_row(row, first);
        if left >= 64 {
            return _mm256_loadu_si256(p.cast());
        }
        let mut bytes = [0u8; 32];
        std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), left.div_ceil(2));
        if left % 2 == 1 {
            bytes[left / 2] &= 0x0F;
        }
        _mm256_loadu_si256(bytes.as_ptr().cast())
    }
}

/// Eight scale bytes to f32. E4M3 by way of the half format (a shift by 7 puts exponent and mantissa in place, eight
/// binades low), which keeps clear of f32 subnormals and their slow path; the sign bit is ignored and 0x7F is NaN.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn scales8<const S: usize>(bytes: [u8; 8]) -> __m256 {
    let b = _mm_cvtsi64_si128(i64::from_le_bytes(bytes));
    let nan = _mm256_set1_ps(f32::NAN);
    if S == 1 {
        let m = _mm_and_si128(_mm_cvtepu8_epi16(b), _mm_set1_epi16(0x7F));
        let is_nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(m, _mm_set1_epi16(0x7F)));
        let v = _mm256_mul_ps(
            _mm256_cvtph_ps(_mm_slli_epi16::<7>(m)),
            _mm256_set1_ps(256.0),
        );
        _mm256_blendv_ps(v, nan, _mm256_castsi256_ps(is_nan))
    } else {
        // Bytes under SAFE_LOW belong to blocks of zeros (`mx_is_safe` saw to it): a scale of 0 does for them.
        let w = _mm256_cvtepu8_epi32(b);
        let low = _mm256_cmpgt_epi32(_mm256_set1_epi32(SAFE_LOW as i32), w);
        let is_nan = _mm256_cmpeq_epi32(w, _mm256_set1_epi32(255));
        let v = _mm256_andnot_si256(low, _mm256_slli_epi32::<23>(w));
        _mm256_blendv_ps(_mm256_castsi256_ps(v), nan, _mm256_castsi256_ps(is_nan))
    }
}

/// Packs rows `row..row + 3` (missing ones as zeros) of A, k-blocks `first..first + blocks`.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `blocks * a_bytes(S)` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn group_a<const S: usize>(
    m: &Operand,
    row: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    let nibble = _mm256_set1_epi8(0x0F);
    let (inits, bytes) = (ROWS * 16 * S, a_bytes(S));
    let mut raw = [0u8; 8];
    // SAFETY: stores go to k-blocks below `blocks`; loads stay in the matrix.
    unsafe {
        let table = table(0);
        for r in 0..ROWS {
            // 64 elements: four k-blocks of 16, two of 32.
            for k in (0..blocks).step_by(4 / S) {
                let x = codes32(m, row + r, (first + k) * 16 * S);
                let even = _mm256_shuffle_epi8(table, _mm256_and_si256(x, nibble));
                let odd = _mm256_srli_epi16::<4>(x);
                let odd = _mm256_shuffle_epi8(table, _mm256_and_si256(odd, nibble));
                // Sixteen elements a 128-bit half: 0 and 2 in `low`, 1 and 3 in `high`.
                let (low, high) = (
                    _mm256_unpacklo_epi8(even, odd),
                    _mm256_unpackhi_epi8(even, odd),
                );
                let parts = [
                    _mm256_castsi256_si128(low),
                    _mm256_castsi256_si128(high),
                    _mm256_extracti128_si256::<1>(low),
                    _mm256_extracti128_si256::<1>(high),
                ];
                for j in 0..(4 / S).min(blocks - k) {
                    let block = out.add((k + j) * bytes);
                    let mut sum = 0;
                    for (i, part) in parts[j * S..][..S].iter().enumerate() {
                        _mm_storeu_si128(block.add(16 * (S * r + i)).cast(), *part);
                        let positive = _mm_add_epi8(*part, _mm_set1_epi8(12));
                        let s = _mm_sad_epu8(positive, _mm_setzero_si128());
                        sum += _mm_cvtsi128_si32(s) + _mm_extract_epi16::<4>(s) - 12 * 16;
                    }
                    let init = block.add(inits + 4 * r).cast::<i32>();
                    init.write_unaligned(MAGIC_BITS - 12 * sum);
                }
            }
            for k in (0..blocks).step_by(8) {
                raw.fill(0);
                if row + r < m.rows {
                    m.read_scales(row + r, first + k, &mut raw);
                }
                let mut value = [0f32; 8];
                _mm256_storeu_ps(value.as_mut_ptr(), scales8::<S>(raw));
                for (j, v) in value[..(blocks - k).min(8)].iter().enumerate() {
                    let p = out.add((k + j) * bytes + inits + 4 * (ROWS + r));
                    p.cast::<f32>().write_unaligned(*v);
                }
            }
        }
    }
}

/// Transposes an 8 x 8 matrix of 32-bit words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn transpose8(r: [__m256i; 8]) -> [__m256i; 8] {
    let z = _mm256_setzero_si256();
    let (mut t, mut u, mut out) = ([z; 8], [z; 8], [z; 8]);
    for i in 0..4 {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for i in 0..2 {
        for j in 0..2 {
            u[4 * i + 2 * j] = _mm256_unpacklo_epi64(t[4 * i + j], t[4 * i + j + 2]);
            u[4 * i + 2 * j + 1] = _mm256_unpackhi_epi64(t[4 * i + j], t[4 * i + j + 2]);
        }
    }
    for c in 0..4 {
        out[c] = _mm256_permute2x128_si256::<0x20>(u[c], u[4 + c]);
        out[4 + c] = _mm256_permute2x128_si256::<0x31>(u[c], u[4 + c]);
    }
    out
}

/// Writes the scales of eight columns of a panel's k-block, and their products with -1.5 * 2^23, 64 bytes further.
///
/// # Safety
/// `p`, aligned to 32, must be writable for 96 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn store_scales<const S: usize>(bytes: [u8; 8], p: *mut u8) {
    // Dot products count quarters.
    let s = _mm256_mul_ps(scales8::<S>(bytes), _mm256_set1_ps(0.25));
    // SAFETY: the caller's promise.
    unsafe {
        _mm256_store_ps(p.cast(), s);
        _mm256_store_ps(p.add(64).cast(), _mm256_mul_ps(s, _mm256_set1_ps(-MAGIC)));
    }
}

/// Scales of eight columns (rows of the stored matrix) for eight k-blocks, transposed.
pub unsafe fn scale_bytes8(m: &Operand, row: usize, first: usize) -> [[u8; 8]; 8] {
    let mut out = [[0u8; 8]; 8];
    let mut raw = [0u8; 8];
    for c in 0..8.min(m.rows.saturating_sub(row)) {
        // SAFETY: a row inside the matrix.
        unsafe { m.read_scales(row + c, first, &mut raw) };
        for (k, byte) in raw.iter().enumerate() {
            out[k][c] = *byte;
        }
    }
    out
}

/// The eight codes of each 32-bit word, one a byte: the first four, the last four.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn each_code(words: __m256i) -> [__m256i; 2] {
    // Each of two bytes of a word twice, low word half or high.
    let order = |x: i64| {
        let high = x + 0x0808_0808_0808_0808;
        _mm256_setr_epi64x(x, high, x, high)
    };
    let mut out = [order(0x0505_0404_0101_0000), order(0x0707_0606_0303_0202)];
    for v in out.iter_mut() {
        // A byte twice, its low nibble in the first copy and its high one in the second.
        let x = _mm256_shuffle_epi8(words, *v);
        let low = _mm256_and_si256(x, _mm256_set1_epi16(0x000F));
        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(x), _mm256_set1_epi16(0x0F00));
        *v = _mm256_or_si256(low, high);
    }
    out
}

/// Unpacks columns `col..col + 16` of B (rows of the stored matrix, missing ones as zeros), k-blocks `first..`.
///
/// # Safety
/// `m` must describe readable memory; `out`, aligned to 32, be writable for `blocks * b_bytes(S)` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn panel_b<const S: usize>(
    m: &Operand,
    col: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    let bytes = b_bytes(S);
    let table = table(12);
    // SAFETY: stores go to k-blocks below `blocks`.
    unsafe {
        for half in 0..2 {
            let row = col + 8 * half;
            for k in (0..blocks).step_by(4 / S) {
                let mut r = [_mm256_setzero_si256(); 8];
                for (i, r) in r.iter_mut().enumerate() {
                    *r = codes32(m, row + i, (first + k) * 16 * S);
                }
                let words = transpose8(r);
                // Word w has elements 8w..8w + 8: k-block w / (2 S), vectors 2 (w mod 2S) and the next.
                for w in 0..2 * S * (4 / S).min(blocks - k) {
                    let block = out.add((k + w / (2 * S)) * bytes);
                    for (part, codes) in each_code(words[w]).iter().enumerate() {
                        let v = _mm256_shuffle_epi8(table, *codes);
                        let q = 2 * (w % (2 * S)) + part;
                        _mm256_store_si256(block.add(64 * q + 32 * half).cast(), v);
                    }
                }
            }
            for k in (0..blocks).step_by(8) {
                let scale = scale_bytes8(m, row, first + k);
                for (j, scale) in scale[..(blocks - k).min(8)].iter().enumerate() {
                    store_scales::<S>(*scale, out.add((k + j) * bytes + 256 * S + 32 * half));
                }
            }
        }
    }
}
