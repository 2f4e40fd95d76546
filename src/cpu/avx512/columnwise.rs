//! Columnwise (transposed) quantization of tiles of 128 rows by 16 columns. Down a column no shuffle is needed: a
//! vector holds one row of sixteen columns, so that maxima, transform and random bits are lane by lane; only the codes
//! are transposed, 64 bytes of a column at a time, which is one line of the output.

use super::hadamard::{down, down16};
use super::lanes::*;
use super::philox::philox;
use super::quantize::mask16;
use crate::cpu::columns::{Columns, Options, Output, HEIGHT};
use crate::cpu::rule::{Draw, Transform};
use std::arch::x86_64::*;

/// Columns of a piece.
pub const WIDTH: usize = 16;

/// One vector a row.
#[repr(C, align(64))]
struct Stage([f32; 16 * HEIGHT]);

/// Row `r` of the columns as f32; rows and columns that do not exist are +0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn row<const DT: u8>(x: &Columns, r: usize, mask: __mmask16) -> __m512 {
    // SAFETY: row r exists where the mask is used; a masked load touches existing columns only.
    unsafe {
        let p = x.data.wrapping_add(r * x.stride);
        if r >= x.rows {
            _mm512_setzero_ps()
        } else if mask == 0xFFFF {
            _mm_prefetch::<_MM_HINT_T1>(p.wrapping_add(64).cast());
            load::<DT>(p)
        } else {
            load_masked::<DT>(p, mask)
        }
    }
}

/// The largest |x| of each column over some rows, as bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn largest(v: &[__m512; 16]) -> __m512i {
    let mut m = [abs_bits(v[0]), abs_bits(v[1])];
    for i in (2..16).step_by(2) {
        m[0] = _mm512_max_epu32(m[0], abs_bits(v[i]));
        m[1] = _mm512_max_epu32(m[1], abs_bits(v[i + 1]));
    }
    _mm512_max_epu32(m[0], m[1])
}

/// Sixteen rows from row `first`, transformed where the transform is of 16 (a longer one has been staged).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn rows16<const DT: u8>(
    x: &Columns,
    first: usize,
    mask: __mmask16,
    transform: Option<&Transform>,
    staged: Option<&Stage>,
) -> [__m512; 16] {
    let mut v = [_mm512_setzero_ps(); 16];
    // SAFETY: the caller's promise about x; the stage holds HEIGHT rows.
    unsafe {
        if let Some(stage) = staged {
            for (i, v) in v.iter_mut().enumerate() {
                *v = _mm512_load_ps(stage.0.as_ptr().add(16 * (first + i)));
            }
        } else {
            if mask == 0xFFFF && first + 16 <= x.rows {
                for (i, v) in v.iter_mut().enumerate() {
                    let p = x.data.add((first + i) * x.stride);
                    // The line that the next sixteen (or 32) columns start with; prefetches never fault.
                    _mm_prefetch::<_MM_HINT_T1>(p.wrapping_add(64).cast());
                    *v = load::<DT>(p);
                }
            } else {
                for (i, v) in v.iter_mut().enumerate() {
                    *v = row::<DT>(x, first + i, mask);
                }
            }
            if let Some(t) = transform {
                down16(&mut v, t);
            }
        }
    }
    v
}

/// Loads all rows of the tile and runs a transform longer than 16 on them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn stage<const DT: u8>(
    x: &Columns,
    height: usize,
    mask: __mmask16,
    transform: Option<&Transform>,
    out: &mut Stage,
) {
    // SAFETY: rows below HEIGHT of the stage.
    unsafe {
        for r in 0..height.next_multiple_of(16).min(HEIGHT) {
            _mm512_store_ps(out.0.as_mut_ptr().add(16 * r), row::<DT>(x, r, mask));
        }
        if let Some(t) = transform {
            for first in (0..height).step_by(t.n) {
                down(out.0.as_mut_ptr().add(16 * first), t);
            }
        }
    }
}

/// Bits of the largest magnitude of the tile after the transform, NaN and Inf above every finite value.
///
/// # Safety
/// `x` must describe readable memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn amax_bits<const DT: u8>(x: &Columns, transform: Option<&Transform>) -> u32 {
    let mask = mask16(x.cols);
    let mut m = _mm512_setzero_si512();
    let mut staged = Stage([0.0; 16 * HEIGHT]);
    let long = transform.is_some_and(|t| t.n > 16);
    let height = x.height(transform);
    // SAFETY: the caller's promise.
    unsafe {
        if long {
            stage::<DT>(x, height, mask, transform, &mut staged);
        }
        for first in (0..height).step_by(16) {
            let v = rows16::<DT>(x, first, mask, transform, long.then_some(&staged));
            m = _mm512_max_epu32(m, largest(&v));
        }
    }
    _mm512_reduce_max_epu32(m)
}

