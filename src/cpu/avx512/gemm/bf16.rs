//! Products with a bf16 operand (mode BLOCK): acc = fma(a_k, b_k, acc) in ascending k, at the rate of f32 FMA.

use super::pack::transpose16;
use crate::cpu::avx512::lanes::widen_bf16;
use crate::cpu::avx512::quantize::mask16;
use crate::cpu::packing::Packing;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows of a packed group of A, columns of a panel of B, and k of both.
const ROWS: usize = 12;
const COLS: usize = 32;
const DEPTH: usize = 768;

/// A bf16 matrix as the kernel reads it.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub data: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    pub rows: usize,
    pub cols: usize,
}

/// Packs sixteen rows (missing ones as zeros), `k` in `first..first + depth`, k-major: element (k, row) at
/// `out[k * width + row]` for the first `keep` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn pack16(
    m: &Values,
    row: usize,
    first: usize,
    depth: usize,
    keep: usize,
    out: *mut f32,
    width: usize,
) {
    let store = mask16(keep);
    for k in (0..depth).step_by(16) {
        let n = (depth - k).min(16);
        let mut r = [_mm512_setzero_si512(); 16];
        for (i, r) in r
            .iter_mut()
            .enumerate()
            .take(m.rows.saturating_sub(row).min(keep))
        {
            // SAFETY: rows and columns inside the matrix, by the mask.
            let x = unsafe {
                let p = m.data.add((row + i) * m.stride + 2 * (first + k));
                _mm256_maskz_loadu_epi16(mask16(n), p.cast())
            };
            *r = _mm512_castps_si512(widen_bf16(x));
        }
        let t = transpose16(r);
        for (i, t) in t.iter().enumerate().take(n) {
            // SAFETY: row k + i of the packed block has `width` >= keep elements from here.
            unsafe { _mm512_mask_storeu_epi32(out.add((k + i) * width).cast(), store, *t) };
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn kernel<const R: usize>(
    mut a: *const f32,
    mut b: *const f32,
    depth: usize,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller packed `depth` steps of A and B; acc has R rows of 32.
    unsafe {
        let mut sum = [[_mm512_setzero_ps(); 2]; R];
        for (r, s) in sum.iter_mut().enumerate() {
            *s = [
                _mm512_loadu_ps(acc.add(r * ld)),
                _mm512_loadu_ps(acc.add(r * ld + 16)),
            ];
        }
        for _ in 0..depth {
            let (b0, b1) = (_mm512_load_ps(b), _mm512_load_ps(b.add(16)));
            for (r, s) in sum.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*a.add(r));
                s[0] = _mm512_fmadd_ps(x, b0, s[0]);
                s[1] = _mm512_fmadd_ps(x, b1, s[1]);
            }
            a = a.add(ROWS);
            b = b.add(COLS);
        }
        for (r, s) in sum.iter().enumerate() {
            _mm512_storeu_ps(acc.add(r * ld), s[0]);
            _mm512_storeu_ps(acc.add(r * ld + 16), s[1]);
        }
    }
}

/// As `gemm::tile`, for two bf16 operands.
///
/// # Safety
/// As `gemm::tile`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn tile(
    a: &Values,
    b: &Values,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    let groups = rows.len().div_ceil(ROWS);
    let panels = cols.len().div_ceil(COLS);
    scratch.forget();
    // SAFETY: groups and panels cover the tile; buffers are sized for what is packed into them.
    unsafe {
        for r in 0..rows.len() {
            acc.add(r * ld).write_bytes(0, panels * COLS);
        }
        let depth = DEPTH.min(a.cols);
        let packed_a = scratch.a.reserve(groups * ROWS * depth * 4).cast::<f32>();
        let packed_b = scratch.b.reserve(COLS * depth * 4).cast::<f32>();
        for first in (0..a.cols).step_by(DEPTH) {
            let depth = DEPTH.min(a.cols - first);
            for g in 0..groups {
                let out = packed_a.add(g * ROWS * depth);
                pack16(a, rows.start + g * ROWS, first, depth, ROWS, out, ROWS);
            }
            for p in 0..panels {
                let col = cols.start + p * COLS;
                pack16(b, col, first, depth, 16, packed_b, COLS);
                pack16(b, col + 16, first, depth, 16, packed_b.add(16), COLS);
                for g in 0..groups {
                    let x = packed_a.add(g * ROWS * depth);
                    let c = acc.add(g * ROWS * ld + p * COLS);
                    macro_rules! rows {
                        ($($r:literal)*) => {
                            match (rows.len() - g * ROWS).min(ROWS) {
                                $($r => kernel::<$r>(x, packed_b, depth, c, ld),)*
                                _ => {}
                            }
                        };
                    }
                    rows!(1 2 3 4 5 6 7 8 9 10 11 12);
                }
            }
        }
    }
}
