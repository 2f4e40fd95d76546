//! Products of two bf16 operands (mode BLOCK): acc = fma(a_k, b_k, acc) in ascending k, six rows by sixteen columns.

use crate::cpu::packing::Packing;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows of a packed group of A, columns of a panel of B, and k of both.
const ROWS: usize = 6;
const COLS: usize = 16;
const DEPTH: usize = 384;

/// A bf16 matrix as the kernel reads it.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub data: *const u8,
    /// Bytes from row to row.
    pub stride: usize,
    pub rows: usize,
    pub cols: usize,
}

/// Packs `width` rows from `row` (missing ones as zeros), k in `first..first + depth`, k-major.
unsafe fn pack(m: &Values, row: usize, width: usize, first: usize, depth: usize, out: *mut f32) {
    for i in 0..width {
        for k in 0..depth {
            // SAFETY: rows and columns inside the matrix; `out` holds depth * width values.
            unsafe {
                let bits = if row + i < m.rows {
                    let p = m.data.add((row + i) * m.stride + 2 * (first + k));
                    p.cast::<u16>().read_unaligned()
                } else {
                    0
                };
                out.add(k * width + i)
                    .write(f32::from_bits((bits as u32) << 16));
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn kernel<const R: usize>(
    mut a: *const f32,
    mut b: *const f32,
    depth: usize,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller packed `depth` steps of A and B; acc has R rows of 16.
    unsafe {
        let mut sum = [[_mm256_setzero_ps(); 2]; R];
        for (r, s) in sum.iter_mut().enumerate() {
            *s = [
                _mm256_loadu_ps(acc.add(r * ld)),
                _mm256_loadu_ps(acc.add(r * ld + 8)),
            ];
        }
        for _ in 0..depth {
            let (b0, b1) = (_mm256_load_ps(b), _mm256_load_ps(b.add(8)));
            for (r, s) in sum.iter_mut().enumerate() {
                let x = _mm256_set1_ps(*a.add(r));
                s[0] = _mm256_fmadd_ps(x, b0, s[0]);
                s[1] = _mm256_fmadd_ps(x, b1, s[1]);
            }
            a = a.add(ROWS);
            b = b.add(COLS);
        }
        for (r, s) in sum.iter().enumerate() {
            _mm256_storeu_ps(acc.add(r * ld), s[0]);
            _mm256_storeu_ps(acc.add(r * ld + 8), s[1]);
        }
    }
}

/// As `gemm::tile`, for two bf16 operands.
///
/// # Safety
/// As `gemm::tile`.
#[target_feature(enable = "avx2,fma")]
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
                pack(a, rows.start + g * ROWS, ROWS, first, depth, out);
            }
            for p in 0..panels {
                pack(b, cols.start + p * COLS, COLS, first, depth, packed_b);
                for g in 0..groups {
                    let x = packed_a.add(g * ROWS * depth);
                    let c = acc.add(g * ROWS * ld + p * COLS);
                    match (rows.len() - g * ROWS).min(ROWS) {
                        1 => kernel::<1>(x, packed_b, depth, c, ld),
                        2 => kernel::<2>(x, packed_b, depth, c, ld),
                        3 => kernel::<3>(x, packed_b, depth, c, ld),
                        4 => kernel::<4>(x, packed_b, depth, c, ld),
                        5 => kernel::<5>(x, packed_b, depth, c, ld),
                        _ => kernel::<6>(x, packed_b, depth, c, ld),
                    }
                }
            }
        }
    }
}