/// Codes of sixteen rows: two vectors, eight nibble pairs a column, rows 0-7 and 8-15.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn encode<const CLIP: bool>(v: &[__m512; 16], e: __m512, table: __m512i) -> [__m512i; 2] {
    // Rows (0, 1, 4, 5) and (2, 3, 6, 7) of each eight go into one vector's bytes, which leaves the pairs in order.
    let four = |i: usize| {
        codes4(
            [
                nearest::<CLIP, 0>(v[i], e),
                nearest::<CLIP, 1>(v[i + 1], e),
                nearest::<CLIP, 2>(v[i + 4], e),
                nearest::<CLIP, 3>(v[i + 5], e),
            ],
            table,
        )
    };
    [pairs(four(0), four(2)), pairs(four(8), four(10))]
}

/// The same with stochastic rounding, `w` the four random words of each column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn encode_stochastic(
    v: &[__m512; 16],
    e: __m512,
    w: &[__m512i; 4],
    table: __m512i,
) -> [__m512i; 2] {
    let byte = _mm512_set1_epi32(0xFF);
    // Element 4j + i takes byte (0, 2, 1, 3)[i] of word j.
    let random = |i: usize| match i % 4 {
        0 => _mm512_and_si512(w[i / 4], byte),
        1 => _mm512_and_si512(_mm512_srli_epi32::<16>(w[i / 4]), byte),
        2 => _mm512_and_si512(_mm512_srli_epi32::<8>(w[i / 4]), byte),
        _ => _mm512_srli_epi32::<24>(w[i / 4]),
    };
    let four = |i: usize| {
        codes4(
            [
                stochastic::<0>(v[i], e, random(i)),
                stochastic::<1>(v[i + 1], e, random(i + 1)),
                stochastic::<2>(v[i + 4], e, random(i + 4)),
                stochastic::<3>(v[i + 5], e, random(i + 5)),
            ],
            table,
        )
    };
    [pairs(four(0), four(2)), pairs(four(8), four(10))]
}

/// Codes one a byte, of rows (0, 1, 4, 5) and (2, 3, 6, 7), to nibble pairs in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn pairs(a: __m512i, b: __m512i) -> __m512i {
    let a = _mm512_or_si512(a, _mm512_srli_epi16::<4>(a));
    let b = _mm512_or_si512(b, _mm512_srli_epi16::<4>(b));
    let b = _mm512_slli_epi16::<8>(b);
    _mm512_ternarylogic_epi32::<0xF8>(b, a, _mm512_set1_epi16(0x00FF))
}

