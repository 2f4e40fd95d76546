//! The tile kernels as products use them. A step is 32 elements along k.

use super::{bf16, int8, pack};
use crate::cpu::operand::Operand;
use crate::cpu::walk::Kernel;

/// Mode BLOCK of blocks of 32.
pub struct Int8;

// SAFETY: these modules' contracts.
unsafe impl Kernel for Int8 {
    const ROWS: usize = int8::ROWS;
    const COLS: usize = int8::COLS;
    const STEP: usize = 32;
    const A_BYTES: usize = int8::a_bytes(2);
    const B_BYTES: usize = int8::b_bytes(2);
    const PANEL: usize = 36 << 10;
    type Right = Operand;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::int8_a(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { pack::int8_b(m, col, first, steps, out) }
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
            whole::<Self>(rows, acc, ld, |acc, ld| {
                int8::group::<2>(a, b, acc, ld, steps)
            })
        }
    }
}

/// Mode FAST, blocks of S times 16.
pub struct Bf16<const S: usize>;

// SAFETY: these modules' contracts.
unsafe impl<const S: usize> Kernel for Bf16<S> {
    const ROWS: usize = bf16::ROWS;
    const COLS: usize = bf16::COLS;
    const STEP: usize = 32;
    const A_BYTES: usize = bf16::STEP_BYTES;
    const B_BYTES: usize = bf16::STEP_BYTES;
    const PANEL: usize = 64 << 10;
    type Right = Operand;

    unsafe fn pack_a(m: &Operand, row: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: the caller's promise, here and below.
        unsafe { pack::bf16_a::<S>(m, row, first, steps, out) }
    }
    unsafe fn pack_b(m: &Operand, col: usize, first: usize, steps: usize, out: *mut u8) {
        // SAFETY: as above.
        unsafe { pack::bf16_b::<S>(m, col, first, steps, out) }
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
        unsafe { whole::<Self>(rows, acc, ld, |acc, ld| bf16::group(a, b, acc, ld, steps)) }
    }
}

#[repr(C, align(64))]
struct Stage([f32; 32 * 32]);

/// Calls `group(acc, ld)` for K::ROWS rows; rows from `rows` on, which are not D's, go nowhere.
///
/// # Safety
/// `acc` must hold `rows` rows of K::COLS.
pub unsafe fn whole<K: Kernel>(
    rows: usize,
    acc: *mut f32,
    ld: usize,
    group: impl FnOnce(*mut f32, usize),
) {
    if rows >= K::ROWS {
        return group(acc, ld);
    }
    let mut stage = Stage([0.0; 32 * 32]);
    // SAFETY: rows of D and of the stage, which is as large as the largest tile.
    unsafe {
        for r in 0..rows {
            let to = stage.0[32 * r..].as_mut_ptr();
            std::ptr::copy_nonoverlapping(acc.add(r * ld), to, K::COLS);
        }
        group(stage.0.as_mut_ptr(), 32);
        for r in 0..rows {
            let from = stage.0[32 * r..].as_ptr();
            std::ptr::copy_nonoverlapping(from, acc.add(r * ld), K::COLS);
        }
    }
}
