//! Rowwise quantization to nearest, and the largest magnitude of a run of elements. The formulas are those of
//! cpu/avx512/lanes.rs, which explains them.

use super::half;
use crate::cpu::rule::{Kind, Rule};
use std::arch::aarch64::*;

/// Source element types as const parameters.
pub const F32: u8 = 0;
pub const BF16: u8 = 1;
pub const F16: u8 = 2;

/// Elements whose maxima are found together.
const GROUP: usize = 64;
/// Smallest bit pattern of |x| that is not finite.
pub const NONFINITE: u32 = 0x7F80_0000;

/// Bytes of one element of type `DT`.
const fn size<const DT: u8>() -> usize {
    if DT == F32 {
        4
    } else {
        2
    }
}

/// Four elements as f32.
#[inline]
unsafe fn load<const DT: u8>(p: *const u8) -> float32x4_t {
    // SAFETY: the caller's promise: four elements at p, at any address.
    unsafe {
        match DT {
            F32 => vreinterpretq_f32_u8(vld1q_u8(p)),
            F16 => half::widen(vreinterpret_u16_u8(vld1_u8(p))),
            _ => vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p)))),
        }
    }
}

#[inline]
unsafe fn abs_bits(x: float32x4_t) -> uint32x4_t {
    // SAFETY: NEON is part of AArch64, here and below.
    unsafe { vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7FFF_FFFF)) }
}

/// Scale bytes (in 32-bit lanes), multipliers, and all ones where a block is not finite, from four block maxima.
#[inline]
unsafe fn scales(b: uint32x4_t, rule: &Rule) -> (uint32x4_t, float32x4_t, uint32x4_t) {
    // SAFETY: registers only.
    unsafe {
        let bad = vcgeq_u32(b, vdupq_n_u32(NONFINITE));
        let nvfp4 = matches!(rule.kind, Kind::Te | Kind::Div6);
        let (code, mut e) = if nvfp4 {
            nvfp4_scales(vreinterpretq_f32_u32(b), rule)
        } else {
            mxfp4_scales(b, rule.kind)
        };
        if let Some(shrink) = rule.shrink {
            e = vmulq_f32(e, vdupq_n_f32(shrink));
        }
        let nan = vdupq_n_u32(if nvfp4 { 0x7F } else { 0xFF });
        let e = vbicq_u32(vreinterpretq_u32_f32(e), bad);
        (vbslq_u32(bad, nan, code), vreinterpretq_f32_u32(e), bad)
    }
}

#[inline]
unsafe fn nvfp4_scales(b: float32x4_t, rule: &Rule) -> (uint32x4_t, float32x4_t) {
    // SAFETY: registers only.
    unsafe {
        let t = match rule.kind {
            Kind::Te => vmulq_f32(b, vdupq_n_f32(rule.m)),
            _ => vmulq_f32(vdivq_f32(b, vdupq_n_f32(6.0)), vdupq_n_f32(rule.s_enc)),
        };
        let v = vminnmq_f32(t, vdupq_n_f32(448.0));
        let floor = vreinterpretq_u32_f32(vmaxnmq_f32(v, vdupq_n_f32(0.015625)));
        let power = vreinterpretq_f32_u32(vandq_u32(floor, vdupq_n_u32(NONFINITE)));
        let magic = vmulq_f32(power, vdupq_n_f32(1_048_576.0));
        let sum = vaddq_f32(v, magic);
        let s = vsubq_f32(sum, magic);
        let bits = vreinterpretq_u32_f32(sum);
        let code = vaddq_u32(vandq_u32(bits, vdupq_n_u32(0xFF)), vshrq_n_u32::<20>(bits));
        let code = vsubq_u32(code, vdupq_n_u32((147 - 6) * 8));
        let e = vdivq_f32(vdupq_n_f32(1.0), vmulq_f32(s, vdupq_n_f32(rule.s_dec)));
        (code, vminnmq_f32(e, vdupq_n_f32(f32::MAX)))
    }
}

#[inline]
unsafe fn mxfp4_scales(b: uint32x4_t, kind: Kind) -> (uint32x4_t, float32x4_t) {
    // SAFETY: registers only.
    unsafe {
        let exponent = match kind {
            Kind::MxCeil => {
                let mantissa = vandq_u32(b, vdupq_n_u32(0x7F_FFFF));
                let up = vcgtq_u32(mantissa, vdupq_n_u32(0x40_0000));
                // `up` is -1 where the exponent goes up by one.
                vsubq_u32(vshrq_n_u32::<23>(b), up)
            }
            Kind::MxEven => {
                let odd = vandq_u32(vshrq_n_u32::<22>(b), vdupq_n_u32(1));
                let r = vaddq_u32(b, vaddq_u32(odd, vdupq_n_u32(0x1F_FFFF)));
                vshrq_n_u32::<23>(r)
            }
            _ => vshrq_n_u32::<23>(b),
        };
        // Never below 0.
        let byte = vqsubq_u32(exponent, vdupq_n_u32(2));
        let e = vshlq_n_u32::<23>(vsubq_u32(vdupq_n_u32(254), byte));
        (byte, vreinterpretq_f32_u32(e))
    }
}

