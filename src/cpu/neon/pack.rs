//! Packing for the block-scaled product: groups of four rows of A, panels of eight columns (rows of the stored matrix)
//! of B, both k-block after k-block, straight from quantized rows.

use super::kernel::{a_bytes, b_bytes, ROWS};
use crate::cpu::operand::Operand;
use crate::numerics::{e4m3, e8m0};
use std::arch::aarch64::*;

/// Twice the value of each code.
const HALVES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Twice the values of sixteen elements of a row from element `first` (a multiple of 16); elements past the row's end and
/// rows past the last are 0.
#[inline]
unsafe fn values16(m: &Operand, row: usize, first: usize) -> int8x16_t {
    let left = m.cols.saturating_sub(first);
    // SAFETY: the row has `left` more elements; registers otherwise.
    unsafe {
        if row >= m.rows || left == 0 {
            return vdupq_n_s8(0);
        }
        let p = m.code_row(row, first);
        let codes = if left >= 16 {
            vld1_u8(p)
        } else {
            let mut bytes = [0u8; 8];
            std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), left.div_ceil(2));
            if left % 2 == 1 {
                bytes[left / 2] &= 0x0F;
            }
            vld1_u8(bytes.as_ptr())
        };
        let (even, odd) = (vand_u8(codes, vdup_n_u8(0x0F)), vshr_n_u8::<4>(codes));
        let order = vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd));
        vqtbl1q_s8(vld1q_s8(HALVES.as_ptr()), order)
    }
}

/// Scales of a row's blocks `first..`, times `factor`, to `at(k)`; rows past the last have zeros.
unsafe fn scales<const S: usize>(
    m: &Operand,
    row: usize,
    first: usize,
    blocks: usize,
    factor: f32,
    at: impl Fn(usize) -> *mut f32,
) {
    let mut raw = [0u8; 64];
    for k in (0..blocks).step_by(64) {
        let raw = &mut raw[..(blocks - k).min(64)];
        raw.fill(0);
        if row < m.rows {
            // SAFETY: a row inside the matrix.
            unsafe { m.read_scales(row, first + k, raw) };
        }
        for (j, byte) in raw.iter().enumerate() {
            let s = match S {
                1 => e4m3::decode(*byte & 0x7F),
                _ => e8m0::decode(*byte),
            };
            // SAFETY: the caller's places.
            unsafe { at(k + j).write(s * factor) };
        }
    }
}

/// Packs rows `row..row + 4` (missing ones as zeros) of A, k-blocks `first..first + blocks`.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `blocks * a_bytes(S)` bytes.
pub unsafe fn group_a<const S: usize>(
    m: &Operand,
    row: usize,
    first: usize,
    blocks: usize,
    out: *mut u8,
) {
    let bytes = a_bytes(S);
    for r in 0..ROWS {
        // SAFETY: stores go to k-blocks below `blocks`.
        unsafe {
            for k in 0..blocks {
                for part in 0..S {
                    let v = values16(m, row + r, (first + k) * 16 * S + 16 * part);
                    vst1q_s8(out.add(k * bytes + 16 * (S * r + part)).cast(), v);
                }
            }
            let at = |k| out.add(k * bytes + 16 * S * ROWS + 4 * r).cast();
            scales::<S>(m, row + r, first, blocks, 1.0, at);
        }
    }
}

/// Unpacks columns `col..col + 8` of B (missing ones as zeros), k-blocks `first..first + blocks`.
///
/// # Safety
/// As `group_a`, with `blocks * b_bytes(S)` bytes.
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
        for k in 0..blocks {
            for part in 0..S {
                for half in 0..2 {
                    let word = |c: usize| {
                        let k = (first + k) * 16 * S + 16 * part;
                        vreinterpretq_u32_s8(values16(m, col + 4 * half + c, k))
                    };
                    // Interleaves words: for every four k the bytes of four columns.
                    let p = out.add(k * bytes + 64 * (S * half + part));
                    vst4q_u32(p.cast(), uint32x4x4_t(word(0), word(1), word(2), word(3)));
                }
            }
        }
        for c in 0..8 {
            // Dot products count quarters.
            let at = |k| out.add(k * bytes + 128 * S + 4 * c).cast();
            scales::<S>(m, col + c, first, blocks, 0.25, at);
        }
    }
}
