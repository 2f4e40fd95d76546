//! HARDWARE: the published bit-level model of Blackwell's FP4 matrix units (MMA-Sim, arXiv 2511.10909), for steps of
//! K = 64 (docs/format.md, section 10). K = 96 extends it by two more groups; that step is our assumption.
//!
//! A step adds the accumulator and one term a group of 16. A group's dot product is exact and is multiplied by both
//! scale significands exactly. All terms are aligned to the largest exponent, truncated towards zero to 35 fractional
//! bits, added exactly, and the sum is truncated to f32.

use super::matrix::Quantized;
use super::{e2m1, Format};
use crate::{Error, Result};

/// K of one instruction.
pub const K64: usize = 64;
pub const K96: usize = 96;
/// Fractional bits below the largest exponent.
const FRACTION_BITS: i32 = 35;
/// Exponent of zeros and of f32 subnormals.
const LOWEST_EXPONENT: i32 = -126;
/// What the unit writes where a scale or the accumulator is NaN.
pub const NAN: u32 = 0x7FFF_FFFF;

/// An exact number: significand * 2^(exponent - fraction_bits). The alignment looks at `exponent` only.
#[derive(Clone, Copy, Debug)]
struct Term {
    significand: i64,
    exponent: i32,
    fraction_bits: i32,
}

/// Significand and exponent of a scale byte, the significand in 2^-3 (E4M3) or 1 (E8M0). None for NaN.
fn scale_parts(format: Format, byte: u8) -> Option<(i64, i32)> {
    if format == Format::Mxfp4 {
        return (byte != 255).then_some((1, byte as i32 - 127));
    }
    let (exponent, mantissa) = ((byte >> 3 & 15) as i32, (byte & 7) as i64);
    match byte & 0x7F {
        0x7F => None,
        0 => Some((0, LOWEST_EXPONENT)),
        _ if exponent == 0 => Some((mantissa, -6)),
        _ => Some((8 + mantissa, exponent - 7)),
    }
}

/// The accumulator as a term.
fn accumulator_term(c: f32) -> Term {
    let bits = c.to_bits();
    let (exponent, mantissa) = ((bits >> 23 & 255) as i32, (bits & 0x7F_FFFF) as i64);
    let (magnitude, exponent) = if exponent == 0 {
        (mantissa, LOWEST_EXPONENT)
    } else {
        (mantissa | 1 << 23, exponent - 127)
    };
    Term {
        significand: if bits >> 31 == 1 {
            -magnitude
        } else {
            magnitude
        },
        exponent,
        fraction_bits: 23,
    }
}

/// One instruction: c + a . b over `a.len()` codes (64 or 96), one code a byte; `sa` and `sb` hold one scale byte a
/// block. An infinite accumulator stays, which the published model leaves open.
pub fn step(format: Format, a: &[u8], b: &[u8], sa: &[u8], sb: &[u8], c: f32) -> f32 {
    if c.is_nan() {
        return f32::from_bits(NAN);
    }
    let mut terms = vec![accumulator_term(c)];
    for group in 0..a.len() / 16 {
        let block = group * 16 / format.block();
        let (Some((x, ex)), Some((y, ey))) = (
            scale_parts(format, sa[block]),
            scale_parts(format, sb[block]),
        ) else {
            return f32::from_bits(NAN);
        };
        let range = 16 * group..16 * group + 16;
        let quarters: i32 = range
            .map(|k| e2m1::decode_halves(a[k]) * e2m1::decode_halves(b[k]))
            .sum();
        let fraction_bits = if format == Format::Mxfp4 { 2 } else { 8 };
        terms.push(Term {
            significand: quarters as i64 * x * y,
            exponent: ex + ey,
            fraction_bits,
        });
    }
    if c.is_infinite() {
        return c;
    }
    let highest = terms.iter().map(|t| t.exponent).max().unwrap();
    let sum = terms.iter().map(|t| align(t, highest)).sum();
    truncate_to_f32(sum, highest - FRACTION_BITS)
}

/// The term in units of 2^(highest - 35), truncated towards zero.
fn align(t: &Term, highest: i32) -> i64 {
    let shift = FRACTION_BITS + t.exponent - highest - t.fraction_bits;
    if shift >= 0 {
        t.significand << shift
    } else {
        let magnitude = t.significand.unsigned_abs() >> (-shift).min(63);
        t.significand.signum() * magnitude as i64
    }
}

