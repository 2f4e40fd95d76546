//! Block-scaled products (mode BLOCK) at 256 bits: S times 16 elements a block; `VNNI`: by AVX-VNNI.

use super::kernel::{self, a_bytes, b_bytes, COLS, ROWS};
use super::pack;
use super::weight::{self, Panels};
use crate::cpu::operand::Operand;
use crate::cpu::packing::Packing;
use crate::cpu::walk::{self, Kernel};
use std::marker::PhantomData;
use std::ops::Range;

/// `R`: what B is.
struct Block<R, const S: usize, const VNNI: bool>(PhantomData<R>);

/// B as it lies, or packed.
pub enum Right<'a> {
    Rows(&'a Operand),
    Packed(Panels),
}

/// Panels of B for the kernels.
unsafe trait Unpack {
    unsafe fn panel<const S: usize>(&self, col: usize, first: usize, steps: usize, out: *mut u8);
}

// SAFETY: `pack::panel_b`'s contract.
unsafe impl Unpack for Operand {
    unsafe fn panel<const S: usize>(&self, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { pack::panel_b::<S>(self, col, first, steps, out) }
    }
}

// SAFETY: `weight::unpack`'s contract.
unsafe impl Unpack for Panels {
    unsafe fn panel<const S: usize>(&self, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { weight::unpack::<S>(self, col, first, steps, out) }
    }
}

// SAFETY: these modules' contracts; callers promise what they need.
unsafe impl<R: Unpack, const S: usize, const VNNI: bool> Kernel for Block<R, S, VNNI> {
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;
    const STEP: usize = 16 * S;
    const A_BYTES: usize = a_bytes(S);
    const B_BYTES: usize = b_bytes(S);
    /// It stays in L1.
    const PANEL: usize = 24 << 10;
    type Right = R;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::group_a::<S>(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &R, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { m.panel::<S>(col, first, steps, out) }
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
            if VNNI {
                kernel::group_avxvnni::<S>(rows, a, b, acc, ld, steps);
            } else {
                kernel::group_avx2::<S>(rows, a, b, acc, ld, steps);
            }
        }
    }
}

/// A tile of D, as `walk::tile` writes it.
///
/// # Safety
/// As `walk::tile`.
pub unsafe fn tile<const VNNI: bool>(
    a: &Operand,
    b: Right,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &mut Packing,
    acc: *mut f32,
    ld: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (a.block, b) {
            (16, Right::Rows(b)) => {
                walk::tile::<Block<_, 1, VNNI>>(a, b, rows, cols, scratch, acc, ld)
            }
            (16, Right::Packed(b)) => {
                walk::tile::<Block<_, 1, VNNI>>(a, &b, rows, cols, scratch, acc, ld)
            }
            (_, Right::Rows(b)) => {
                walk::tile::<Block<_, 2, VNNI>>(a, b, rows, cols, scratch, acc, ld)
            }
            (_, Right::Packed(b)) => {
                walk::tile::<Block<_, 2, VNNI>>(a, &b, rows, cols, scratch, acc, ld)
            }
        }
    }
}
