//! f32, f64 and f32x2 arithmetic.
//!
//! The approximate instructions (`ex2.approx`, `rcp.approx`, ..) give the
//! correctly rounded f32 result here: a legal answer, though not the chip's.

use super::sel::*;
use super::*;
use crate::fp::*;
use crate::ir::{Exec, Flow};
use crate::{arg, bin, tri, un};

pub const FTZ: u32 = 1;
pub const SAT: u32 = 2;

fn rnd(p: &[&str]) -> Rnd {
    for m in p {
        match *m {
            "rz" | "rzi" => return Rnd::Z,
            "rm" | "rmi" => return Rnd::M,
            "rp" | "rpi" => return Rnd::P,
            _ => {}
        }
    }
    Rnd::N
}

#[inline(always)]
fn sat(v: f32) -> f32 {
    if v.is_nan() {
        0.0
    } else {
        v.clamp(0.0, 1.0) + 0.0
    }
}

#[inline(always)]
fn finish(v: f32, f: u32) -> f32 {
    let v = canon(v);
    let v = if f & FTZ != 0 { ftz(v) } else { v };
    if f & SAT != 0 {
        sat(v)
    } else {
        v
    }
}

#[inline(always)]
fn inp(v: f32, f: u32) -> f32 {
    if f & FTZ != 0 {
        ftz(v)
    } else {
        v
    }
}

/// Rounding mode in the flags.
fn mode(f: u32) -> Rnd {
    match f >> 8 & 3 {
        0 => Rnd::N,
        1 => Rnd::Z,
        2 => Rnd::M,
        _ => Rnd::P,
    }
}

fn two(m: &mut Machine, i: &Inst, fast: impl Fn(f32, f32) -> f32, odd: impl Fn(f32, f32, Rnd) -> f64) -> Exec {
    let f = i.flags;
    let r = mode(f);
    if f == 0 {
        m.bin::<f32, f32, f32>(i, |a, b| canon(fast(a, b)));
    } else if r == Rnd::N {
        m.bin::<f32, f32, f32>(i, |a, b| finish(fast(inp(a, f), inp(b, f)), f));
    } else {
        m.bin::<f32, f32, f32>(i, |a, b| finish(to_f32(odd(inp(a, f), inp(b, f), r), r), f));
    }
    Ok(Flow::Next)
}

fn add(m: &mut Machine, i: &Inst) -> Exec {
    two(m, i, |a, b| a + b, |a, b, r| add_toward(a as f64, b as f64, r))
}
fn sub(m: &mut Machine, i: &Inst) -> Exec {
    two(m, i, |a, b| a - b, |a, b, r| add_toward(a as f64, -b as f64, r))
}
fn mul(m: &mut Machine, i: &Inst) -> Exec {
    two(m, i, |a, b| a * b, |a, b, _| a as f64 * b as f64)
}
fn div(m: &mut Machine, i: &Inst) -> Exec {
    two(m, i, |a, b| a / b, |a, b, _| div_odd(a, b))
}
/// div.full / div.approx: a * rcp(b); 2^126 < |b| < 2^128 gives 0 for finite a.
fn div_approx(m: &mut Machine, i: &Inst) -> Exec {
    two(m, i, |a, b| a / b, |a, b, _| div_odd(a, b))
}

#[target_feature(enable = "fma")]
fn fma_rows(a: &[u32; 32], b: &[u32; 32], c: &[u32; 32]) -> [u32; 32] {
    let mut t = [0u32; 32];
    for l in 0..32 {
        let v = f32::from_bits(a[l]).mul_add(f32::from_bits(b[l]), f32::from_bits(c[l]));
        t[l] = canon(v).to_bits();
    }
    t
}

fn have_fma() -> bool {
    std::is_x86_feature_detected!("fma")
}

fn fma(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags;
    let r = mode(f);
    if f == 0 && have_fma() {
        let (a, b, c) = (*m.row::<u32>(i.a[1]), *m.row::<u32>(i.a[2]), *m.row::<u32>(i.a[3]));
        // SAFETY: the feature was detected.
        let t = unsafe { fma_rows(&a, &b, &c) };
        m.store(i.a[0], &t);
    } else if r == Rnd::N {
        m.tri::<f32, f32, f32, f32>(i, |a, b, c| finish(inp(a, f).mul_add(inp(b, f), inp(c, f)), f));
    } else {
        m.tri::<f32, f32, f32, f32>(i, |a, b, c| finish(to_f32(fma_toward(inp(a, f), inp(b, f), inp(c, f), r), r), f));
    }
    Ok(Flow::Next)
}

fn one(m: &mut Machine, i: &Inst, g: impl Fn(f32) -> f64) -> Exec {
    let f = i.flags;
    let r = mode(f);
    m.un::<f32, f32>(i, |a| finish(to_f32(g(inp(a, f)), r), f));
    Ok(Flow::Next)
}

