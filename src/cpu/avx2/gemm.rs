//! Block-scaled products (mode BLOCK) at 256 bits, one tile of D at a time.

use super::kernel::{self, a_bytes, b_bytes, COLS, ROWS};
use super::pack;
use crate::cpu::operand::Operand;
use crate::cpu::packing::{Held, Packing};
use std::ops::Range;

/// k-blocks of 16 of an unpacked panel of B: 24 KiB, so that it stays in L1 while rows of A pass by.
const DEPTH: usize = 64;
/// k-blocks of 16 up to which a tile's rows of A stay packed from one tile to the next: 1.5 MiB.
const KEPT: usize = 512;

/// Writes the accumulators of D's tile `rows` x `cols` to `acc`, rows `ld` apart; whole panels of 16 columns are
/// written, so `ld` is at least the tile's columns rounded up to 16. `VNNI`: by AVX-VNNI.
///
/// # Safety
/// `a` and `b` must describe readable memory of one K, `acc` be writable for the tile; the processor must be able to
/// run this.
#[allow(clippy::too_many_arguments)]
pub unsafe fn tile<const VNNI: bool>(
    a: &Operand,
    b: &Operand,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match a.block {
            16 => tile_of::<1, VNNI>(a, b, rows, cols, scratch, acc, ld),
            _ => tile_of::<2, VNNI>(a, b, rows, cols, scratch, acc, ld),
        }
    }
}

unsafe fn tile_of<const S: usize, const VNNI: bool>(
    a: &Operand,
    b: &Operand,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    let blocks = a.scale_cols();
    let groups = rows.len().div_ceil(ROWS);
    let panels = cols.len().div_ceil(COLS);
    // SAFETY: groups and panels cover the tile; buffers are sized for what is packed into them.
    unsafe {
        for r in 0..rows.len() {
            acc.add(r * ld).write_bytes(0, panels * COLS);
        }
        let a_depth = if blocks * S <= KEPT {
            blocks
        } else {
            KEPT / (2 * S)
        };
        let b_depth = (DEPTH / S).min(blocks);
        let packed_a = scratch.a.reserve(groups * a_depth * a_bytes(S));
        let packed_b = scratch.b.reserve(b_depth * b_bytes(S));
        for a_first in (0..blocks).step_by(a_depth.max(1)) {
            let a_blocks = a_depth.min(blocks - a_first);
            let key = Some(Held {
                codes: a.codes as usize,
                first_row: rows.start,
                rows: rows.len(),
                first_block: a_first,
                blocks: a_blocks,
            });
            if scratch.held != key {
                for g in 0..groups {
                    let out = packed_a.add(g * a_blocks * a_bytes(S));
                    pack::group_a::<S>(a, rows.start + g * ROWS, a_first, a_blocks, out);
                }
                scratch.held = key;
            }
            for p in 0..panels {
                for first in (0..a_blocks).step_by(b_depth.max(1)) {
                    let n = b_depth.min(a_blocks - first);
                    pack::panel_b::<S>(b, cols.start + p * COLS, a_first + first, n, packed_b);
                    for g in 0..groups {
                        let x = packed_a.add((g * a_blocks + first) * a_bytes(S));
                        let c = acc.add(g * ROWS * ld + p * COLS);
                        let left = (rows.len() - g * ROWS).min(ROWS);
                        if VNNI {
                            kernel::group_avxvnni::<S>(left, x, packed_b, c, ld, n);
                        } else {
                            kernel::group_avx2::<S>(left, x, packed_b, c, ld, n);
                        }
                    }
                }
            }
        }
    }
}
