//! The BF16 pass-through format: a matrix cast to bf16, as it is or transposed.

use super::gemm::pack::transpose16;
use super::lanes::*;
use super::quantize::mask16;
use crate::cpu::Tile;
use crate::numerics::{Dtype, Nonfinite};
use crate::plan::{Matrix, Quantized};
use std::arch::x86_64::*;

/// Sixteen f32 to bf16 in the high halves; a NaN becomes the quiet one of its sign.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub fn cast(x: __m512) -> __m512i {
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    let y = _mm512_castps_si512(round_bf16(x));
    let quiet = _mm512_or_si512(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(i32::MIN)),
        _mm512_set1_epi32(0x7FC0_0000),
    );
    _mm512_mask_mov_epi32(y, nan, quiet)
}

/// Writes the copy's part of a tile. False under SATURATE, which the scalar code does.
///
/// # Safety
/// The tile must lie inside matrix and copy; the processor must be able to run this.
pub unsafe fn tile(
    x: &Matrix,
    out: &Quantized,
    columnwise: bool,
    nonfinite: Nonfinite,
    tile: &Tile,
) -> bool {
    if nonfinite == Nonfinite::Saturate {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match (x.dtype, columnwise) {
            (Dtype::F32, false) => rows::<F32>(x, out, tile),
            (Dtype::Bf16, false) => rows::<BF16>(x, out, tile),
            (Dtype::F16, false) => rows::<F16>(x, out, tile),
            (Dtype::F32, true) => columns::<F32>(x, out, tile),
            (Dtype::Bf16, true) => columns::<BF16>(x, out, tile),
            (Dtype::F16, true) => columns::<F16>(x, out, tile),
        }
    }
    true
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn rows<const DT: u8>(x: &Matrix, out: &Quantized, tile: &Tile) {
    for row in tile.rows.clone() {
        for col in tile.cols.clone().step_by(16) {
            let mask = mask16(tile.cols.end - col);
            // SAFETY: the mask ends with the tile.
            unsafe {
                let v = cast(load_masked::<DT>(x.at(row, col), mask));
                let half = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(v));
                let p = out.codes.add(row * out.code_stride + 2 * col);
                _mm256_mask_storeu_epi16(p.cast(), mask, half);
            }
        }
    }
}

/// 32 rows by 16 columns at a time: a row and its successor share 32-bit words, so that one transposition of words
/// leaves 32 elements of a column in each vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn columns<const DT: u8>(x: &Matrix, out: &Quantized, tile: &Tile) {
    for row in tile.rows.clone().step_by(32) {
        let height = 32.min(tile.rows.end - row);
        let keep = if height == 32 {
            !0
        } else {
            (1u32 << height) - 1
        };
        for col in tile.cols.clone().step_by(16) {
            let width = 16.min(tile.cols.end - col);
            let mask = mask16(width);
            let mut words = [_mm512_setzero_si512(); 16];
            let line = |r: usize| {
                if r < height {
                    // SAFETY: row and masked columns lie inside the tile.
                    cast(unsafe { load_masked::<DT>(x.at(row + r, col), mask) })
                } else {
                    _mm512_setzero_si512()
                }
            };
            for (i, word) in words.iter_mut().enumerate() {
                // The high half of the word from the odd row.
                let low = _mm512_srli_epi32::<16>(line(2 * i));
                *word = _mm512_or_si512(low, line(2 * i + 1));
            }
            for (c, v) in transpose16(words).into_iter().enumerate().take(width) {
                // SAFETY: the mask ends with the copy's row.
                unsafe {
                    let p = out.codes.add((col + c) * out.code_stride + 2 * row);
                    _mm512_mask_storeu_epi16(p.cast(), keep, v);
                }
            }
        }
    }
}
