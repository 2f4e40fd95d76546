//! Packing for the block-scaled product: groups of eight rows of A, panels of 32 columns (rows of the stored matrix) of
//! B, both k-block after k-block, straight from quantized rows or from a weight packed before.

use super::kernel::*;
use crate::cpu::operand::{Operand, SAFE_LOW};
use std::arch::x86_64::*;

/// Twice the value of each code, as i8, and the same plus 12, as u8; four copies, since vpermb reads six bits.
const SIGNED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const fn table(offset: i8) -> [i8; 64] {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 64 {
        t[i] = SIGNED[i % 16] + offset;
        i += 1;
    }
    t
}
pub static TABLE_A: [i8; 64] = table(0);
static TABLE_B: [i8; 64] = table(12);

/// 64 bytes of codes (128 elements) of a row from element `first`; bytes past the row's end, and the spare nibble of an
/// odd row, are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn codes64(m: &Operand, row: usize, first: usize) -> __m512i {
    let left = m.cols.saturating_sub(first);
    // SAFETY: the mask ends at the row's last byte.
    unsafe {
        if row >= m.rows || left == 0 {
            return _mm512_setzero_si512();
        }
        let p = m.code_row(row, first).cast::<i8>();
        if left >= 128 {
            return _mm512_loadu_si512(p.cast());
        }
        // 1 to 64 bytes: 127 elements take all 64.
        let x = _mm512_maskz_loadu_epi8(!0u64 >> (64 - left.div_ceil(2)), p);
        if left % 2 == 1 {
            let last = 1u64 << (left / 2);
            return low_nibble(x, last);
        }
        x
    }
}

/// The byte in `mask` cut to its low nibble.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn low_nibble(x: __m512i, mask: u64) -> __m512i {
    let low = _mm512_and_si512(x, _mm512_set1_epi8(0x0F));
    _mm512_mask_mov_epi8(x, mask, low)
}

/// Sixteen scale bytes to f32. E4M3 by way of the half format (a shift by 7 puts exponent and mantissa in place, eight
/// binades low), which keeps clear of f32 subnormals and their slow path; the sign bit is ignored and 0x7F is NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn scales16<const S: usize>(bytes: __m128i) -> __m512 {
    if S == 1 {
        let m = _mm_and_si128(bytes, _mm_set1_epi8(0x7F));
        let nan = _mm_cmpeq_epi8_mask(m, _mm_set1_epi8(0x7F));
        let half = _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(m));
        let v = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0));
        _mm512_mask_mov_ps(v, nan, _mm512_set1_ps(f32::NAN))
    } else {
        // Bytes under SAFE_LOW belong to blocks of zeros (`mx_is_safe` saw to it): a scale of 0 does for them.
        let low = _mm_cmplt_epu8_mask(bytes, _mm_set1_epi8(SAFE_LOW as i8));
        let nan = _mm_cmpeq_epi8_mask(bytes, _mm_set1_epi8(-1));
        let bits = _mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(bytes));
        let v = _mm512_maskz_mov_ps(!low, _mm512_castsi512_ps(bits));
        _mm512_mask_mov_ps(v, nan, _mm512_set1_ps(f32::NAN))
    }
}