/// Quantizes the tile. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must describe readable memory.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
pub unsafe fn tile<const DT: u8>(x: &Columns, o: &Options, out: &mut Output) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match o.draw {
            Some(draw) => tile_of::<DT, true>(x, o, draw, out),
            None => {
                let none = Draw {
                    key: [0; 2],
                    offset: [0; 2],
                    row: 0,
                    block: 0,
                };
                tile_of::<DT, false>(x, o, &none, out)
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
unsafe fn tile_of<const DT: u8, const SR: bool>(
    x: &Columns,
    o: &Options,
    draw: &Draw,
    out: &mut Output,
) -> bool {
    let mask = mask16(x.cols);
    let block = o.rule.block();
    let height = x.height(o.transform);
    // SAFETY: a 64-byte constant; blocks below eight; the caller's promise about x.
    unsafe {
        let table = _mm512_loadu_si512(RAW_TO_CODE.as_ptr().cast());
        let mut staged = Stage([0.0; 16 * HEIGHT]);
        let long = block == 32 || o.transform.is_some_and(|t| t.n > 16);
        if long {
            stage::<DT>(x, height, mask, o.transform, &mut staged);
        }
        let staged = long.then_some(&staged);
        let zero = _mm512_setzero_si512();
        // Nibble pairs of each block: columns (0, 1, 4, 5, 8, ...) and (2, 3, 6, 7, 10, ...), eight bytes each.
        let mut packed = [[zero; 2]; 8];
        let mut bytes = [[0u8; 16]; 8];
        let mut bad = false;
        let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let counter = draw.counter();
        let column = _mm512_add_epi32(_mm512_set1_epi32(counter[0] as i32), lane);
        let blocks = height.div_ceil(16);
        let mut b = zero;
        for i in 0..blocks {
            let v = rows16::<DT>(x, 16 * i, mask, o.transform, staged);
            if block == 16 {
                b = largest(&v);
                if o.square {
                    b = _mm512_set1_epi32(_mm512_reduce_max_epu32(b) as i32);
                }
            } else if i % 2 == 0 {
                b = largest(&v);
                if i + 1 < blocks {
                    let next = rows16::<DT>(x, 16 * (i + 1), mask, o.transform, staged);
                    b = _mm512_max_epu32(b, largest(&next));
                }
            }
            let s = scales(b, o.rule);
            let at = 16 * i / block;
            _mm_storeu_si128(bytes[at].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(s.code));
            let d = if SR {
                let first = draw.block.wrapping_add(i as u32);
                let c0 = _mm512_set1_epi32(first as i32);
                let w = philox(c0, column, counter[1], counter[2], draw.key);
                encode_stochastic(&v, s.e, &w, table)
            } else if s.clip != 0 {
                encode::<true>(&v, s.e, table)
            } else {
                encode::<false>(&v, s.e, table)
            };
            // Blocks that are not finite keep codes of 0.
            let d = d.map(|d| _mm512_maskz_mov_epi32(!s.bad, d));
            bad |= s.bad & mask != 0;
            packed[i] = [
                _mm512_unpacklo_epi32(d[0], d[1]),
                _mm512_unpackhi_epi32(d[0], d[1]),
            ];
        }
        store_codes(&packed, out);
        store_scales(&bytes, out);
        bad
    }
}

/// Eight blocks' nibble pairs to 64 bytes a column.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn store_codes(packed: &[[__m512i; 2]; 8], out: &mut Output) {
    for half in 0..2 {
        for odd in 0..2 {
            // 128-bit lane l of t[p]: blocks 2p and 2p + 1 of column 4 l + 2 half + odd.
            let t: [__m512i; 4] = core::array::from_fn(|p| {
                let (a, b) = (packed[2 * p][half], packed[2 * p + 1][half]);
                if odd == 0 {
                    _mm512_unpacklo_epi64(a, b)
                } else {
                    _mm512_unpackhi_epi64(a, b)
                }
            });
            let (a, b) = (
                _mm512_shuffle_i32x4::<0x44>(t[0], t[1]),
                _mm512_shuffle_i32x4::<0xEE>(t[0], t[1]),
            );
            let (c, d) = (
                _mm512_shuffle_i32x4::<0x44>(t[2], t[3]),
                _mm512_shuffle_i32x4::<0xEE>(t[2], t[3]),
            );
            let lines = [
                _mm512_shuffle_i32x4::<0x88>(a, c),
                _mm512_shuffle_i32x4::<0xDD>(a, c),
                _mm512_shuffle_i32x4::<0x88>(b, d),
                _mm512_shuffle_i32x4::<0xDD>(b, d),
            ];
            for (l, line) in lines.into_iter().enumerate() {
                let column = 4 * l + 2 * half + odd;
                // SAFETY: 64 bytes of the column.
                unsafe { _mm512_storeu_si512(out.codes[column].as_mut_ptr().cast(), line) };
            }
        }
    }
}

/// Scale bytes of eight blocks by sixteen columns, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn store_scales(bytes: &[[u8; 16]; 8], out: &mut Output) {
    const ORDER: [[u8; 64]; 2] = {
        let mut t = [[0u8; 64]; 2];
        let mut i = 0;
        while i < 128 {
            // Byte (column, block) from byte (block, column).
            let (column, block) = (i / 8, i % 8);
            t[i / 64][i % 64] = (16 * block + column) as u8;
            i += 1;
        }
        t
    };
    // SAFETY: two vectors of the 128 bytes, in and out.
    unsafe {
        let p = bytes.as_ptr().cast::<u8>();
        let (x, y) = (
            _mm512_loadu_si512(p.cast()),
            _mm512_loadu_si512(p.add(64).cast()),
        );
        for (half, order) in ORDER.iter().enumerate() {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let z = _mm512_permutex2var_epi8(x, order, y);
            let q = out.scales.as_mut_ptr().cast::<u8>().add(64 * half);
            _mm512_storeu_si512(q.cast(), z);
        }
    }
}
