//! The way through a tile of D that block-scaled products (mode BLOCK) of most instruction sets share: rows of A are
//! packed once for all tiles beside each other, panels of B one after the other.

use super::operand::Operand;
use super::packing::{Held, Packing};
use std::ops::Range;

/// A product's inner kernel with its packing. A step is some elements along k, one block or several.
///
/// # Safety
/// `pack_*` write `steps` steps of `*_BYTES` each, of rows that the operand lacks zeros; `group` reads as many and adds
/// to `rows` x COLS values of `acc`. Callers give memory that holds it, on a processor that can run it.
pub unsafe trait Kernel {
    /// Rows of a packed group of A, columns of a panel of B (rows of the stored matrix), elements of a step.
    const ROWS: usize;
    const COLS: usize;
    const STEP: usize;
    /// Bytes of a step of a group of A, and of a panel of B.
    const A_BYTES: usize;
    const B_BYTES: usize;
    /// Bytes of an unpacked panel of B: it should stay in a near cache while rows of A pass by.
    const PANEL: usize;
    /// What panels of B are made from.
    type Right;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8);
    unsafe fn pack_b(m: &Self::Right, col: usize, first: usize, steps: usize, out: *mut u8);
    unsafe fn group(
        rows: usize,
        a: *const u8,
        b: *const u8,
        acc: *mut f32,
        ld: usize,
        steps: usize,
    );
}

/// Bytes of a tile's rows of A up to which they stay packed from one tile to the next.
const KEPT: usize = 3 << 19;

/// Writes the accumulators of D's tile `rows` x `cols` to `acc`, rows `ld` apart; whole panels of K::COLS columns are
/// written, so `ld` is at least the tile's columns rounded up to that.
///
/// # Safety
/// `a` and `b` must describe readable memory of one K, `acc` be writable for the tile; the processor must be able to
/// run the kernel.
pub unsafe fn tile<K: Kernel>(
    a: &Operand,
    b: &K::Right,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    let steps = a.cols.div_ceil(K::STEP);
    let groups = rows.len().div_ceil(K::ROWS);
    let panels = cols.len().div_ceil(K::COLS);
    let b_depth = (K::PANEL / K::B_BYTES).min(steps);
    let a_depth = if steps * groups * K::A_BYTES <= KEPT {
        steps
    } else {
        b_depth
    };
    // SAFETY: groups and panels cover the tile; buffers are sized for what is packed into them.
    unsafe {
        for r in 0..rows.len() {
            acc.add(r * ld).write_bytes(0, panels * K::COLS);
        }
        let packed_a = scratch.a.reserve(groups * a_depth * K::A_BYTES);
        let packed_b = scratch.b.reserve(b_depth * K::B_BYTES);
        for a_first in (0..steps).step_by(a_depth.max(1)) {
            let a_steps = a_depth.min(steps - a_first);
            let key = Some(Held {
                codes: a.codes as usize,
                first_row: rows.start,
                rows: rows.len(),
                first_block: a_first,
                blocks: a_steps,
            });
            if scratch.held != key {
                for g in 0..groups {
                    let out = packed_a.add(g * a_steps * K::A_BYTES);
                    K::pack_a(a, rows.start + g * K::ROWS, a_first, a_steps, out);
                }
                scratch.held = key;
            }
            for p in 0..panels {
                for first in (0..a_steps).step_by(b_depth.max(1)) {
                    let n = b_depth.min(a_steps - first);
                    K::pack_b(b, cols.start + p * K::COLS, a_first + first, n, packed_b);
                    for g in 0..groups {
                        let x = packed_a.add((g * a_steps + first) * K::A_BYTES);
                        let c = acc.add(g * K::ROWS * ld + p * K::COLS);
                        let left = (rows.len() - g * K::ROWS).min(K::ROWS);
                        K::group(left, x, packed_b, c, ld, n);
                    }
                }
            }
        }
    }
}