fn rcp(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| div_odd(1.0, a))
}
fn sqrt(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, sqrt_odd)
}
fn rsqrt(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| 1.0 / (a as f64).sqrt())
}
fn ex2(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| (a as f64).exp2())
}
fn lg2(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| (a as f64).log2())
}
fn sin(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| (a as f64).sin())
}
fn cos(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| (a as f64).cos())
}
fn tanh(m: &mut Machine, i: &Inst) -> Exec {
    one(m, i, |a| (a as f64).tanh())
}

/// min/max: -0 < +0; NaN loses, or wins with `.NaN`; `.xorsign.abs`, `.abs`.
/// flags: 1 ftz, 4 max, 8 NaN, 16 xorsign.abs, 32 abs (three inputs).
#[inline(always)]
pub fn min_max(a: f32, b: f32, f: u32) -> f32 {
    let sign = if f & 16 != 0 { (a.to_bits() ^ b.to_bits()) & 0x8000_0000 } else { 0 };
    let (a, b) = if f & (16 | 32) != 0 { (a.abs(), b.abs()) } else { (a, b) };
    let v = match (a.is_nan(), b.is_nan()) {
        (false, false) => {
            let key = |x: f32| {
                let i = x.to_bits() as i32;
                i ^ (((i >> 31) as u32) >> 1) as i32
            };
            if (key(a) < key(b)) != (f & 4 != 0) {
                a
            } else {
                b
            }
        }
        (true, true) => return f32::from_bits(0x7fff_ffff),
        _ if f & 8 != 0 => return f32::from_bits(0x7fff_ffff),
        (true, false) => b,
        (false, true) => a,
    };
    f32::from_bits(v.to_bits() | sign)
}

fn mm(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags;
    m.bin::<f32, f32, f32>(i, |a, b| min_max(inp(a, f), inp(b, f), f));
    Ok(Flow::Next)
}
fn mm3(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags;
    m.tri::<f32, f32, f32, f32>(i, |a, b, c| min_max(min_max(inp(a, f), inp(b, f), f), inp(c, f), f));
    Ok(Flow::Next)
}

fn x2(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags & 3;
    let (r, op) = (mode(i.flags), i.flags >> 4 & 3);
    let one = |a: f32, b: f32, c: f32| {
        let (a, b, c) = (inp(a, f), inp(b, f), inp(c, f));
        finish(
            match op {
                0 => to_f32(add_toward(a as f64, b as f64, r), r),
                1 => to_f32(a as f64 * b as f64, r),
                2 => to_f32(fma_toward(a, b, c, r), r),
                _ => to_f32(add_toward(a as f64, -b as f64, r), r),
            },
            f,
        )
    };
    let lo = |v: u64| f32::from_bits(v as u32);
    let hi = |v: u64| f32::from_bits((v >> 32) as u32);
    let g = |a: u64, b: u64, c: u64| {
        let (l, h) = (one(lo(a), lo(b), lo(c)), one(hi(a), hi(b), hi(c)));
        l.to_bits() as u64 | (h.to_bits() as u64) << 32
    };
    if op == 2 {
        m.tri::<u64, u64, u64, u64>(i, g);
    } else {
        m.bin::<u64, u64, u64>(i, |a, b| g(a, b, 0));
    }
    Ok(Flow::Next)
}

fn canon64(v: f64) -> f64 {
    if v.is_nan() {
        f64::from_bits(0x7fff_ffff_ffff_ffff)
    } else {
        v
    }
}

fn flags(p: &[&str]) -> u32 {
    let r = match rnd(p) {
        Rnd::N => 0,
        Rnd::Z => 1,
        Rnd::M => 2,
        Rnd::P => 3,
    };
    p.contains(&"ftz") as u32 * FTZ | p.contains(&"sat") as u32 * SAT | r << 8
}

fn testp(a: f64, subnormal: bool, what: u32) -> bool {
    match what {
        0 => a.is_finite(),
        1 => a.is_infinite(),
        2 => !a.is_nan(),
        3 => a.is_nan(),
        4 => a.is_finite() && a != 0.0 && !subnormal,
        _ => subnormal,
    }
}

fn testp32(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u32>(i.a[1]);
    let mut p = 0;
    for l in 0..32 {
        let v = f32::from_bits(a[l]);
        p |= (testp(v as f64, v.is_subnormal(), i.flags) as u32) << l;
    }
    m.set_pred(i.a[0], p);
    Ok(Flow::Next)
}
fn testp64(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u64>(i.a[1]);
    let mut p = 0;
    for l in 0..32 {
        let v = f64::from_bits(a[l]);
        p |= (testp(v, v.is_subnormal(), i.flags) as u32) << l;
    }
    m.set_pred(i.a[0], p);
    Ok(Flow::Next)
}

