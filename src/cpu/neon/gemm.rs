//! Block-scaled products (mode BLOCK): S times 16 elements a block; `DOT`: by the dot product instructions.

use super::kernel::{self, a_bytes, b_bytes, COLS, ROWS};
use super::pack;
use crate::cpu::operand::Operand;
use crate::cpu::packing::Packing;
use crate::cpu::walk::{self, Kernel};
use std::ops::Range;

struct Block<const S: usize, const DOT: bool>;

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl<const S: usize, const DOT: bool> Kernel for Block<S, DOT> {
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;
    const STEP: usize = 16 * S;
    const A_BYTES: usize = a_bytes(S);
    const B_BYTES: usize = b_bytes(S);
    /// It stays in L1.
    const PANEL: usize = 24 << 10;
    type Right = Operand;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::group_a::<S>(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { pack::panel_b::<S>(m, col, first, steps, out) }
    }
    unsafe fn group(
        rows: usize,
        a: *const u8,
        b: *const u8,
        acc: *mut f32,
        ld: usize,
        steps: usize,
    ) {
        // SAFETY: as above.
        unsafe {
            if DOT {
                kernel::group_dotprod::<S>(rows, a, b, acc, ld, steps);
            } else {
                kernel::group_neon::<S>(rows, a, b, acc, ld, steps);
            }
        }
    }
}

/// A tile of D, as `walk::tile` writes it.
///
/// # Safety
/// As `walk::tile`.
pub unsafe fn tile<const DOT: bool>(
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
            16 => walk::tile::<Block<1, DOT>>(a, b, rows, cols, scratch, acc, ld),
            _ => walk::tile::<Block<2, DOT>>(a, b, rows, cols, scratch, acc, ld),
        }
    }
}