/// Codes of sixteen elements, packed.
#[inline]
unsafe fn codes16(x: [float32x4_t; 4], e: float32x4_t) -> uint8x8_t {
    // SAFETY: registers only.
    unsafe {
        let magnitude = |x: float32x4_t| {
            let y = vminnmq_f32(vabsq_f32(vmulq_f32(x, e)), vdupq_n_f32(6.0));
            let top = vreinterpretq_u32_f32(vmaxnmq_f32(y, vdupq_n_f32(1.0)));
            let power = vreinterpretq_f32_u32(vandq_u32(top, vdupq_n_u32(NONFINITE)));
            let s = vreinterpretq_u32_f32(vfmaq_f32(y, power, vdupq_n_f32(4_194_304.0)));
            vaddq_u32(s, vshrq_n_u32::<22>(s))
        };
        let m = x.map(magnitude);
        let low = vcombine_u16(vmovn_u32(m[0]), vmovn_u32(m[1]));
        let high = vcombine_u16(vmovn_u32(m[2]), vmovn_u32(m[3]));
        let code = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
        let code = vandq_u8(vsubq_u8(code, vdupq_n_u8(10)), vdupq_n_u8(7));
        let s = x.map(|x| vshrn_n_u32::<16>(vreinterpretq_u32_f32(x)));
        let low = vshrn_n_u16::<8>(vcombine_u16(s[0], s[1]));
        let high = vshrn_n_u16::<8>(vcombine_u16(s[2], s[3]));
        let sign = vandq_u8(vcombine_u8(low, high), vdupq_n_u8(0x80));
        let code = vreinterpretq_u16_u8(vorrq_u8(code, vshrq_n_u8::<4>(sign)));
        vmovn_u16(vorrq_u16(code, vshrq_n_u16::<4>(code)))
    }
}

/// Quantizes `n` elements of one row that start at a block boundary. Writes ceil(n/2) code bytes and ceil(n/block)
/// scale bytes. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`; `codes` and `scales` writable for the bytes named above.
pub unsafe fn run<const DT: u8>(
    x: *const u8,
    n: usize,
    rule: &Rule,
    codes: *mut u8,
    scales: *mut u8,
) -> bool {
    let mut bad = false;
    let block = rule.block();
    // SAFETY: whole groups lie in the caller's memory; the tail goes through local buffers.
    unsafe {
        for i in (0..n).step_by(GROUP) {
            let (p, left) = (x.add(i * size::<DT>()), n - i);
            let (c, s) = (codes.add(i / 2), scales.add(i / block));
            if left >= GROUP {
                bad |= group::<DT>(p, rule, c, s);
                continue;
            }
            let mut values = [0u8; 4 * GROUP];
            std::ptr::copy_nonoverlapping(p, values.as_mut_ptr(), left * size::<DT>());
            let (mut cs, mut ss) = ([0u8; GROUP / 2], [0u8; GROUP / 16]);
            bad |= group::<DT>(values.as_ptr(), rule, cs.as_mut_ptr(), ss.as_mut_ptr());
            std::ptr::copy_nonoverlapping(cs.as_ptr(), c, left.div_ceil(2));
            std::ptr::copy_nonoverlapping(ss.as_ptr(), s, left.div_ceil(block));
        }
    }
    bad
}

/// 64 elements.
#[inline]
unsafe fn group<const DT: u8>(x: *const u8, rule: &Rule, codes: *mut u8, out: *mut u8) -> bool {
    // SAFETY: 64 elements at x, 32 bytes at codes, the group's scale bytes at out.
    unsafe {
        let element = |i: usize| x.add(i * size::<DT>());
        let m: [uint32x4_t; 4] = core::array::from_fn(|b| {
            let v: [uint32x4_t; 4] =
                core::array::from_fn(|i| abs_bits(load::<DT>(element(16 * b + 4 * i))));
            vmaxq_u32(vmaxq_u32(v[0], v[1]), vmaxq_u32(v[2], v[3]))
        });
        let mut b = vpmaxq_u32(vpmaxq_u32(m[0], m[1]), vpmaxq_u32(m[2], m[3]));
        if rule.block() == 32 {
            b = vmaxq_u32(b, vrev64q_u32(b));
        }
        let (code, e, bad) = scales(b, rule);
        let (mut bytes, mut each, mut flags) = ([0u32; 4], [0f32; 4], [0u32; 4]);
        vst1q_u32(bytes.as_mut_ptr(), code);
        vst1q_f32(each.as_mut_ptr(), e);
        vst1q_u32(flags.as_mut_ptr(), bad);
        let step = rule.block() / 16;
        for i in 0..4 / step {
            out.add(i).write(bytes[i * step] as u8);
        }
        for i in 0..4 {
            let v = core::array::from_fn(|j| load::<DT>(element(16 * i + 4 * j)));
            let c = codes16(v, vdupq_n_f32(each[i]));
            // Codes of a block that is not finite are 0.
            let c = if flags[i] != 0 { vdup_n_u8(0) } else { c };
            vst1_u8(codes.add(8 * i), c);
        }
        flags != [0; 4]
    }
}

/// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
pub unsafe fn amax_bits<const DT: u8>(x: *const u8, n: usize) -> u32 {
    // SAFETY: loads stay inside the caller's `n` elements.
    unsafe {
        let mut m = [vdupq_n_u32(0); 4];
        let mut i = 0;
        while i + 16 <= n {
            for (k, m) in m.iter_mut().enumerate() {
                let v = load::<DT>(x.add((i + 4 * k) * size::<DT>()));
                *m = vmaxq_u32(*m, abs_bits(v));
            }
            i += 16;
        }
        let mut rest = [0u8; 64];
        std::ptr::copy_nonoverlapping(
            x.add(i * size::<DT>()),
            rest.as_mut_ptr(),
            (n - i) * size::<DT>(),
        );
        for (k, m) in m.iter_mut().enumerate() {
            let v = load::<DT>(rest.as_ptr().add(4 * k * size::<DT>()));
            *m = vmaxq_u32(*m, abs_bits(v));
        }
        vmaxvq_u32(vmaxq_u32(vmaxq_u32(m[0], m[1]), vmaxq_u32(m[2], m[3])))
    }
}
