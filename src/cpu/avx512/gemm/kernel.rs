//! Inner kernels of the block-scaled product: eight rows by 32 columns, one k-block a step.
//!
//! Codes are exact integers (twice the E2M1 value; B's plus 12, so that they are unsigned), and vpdpbusd adds four
//! products a lane. The accumulator starts at 0x4B400000 - 12 * sum(a): as an integer it cancels B's offset, read as a
//! float it is 1.5 * 2^23 plus the dot product. One FMA with (sB, -1.5 * 2^23 * sB) makes that dot * sB, exactly (16
//! bits); one more with sA adds the block's term, rounding once. Six instructions for 256 products.

use std::arch::x86_64::*;

/// Bits of 1.5 * 2^23.
pub const MAGIC_BITS: i32 = 0x4B40_0000;
pub const MAGIC: f32 = 12_582_912.0;
/// Rows of a packed group of A and columns of a panel of B.
pub const ROWS: usize = 8;
pub const COLS: usize = 32;

/// Bytes of one k-block of `s` times 16 elements of a packed group of A: codes of eight rows as i8, the accumulators'
/// starting values, the scales.
pub const fn a_bytes(s: usize) -> usize {
    ROWS * 16 * s + ROWS * 8
}

/// Bytes of one k-block of an unpacked panel of B: four vectors of four k by 16 columns each for two column halves,
/// scales, and scales times -1.5 * 2^23.
pub const fn b_bytes(s: usize) -> usize {
    512 * s + 256
}

/// acc += A B over `blocks` k-blocks of 16 (S = 1) or 32 (S = 2) elements. `acc` is row-major with `ld` f32 between
/// rows; its first `R` rows of 32 are read and written.
///
/// # Safety
/// `a` holds `blocks * a_bytes(S)` bytes, `b` `blocks * b_bytes(S)` bytes aligned to 64, `acc` R rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn block16<const R: usize>(
    mut a: *const u8,
    mut b: *const u8,
    acc: *mut f32,
    ld: usize,
    blocks: usize,
) {
    // SAFETY: the caller's promise; every load below stays inside the block that a and b point to.
    unsafe {
        let mut sum = [[_mm512_setzero_ps(); 2]; R];
        for (r, s) in sum.iter_mut().enumerate() {
            *s = [
                _mm512_loadu_ps(acc.add(r * ld)),
                _mm512_loadu_ps(acc.add(r * ld + 16)),
            ];
        }
        for _ in 0..blocks {
            let v: [__m512i; 8] = core::array::from_fn(|i| _mm512_load_si512(b.add(64 * i).cast()));
            let (s0, s1) = (
                _mm512_load_ps(b.add(512).cast()),
                _mm512_load_ps(b.add(576).cast()),
            );
            let (c0, c1) = (
                _mm512_load_ps(b.add(640).cast()),
                _mm512_load_ps(b.add(704).cast()),
            );
            for (r, s) in sum.iter_mut().enumerate() {
                let mut t0 = _mm512_set1_epi32(*a.add(128 + 4 * r).cast::<i32>());
                let mut t1 = t0;
                for q in 0..4 {
                    let x = _mm512_set1_epi32(*a.add(16 * r + 4 * q).cast::<i32>());
                    t0 = _mm512_dpbusd_epi32(t0, v[2 * q], x);
                    t1 = _mm512_dpbusd_epi32(t1, v[2 * q + 1], x);
                }
                let f0 = _mm512_fmadd_ps(_mm512_castsi512_ps(t0), s0, c0);
                let f1 = _mm512_fmadd_ps(_mm512_castsi512_ps(t1), s1, c1);
                let scale = _mm512_set1_ps(*a.add(160 + 4 * r).cast::<f32>());
                s[0] = _mm512_fmadd_ps(f0, scale, s[0]);
                s[1] = _mm512_fmadd_ps(f1, scale, s[1]);
            }
            a = a.add(a_bytes(1));
            b = b.add(b_bytes(1));
        }
        for (r, s) in sum.iter().enumerate() {
            _mm512_storeu_ps(acc.add(r * ld), s[0]);
            _mm512_storeu_ps(acc.add(r * ld + 16), s[1]);
        }
    }
}

