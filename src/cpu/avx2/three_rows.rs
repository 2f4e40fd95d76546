//! The block-scaled product of three rows by sixteen columns in assembly: six sums, six block sums, two vectors of B, one
//! of A and one product fill the sixteen registers exactly. The compiler orders the same operations row by row instead,
//! which moves twenty vectors a step through memory. 100 instructions a block of 16, which is 1,536 operations.

use super::kernel::{a_bytes, b_bytes, ROWS};
use std::arch::asm;

/// Ones, for sums of neighbours.
#[repr(align(32))]
struct Ones([i16; 16]);
static ONES: Ones = Ones([1; 16]);

/// Four k of one row, at `a`: block sums `t0` and `t1` of two column halves begin (`=`) or grow (`+`). B is in ymm12 and
/// ymm13.
macro_rules! row {
    (= $a:expr, $t0:literal, $t1:literal) => {
        concat!(
            "vpbroadcastd ymm14, [{a} + ",
            $a,
            "]\n",
            "vpmaddubsw ",
            $t0,
            ", ymm12, ymm14\n",
            "vpmaddubsw ",
            $t1,
            ", ymm13, ymm14\n",
        )
    };
    (+ $a:expr, $t0:literal, $t1:literal) => {
        concat!(
            "vpbroadcastd ymm14, [{a} + ",
            $a,
            "]\n",
            "vpmaddubsw ymm15, ymm12, ymm14\n",
            "vpaddw ",
            $t0,
            ", ",
            $t0,
            ", ymm15\n",
            "vpmaddubsw ymm14, ymm13, ymm14\n",
            "vpaddw ",
            $t1,
            ", ",
            $t1,
            ", ymm14\n",
        )
    };
}

/// Four k of all rows, the q-th; rows of A are `$row` bytes apart.
macro_rules! step {
    ($op:tt $row:literal, $q:literal) => {
        concat!(
            "vmovdqa ymm12, [{b} + 64 * ", $q, "]\n",
            "vmovdqa ymm13, [{b} + 64 * ", $q, " + 32]\n",
            row!($op concat!("4 * ", $q), "ymm6", "ymm7"),
            row!($op concat!($row, " + 4 * ", $q), "ymm8", "ymm9"),
            row!($op concat!("2 * ", $row, " + 4 * ", $q), "ymm10", "ymm11"),
        )
    };
}

/// A row's block sums of 16 bits in 32 (ymm15: ones), from the row's starting value on: 1.5 * 2^23 by their bits, more.
macro_rules! widen {
    ($r:literal, $t0:literal, $t1:literal) => {
        concat!(
            "vpbroadcastd ymm14, [{a} + {inits} + 4 * ",
            $r,
            "]\n",
            "vpmaddwd ",
            $t0,
            ", ",
            $t0,
            ", ymm15\n",
            "vpmaddwd ",
            $t1,
            ", ",
            $t1,
            ", ymm15\n",
            "vpaddd ",
            $t0,
            ", ",
            $t0,
            ", ymm14\n",
            "vpaddd ",
            $t1,
            ", ",
            $t1,
            ", ymm14\n",
        )
    };
}

/// A column half of all rows, as floats, times the columns' scales without the bits' surplus.
macro_rules! columns {
    ($half:literal, $t0:literal, $t1:literal, $t2:literal) => {
        concat!(
            "vmovaps ymm12, [{b} + {scales} + 32 * ",
            $half,
            "]\n",
            "vmovaps ymm13, [{b} + {scales} + 64 + 32 * ",
            $half,
            "]\n",
            "vfmadd213ps ",
            $t0,
            ", ymm12, ymm13\n",
            "vfmadd213ps ",
            $t1,
            ", ymm12, ymm13\n",
            "vfmadd213ps ",
            $t2,
            ", ymm12, ymm13\n",
        )
    };
}

/// A row's terms, times its scale, to its sums.
macro_rules! sums {
    ($r:literal, $t0:literal, $t1:literal, $s0:literal, $s1:literal) => {
        concat!(
            "vbroadcastss ymm14, [{a} + {inits} + 12 + 4 * ",
            $r,
            "]\n",
            "vfmadd231ps ",
            $s0,
            ", ",
            $t0,
            ", ymm14\n",
            "vfmadd231ps ",
            $s1,
            ", ",
            $t1,
            ", ymm14\n",
        )
    };
}

macro_rules! product {
    ($name:ident, $s:literal, $first:expr $(, $next:expr)*) => {
        /// acc += A B over `blocks` k-blocks (at least one); three rows of 16 of `acc`, `ld` f32 apart.
        ///
        /// # Safety
        /// As `kernel`'s products.
        #[target_feature(enable = "avx2,fma")]
        pub unsafe fn $name(a: *const u8, b: *const u8, acc: *mut f32, ld: usize, blocks: usize) {
            const { assert!(ROWS == 3) };
            // SAFETY: the caller's promise: every address lies in the block that a and b point to, or in three rows.
            unsafe {
                asm!(
                    "vmovups ymm0, [{acc}]",
                    "vmovups ymm1, [{acc} + 32]",
                    "vmovups ymm2, [{acc} + {ld}]",
                    "vmovups ymm3, [{acc} + {ld} + 32]",
                    "vmovups ymm4, [{acc} + 2 * {ld}]",
                    "vmovups ymm5, [{acc} + 2 * {ld} + 32]",
                    "2:",
                    $first,
                    $($next,)*
                    "vmovdqa ymm15, [{ones}]",
                    widen!("0", "ymm6", "ymm7"),
                    widen!("1", "ymm8", "ymm9"),
                    widen!("2", "ymm10", "ymm11"),
                    columns!("0", "ymm6", "ymm8", "ymm10"),
                    columns!("1", "ymm7", "ymm9", "ymm11"),
                    sums!("0", "ymm6", "ymm7", "ymm0", "ymm1"),
                    sums!("1", "ymm8", "ymm9", "ymm2", "ymm3"),
                    sums!("2", "ymm10", "ymm11", "ymm4", "ymm5"),
                    "add {a}, {a_bytes}",
                    "add {b}, {b_bytes}",
                    "dec {n}",
                    "jnz 2b",
                    "vmovups [{acc}], ymm0",
                    "vmovups [{acc} + 32], ymm1",
                    "vmovups [{acc} + {ld}], ymm2",
                    "vmovups [{acc} + {ld} + 32], ymm3",
                    "vmovups [{acc} + 2 * {ld}], ymm4",
                    "vmovups [{acc} + 2 * {ld} + 32], ymm5",
                    a = inout(reg) a => _,
                    b = inout(reg) b => _,
                    n = inout(reg) blocks => _,
                    acc = in(reg) acc,
                    ld = in(reg) 4 * ld,
                    ones = in(reg) &ONES.0,
                    inits = const 16 * $s * ROWS,
                    scales = const 256 * $s,
                    a_bytes = const a_bytes($s),
                    b_bytes = const b_bytes($s),
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                    out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                    out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                    out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                    options(nostack),
                );
            }
        }
    };
}

product!(
    block16,
    1,
    step!(= "16", "0"),
    step!(+ "16", "1"),
    step!(+ "16", "2"),
    step!(+ "16", "3")
);
product!(
    block32,
    2,
    step!(= "32", "0"),
    step!(+ "32", "1"),
    step!(+ "32", "2"),
    step!(+ "32", "3"),
    step!(+ "32", "4"),
    step!(+ "32", "5"),
    step!(+ "32", "6"),
    step!(+ "32", "7")
);