/// Packs rows `row..row + 8` (missing ones as zeros) of A, k-blocks `first..first + blocks`.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `blocks * a_bytes(S)` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn group_a<const S: usize>(
    m: &Operand,
    row: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    let bytes = a_bytes(S);
    let row_bytes = 16 * S;
    // SAFETY: stores go to k-blocks below `blocks`; loads are masked to the matrix.
    unsafe {
        let table = _mm512_loadu_si512(TABLE_A.as_ptr().cast());
        for r in 0..ROWS {
            // 128 elements: eight k-blocks of 16, four of 32.
            for k in (0..blocks).step_by(8 / S) {
                let x = codes64(m, row + r, (first + k) * row_bytes);
                let even = _mm512_permutexvar_epi8(x, table);
                let odd = _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(x), table);
                // Lane j of `low` has the sixteen elements of bytes 16j..16j + 8, of `high` those of the next eight.
                let low = _mm512_unpacklo_epi8(even, odd);
                let high = _mm512_unpackhi_epi8(even, odd);
                let parts = [
                    _mm512_extracti32x4_epi32::<0>(low),
                    _mm512_extracti32x4_epi32::<0>(high),
                    _mm512_extracti32x4_epi32::<1>(low),
                    _mm512_extracti32x4_epi32::<1>(high),
                    _mm512_extracti32x4_epi32::<2>(low),
                    _mm512_extracti32x4_epi32::<2>(high),
                    _mm512_extracti32x4_epi32::<3>(low),
                    _mm512_extracti32x4_epi32::<3>(high),
                ];
                let n = (8 / S).min(blocks - k);
                for (j, part) in parts.iter().enumerate().take(n * S) {
                    let p = out.add((k + j / S) * bytes + r * row_bytes + 16 * (j % S));
                    _mm_storeu_si128(p.cast(), *part);
                }
            }
        }
        for k in 0..blocks {
            let p = out.add(k * bytes);
            let sums = row_sums::<S>(p);
            let twelve =
                _mm256_add_epi32(_mm256_slli_epi32::<3>(sums), _mm256_slli_epi32::<2>(sums));
            let init = _mm256_sub_epi32(_mm256_set1_epi32(MAGIC_BITS), twelve);
            _mm256_storeu_si256(p.add(ROWS * row_bytes).cast(), init);
        }
        let mut raw = [0u8; 16];
        let mut value = [[0f32; 16]; ROWS];
        for k in (0..blocks).step_by(16) {
            for (r, value) in value.iter_mut().enumerate() {
                if row + r < m.rows {
                    m.read_scales(row + r, first + k, &mut raw);
                } else {
                    raw = [0; 16];
                }
                let v = scales16::<S>(_mm_loadu_si128(raw.as_ptr().cast()));
                _mm512_storeu_ps(value.as_mut_ptr(), v);
            }
            for j in 0..(blocks - k).min(16) {
                let p = out
                    .add((k + j) * bytes + ROWS * row_bytes + 32)
                    .cast::<f32>();
                for (r, value) in value.iter().enumerate() {
                    *p.add(r) = value[j];
                }
            }
        }
    }
}

/// Sums of the codes of each of the eight rows of one packed k-block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn row_sums<const S: usize>(p: *const u8) -> __m256i {
    let ones = _mm512_set1_epi8(1);
    let zero = _mm512_setzero_si512();
    // Four partial sums a row: rows 0..4 and 4..8.
    // SAFETY: 128 * S bytes of codes at p.
    let (x, y) = unsafe {
        let load = |i: usize| _mm512_loadu_si512(p.add(64 * i).cast());
        if S == 1 {
            (
                _mm512_dpbusd_epi32(zero, ones, load(0)),
                _mm512_dpbusd_epi32(zero, ones, load(1)),
            )
        } else {
            // Two 128-bit lanes a row: add them, then bring rows side by side.
            let halves: [__m512i; 4] =
                core::array::from_fn(|i| _mm512_dpbusd_epi32(zero, ones, load(i)));
            let join = |a, b| {
                _mm512_add_epi32(
                    _mm512_shuffle_i32x4::<0x88>(a, b),
                    _mm512_shuffle_i32x4::<0xDD>(a, b),
                )
            };
            (join(halves[0], halves[1]), join(halves[2], halves[3]))
        }
    };
    let x = _mm512_add_epi32(x, _mm512_shuffle_epi32::<0xB1>(x));
    let y = _mm512_add_epi32(y, _mm512_shuffle_epi32::<0xB1>(y));
    let z = _mm512_mask_blend_epi32(0xAAAA, x, y);
    let z = _mm512_add_epi32(z, _mm512_shuffle_epi32::<0x4E>(z));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, z))
}

