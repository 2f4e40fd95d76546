//! Packing for the tile kernels, straight from quantized rows, 32 elements along k a step.

use super::{bf16, int8};
use crate::cpu::avx512::gemm::pack::{
    codes64, columns16, scale_bytes16, scales16, spread, transpose16, TABLE_A,
};
use crate::cpu::operand::Operand;
use std::arch::x86_64::*;

/// Sixteen rows of A (missing ones as zeros), blocks of 32, for `int8::group::<2>`.
///
/// # Safety
/// `m` must describe readable memory with blocks of 32, `out` be writable for `steps * int8::a_bytes(2)` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn int8_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
    let bytes = int8::a_bytes(2);
    // SAFETY: stores go to steps below `steps`; loads are masked to the matrix.
    unsafe {
        let table = _mm512_loadu_si512(TABLE_A.as_ptr().cast());
        for r in 0..int8::ROWS {
            for k in (0..steps).step_by(4) {
                let x = codes64(m, row + r, (first + k) * 32);
                let even = _mm512_permutexvar_epi8(x, table);
                let odd = _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(x), table);
                // Lane j holds step j: its first sixteen elements in `low`, the others in `high`.
                let mut low = [_mm_setzero_si128(); 4];
                let mut high = low;
                _mm512_storeu_si512(low.as_mut_ptr().cast(), _mm512_unpacklo_epi8(even, odd));
                _mm512_storeu_si512(high.as_mut_ptr().cast(), _mm512_unpackhi_epi8(even, odd));
                for j in 0..(steps - k).min(4) {
                    let p = out.add((k + j) * bytes + 32 * r);
                    _mm_storeu_si128(p.cast(), low[j]);
                    _mm_storeu_si128(p.add(16).cast(), high[j]);
                }
            }
        }
        scales(m, row, first, steps, 1.0, |k| {
            out.add(k * bytes + 512).cast()
        });
    }
}

/// Sixteen columns of B (rows of the stored matrix, missing ones as zeros) for `int8::group::<2>`.
///
/// # Safety
/// As `int8_a`, with `steps * int8::b_bytes(2)` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn int8_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
    let bytes = int8::b_bytes(2);
    // SAFETY: stores go to steps below `steps`.
    unsafe {
        let table = _mm512_loadu_si512(TABLE_A.as_ptr().cast());
        for k in (0..steps).step_by(4) {
            let words = columns16(m, col, (first + k) * 32);
            for (w, x) in words.iter().enumerate().take(4 * (steps - k).min(4)) {
                // Word w has elements 8w..8w + 8: step w / 4, rows 2 (w mod 4) and the next of its tile.
                for part in 0..2 {
                    let v = _mm512_multishift_epi64_epi8(spread(part), *x);
                    let p = out.add((k + w / 4) * bytes + 64 * (2 * (w % 4) + part));
                    _mm512_storeu_si512(p.cast(), _mm512_permutexvar_epi8(v, table));
                }
            }
        }
        scales(m, col, first, steps, 0.25, |k| {
            out.add(k * bytes + 512).cast()
        });
    }
}

/// Scales of sixteen rows times `factor`, to `at(step)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn scales(
    m: &Operand,
    row: usize,
    first: usize,
    steps: usize,
    factor: f32,
    at: impl Fn(usize) -> *mut f32,
) {
    let mut bytes = [[0u8; 16]; 16];
    for k in (0..steps).step_by(16) {
        // SAFETY: blocks of the matrix; the caller's places.
        unsafe {
            scale_bytes16(m, row, first + k, &mut bytes);
            for (j, bytes) in bytes.iter().enumerate().take((steps - k).min(16)) {
                let s = scales16::<2>(_mm_loadu_si128(bytes.as_ptr().cast()));
                _mm512_storeu_ps(at(k + j), _mm512_mul_ps(s, _mm512_set1_ps(factor)));
            }
        }
    }
}

/// Code times block scale of 128 elements of a row, as bf16 (exact): four vectors of 32.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn values128<const S: usize>(m: &Operand, row: usize, first: usize) -> [__m512i; 4] {
    const GRID: [f32; 16] = [
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
    ];
    let (mut words, mut raw, mut scale) = ([0i64; 8], [0u8; 16], [0f32; 16]);
    // SAFETY: masked loads; a row inside the matrix for its scales.
    unsafe {
        let grid = _mm512_loadu_ps(GRID.as_ptr());
        let half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        let shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        _mm512_storeu_si512(words.as_mut_ptr().cast(), codes64(m, row, first));
        if row < m.rows {
            m.read_scales(row, first / (16 * S), &mut raw[..8 / S]);
        }
        let s = scales16::<S>(_mm_loadu_si128(raw.as_ptr().cast()));
        _mm512_storeu_ps(scale.as_mut_ptr(), s);
        let sixteen = |i: usize| {
            let x = _mm512_permutexvar_epi32(half, _mm512_set1_epi64(words[i]));
            let v = _mm512_permutexvar_ps(_mm512_srlv_epi32(x, shift), grid);
            let v = _mm512_mul_ps(v, _mm512_set1_ps(scale[i / S]));
            _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_castps_si512(v)))
        };
        core::array::from_fn(|j| {
            let low = _mm512_castsi256_si512(sixteen(2 * j));
            _mm512_inserti64x4::<1>(low, sixteen(2 * j + 1))
        })
    }
}

/// 32 rows of A (missing ones as zeros) for `bf16::group`; S times 16 elements a block.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `steps * bf16::STEP_BYTES`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn bf16_a<const S: usize>(
    m: &Operand,
    row: usize,
    first: usize,
    steps: usize,
    out: *mut u8,
) {
    for r in 0..bf16::ROWS {
        for k in (0..steps).step_by(4) {
            // SAFETY: stores go to steps below `steps`.
            unsafe {
                let values = values128::<S>(m, row + r, (first + k) * 32);
                for (j, v) in values.iter().enumerate().take((steps - k).min(4)) {
                    let p = out.add((k + j) * bf16::STEP_BYTES + 64 * r);
                    _mm512_storeu_si512(p.cast(), *v);
                }
            }
        }
    }
}

/// 32 columns of B (rows of the stored matrix, missing ones as zeros) for `bf16::group`.
///
/// # Safety
/// As `bf16_a`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn bf16_b<const S: usize>(
    m: &Operand,
    col: usize,
    first: usize,
    steps: usize,
    out: *mut u8,
) {
    for half in 0..2 {
        for k in (0..steps).step_by(4) {
            let mut columns = [[_mm512_setzero_si512(); 16]; 4];
            for c in 0..16 {
                // SAFETY: the caller's promise.
                let values = unsafe { values128::<S>(m, col + 16 * half + c, (first + k) * 32) };
                for (column, v) in columns.iter_mut().zip(values) {
                    column[c] = v;
                }
            }
            for (j, columns) in columns.iter().enumerate().take((steps - k).min(4)) {
                for (pair, v) in transpose16(*columns).iter().enumerate() {
                    // SAFETY: stores go to steps below `steps`.
                    unsafe {
                        let p = out.add((k + j) * bf16::STEP_BYTES + 1024 * half + 64 * pair);
                        _mm512_storeu_si512(p.cast(), *v);
                    }
                }
            }
        }
    }
}
