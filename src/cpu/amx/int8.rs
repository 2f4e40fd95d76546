//! Sixteen rows by sixteen columns of D in mode BLOCK, one block of 16 or 32 along k a step.

use super::{release, Shapes};
use std::arch::asm;
use std::arch::x86_64::*;

pub const ROWS: usize = 16;
pub const COLS: usize = 16;

/// Bytes of one k-block of `s` times 16 elements of a packed group of A: twice the code values as i8, row after row;
/// then sixteen scales as f32.
pub const fn a_bytes(s: usize) -> usize {
    ROWS * 16 * s + 4 * ROWS
}

/// The same of a panel of B: for every four k a row of sixteen columns' bytes; then a quarter of the scales, since dot
/// products count quarters.
pub const fn b_bytes(s: usize) -> usize {
    COLS * 16 * s + 4 * COLS
}

#[repr(C, align(64))]
struct Dots([[i32; COLS]; ROWS]);

/// acc (16 x 16, `ld` f32 from row to row) += A B over `blocks` k-blocks of 16 (S = 1) or 32 (S = 2) elements.
///
/// # Safety
/// `a` holds `blocks * a_bytes(S)` bytes, `b` `blocks * b_bytes(S)`, both aligned to 64; `missing` returned None.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
pub unsafe fn group<const S: usize>(
    mut a: *const u8,
    mut b: *const u8,
    acc: *mut f32,
    ld: usize,
    blocks: usize,
) {
    let (a_tile, b_tile) = ((16, 16 * S as u16), (4 * S as u8, 64));
    let shapes = Shapes::new([
        (16, 64),
        (16, 64),
        a_tile,
        a_tile,
        b_tile,
        b_tile,
        (1, 4),
        (1, 4),
    ]);
    // Two buffers in turn: the vector unit reads one while the tiles fill the other.
    let mut dots = [const { Dots([[0; COLS]; ROWS]) }; 2];
    // SAFETY: the caller's promise; tiles are as large as the memory they are loaded from and stored to.
    unsafe {
        shapes.load();
        let mut sum: [__m512; ROWS] = core::array::from_fn(|r| _mm512_loadu_ps(acc.add(r * ld)));
        if blocks > 0 {
            multiply::<S>(a, b, &mut dots[0]);
        }
        for k in 0..blocks {
            let (next_a, next_b) = (a.add(a_bytes(S)), b.add(b_bytes(S)));
            if k + 1 < blocks {
                multiply::<S>(next_a, next_b, &mut dots[(k + 1) % 2]);
            }
            let d = &dots[k % 2].0;
            let scale_b = _mm512_load_ps(b.add(256 * S).cast());
            let scale_a = a.add(256 * S).cast::<f32>();
            for (r, s) in sum.iter_mut().enumerate() {
                let t = _mm512_cvtepi32_ps(_mm512_load_si512(d[r].as_ptr().cast()));
                // Exact: a dot product of 12 bits or less times a scale of 4.
                let t = _mm512_mul_ps(t, scale_b);
                *s = _mm512_fmadd_ps(t, _mm512_set1_ps(*scale_a.add(r)), *s);
            }
            (a, b) = (next_a, next_b);
        }
        for (r, s) in sum.iter().enumerate() {
            _mm512_storeu_ps(acc.add(r * ld), *s);
        }
        release();
    }
}

/// One block's dot products.
#[inline(always)]
unsafe fn multiply<const S: usize>(a: *const u8, b: *const u8, out: &mut Dots) {
    // SAFETY: the caller's promise; `group` loaded the shapes.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tileloadd tmm2, [{a} + 1*{a_stride}]",
            "tileloadd tmm4, [{b} + 1*{stride}]",
            "tdpbssd tmm0, tmm2, tmm4",
            "tilestored [{out} + 1*{stride}], tmm0",
            a = in(reg) a,
            b = in(reg) b,
            out = in(reg) out,
            a_stride = in(reg) 16 * S,
            stride = in(reg) 64usize,
            out("tmm0") _,
            out("tmm2") _,
            out("tmm4") _,
            options(nostack),
        );
    }
}
