//! Weights packed once (`nvfp4_pack_weight`): a panel is 32 columns of B (rows of the stored matrix) as two halves of
//! sixteen, a half k-block after k-block. A k-block: for every four k 32 bytes, byte 4 c + i with k i's code of column c
//! in its low nibble and of column c + 8 in its high one; then sixteen scale bytes. Unpacking it needs no transposition.

use super::kernel::b_bytes;
use super::pack::{codes32, each_code, scale_bytes8, store_scales, table, transpose8};
use crate::cpu::operand::Operand;
use crate::cpu::weight::PANEL;
use std::arch::x86_64::*;

/// Bytes of a k-block of S times 16 elements of a half.
const fn block_bytes(s: usize) -> usize {
    128 * s + 16
}

/// Bytes of a panel.
pub fn panel_bytes(m: &Operand) -> usize {
    2 * m.scale_cols() * block_bytes(m.block / 16)
}

/// Packs panel `panel` of a weight.
///
/// # Safety
/// `m` must describe readable memory, `out` be writable for `panel_bytes(m)`; the processor must be able to run this.
pub unsafe fn pack_panel(m: &Operand, panel: usize, out: *mut u8) {
    for half in 0..2 {
        let col = PANEL * panel + 16 * half;
        // SAFETY: the caller's promise.
        unsafe {
            let out = out.add(half * panel_bytes(m) / 2);
            match m.block {
                16 => pack_half::<1>(m, col, out),
                _ => pack_half::<2>(m, col, out),
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn pack_half<const S: usize>(m: &Operand, col: usize, out: *mut u8) {
    let blocks = m.scale_cols();
    // SAFETY: stores go to k-blocks below `blocks`.
    unsafe {
        for k in (0..blocks).step_by(4 / S) {
            let mut r = [[_mm256_setzero_si256(); 8]; 2];
            for (i, r) in r.iter_mut().flatten().enumerate() {
                *r = codes32(m, col + i, k * 16 * S);
            }
            let (low, high) = (transpose8(r[0]), transpose8(r[1]));
            // Word w has elements 8w..8w + 8: k-block w / (2 S), vectors 2 (w mod 2S) and the next.
            for w in 0..2 * S * (4 / S).min(blocks - k) {
                let block = out.add((k + w / (2 * S)) * block_bytes(S));
                let (low, high) = (each_code(low[w]), each_code(high[w]));
                for part in 0..2 {
                    let v = _mm256_or_si256(low[part], _mm256_slli_epi16::<4>(high[part]));
                    let q = 2 * (w % (2 * S)) + part;
                    _mm256_storeu_si256(block.add(32 * q).cast(), v);
                }
            }
        }
        for k in (0..blocks).step_by(8) {
            for half in 0..2 {
                let scale = scale_bytes8(m, col + 8 * half, k);
                for (j, scale) in scale[..(blocks - k).min(8)].iter().enumerate() {
                    let p = out.add((k + j) * block_bytes(S) + 128 * S + 8 * half);
                    p.cast::<[u8; 8]>().write_unaligned(*scale);
                }
            }
        }
    }
}

/// The panels of a weight, of `blocks` k-blocks.
pub struct Panels {
    pub data: *const u8,
    pub blocks: usize,
}

/// Unpacks columns `col..col + 16` (a multiple of 16), k-blocks `first..first + steps`, as `pack::panel_b` does.
///
/// # Safety
/// The panels must hold them; `out`, aligned to 32, be writable for `steps * b_bytes(S)` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn unpack<const S: usize>(
    m: &Panels,
    col: usize,
    first: usize,
    steps: usize,
    out: *mut u8,
) {
    let (table, nibble) = (table(12), _mm256_set1_epi8(0x0F));
    // SAFETY: k-blocks of the half; prefetches never fault.
    unsafe {
        let half = m.data.add(col / 16 * m.blocks * block_bytes(S));
        for k in 0..steps {
            let from = half.add((first + k) * block_bytes(S));
            let to = out.add(k * b_bytes(S));
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(2048).cast());
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(2048 + 64).cast());
            for q in 0..4 * S {
                let x = _mm256_loadu_si256(from.add(32 * q).cast());
                let low = _mm256_and_si256(x, nibble);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(x), nibble);
                let p = to.add(64 * q);
                _mm256_store_si256(p.cast(), _mm256_shuffle_epi8(table, low));
                _mm256_store_si256(p.add(32).cast(), _mm256_shuffle_epi8(table, high));
            }
            for half in 0..2 {
                let bytes = from.add(128 * S + 8 * half).cast::<[u8; 8]>();
                store_scales::<S>(bytes.read_unaligned(), to.add(256 * S + 32 * half));
            }
        }
    }
}