/// The function of an f32, f64 or f32x2 instruction.
pub fn select(p: &[&str], nsrc: usize) -> Option<Sel> {
    let ty = *p.last()?;
    let has = |m: &str| p.contains(&m);
    let f = flags(p);
    if ty == "f32x2" {
        let op = match p[0] {
            "add" => 0,
            "mul" => 1,
            "fma" => 2,
            "sub" => 3,
            _ => return None,
        };
        return Some(sel(x2, R64, &vec![R64; if op == 2 { 3 } else { 2 }]).flags(f | op << 4));
    }
    if ty == "f32" {
        let (b, t, u) = (&[F32, F32][..], &[F32, F32, F32][..], &[F32][..]);
        return Some(match p[0] {
            "add" => sel(add, F32, b).flags(f),
            "sub" => sel(sub, F32, b).flags(f),
            "mul" => sel(mul, F32, b).flags(f),
            "fma" | "mad" => sel(fma, F32, t).flags(f),
            "div" if has("approx") || has("full") => sel(div_approx, F32, b).flags(f),
            "div" => sel(div, F32, b).flags(f),
            "rcp" => sel(rcp, F32, u).flags(f),
            "sqrt" => sel(sqrt, F32, u).flags(f),
            "rsqrt" => sel(rsqrt, F32, u).flags(f),
            "ex2" => sel(ex2, F32, u).flags(f),
            "lg2" => sel(lg2, F32, u).flags(f),
            "sin" => sel(sin, F32, u).flags(f),
            "cos" => sel(cos, F32, u).flags(f),
            "tanh" => sel(tanh, F32, u).flags(f),
            // A NaN becomes the one that the chip has, as in sums.
            "abs" if f & FTZ != 0 => un!(f32 => f32, |a| ftz(canon(a.abs()))),
            "neg" if f & FTZ != 0 => un!(f32 => f32, |a| ftz(canon(-a))),
            "abs" => un!(f32 => f32, |a| canon(a.abs())),
            "neg" => un!(f32 => f32, |a| canon(-a)),
            "copysign" => bin!(u32, u32 => u32, |a, b| (b & 0x7fff_ffff) | (a & 0x8000_0000)),
            "min" | "max" => {
                let g = f & FTZ
                    | (p[0] == "max") as u32 * 4
                    | has("NaN") as u32 * 8
                    | has("xorsign") as u32 * 16
                    | (has("abs") && !has("xorsign")) as u32 * 32;
                if nsrc == 3 {
                    sel(mm3, F32, t).flags(g)
                } else {
                    sel(mm, F32, b).flags(g)
                }
            }
            "testp" => sel(testp32, Arg::Pred, u).flags(testp_kind(p)?),
            _ => return None,
        });
    }
    if ty == "f64" {
        if f >> 8 != 0 {
            return None; // directed rounding of f64 is not modelled
        }
        return Some(match p[0] {
            "add" => bin!(f64, f64 => f64, |a, b| canon64(a + b)),
            "sub" => bin!(f64, f64 => f64, |a, b| canon64(a - b)),
            "mul" => bin!(f64, f64 => f64, |a, b| canon64(a * b)),
            "div" => bin!(f64, f64 => f64, |a, b| canon64(a / b)),
            "fma" | "mad" => tri!(f64, f64, f64 => f64, |a, b, c| canon64(a.mul_add(b, c))),
            "rcp" => un!(f64 => f64, |a| canon64(1.0 / a)),
            "sqrt" => un!(f64 => f64, |a| canon64(a.sqrt())),
            "rsqrt" => un!(f64 => f64, |a| canon64(1.0 / a.sqrt())),
            "abs" => un!(u64 => u64, |a| a & !(1 << 63)),
            "neg" => un!(u64 => u64, |a| a ^ (1 << 63)),
            "min" => {
                bin!(f64, f64 => f64, |a, b| if a.is_nan() { b } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) { a } else { b })
            }
            "max" => {
                bin!(f64, f64 => f64, |a, b| if a.is_nan() { b } else if b.is_nan() || a > b || (a == b && a.is_sign_positive()) { a } else { b })
            }
            "copysign" => bin!(u64, u64 => u64, |a, b| (b & !(1 << 63)) | (a & (1 << 63))),
            "testp" => sel(testp64, Arg::Pred, &[arg!(f64)]).flags(testp_kind(p)?),
            _ => return None,
        });
    }
    None
}

fn testp_kind(p: &[&str]) -> Option<u32> {
    ["finite", "infinite", "number", "notanumber", "normal", "subnormal"].iter().position(|k| p.contains(k)).map(|k| k as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_max_rules() {
        assert_eq!(min_max(-0.0, 0.0, 0).to_bits(), 0x8000_0000);
        assert_eq!(min_max(-0.0, 0.0, 4).to_bits(), 0);
        assert_eq!(min_max(f32::NAN, 1.0, 4), 1.0);
        assert!(min_max(f32::NAN, 1.0, 4 | 8).is_nan());
        assert_eq!(min_max(-3.0, 2.0, 4 | 16), -3.0);
        assert_eq!(min_max(-1.0, -2.0, 0), -2.0);
    }
}
