//! Inner kernels of the block-scaled product: four rows by eight columns, one k-block a step.
//!
//! Codes are exact integers, twice the E2M1 value (at most 12). With the dot product instructions (`dotprod`: every
//! Neoverse, Apple and Cortex since 2018) sixteen products a step add up in 32 bits; without them in 16 bits, which hold
//! a block's sum (at most 32 * 144). Integer times sB is exact, and one FMA with sA adds the block's term, rounding once.

use std::arch::aarch64::*;
use std::arch::asm;

/// Rows of a packed group of A and columns of a panel of B.
pub const ROWS: usize = 4;
pub const COLS: usize = 8;

/// Bytes of one k-block of `s` times 16 elements of a packed group of A: codes as i8, scales.
pub const fn a_bytes(s: usize) -> usize {
    ROWS * 16 * s + ROWS * 4
}

/// Bytes of one k-block of an unpacked panel of B: for two halves of four columns and every four k sixteen bytes; then
/// a quarter of the scales.
pub const fn b_bytes(s: usize) -> usize {
    128 * s + 32
}

/// sum += the products of four columns' sixteen k (four vectors) with a row's.
#[inline]
#[target_feature(enable = "dotprod")]
unsafe fn sixteen_dotprod(mut sum: int32x4_t, b: [int8x16_t; 4], a: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "sdot {s:v}.4s, {b0:v}.16b, {a:v}.4b[0]",
            "sdot {s:v}.4s, {b1:v}.16b, {a:v}.4b[1]",
            "sdot {s:v}.4s, {b2:v}.16b, {a:v}.4b[2]",
            "sdot {s:v}.4s, {b3:v}.16b, {a:v}.4b[3]",
            s = inout(vreg) sum,
            a = in(vreg) a,
            b0 = in(vreg) b[0],
            b1 = in(vreg) b[1],
            b2 = in(vreg) b[2],
            b3 = in(vreg) b[3],
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
unsafe fn sixteen_neon(sum: int32x4_t, b: [int8x16_t; 4], a: int8x16_t) -> int32x4_t {
    let words = vreinterpretq_s32_s8(a);
    let a = [
        vreinterpretq_s8_s32(vdupq_laneq_s32::<0>(words)),
        vreinterpretq_s8_s32(vdupq_laneq_s32::<1>(words)),
        vreinterpretq_s8_s32(vdupq_laneq_s32::<2>(words)),
        vreinterpretq_s8_s32(vdupq_laneq_s32::<3>(words)),
    ];
    // Two columns in `low`, two in `high`, four sums of each.
    let mut low = vmull_s8(vget_low_s8(b[0]), vget_low_s8(a[0]));
    let mut high = vmull_high_s8(b[0], a[0]);
    for q in 1..4 {
        low = vmlal_s8(low, vget_low_s8(b[q]), vget_low_s8(a[q]));
        high = vmlal_high_s8(high, b[q], a[q]);
    }
    vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
}

macro_rules! kernels {
    ($group:ident, $product:ident, $sixteen:ident, $features:literal) => {
        /// acc += A B over `blocks` k-blocks of 16 (S = 1) or 32 (S = 2) elements. `acc` is row-major with `ld` f32
        /// between rows; its first `R` rows of 8 are read and written.
        ///
        /// # Safety
        /// `a` holds `blocks * a_bytes(S)` bytes, `b` `blocks * b_bytes(S)`, `acc` R rows.
        #[target_feature(enable = $features)]
        unsafe fn $product<const S: usize, const R: usize>(
            mut a: *const u8,
            mut b: *const u8,
            acc: *mut f32,
            ld: usize,
            blocks: usize,
        ) {
            // SAFETY: the caller's promise; every load below stays inside the block that a and b point to.
            unsafe {
                let mut sum = [[vdupq_n_f32(0.0); 2]; R];
                for (r, s) in sum.iter_mut().enumerate() {
                    *s = [vld1q_f32(acc.add(r * ld)), vld1q_f32(acc.add(r * ld + 4))];
                }
                for _ in 0..blocks {
                    let mut t = [[vdupq_n_s32(0); 2]; R];
                    for part in 0..S {
                        for half in 0..2 {
                            let v = core::array::from_fn(|q| {
                                vld1q_s8(b.add(64 * (S * half + part) + 16 * q).cast())
                            });
                            for (r, t) in t.iter_mut().enumerate() {
                                let x = vld1q_s8(a.add(16 * (S * r + part)).cast());
                                t[half] = $sixteen(t[half], v, x);
                            }
                        }
                    }
                    let scale_b = [0, 1].map(|half| vld1q_f32(b.add(128 * S + 16 * half).cast()));
                    for (r, s) in sum.iter_mut().enumerate() {
                        let scale_a = *a.add(16 * S * ROWS + 4 * r).cast::<f32>();
                        for half in 0..2 {
                            let f = vmulq_f32(vcvtq_f32_s32(t[r][half]), scale_b[half]);
                            s[half] = vfmaq_n_f32(s[half], f, scale_a);
                        }
                    }
                    a = a.add(a_bytes(S));
                    b = b.add(b_bytes(S));
                }
                for (r, s) in sum.iter().enumerate() {
                    vst1q_f32(acc.add(r * ld), s[0]);
                    vst1q_f32(acc.add(r * ld + 4), s[1]);
                }
            }
        }

        /// One group (`rows` of its four) times one unpacked panel.
        ///
        /// # Safety
        /// As the product; the processor must be able to run it.
        #[target_feature(enable = $features)]
        pub unsafe fn $group<const S: usize>(
            rows: usize,
            a: *const u8,
            b: *const u8,
            acc: *mut f32,
            ld: usize,
            blocks: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                match rows {
                    1 => $product::<S, 1>(a, b, acc, ld, blocks),
                    2 => $product::<S, 2>(a, b, acc, ld, blocks),
                    3 => $product::<S, 3>(a, b, acc, ld, blocks),
                    _ => $product::<S, 4>(a, b, acc, ld, blocks),
                }
            }
        }
    };
}

kernels!(
    group_dotprod,
    product_dotprod,
    sixteen_dotprod,
    "neon,dotprod"
);
kernels!(group_neon, product_neon, sixteen_neon, "neon");
