//! Inner kernels of the block-scaled product at 256 bits: three rows by sixteen columns, one k-block a step.
//!
//! Codes are exact integers: twice the E2M1 value for A (at most 12), the same plus 12 for B (at most 24, unsigned).
//! AVX-VNNI adds four products a 32-bit lane. Plain AVX2 adds two products a 16-bit lane (at most 576) and sums a
//! whole block there (at most 8 * 576, far from overflow) before one widening. Either way the integer then holds
//! 0x4B400000 + dot - 12 * sum(a) + 12 * sum(a): read as a float, 1.5 * 2^23 plus the dot product. One FMA with
//! (sB, -1.5 * 2^23 * sB) makes that dot * sB, exactly; one more with sA adds the block's term, rounding once.
//!
//! Three rows by two vectors: six integer sums and six float sums leave registers for two vectors of B and one of A,
//! so that B is loaded once for three rows.

use super::three_rows;
use std::arch::x86_64::*;

/// Bits of 1.5 * 2^23.
pub const MAGIC_BITS: i32 = 0x4B40_0000;
pub const MAGIC: f32 = 12_582_912.0;
/// Rows of a packed group of A and columns of a panel of B.
pub const ROWS: usize = 3;
pub const COLS: usize = 16;

/// Bytes of one k-block of `s` times 16 elements of a packed group of A: codes as i8, starting values, scales.
pub const fn a_bytes(s: usize) -> usize {
    ROWS * 16 * s + ROWS * 8
}

/// Bytes of one k-block of an unpacked panel of B: vectors of four k by eight columns, for two column halves; scales;
/// scales times -1.5 * 2^23.
pub const fn b_bytes(s: usize) -> usize {
    256 * s + 128
}

/// How an instruction set sums a block's products: a start, one vector more, and the sum as an integer.
mod avx2 {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub fn start(_: __m256i) -> __m256i {
        _mm256_setzero_si256()
    }
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub fn add(t: __m256i, b: __m256i, a: __m256i) -> __m256i {
        _mm256_add_epi16(t, _mm256_maddubs_epi16(b, a))
    }
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub fn finish(t: __m256i, init: __m256i) -> __m256i {
        _mm256_add_epi32(_mm256_madd_epi16(t, _mm256_set1_epi16(1)), init)
    }
}

mod avxvnni {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx2,fma,avxvnni")]
    pub fn start(init: __m256i) -> __m256i {
        init
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,avxvnni")]
    pub fn add(t: __m256i, b: __m256i, a: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(t, b, a)
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,avxvnni")]
    pub fn finish(t: __m256i, _: __m256i) -> __m256i {
        t
    }
}

macro_rules! kernels {
    ($group:ident, $product:ident, $isa:ident, $three:expr, $features:literal) => {
        /// acc += A B over `blocks` k-blocks of 16 (S = 1) or 32 (S = 2) elements. `acc` is row-major with `ld` f32
        /// between rows; its first `R` rows of 16 are read and written.
        ///
        /// # Safety
        /// `a` holds `blocks * a_bytes(S)` bytes, `b` `blocks * b_bytes(S)` bytes aligned to 32, `acc` R rows.
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
                let mut sum = [[_mm256_setzero_ps(); 2]; R];
                for (r, s) in sum.iter_mut().enumerate() {
                    *s = [
                        _mm256_loadu_ps(acc.add(r * ld)),
                        _mm256_loadu_ps(acc.add(r * ld + 8)),
                    ];
                }
                let inits = 16 * S * ROWS;
                let scales = inits + 4 * ROWS;
                for _ in 0..blocks {
                    let init = |r: usize| {
                        _mm256_set1_epi32(a.add(inits + 4 * r).cast::<i32>().read_unaligned())
                    };
                    let mut t = [[_mm256_setzero_si256(); 2]; R];
                    for (r, t) in t.iter_mut().enumerate() {
                        *t = [$isa::start(init(r)); 2];
                    }
                    for q in 0..4 * S {
                        let v0 = _mm256_load_si256(b.add(64 * q).cast());
                        let v1 = _mm256_load_si256(b.add(64 * q + 32).cast());
                        for (r, t) in t.iter_mut().enumerate() {
                            let p = a.add(16 * S * r + 4 * q).cast::<i32>();
                            let x = _mm256_set1_epi32(p.read_unaligned());
                            t[0] = $isa::add(t[0], v0, x);
                            t[1] = $isa::add(t[1], v1, x);
                        }
                    }
                    let at = |i: usize| b.add(256 * S + 32 * i).cast::<f32>();
                    let (s0, s1) = (_mm256_load_ps(at(0)), _mm256_load_ps(at(1)));
                    let (c0, c1) = (_mm256_load_ps(at(2)), _mm256_load_ps(at(3)));
                    for (r, s) in sum.iter_mut().enumerate() {
                        let t0 = $isa::finish(t[r][0], init(r));
                        let t1 = $isa::finish(t[r][1], init(r));
                        let f0 = _mm256_fmadd_ps(_mm256_castsi256_ps(t0), s0, c0);
                        let f1 = _mm256_fmadd_ps(_mm256_castsi256_ps(t1), s1, c1);
                        let scale =
                            _mm256_set1_ps(a.add(scales + 4 * r).cast::<f32>().read_unaligned());
                        s[0] = _mm256_fmadd_ps(f0, scale, s[0]);
                        s[1] = _mm256_fmadd_ps(f1, scale, s[1]);
                    }
                    a = a.add(a_bytes(S));
                    b = b.add(b_bytes(S));
                }
                for (r, s) in sum.iter().enumerate() {
                    _mm256_storeu_ps(acc.add(r * ld), s[0]);
                    _mm256_storeu_ps(acc.add(r * ld + 8), s[1]);
                }
            }
        }

        /// One group (`rows` of its three) times one unpacked panel.
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
                    _ => $three(a, b, acc, ld, blocks),
                }
            }
        }
    };
}

/// Three rows by AVX2.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn three_avx2<const S: usize>(
    a: *const u8,
    b: *const u8,
    acc: *mut f32,
    ld: usize,
    blocks: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match S {
            _ if blocks == 0 => {}
            1 => three_rows::block16(a, b, acc, ld, blocks),
            _ => three_rows::block32(a, b, acc, ld, blocks),
        }
    }
}

kernels!(group_avx2, product_avx2, avx2, three_avx2::<S>, "avx2,fma");
kernels!(
    group_avxvnni,
    product_avxvnni,
    avxvnni,
    product_avxvnni::<S, 3>,
    "avx2,fma,avxvnni"
);