/// Transposes a 16 x 16 matrix of 32-bit words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn transpose16(r: [__m512i; 16]) -> [__m512i; 16] {
    let z = _mm512_setzero_si512();
    let mut t = [z; 16];
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    let mut u = [z; 16];
    for i in 0..4 {
        for j in 0..2 {
            u[4 * i + 2 * j] = _mm512_unpacklo_epi64(t[4 * i + j], t[4 * i + j + 2]);
            u[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(t[4 * i + j], t[4 * i + j + 2]);
        }
    }
    // u[4i + c] holds column c (mod 4) of rows 4i..4i + 4 in its 128-bit lanes, lane l for column 4l + c.
    let mut out = [z; 16];
    for c in 0..4 {
        let a = _mm512_shuffle_i32x4::<0x44>(u[c], u[4 + c]);
        let b = _mm512_shuffle_i32x4::<0xEE>(u[c], u[4 + c]);
        let d = _mm512_shuffle_i32x4::<0x44>(u[8 + c], u[12 + c]);
        let e = _mm512_shuffle_i32x4::<0xEE>(u[8 + c], u[12 + c]);
        out[c] = _mm512_shuffle_i32x4::<0x88>(a, d);
        out[4 + c] = _mm512_shuffle_i32x4::<0xDD>(a, d);
        out[8 + c] = _mm512_shuffle_i32x4::<0x88>(b, e);
        out[12 + c] = _mm512_shuffle_i32x4::<0xDD>(b, e);
    }
    out
}

/// Bit offsets that spread the first (or last) sixteen bits of each 32-bit word over its four bytes, a nibble a byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn spread(half: usize) -> __m512i {
    let o = 0x2C28_2420_0C08_0400_i64 + if half == 1 { 0x1010_1010_1010_1010 } else { 0 };
    _mm512_set1_epi64(o)
}

/// Codes of sixteen rows, 128 elements, as 32 vectors in turn: vector v holds elements 4v..4v + 4 of row c in lane c,
/// one a byte, with rubbish above the nibble. Calls `f(v, vector)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn columns16(m: &Operand, row: usize, first: usize) -> [__m512i; 16] {
    let mut r = [_mm512_setzero_si512(); 16];
    for (i, r) in r.iter_mut().enumerate() {
        // SAFETY: codes64 masks what is outside the matrix.
        *r = unsafe { codes64(m, row + i, first) };
    }
    transpose16(r)
}

/// Scales of sixteen columns for sixteen k-blocks, transposed: vector k holds block k's.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn scale_bytes16(m: &Operand, row: usize, first: usize, out: &mut [[u8; 16]; 16]) {
    let mut raw = [0u8; 16];
    for c in 0..16 {
        if row + c < m.rows {
            // SAFETY: a row inside the matrix.
            unsafe { m.read_scales(row + c, first, &mut raw) };
        } else {
            raw = [0; 16];
        }
        for (k, byte) in raw.iter().enumerate() {
            out[k][c] = *byte;
        }
    }
}

/// Scales of a panel's half: dot products count quarters, so a quarter of B's scale, and that times -1.5 * 2^23.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn store_scales_b<const S: usize>(bytes: __m128i, half: usize, block: *mut u8) {
    let s = _mm512_mul_ps(scales16::<S>(bytes), _mm512_set1_ps(0.25));
    // SAFETY: the block's last 256 bytes.
    unsafe {
        _mm512_store_ps(block.add(512 * S + 64 * half).cast(), s);
        let c = _mm512_mul_ps(s, _mm512_set1_ps(-MAGIC));
        _mm512_store_ps(block.add(512 * S + 128 + 64 * half).cast(), c);
    }
}

/// Unpacks columns `col..col + 32` of B (rows of the stored matrix, missing ones as zeros), k-blocks `first..`.
///
/// # Safety
/// `m` must describe readable memory; `out`, aligned to 64, be writable for `blocks * b_bytes(S)` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn panel_b<const S: usize>(
    m: &Operand,
    col: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    let bytes = b_bytes(S);
    // SAFETY: stores go to k-blocks below `blocks`.
    unsafe {
        let table = _mm512_loadu_si512(TABLE_B.as_ptr().cast());
        for half in 0..2 {
            let row = col + 16 * half;
            for k in (0..blocks).step_by(8 / S) {
                let words = columns16(m, row, (first + k) * 16 * S);
                for (w, x) in words
                    .iter()
                    .enumerate()
                    .take(2 * S * (8 / S).min(blocks - k))
                {
                    // Word w has elements 8w..8w + 8: k-block w / (2 S), vectors 2 (w mod 2S) and the next.
                    let block = out.add((k + w / (2 * S)) * bytes);
                    for part in 0..2 {
                        let v = _mm512_multishift_epi64_epi8(spread(part), *x);
                        let q = 2 * (w % (2 * S)) + part;
                        let p = block.add(128 * q + 64 * half);
                        _mm512_store_si512(p.cast(), _mm512_permutexvar_epi8(v, table));
                    }
                }
            }
            let mut scale = [[0u8; 16]; 16];
            for k in (0..blocks).step_by(16) {
                scale_bytes16(m, row, first + k, &mut scale);
                for (j, scale) in scale.iter().enumerate().take((blocks - k).min(16)) {
                    let v = _mm_loadu_si128(scale.as_ptr().cast());
                    store_scales_b::<S>(v, half, out.add((k + j) * bytes));
                }
            }
        }
    }
}

