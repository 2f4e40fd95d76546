//! Rowwise quantization, and the largest magnitude of a run of elements. The formulas are those of
//! cpu/avx512/lanes.rs, which explains them.

use super::vector::V4;
use crate::cpu::rule::{Draw, Kind, Rule};
use crate::cpu::vector::{nearest, size, stochastic, Vector};
use std::arch::aarch64::*;

pub use crate::cpu::vector::{BF16, F16, F32, NONFINITE};

/// Elements whose maxima are found together.
pub const GROUP: usize = 64;

/// Four elements as f32.
#[inline]
unsafe fn load<const DT: u8>(p: *const u8) -> float32x4_t {
    // SAFETY: the caller's promise: four elements at p, at any address.
    unsafe { V4::load::<DT>(p).f() }
}

#[inline]
unsafe fn abs_bits(x: float32x4_t) -> uint32x4_t {
    // SAFETY: NEON is part of AArch64, here and below.
    unsafe { vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x7FFF_FFFF)) }
}

/// Scale bytes (in 32-bit lanes), multipliers, and all ones where a block is not finite, from four block maxima.
#[inline]
pub unsafe fn scales(b: uint32x4_t, rule: &Rule) -> (uint32x4_t, float32x4_t, uint32x4_t) {
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

/// Codes of sixteen elements, packed. `random`: a byte for each element, in order.
#[inline]
unsafe fn codes16(x: [float32x4_t; 4], e: float32x4_t, random: Option<*const u8>) -> uint8x8_t {
    // SAFETY: registers, and sixteen random bytes.
    unsafe {
        let magnitude = |i: usize| {
            let (x, e) = (V4::of(x[i]), V4::of(e));
            match random {
                None => nearest(x, e).0,
                Some(r) => {
                    let bytes = r.add(4 * i).cast::<u32>().read_unaligned();
                    let r = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
                    stochastic(x, e, V4(vmovl_u16(vget_low_u16(r)))).0
                }
            }
        };
        let m: [uint32x4_t; 4] = core::array::from_fn(magnitude);
        let low = vcombine_u16(vmovn_u32(m[0]), vmovn_u32(m[1]));
        let high = vcombine_u16(vmovn_u32(m[2]), vmovn_u32(m[3]));
        let code = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
        let code = vandq_u8(vsubq_u8(code, vdupq_n_u8(2)), vdupq_n_u8(7));
        let s = x.map(|x| vshrn_n_u32::<16>(vreinterpretq_u32_f32(x)));
        let low = vshrn_n_u16::<8>(vcombine_u16(s[0], s[1]));
        let high = vshrn_n_u16::<8>(vcombine_u16(s[2], s[3]));
        let sign = vandq_u8(vcombine_u8(low, high), vdupq_n_u8(0x80));
        let code = vreinterpretq_u16_u8(vorrq_u8(code, vshrq_n_u8::<4>(sign)));
        vmovn_u16(vorrq_u16(code, vshrq_n_u16::<4>(code)))
    }
}

/// Quantizes `n` elements of one row that start at a block boundary, `first_block` blocks of sixteen after the first of
/// `draw`. Writes ceil(n/2) code bytes and ceil(n/block) scale bytes. Returns whether a block was non-finite.
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`; `codes` and `scales` writable for the bytes named above.
pub unsafe fn run<const DT: u8>(
    x: *const u8,
    n: usize,
    rule: &Rule,
    draw: Option<&Draw>,
    first_block: usize,
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
            let first = first_block + i / 16;
            if left >= GROUP {
                bad |= group::<DT>(p, rule, draw, first, c, s);
                continue;
            }
            let mut values = [0u8; 4 * GROUP];
            std::ptr::copy_nonoverlapping(p, values.as_mut_ptr(), left * size::<DT>());
            let (mut cs, mut ss) = ([0u8; GROUP / 2], [0u8; GROUP / 16]);
            let (co, so) = (cs.as_mut_ptr(), ss.as_mut_ptr());
            bad |= group::<DT>(values.as_ptr(), rule, draw, first, co, so);
            std::ptr::copy_nonoverlapping(cs.as_ptr(), c, left.div_ceil(2));
            std::ptr::copy_nonoverlapping(ss.as_ptr(), s, left.div_ceil(block));
        }
    }
    bad
}

/// Scale bytes of four blocks of 16 (or two of 32, each in two lanes) to `out`; the blocks' multipliers, and which of
/// them are not finite.
#[inline]
pub unsafe fn scale_group(b: [uint32x4_t; 4], rule: &Rule, out: *mut u8) -> ([f32; 4], [u32; 4]) {
    // SAFETY: 64 / block bytes at out.
    unsafe {
        let mut b = vpmaxq_u32(vpmaxq_u32(b[0], b[1]), vpmaxq_u32(b[2], b[3]));
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
        (each, flags)
    }
}

/// 64 elements.
#[inline]
unsafe fn group<const DT: u8>(
    x: *const u8,
    rule: &Rule,
    draw: Option<&Draw>,
    first_block: usize,
    codes: *mut u8,
    out: *mut u8,
) -> bool {
    // SAFETY: 64 elements at x, 32 bytes at codes, the group's scale bytes at out.
    unsafe {
        let element = |i: usize| x.add(i * size::<DT>());
        let m: [uint32x4_t; 4] = core::array::from_fn(|b| {
            let v: [uint32x4_t; 4] =
                core::array::from_fn(|i| abs_bits(load::<DT>(element(16 * b + 4 * i))));
            vmaxq_u32(vmaxq_u32(v[0], v[1]), vmaxq_u32(v[2], v[3]))
        });
        let (e, flags) = scale_group(m, rule, out);
        encode_group::<DT>(x, &e, &flags, draw, first_block, codes);
        flags != [0; 4]
    }
}

/// Codes of 64 elements under given multipliers, 0 where a block's flag is set.
///
/// # Safety
/// `x` must be readable for 64 elements, `codes` writable for 32 bytes.
#[inline]
pub unsafe fn encode_group<const DT: u8>(
    x: *const u8,
    e: &[f32],
    flags: &[u32; 4],
    draw: Option<&Draw>,
    first_block: usize,
    codes: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let random = draw.map(|d| random_bytes(d, first_block));
        for i in 0..4 {
            let v = core::array::from_fn(|j| load::<DT>(x.add((16 * i + 4 * j) * size::<DT>())));
            let r = random.as_ref().map(|r| r[16 * i..].as_ptr());
            let c = codes16(v, vdupq_n_f32(e[i]), r);
            let c = if flags[i] != 0 { vdup_n_u8(0) } else { c };
            vst1_u8(codes.add(8 * i), c);
        }
    }
}

/// Random bytes of four blocks of a row, in the order of their elements.
#[inline]
unsafe fn random_bytes(draw: &Draw, first_block: usize) -> [u8; GROUP] {
    let mut out = [0u8; GROUP];
    let first = draw.block.wrapping_add(first_block as u32);
    let counter = draw.counter();
    // SAFETY: 64 bytes of the array.
    unsafe {
        let c0 = V4::splat(first).add(V4::iota());
        let w = V4::philox(c0, V4::splat(counter[0]), counter[1], counter[2], draw.key);
        // Element 4w + i takes byte (0, 2, 1, 3)[i] of word w.
        const SWAP: [u8; 16] = [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15];
        let swap = vld1q_u8(SWAP.as_ptr());
        let w = w.map(|x| vqtbl1q_u8(vreinterpretq_u8_u32(x.0), swap));
        let w = w.map(|x| vreinterpretq_u32_u8(x));
        // Interleaves: the four words of each block side by side.
        let mut words = [0u32; GROUP / 4];
        vst4q_u32(words.as_mut_ptr(), uint32x4x4_t(w[0], w[1], w[2], w[3]));
        std::ptr::copy_nonoverlapping(words.as_ptr().cast(), out.as_mut_ptr(), GROUP);
    }
    out
}

/// Bits of the largest |x| of `n` elements, NaN and Inf above every finite value (`FINITE`: left out).
///
/// # Safety
/// `x` must be readable for `n` elements of type `DT`.
pub unsafe fn amax_bits<const DT: u8, const FINITE: bool>(x: *const u8, n: usize) -> u32 {
    // SAFETY: loads stay inside the caller's `n` elements.
    unsafe {
        let raise = |m: &mut uint32x4_t, v: float32x4_t| {
            let mut a = abs_bits(v);
            if FINITE {
                a = vbicq_u32(a, vcgeq_u32(a, vdupq_n_u32(NONFINITE)));
            }
            *m = vmaxq_u32(*m, a);
        };
        let mut m = [vdupq_n_u32(0); 4];
        let mut i = 0;
        while i + 16 <= n {
            for (k, m) in m.iter_mut().enumerate() {
                raise(m, load::<DT>(x.add((i + 4 * k) * size::<DT>())));
            }
            i += 16;
        }
        let mut rest = [0u8; 64];
        let bytes = (n - i) * size::<DT>();
        std::ptr::copy_nonoverlapping(x.add(i * size::<DT>()), rest.as_mut_ptr(), bytes);
        for (k, m) in m.iter_mut().enumerate() {
            raise(m, load::<DT>(rest.as_ptr().add(4 * k * size::<DT>())));
        }
        vmaxvq_u32(vmaxq_u32(vmaxq_u32(m[0], m[1]), vmaxq_u32(m[2], m[3])))
    }
}
