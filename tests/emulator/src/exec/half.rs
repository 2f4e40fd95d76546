//! f16, bf16 and their packed forms: each operation is rounded once.

use super::sel::*;
use super::*;
use crate::fp::*;
use crate::ir::{Exec, Flow};

// flags: 1 ftz, 2 sat, 4 relu, 8 bf16, 16 packed, 32 NaN, 64 xorsign.abs, op << 8
const BF: u32 = 8;
const PACKED: u32 = 16;

#[derive(Clone, Copy)]
enum Op {
    Add,
    Sub,
    Mul,
    Fma,
    Min,
    Max,
    Neg,
    Abs,
    Ex2,
    Tanh,
}
const OPS: [(&str, Op); 10] = [
    ("add", Op::Add),
    ("sub", Op::Sub),
    ("mul", Op::Mul),
    ("fma", Op::Fma),
    ("min", Op::Min),
    ("max", Op::Max),
    ("neg", Op::Neg),
    ("abs", Op::Abs),
    ("ex2", Op::Ex2),
    ("tanh", Op::Tanh),
];

#[inline(always)]
fn widen(v: u16, bf: bool) -> f32 {
    if bf {
        bf16_to_f32(v)
    } else {
        f16_to_f32(v)
    }
}

/// One element.
#[inline(always)]
fn scalar(op: Op, f: u32, a: u16, b: u16, c: u16) -> u16 {
    let bf = f & BF != 0;
    let fmt = if bf { BF16 } else { F16 };
    let flush = |v: u16| if f & 1 != 0 && (v & 0x7fff) >> fmt.mant == 0 { v & 0x8000 } else { v };
    match op {
        Op::Neg | Op::Abs if widen(a, bf).is_nan() => return 0x7fff,
        Op::Neg => return flush(a) ^ 0x8000,
        Op::Abs => return flush(a) & 0x7fff,
        _ => {}
    }
    let (x, y, z) = (widen(flush(a), bf), widen(flush(b), bf), widen(flush(c), bf));
    let r = match op {
        // f32 holds twice the bits and two more: rounding twice is harmless.
        Op::Add => narrow(x + y, bf),
        Op::Sub => narrow(x - y, bf),
        Op::Mul => narrow_mul(x, y, bf),
        Op::Fma => f64_to_16(fma_odd(x, y, z), fmt),
        Op::Min | Op::Max => {
            let g = (matches!(op, Op::Max) as u32) * 4 | (f >> 5 & 1) * 8 | (f >> 6 & 1) * 16;
            narrow(super::float::min_max(x, y, g), bf)
        }
        Op::Ex2 => f64_to_16((x as f64).exp2(), fmt),
        Op::Tanh => f64_to_16((x as f64).tanh(), fmt),
        Op::Neg | Op::Abs => unreachable!("handled above"),
    };
    let mut r = flush(r);
    if f & 2 != 0 {
        let v = widen(r, bf);
        r = if v.is_nan() || v <= 0.0 {
            0
        } else if v > 1.0 {
            narrow(1.0, bf)
        } else {
            r
        };
    }
    if f & 4 != 0 && widen(r, bf) <= 0.0 {
        r = 0;
    }
    r
}

#[inline(always)]
fn narrow(v: f32, bf: bool) -> u16 {
    if bf {
        f32_to_bf16(v)
    } else {
        f32_to_f16(v)
    }
}

/// A bf16 product may be a subnormal of f32, which has lost bits: use f64.
#[inline(always)]
fn narrow_mul(x: f32, y: f32, bf: bool) -> u16 {
    let p = x * y;
    if bf && p.abs() >= f32::MIN_POSITIVE && p.is_finite() {
        f32_to_bf16(p)
    } else {
        f64_to_16(x as f64 * y as f64, if bf { BF16 } else { F16 })
    }
}

#[inline(always)]
fn both(op: Op, f: u32, a: u32, b: u32, c: u32) -> u32 {
    let lo = scalar(op, f, a as u16, b as u16, c as u16) as u32;
    if f & PACKED == 0 {
        return lo;
    }
    lo | (scalar(op, f, (a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16) as u32) << 16
}

fn run<const O: usize>(m: &mut Machine, i: &Inst) -> Exec {
    let (op, f) = (OPS[O].1, i.flags);
    match i.imm {
        1 => m.un::<u32, u32>(i, |a| both(op, f, a, 0, 0)),
        2 => m.bin::<u32, u32, u32>(i, |a, b| both(op, f, a, b, 0)),
        _ => m.tri::<u32, u32, u32, u32>(i, |a, b, c| both(op, f, a, b, c)),
    }
    Ok(Flow::Next)
}

const RUN: [crate::ir::ExecFn; 10] = [run::<0>, run::<1>, run::<2>, run::<3>, run::<4>, run::<5>, run::<6>, run::<7>, run::<8>, run::<9>];

/// min/max with three inputs.
fn mm3(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags;
    let op = if i.imm == 1 { Op::Max } else { Op::Min };
    m.tri::<u32, u32, u32, u32>(i, |a, b, c| both(op, f, both(op, f, a, b, 0), c, 0));
    Ok(Flow::Next)
}

pub fn select(p: &[&str], nsrc: usize) -> Option<Sel> {
    let ty = *p.last()?;
    if !matches!(ty, "f16" | "f16x2" | "bf16" | "bf16x2") {
        return None;
    }
    let has = |m: &str| p.contains(&m) as u32;
    let k = OPS.iter().position(|o| o.0 == p[0])?;
    let xorsign = has("xorsign");
    let f = has("ftz")
        | has("sat") * 2
        | has("relu") * 4
        | (ty.starts_with('b') as u32) * BF
        | (ty.ends_with("x2") as u32) * PACKED
        | has("NaN") * 32
        | xorsign * 64;
    let n = match OPS[k].1 {
        Op::Fma => 3,
        Op::Neg | Op::Abs | Op::Ex2 | Op::Tanh => 1,
        _ => nsrc,
    };
    if n == 3 && k != 3 {
        return Some(sel(mm3, R32, &[R32; 3]).flags(f).imm((p[0] == "max") as i64));
    }
    Some(sel(RUN[k], R32, &vec![R32; n]).flags(f).imm(n as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_multiply_keeps_subnormals() {
        // Every E2M1 code placed in bf16 bits, times a scale: exact (blackwell.md section 10).
        let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0f32];
        for code in 0..8u16 {
            for s in [1.0f32, 0.25, 448.0, 13.0] {
                let scale = f32_to_bf16(s * 2f32.powi(119));
                let r = scalar(Op::Mul, BF, code << 6, scale, 0);
                assert_eq!(bf16_to_f32(r), e2m1[code as usize] * s / 128.0);
            }
        }
    }

    #[test]
    fn f16_fma_rounds_once() {
        // 1 + 2^-11 + tiny: ties broken upwards by the tiny part.
        let (one, tiny) = (0x3c00, 0x0001);
        let r = scalar(Op::Fma, 0, 0x0400, 0x0200, one);
        assert_eq!(r, one);
        assert_eq!(scalar(Op::Add, 0, one, tiny, 0), one);
        assert_eq!(scalar(Op::Add, 4, 0xbc00, tiny, 0), 0);
    }
}
