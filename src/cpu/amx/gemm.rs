//! A tile of D on tile registers.

use super::{bf16, int8, pack};
use crate::cpu::operand::Operand;
use crate::cpu::packing::{Held, Packing};
use std::ops::Range;

/// A tile kernel with its packing. A step is 32 elements along k.
///
/// # Safety
/// `pack_*` write `steps` steps of `*_BYTES` each, and `group` reads as many and adds to ROWS x COLS of `acc`.
pub unsafe trait Tiles {
    const ROWS: usize;
    const COLS: usize;
    /// Bytes of a step of a group of A, and of a panel of B.
    const A_BYTES: usize;
    const B_BYTES: usize;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8);
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8);
    unsafe fn group(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize);
}

/// Mode BLOCK of blocks of 32.
pub struct Int8;

// SAFETY: these modules' contracts.
unsafe impl Tiles for Int8 {
    const ROWS: usize = int8::ROWS;
    const COLS: usize = int8::COLS;
    const A_BYTES: usize = int8::a_bytes(2);
    const B_BYTES: usize = int8::b_bytes(2);

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::int8_a(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { pack::int8_b(m, col, first, steps, out) }
    }
    unsafe fn group(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize) {
        // SAFETY: as above.
        unsafe { int8::group::<2>(a, b, acc, ld, steps) }
    }
}

/// Mode FAST, blocks of S times 16.
pub struct Bf16<const S: usize>;

// SAFETY: these modules' contracts.
unsafe impl<const S: usize> Tiles for Bf16<S> {
    const ROWS: usize = bf16::ROWS;
    const COLS: usize = bf16::COLS;
    const A_BYTES: usize = bf16::STEP_BYTES;
    const B_BYTES: usize = bf16::STEP_BYTES;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::bf16_a::<S>(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { pack::bf16_b::<S>(m, col, first, steps, out) }
    }
    unsafe fn group(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize) {
        // SAFETY: as above.
        unsafe { bf16::group(a, b, acc, ld, steps) }
    }
}

/// Bytes of a tile's rows of A up to which they stay packed from one tile to the next.
const KEPT: usize = 5 << 18;
/// Bytes of an unpacked panel of B.
const PANEL: usize = 64 << 10;

#[repr(C, align(64))]
struct Stage([f32; 32 * 32]);

/// Writes the accumulators of D's tile `rows` x `cols` to `acc`, rows `ld` apart; whole panels of T::COLS columns are
/// written, so `ld` is at least the tile's columns rounded up to that.
///
/// # Safety
/// `a` and `b` must describe readable memory of one K, `acc` be writable for the tile; the processor must be able to
/// run T's kernel.
pub unsafe fn tile<T: Tiles>(
    a: &Operand,
    b: &Operand,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    let steps = a.cols.div_ceil(32);
    let groups = rows.len().div_ceil(T::ROWS);
    let panels = cols.len().div_ceil(T::COLS);
    let b_depth = (PANEL / T::B_BYTES).min(steps);
    let a_depth = if steps * groups * T::A_BYTES <= KEPT {
        steps
    } else {
        b_depth
    };
    // SAFETY: groups and panels cover the tile; buffers are sized for what is packed into them.
    unsafe {
        for r in 0..rows.len() {
            acc.add(r * ld).write_bytes(0, panels * T::COLS);
        }
        let packed_a = scratch.a.reserve(groups * a_depth * T::A_BYTES);
        let packed_b = scratch.b.reserve(b_depth * T::B_BYTES);
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
                    let out = packed_a.add(g * a_steps * T::A_BYTES);
                    T::pack_a(a, rows.start + g * T::ROWS, a_first, a_steps, out);
                }
                scratch.held = key;
            }
            for p in 0..panels {
                for first in (0..a_steps).step_by(b_depth.max(1)) {
                    let n = b_depth.min(a_steps - first);
                    T::pack_b(b, cols.start + p * T::COLS, a_first + first, n, packed_b);
                    for g in 0..groups {
                        let x = packed_a.add((g * a_steps + first) * T::A_BYTES);
                        let c = acc.add(g * T::ROWS * ld + p * T::COLS);
                        let left = rows.len() - g * T::ROWS;
                        if left >= T::ROWS {
                            T::group(x, packed_b, c, ld, n);
                        } else {
                            // Rows that are not D's go nowhere.
                            let mut stage = Stage([0.0; 32 * 32]);
                            for r in 0..left {
                                let to = stage.0[32 * r..].as_mut_ptr();
                                std::ptr::copy_nonoverlapping(c.add(r * ld), to, T::COLS);
                            }
                            T::group(x, packed_b, stage.0.as_mut_ptr(), 32, n);
                            for r in 0..left {
                                let from = stage.0[32 * r..].as_ptr();
                                std::ptr::copy_nonoverlapping(from, c.add(r * ld), T::COLS);
                            }
                        }
                    }
                }
            }
        }
    }
}
