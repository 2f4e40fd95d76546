//! 32 rows by 32 columns of D from bf16 values, 32 elements along k a step: four tiles of sums, two of A, two of B.

use super::{release, Shapes};
use std::arch::asm;

pub const ROWS: usize = 32;
pub const COLS: usize = 32;
/// Elements along k of one step.
pub const DEPTH: usize = 32;
/// Bytes of one step of a packed group of A (two tiles of sixteen rows of 32 values), and of a panel of B (two tiles of
/// sixteen columns: for every two k a row of sixteen columns' pairs).
pub const STEP_BYTES: usize = 2048;

/// acc (32 x 32, `ld` f32 from row to row) += A B over `steps` steps.
///
/// # Safety
/// `a` and `b` hold `steps * STEP_BYTES` bytes; `acc` holds 32 rows of 32; `missing` returned None.
pub unsafe fn group(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, steps: usize) {
    let shapes = Shapes::new([(16, 64); 8]);
    // SAFETY: the caller's promise; all tiles are 1 KiB.
    unsafe {
        shapes.load();
        asm!(
            "tileloadd tmm0, [{acc} + 1*{ld}]",
            "tileloadd tmm1, [{acc} + 1*{ld} + 64]",
            "tileloadd tmm2, [{low} + 1*{ld}]",
            "tileloadd tmm3, [{low} + 1*{ld} + 64]",
            "test {n}, {n}",
            "jz 3f",
            "2:",
            "tileloadd tmm4, [{a} + 1*{stride}]",
            "tileloadd tmm6, [{b} + 1*{stride}]",
            "tileloadd tmm5, [{a} + 1*{stride} + 1024]",
            "tileloadd tmm7, [{b} + 1*{stride} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 2048",
            "add {b}, 2048",
            "dec {n}",
            "jnz 2b",
            "3:",
            "tilestored [{acc} + 1*{ld}], tmm0",
            "tilestored [{acc} + 1*{ld} + 64], tmm1",
            "tilestored [{low} + 1*{ld}], tmm2",
            "tilestored [{low} + 1*{ld} + 64], tmm3",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            n = inout(reg) steps => _,
            acc = in(reg) acc,
            low = in(reg) acc.add(16 * ld),
            ld = in(reg) 4 * ld,
            stride = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
        release();
    }
}