/// Bytes of one k-block of a panel of a packed weight: codes (column c in the low nibble, c + 16 in the high one), then
/// 32 scale bytes.
pub const fn packed_bytes(s: usize) -> usize {
    256 * s + 32
}

/// Packs a panel of a weight for keeping.
///
/// # Safety
/// As `panel_b`, with `blocks * packed_bytes(S)` bytes at `out` (any alignment).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn weight_panel<const S: usize>(m: &Operand, col: usize, blocks: usize, out: *mut u8) {
    let codes_bytes = 256 * S;
    let scales = out.wrapping_add(blocks * codes_bytes);
    let nibble = _mm512_set1_epi8(0x0F);
    // SAFETY: stores go to k-blocks below `blocks`.
    unsafe {
        for k in (0..blocks).step_by(8 / S) {
            let low = columns16(m, col, k * 16 * S);
            let high = columns16(m, col + 16, k * 16 * S);
            for w in 0..2 * S * (8 / S).min(blocks - k) {
                let block = out.add((k + w / (2 * S)) * codes_bytes);
                for part in 0..2 {
                    let l = _mm512_multishift_epi64_epi8(spread(part), low[w]);
                    let h = _mm512_multishift_epi64_epi8(spread(part), high[w]);
                    let h = _mm512_slli_epi16::<4>(_mm512_and_si512(h, nibble));
                    let v = _mm512_ternarylogic_epi32::<0xF8>(h, l, nibble);
                    let q = 2 * (w % (2 * S)) + part;
                    _mm512_storeu_si512(block.add(64 * q).cast(), v);
                }
            }
        }
        let mut scale = [[0u8; 16]; 16];
        for half in 0..2 {
            for k in (0..blocks).step_by(16) {
                scale_bytes16(m, col + 16 * half, k, &mut scale);
                for (j, scale) in scale.iter().enumerate().take((blocks - k).min(16)) {
                    let p = scales.add((k + j) * 32 + 16 * half);
                    std::ptr::copy_nonoverlapping(scale.as_ptr(), p, 16);
                }
            }
        }
    }
}

/// Vectors of one k-block of a packed weight's panel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn open_block<const V: usize>(codes: *const u8) -> [[__m512i; 2]; V] {
    // SAFETY: 64 * V bytes of codes.
    unsafe {
        let table = _mm512_loadu_si512(TABLE_B.as_ptr().cast());
        core::array::from_fn(|q| {
            let x = _mm512_loadu_si512(codes.add(64 * q).cast());
            [
                _mm512_permutexvar_epi8(x, table),
                _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(x), table),
            ]
        })
    }
}

/// Unpacks k-blocks `first..first + blocks` of a packed weight's panel of `total` k-blocks.
///
/// # Safety
/// `panel` must hold the panel, `out` (aligned to 64) be writable for `blocks * b_bytes(S)` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn open_panel<const S: usize>(
    panel: *const u8,
    total: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    // SAFETY: k-blocks below `total`.
    unsafe {
        let scales = panel.add(total * 256 * S);
        for k in 0..blocks {
            let block = out.add(k * b_bytes(S));
            for part in 0..S {
                let v = open_block::<4>(panel.add((first + k) * 256 * S + 256 * part));
                for (q, v) in v.iter().enumerate() {
                    let p = block.add(512 * part + 128 * q);
                    _mm512_store_si512(p.cast(), v[0]);
                    _mm512_store_si512(p.add(64).cast(), v[1]);
                }
            }
            let s = scales.add((first + k) * 32);
            store_scales_b::<S>(_mm_loadu_si128(s.cast()), 0, block);
            store_scales_b::<S>(_mm_loadu_si128(s.add(16).cast()), 1, block);
        }
    }
}