/// The same for blocks of 32. B's sixteen vectors don't fit in registers beside the sums, so they stream from L1 past
/// at most six rows of accumulators.
///
/// # Safety
/// As `block16`, with S = 2; `first` is the row inside the group that `acc` starts at.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn block32<const R: usize>(
    mut a: *const u8,
    first: usize,
    mut b: *const u8,
    acc: *mut f32,
    ld: usize,
    blocks: usize,
) {
    // SAFETY: as above.
    unsafe {
        let mut sum = [[_mm512_setzero_ps(); 2]; R];
        for (r, s) in sum.iter_mut().enumerate() {
            *s = [
                _mm512_loadu_ps(acc.add(r * ld)),
                _mm512_loadu_ps(acc.add(r * ld + 16)),
            ];
        }
        for _ in 0..blocks {
            let codes = a.add(32 * first);
            let (init, scales) = (a.add(256 + 4 * first), a.add(288 + 4 * first));
            let mut t = [[_mm512_setzero_si512(); 2]; R];
            for (r, t) in t.iter_mut().enumerate() {
                *t = [_mm512_set1_epi32(*init.add(4 * r).cast::<i32>()); 2];
            }
            for q in 0..8 {
                let v0 = _mm512_load_si512(b.add(128 * q).cast());
                let v1 = _mm512_load_si512(b.add(128 * q + 64).cast());
                for (r, t) in t.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*codes.add(32 * r + 4 * q).cast::<i32>());
                    t[0] = _mm512_dpbusd_epi32(t[0], v0, x);
                    t[1] = _mm512_dpbusd_epi32(t[1], v1, x);
                }
            }
            let (s0, s1) = (
                _mm512_load_ps(b.add(1024).cast()),
                _mm512_load_ps(b.add(1088).cast()),
            );
            let (c0, c1) = (
                _mm512_load_ps(b.add(1152).cast()),
                _mm512_load_ps(b.add(1216).cast()),
            );
            for (r, s) in sum.iter_mut().enumerate() {
                let f0 = _mm512_fmadd_ps(_mm512_castsi512_ps(t[r][0]), s0, c0);
                let f1 = _mm512_fmadd_ps(_mm512_castsi512_ps(t[r][1]), s1, c1);
                let scale = _mm512_set1_ps(*scales.add(4 * r).cast::<f32>());
                s[0] = _mm512_fmadd_ps(f0, scale, s[0]);
                s[1] = _mm512_fmadd_ps(f1, scale, s[1]);
            }
            a = a.add(a_bytes(2));
            b = b.add(b_bytes(2));
        }
        for (r, s) in sum.iter().enumerate() {
            _mm512_storeu_ps(acc.add(r * ld), s[0]);
            _mm512_storeu_ps(acc.add(r * ld + 16), s[1]);
        }
    }
}

/// One group (`rows` of its eight) times one unpacked panel.
///
/// # Safety
/// As `block16` and `block32`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn group<const S: usize>(
    rows: usize,
    a: *const u8,
    b: *const u8,
    acc: *mut f32,
    ld: usize,
    blocks: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if S == 1 {
            match rows {
                1 => block16::<1>(a, b, acc, ld, blocks),
                2 => block16::<2>(a, b, acc, ld, blocks),
                3 => block16::<3>(a, b, acc, ld, blocks),
                4 => block16::<4>(a, b, acc, ld, blocks),
                5 => block16::<5>(a, b, acc, ld, blocks),
                6 => block16::<6>(a, b, acc, ld, blocks),
                7 => block16::<7>(a, b, acc, ld, blocks),
                _ => block16::<8>(a, b, acc, ld, blocks),
            }
        } else {
            // Two halves of four rows: t and sums take sixteen registers each way.
            match rows.min(4) {
                1 => block32::<1>(a, 0, b, acc, ld, blocks),
                2 => block32::<2>(a, 0, b, acc, ld, blocks),
                3 => block32::<3>(a, 0, b, acc, ld, blocks),
                _ => block32::<4>(a, 0, b, acc, ld, blocks),
            }
            let acc = acc.wrapping_add(4 * ld);
            match rows.saturating_sub(4) {
                0 => {}
                1 => block32::<1>(a, 4, b, acc, ld, blocks),
                2 => block32::<2>(a, 4, b, acc, ld, blocks),
                3 => block32::<3>(a, 4, b, acc, ld, blocks),
                _ => block32::<4>(a, 4, b, acc, ld, blocks),
            }
        }
    }
}
