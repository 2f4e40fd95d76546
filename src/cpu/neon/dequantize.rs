//! Codes and scale bytes of a row back to values.

use super::half;
use super::quantize::{BF16, F16, F32};
use crate::cpu::dequantize::STRETCH;
use crate::cpu::factors::Factors;
use crate::cpu::operand::Operand;
use crate::numerics::scale::RANGE_DECODE;
use crate::numerics::{e4m3, e8m0};
use std::arch::aarch64::*;

/// Upper and lower byte of each code's value as bf16.
const HIGH: [u8; 16] = [
    0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, 0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0,
];
const LOW: [u8; 16] = [
    0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0, 0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
];

/// Factors of a stretch's blocks; None if any is NaN or so large that a product with 6 needs clamping.
fn factors(bytes: &[u8], f: &Factors) -> Option<[f32; 8]> {
    let mut out = [0f32; 8];
    for (o, byte) in out.iter_mut().zip(bytes) {
        let s = match f.e8m0 {
            true => e8m0::decode(*byte),
            false => e4m3::decode(*byte & 0x7F),
        };
        let mut v = s * f.first * f.second;
        if f.range {
            v *= RANGE_DECODE;
        }
        // False for NaN.
        if !(v < f.largest / 8.0) {
            return None;
        }
        *o = v;
    }
    Some(out)
}

/// Writes sixteen finite values from eight code bytes.
#[inline]
unsafe fn decode16<const DT: u8>(codes: *const u8, factor: f32, out: *mut u8) {
    // SAFETY: eight bytes of codes, sixteen elements of output.
    unsafe {
        let c = vld1_u8(codes);
        let (even, odd) = (vand_u8(c, vdup_n_u8(0x0F)), vshr_n_u8::<4>(c));
        let order = vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd));
        let high = vqtbl1q_u8(vld1q_u8(HIGH.as_ptr()), order);
        let low = vqtbl1q_u8(vld1q_u8(LOW.as_ptr()), order);
        for (i, v) in [vzip1q_u8(low, high), vzip2q_u8(low, high)]
            .iter()
            .enumerate()
        {
            let v = vreinterpretq_u16_u8(*v);
            let value = |half| {
                let v = vreinterpretq_f32_u32(vshll_n_u16::<16>(half));
                vmulq_n_f32(v, factor)
            };
            let y = [value(vget_low_u16(v)), value(vget_high_u16(v))];
            for (j, y) in y.iter().enumerate() {
                let at = 8 * i + 4 * j;
                match DT {
                    F32 => vst1q_u8(out.add(4 * at), vreinterpretq_u8_f32(*y)),
                    F16 => vst1_u8(out.add(2 * at), vreinterpret_u8_u16(half::narrow(*y))),
                    _ => vst1_u8(out.add(2 * at), vreinterpret_u8_u16(to_bf16(*y))),
                }
            }
        }
    }
}

/// Four finite values, to nearest even.
#[inline]
unsafe fn to_bf16(v: float32x4_t) -> uint16x4_t {
    // SAFETY: registers only.
    unsafe {
        let u = vreinterpretq_u32_f32(v);
        let tie = vandq_u32(vshrq_n_u32::<16>(u), vdupq_n_u32(1));
        vshrn_n_u32::<16>(vaddq_u32(u, vaddq_u32(tie, vdupq_n_u32(0x7FFF))))
    }
}

/// Decodes elements `0..n` of a row into `out`, but calls `rare(col, len)` for stretches with a factor that is NaN or
/// near overflow.
///
/// # Safety
/// `row` must lie inside `q`, `n` not be above its columns, `out` be writable for n elements of type `DT`.
pub unsafe fn row<const DT: u8>(
    q: &Operand,
    f: &Factors,
    row: usize,
    n: usize,
    out: *mut u8,
    rare: &mut dyn FnMut(usize, usize),
) {
    let size = if DT == F32 { 4 } else { 2 };
    debug_assert!(DT == F32 || DT == BF16 || DT == F16);
    let mut bytes = [0u8; STRETCH / 16];
    // SAFETY: blocks of the row; the tail goes through local buffers.
    unsafe {
        let codes = q.code_row(row, 0);
        for col in (0..n).step_by(STRETCH) {
            let bytes = &mut bytes[..STRETCH / q.block];
            q.read_scales(row, col / q.block, bytes);
            let left = (n - col).min(STRETCH);
            let (p, o) = (codes.add(col / 2), out.add(col * size));
            let Some(factor) = factors(bytes, f) else {
                rare(col, left);
                continue;
            };
            let factor = |i: usize| factor[16 * i / q.block];
            if left == STRETCH {
                for i in 0..STRETCH / 16 {
                    decode16::<DT>(p.add(8 * i), factor(i), o.add(16 * i * size));
                }
                continue;
            }
            let (mut c, mut y) = ([0u8; STRETCH / 2], [0u8; STRETCH * 4]);
            std::ptr::copy_nonoverlapping(p, c.as_mut_ptr(), left.div_ceil(2));
            for i in 0..left.div_ceil(16) {
                let y = y.as_mut_ptr().add(16 * i * size);
                decode16::<DT>(c.as_ptr().add(8 * i), factor(i), y);
            }
            std::ptr::copy_nonoverlapping(y.as_ptr(), o, left * size);
        }
    }
}