/// n * 2^unit truncated towards zero to f32, subnormals kept; a zero is +0, an overflow Inf.
fn truncate_to_f32(n: i64, unit: i32) -> f32 {
    let sign = if n < 0 { 1u32 << 31 } else { 0 };
    let magnitude = n.unsigned_abs();
    if magnitude == 0 {
        return 0.0;
    }
    let exponent = 63 - magnitude.leading_zeros() as i32 + unit;
    if exponent > 127 {
        return f32::from_bits(sign | 0x7F80_0000);
    }
    // Weight of the last bit kept: 23 below the leading one, and never below 2^-149.
    let last = exponent.max(LOWEST_EXPONENT) - 23;
    let shift = last - unit;
    let kept = if shift >= 0 {
        magnitude >> shift.min(63)
    } else {
        magnitude << -shift
    };
    if kept == 0 {
        return 0.0;
    }
    let bits = if exponent < LOWEST_EXPONENT {
        kept as u32
    } else {
        ((exponent + 127) as u32) << 23 | (kept as u32 & 0x7F_FFFF)
    };
    f32::from_bits(sign | bits)
}

/// The accumulators of A B^T, [M, N], by steps of `k_step` in ascending k from +0. K is padded with codes and scale
/// bytes 0.
pub fn accumulate(a: &Quantized, b: &Quantized, k_step: usize) -> Result<Vec<f32>> {
    let format = a.options.format;
    if format == Format::Bf16 || b.options.format == Format::Bf16 {
        return Err(Error::NotSupported(
            "HARDWARE models products of two FP4 operands; one here is BF16".into(),
        ));
    }
    let k = a.cols.next_multiple_of(k_step);
    let (pa, pb) = (padded(a, k), padded(b, k));
    let (width, blocks) = (k, k / format.block());
    let blocks_each = k_step / format.block();
    let mut out = Vec::with_capacity(a.rows * b.rows);
    for i in 0..a.rows {
        for j in 0..b.rows {
            let mut acc = 0f32;
            for s in 0..k / k_step {
                let (x, y) = (
                    &pa.0[i * width + s * k_step..][..k_step],
                    &pb.0[j * width + s * k_step..][..k_step],
                );
                let sa = &pa.1[i * blocks + s * blocks_each..][..blocks_each];
                let sb = &pb.1[j * blocks + s * blocks_each..][..blocks_each];
                acc = step(format, x, y, sa, sb, acc);
            }
            out.push(acc);
        }
    }
    Ok(out)
}

/// What the alignment of a step (rule 3) may cut off element (i, j) beyond FAST's bound, summed over the steps: five terms,
/// each less than 2^(E - 35). It is seen only where a block of zeros, or one that cancels, has scales far above the sum.
pub fn alignment_loss(a: &Quantized, b: &Quantized, i: usize, j: usize) -> f64 {
    let format = a.options.format;
    let blocks = a.cols.div_ceil(format.block());
    let exponent = |q: &Quantized, row, block| {
        scale_parts(format, q.scale_byte(row, block)).map_or(0, |(_, e)| e)
    };
    let highest: Vec<i32> = (0..blocks)
        .map(|block| exponent(a, i, block) + exponent(b, j, block))
        .collect();
    highest
        .chunks(K64 / format.block())
        .filter_map(|step| step.iter().max())
        .map(|e| 5.0 * 2f64.powi(e - FRACTION_BITS))
        .sum()
}

/// Codes, one a byte, and scale bytes of every row, padded with zeros to k columns.
fn padded(q: &Quantized, k: usize) -> (Vec<u8>, Vec<u8>) {
    let size = q.options.format.block();
    let mut codes = vec![0; q.rows * k];
    let mut scales = vec![0; q.rows * (k / size)];
    for r in 0..q.rows {
        for c in 0..q.cols {
            codes[r * k + c] = q.code(r, c);
        }
        for block in 0..q.cols.div_ceil(size) {
            scales[r * (k / size) + block] = q.scale_byte(r, block);
        }
    }
    (codes, scales)
}
