//! `cvt` between integers and floats, comparisons, selections, predicates.

use super::sel::*;
use super::*;
use crate::fp::*;
use crate::ir::{Exec, Flow};
use crate::{arg, bits, un};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Num {
    U(u32),
    S(u32),
    F16,
    Bf16,
    F32,
    F64,
}

fn num(t: &str) -> Option<Num> {
    Some(match t {
        "u8" | "b8" => Num::U(8),
        "u16" | "b16" => Num::U(16),
        "u32" | "b32" => Num::U(32),
        "u64" | "b64" => Num::U(64),
        "s8" => Num::S(8),
        "s16" => Num::S(16),
        "s32" => Num::S(32),
        "s64" => Num::S(64),
        "f16" => Num::F16,
        "bf16" => Num::Bf16,
        "f32" => Num::F32,
        "f64" => Num::F64,
        _ => return None,
    })
}

impl Num {
    fn code(self) -> u32 {
        match self {
            Num::U(b) => b / 8,
            Num::S(b) => 16 + b / 8,
            Num::F16 => 32,
            Num::Bf16 => 33,
            Num::F32 => 34,
            Num::F64 => 35,
        }
    }
    fn decode(c: u32) -> Num {
        match c {
            32 => Num::F16,
            33 => Num::Bf16,
            34 => Num::F32,
            35 => Num::F64,
            16.. => Num::S((c - 16) * 8),
            _ => Num::U(c * 8),
        }
    }
    fn float(self) -> bool {
        matches!(self, Num::F16 | Num::Bf16 | Num::F32 | Num::F64)
    }
}

const FTZ: u32 = 1;
const SAT: u32 = 2;
const RELU: u32 = 4;
const INTEGRAL: u32 = 8;

fn round_mode(c: u32) -> Rnd {
    [Rnd::N, Rnd::Z, Rnd::M, Rnd::P][(c & 3) as usize]
}

fn integral(v: f64, r: Rnd) -> f64 {
    match r {
        Rnd::N => v.round_ties_even(),
        Rnd::Z => v.trunc(),
        Rnd::M => v.floor(),
        Rnd::P => v.ceil(),
    }
}

/// Round a (sticky) value into a 16-bit float with any rounding mode.
fn to_16(v: f64, f: Fmt, r: Rnd) -> u16 {
    if r == Rnd::N || v.is_nan() || v.is_infinite() {
        return f64_to_16(v, f);
    }
    let n = f64_to_16(v, f);
    let back = if f.mant == 7 { bf16_to_f32(n) } else { f16_to_f32(n) } as f64;
    let grow = |x: u16| if x & 0x7fff == 0 { (x & 0x8000) ^ 0x8000 | 1 } else { x + 1 };
    match r {
        Rnd::Z if back.abs() > v.abs() => n - 1,
        Rnd::M if back > v => {
            if n & 0x8000 != 0 || n == 0 {
                grow(n)
            } else {
                n - 1
            }
        }
        Rnd::P if back < v => {
            if n & 0x8000 == 0 || n == 0x8000 {
                grow(n)
            } else {
                n - 1
            }
        }
        _ => n,
    }
}

/// Convert one value. Source and destination as raw bits.
fn convert(x: u64, s: Num, d: Num, r: Rnd, f: u32) -> u64 {
    if !s.float() {
        let v: i128 = match s {
            Num::U(b) => (if b == 64 { x } else { x & ((1 << b) - 1) }) as i128,
            Num::S(b) => ((x << (64 - b)) as i64 >> (64 - b)) as i128,
            _ => unreachable!("integers only"),
        };
        return match d {
            Num::U(b) => {
                let max = if b == 64 { u64::MAX as i128 } else { (1i128 << b) - 1 };
                let v = if f & SAT != 0 { v.clamp(0, max) } else { v };
                v as u64 & max as u64
            }
            Num::S(b) => {
                let v = if f & SAT != 0 { v.clamp(-(1i128 << (b - 1)), (1i128 << (b - 1)) - 1) } else { v };
                v as i64 as u64
            }
            Num::F64 => {
                let n = v as f64;
                (match r {
                    Rnd::N => n,
                    _ => directed64(v, n, r),
                })
                .to_bits()
            }
            // i128 to f64 rounds; make the lost bits sticky before the second rounding.
            Num::F32 => to_f32(int_odd(v), r).to_bits() as u64,
            Num::F16 => to_16(int_odd(v), F16, r) as u64,
            Num::Bf16 => to_16(int_odd(v), BF16, r) as u64,
        };
    }
    let mut v: f64 = match s {
        Num::F16 => f16_to_f32(x as u16) as f64,
        Num::Bf16 => bf16_to_f32(x as u16) as f64,
        Num::F32 => {
            let a = f32::from_bits(x as u32);
            (if f & FTZ != 0 { ftz(a) } else { a }) as f64
        }
        _ => f64::from_bits(x),
    };
    match d {
        Num::U(b) | Num::S(b) => {
            let signed = matches!(d, Num::S(_));
            if v.is_nan() {
                return if s != Num::F64 && b != 64 { 0 } else { 1u64 << (b - 1) };
            }
            v = integral(v, r);
            let bits = if signed {
                let max = (1i128 << (b - 1)) - 1;
                (v as i128).clamp(-max - 1, max) as i64 as u64
            } else {
                let max = if b == 64 { u64::MAX as i128 } else { (1i128 << b) - 1 };
                (v as i128).clamp(0, max) as u64
            };
            return bits;
        }
        _ => {}
    }
    if f & INTEGRAL != 0 && v.is_finite() {
        v = integral(v, r).copysign(v);
    }
    if f & SAT != 0 {
        v = if v.is_nan() { 0.0 } else { v.clamp(0.0, 1.0) + 0.0 };
    }
    if f & RELU != 0 && v <= 0.0 {
        v = 0.0;
    }
    match d {
        Num::F64 => (if v.is_nan() { f64::from_bits(0x7fff_ffff_ffff_ffff) } else { v }).to_bits(),
        Num::F32 => {
            let o = canon(to_f32(v, r));
            (if f & FTZ != 0 { ftz(o) } else { o }).to_bits() as u64
        }
        Num::F16 => to_16(v, F16, r) as u64,
        _ => to_16(v, BF16, r) as u64,
    }
}

fn int_odd(v: i128) -> f64 {
    let n = v as f64;
    let e = v - n as i128;
    if e == 0 || n.to_bits() & 1 == 1 {
        return n;
    }
    let toward_zero = (e > 0) != (n > 0.0);
    f64::from_bits(if toward_zero { n.to_bits() - 1 } else { n.to_bits() + 1 })
}

fn directed64(v: i128, n: f64, r: Rnd) -> f64 {
    let e = v - n as i128;
    let step = |x: f64, up: bool| f64::from_bits(if (x > 0.0) == up { x.to_bits() + 1 } else { x.to_bits() - 1 });
    match r {
        Rnd::Z if e != 0 && (e < 0) == (n > 0.0) => step(n, e > 0),
        Rnd::M if e < 0 => step(n, false),
        Rnd::P if e > 0 => step(n, true),
        _ => n,
    }
}

fn general(m: &mut Machine, i: &Inst) -> Exec {
    let (s, d) = (Num::decode(i.flags >> 8 & 0xff), Num::decode(i.flags >> 16 & 0xff));
    let (r, f) = (round_mode(i.flags >> 24), i.flags & 0xff);
    let a = m.addresses_of(i.a[1], 0, i.imm & 1 != 0);
    if i.imm & 2 != 0 {
        let mut t = [0u64; 32];
        for l in m.lanes() {
            t[l] = convert(a[l], s, d, r, f);
        }
        m.store(i.a[0], &t);
    } else {
        let mut t = [0u32; 32];
        for l in m.lanes() {
            t[l] = convert(a[l], s, d, r, f) as u32;
        }
        m.store(i.a[0], &t);
    }
    Ok(Flow::Next)
}

/// Fast forms that need no options.
fn fast(d: &str, s: &str) -> Option<Sel> {
    Some(match (d, s) {
        ("u64" | "s64" | "b64", "u32" | "b32") => un!(u32 => u64, |a| a as u64),
        ("u64" | "s64" | "b64", "s32") => un!(i32 => i64, |a| a as i64),
        ("u32" | "s32" | "b32", "u64" | "s64" | "b64") => un!(u64 => u32, |a| a as u32),
        ("u32" | "s32" | "b32", "u16" | "b16") => un!(u16 => u32, |a| a as u32),
        ("u32" | "s32" | "b32", "s16") => un!(i16 => i32, |a| a as i32),
        ("u16" | "s16" | "b16", "u32" | "s32" | "b32") => un!(u32 => u16, |a| a as u16),
        ("u32" | "s32" | "b32", "u32" | "s32" | "b32") => un!(u32 => u32, |a| a),
        ("f32", "bf16") => un!(u16 => f32, |a| canon(bf16_to_f32(a))),
        ("f32", "f16") => un!(u16 => f32, |a| canon(f16_to_f32(a))),
        _ => return None,
    })
}

/// `cvt` of plain numbers; the narrow formats are elsewhere. `wide` says how
/// wide the source and destination registers are.
pub fn select_cvt(p: &[&str], dst_wide: bool, src_wide: bool) -> Option<Sel> {
    let (d, s) = (p[p.len() - 2], p[p.len() - 1]);
    let (nd, ns) = (num(d)?, num(s)?);
    let reg = |n: Num| matches!(n, Num::U(64) | Num::S(64) | Num::F64);
    if p.len() == 3 && reg(nd) == dst_wide && reg(ns) == src_wide {
        if let Some(f) = fast(d, s) {
            return Some(f);
        }
    }
    let has = |m: &str| p.contains(&m);
    if !nd.float() && !ns.float() && !has("sat") && p.len() != 3 {
        return None;
    }
    if (nd == Num::F32 && ns == Num::F64 || d == "f16" || d == "bf16") && p.len() == 3 && ns.float() {
        return None; // a rounding mode is required
    }
    let mut r = 0;
    for m in p {
        r = match *m {
            "rz" | "rzi" => 1,
            "rm" | "rmi" => 2,
            "rp" | "rpi" => 3,
            _ => r,
        };
    }
    let int = p.iter().any(|m| matches!(*m, "rni" | "rzi" | "rmi" | "rpi"));
    let f = has("ftz") as u32 * FTZ | has("sat") as u32 * SAT | has("relu") as u32 * RELU | int as u32 * INTEGRAL;
    let dst = if dst_wide { R64 } else { R32 };
    let src = match (src_wide, ns.float() && ns != Num::F16 && ns != Num::Bf16) {
        (true, float) => Arg::R { slots: 2, float },
        (false, float) => Arg::R { slots: 1, float },
    };
    Some(sel(general, dst, &[src]).flags(f | ns.code() << 8 | nd.code() << 16 | r << 24).imm(src_wide as i64 | (dst_wide as i64) << 1))
}

/// How a comparison's result is combined with a predicate.
fn combine(m: &Machine, i: &Inst, p: u32) -> (u32, u32) {
    let op = i.flags >> 4 & 3;
    if op == 0 {
        return (p, !p);
    }
    let c = m.pred(i.a[4]);
    let c = if i.flags & 8 != 0 { !c } else { c };
    match op {
        1 => (p & c, !p & c),
        2 => (p | c, !p | c),
        _ => (p ^ c, !p ^ c),
    }
}

pub fn setp_finish(m: &mut Machine, i: &Inst, p: u32) -> Exec {
    let (a, b) = combine(m, i, p);
    m.set_pred(i.a[0], a);
    if i.a[3] != 0 {
        m.set_pred(i.a[3], b);
    }
    Ok(Flow::Next)
}

macro_rules! setp {
    ($t:ty, $f:expr) => {{
        fn e(m: &mut Machine, i: &Inst) -> Exec {
            let p = m.cmp::<$t>(i, $f);
            setp_finish(m, i, p)
        }
        sel(e, Arg::Pred, &[arg!($t), arg!($t)])
    }};
}

macro_rules! set {
    ($t:ty, $f:expr) => {{
        fn e(m: &mut Machine, i: &Inst) -> Exec {
            let p = m.cmp::<$t>(i, $f);
            let p = combine(m, i, p).0;
            let one = i.imm as u32;
            let mut t = [0u32; 32];
            for l in 0..32 {
                t[l] = if p >> l & 1 != 0 { one } else { 0 };
            }
            m.store(i.a[0], &t);
            Ok(Flow::Next)
        }
        sel(e, R32, &[arg!($t), arg!($t)])
    }};
}

macro_rules! icmp {
    ($mac:ident, $cmp:expr, $t:ty) => {
        match $cmp {
            "eq" => $mac!($t, |a, b| a == b),
            "ne" => $mac!($t, |a, b| a != b),
            "lt" | "lo" => $mac!($t, |a, b| a < b),
            "le" | "ls" => $mac!($t, |a, b| a <= b),
            "gt" | "hi" => $mac!($t, |a, b| a > b),
            "ge" | "hs" => $mac!($t, |a, b| a >= b),
            _ => return None,
        }
    };
}

macro_rules! fcmp {
    ($mac:ident, $cmp:expr, $t:ty, $g:expr) => {
        match $cmp {
            "eq" => $mac!($t, |a, b| $g(a) == $g(b)),
            "ne" => $mac!($t, |a, b| {
                let (a, b) = ($g(a), $g(b));
                a < b || a > b
            }),
            "lt" => $mac!($t, |a, b| $g(a) < $g(b)),
            "le" => $mac!($t, |a, b| $g(a) <= $g(b)),
            "gt" => $mac!($t, |a, b| $g(a) > $g(b)),
            "ge" => $mac!($t, |a, b| $g(a) >= $g(b)),
            "equ" => $mac!($t, |a, b| {
                let (a, b) = ($g(a), $g(b));
                !(a < b || a > b)
            }),
            "neu" => $mac!($t, |a, b| $g(a) != $g(b)),
            "ltu" => $mac!($t, |a, b| !($g(a) >= $g(b))),
            "leu" => $mac!($t, |a, b| !($g(a) > $g(b))),
            "gtu" => $mac!($t, |a, b| !($g(a) <= $g(b))),
            "geu" => $mac!($t, |a, b| !($g(a) < $g(b))),
            "num" => $mac!($t, |a, b| {
                let (a, b) = ($g(a), $g(b));
                a == a && b == b
            }),
            "nan" => $mac!($t, |a, b| {
                let (a, b) = ($g(a), $g(b));
                a != a || b != b
            }),
            _ => return None,
        }
    };
}

fn id<T>(v: T) -> T {
    v
}

macro_rules! compare {
    ($mac:ident, $p:expr, $ty:expr) => {{
        let cmp = $p[1];
        let ftz_on = $p.contains(&"ftz");
        Some(match $ty {
            "f32" if ftz_on => fcmp!($mac, cmp, f32, ftz),
            "f32" => fcmp!($mac, cmp, f32, id),
            "f64" => fcmp!($mac, cmp, f64, id),
            "f16" => fcmp!($mac, cmp, u16, f16_to_f32),
            "bf16" => fcmp!($mac, cmp, u16, bf16_to_f32),
            "u16" | "b16" => icmp!($mac, cmp, u16),
            "s16" => icmp!($mac, cmp, i16),
            "u32" | "b32" => icmp!($mac, cmp, u32),
            "s32" => icmp!($mac, cmp, i32),
            "u64" | "b64" => icmp!($mac, cmp, u64),
            "s64" => icmp!($mac, cmp, i64),
            _ => return None,
        })
    }};
}

/// Packed half comparison: two predicates, low and high.
fn setp_x2(m: &mut Machine, i: &Inst) -> Exec {
    let bf = i.imm & 0x100 != 0;
    let cmp = i.imm & 0xff;
    let (a, b) = (*m.row::<u32>(i.a[1]), *m.row::<u32>(i.a[2]));
    let w = |v: u32| if bf { bf16_to_f32(v as u16) } else { f16_to_f32(v as u16) };
    let (mut lo, mut hi) = (0u32, 0u32);
    for l in 0..32 {
        lo |= (half_cmp(cmp, w(a[l]), w(b[l])) as u32) << l;
        hi |= (half_cmp(cmp, w(a[l] >> 16), w(b[l] >> 16)) as u32) << l;
    }
    let op = i.flags >> 4 & 3;
    if op != 0 {
        let c = m.pred(i.a[4]);
        let c = if i.flags & 8 != 0 { !c } else { c };
        let g = |p: u32| match op {
            1 => p & c,
            2 => p | c,
            _ => p ^ c,
        };
        (lo, hi) = (g(lo), g(hi));
    }
    m.set_pred(i.a[0], lo);
    if i.a[3] != 0 {
        m.set_pred(i.a[3], hi);
    }
    Ok(Flow::Next)
}

const CMPS: [&str; 14] = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

fn half_cmp(c: i64, a: f32, b: f32) -> bool {
    let un = a.is_nan() || b.is_nan();
    match c {
        0 => a == b,
        1 => a != b && !un,
        2 => a < b,
        3 => a <= b,
        4 => a > b,
        5 => a >= b,
        12 => !un,
        13 => un,
        _ => un || half_cmp(c - 6, a, b),
    }
}

/// `set` of packed halves: 0xffff or 1.0 in each half.
fn set_x2(m: &mut Machine, i: &Inst) -> Exec {
    let (bf, cmp) = (i.imm & 0x100 != 0, i.imm & 0xff);
    let one = (i.imm >> 16) as u32 & 0xffff;
    let w = |v: u32| if bf { bf16_to_f32(v as u16) } else { f16_to_f32(v as u16) };
    m.bin::<u32, u32, u32>(i, |a, b| {
        let lo = if half_cmp(cmp, w(a), w(b)) { one } else { 0 };
        let hi = if half_cmp(cmp, w(a >> 16), w(b >> 16)) { one } else { 0 };
        lo | hi << 16
    });
    Ok(Flow::Next)
}

pub fn select_setp(p: &[&str]) -> Option<Sel> {
    let ty = *p.last()?;
    if let "f16x2" | "bf16x2" = ty {
        let c = CMPS.iter().position(|c| *c == p[1])? as i64;
        return Some(sel(setp_x2, Arg::Pred, &[R32, R32]).imm(c | (ty.starts_with('b') as i64) << 8));
    }
    compare!(setp, p, ty)
}

pub fn select_set(p: &[&str]) -> Option<Sel> {
    let (d, ty) = (p[p.len() - 2], *p.last()?);
    if let "f16x2" | "bf16x2" = ty {
        let c = CMPS.iter().position(|c| *c == p[1])? as i64;
        let one: i64 = match d {
            "f16x2" => 0x3c00,
            "bf16x2" => 0x3f80,
            _ => 0xffff,
        };
        return Some(sel(set_x2, R32, &[R32, R32]).imm(c | (ty.starts_with('b') as i64) << 8 | one << 16));
    }
    let one = match d {
        "u32" | "s32" => 0xffff_ffffu32,
        "f32" => 0x3f80_0000,
        "f16" => 0x3c00,
        "bf16" => 0x3f80,
        "u16" | "s16" => 0xffff,
        _ => return None,
    };
    compare!(set, p, ty).map(|s| s.imm(one as i64))
}

fn selp_of<T: super::lanes::Lane>(m: &mut Machine, i: &Inst) -> Exec {
    let p = m.pred(i.a[3]);
    let p = if i.flags & 8 != 0 { !p } else { p };
    let (a, b) = (*m.row::<T::C>(i.a[1]), *m.row::<T::C>(i.a[2]));
    let mut t = a;
    for l in 0..32 {
        if p >> l & 1 == 0 {
            t[l] = b[l];
        }
    }
    m.store(i.a[0], &t);
    Ok(Flow::Next)
}

pub fn select_selp(ty: &str) -> Option<Sel> {
    let mut s = bits!(ty, T => sel(selp_of::<T>, arg!(T), &[arg!(T), arg!(T), Arg::Pred]))?;
    if matches!(ty, "f32" | "f64") {
        for a in &mut s.src[..2] {
            if let Arg::R { float, .. } = a {
                *float = true;
            }
        }
    }
    Some(s)
}

/// `slct.d.s32/f32`: by the sign of the third operand.
pub fn select_slct(d: &str, s: &str) -> Option<Sel> {
    match s {
        "s32" => bits!(d, T => crate::tri!(T, T, i32 => T, |a, b, c| if c >= 0 { a } else { b })),
        "f32" => bits!(d, T => crate::tri!(T, T, f32 => T, |a, b, c| if c >= 0.0 { a } else { b })),
        _ => None,
    }
}

/// and/or/xor/not/mov of predicates: operands are predicate indices.
pub fn pred_op(m: &mut Machine, i: &Inst) -> Exec {
    let neg = |m: &Machine, p: u32, bit: u32| if i.flags & bit != 0 { !m.pred(p) } else { m.pred(p) };
    let a = neg(m, i.a[1], 8);
    let r = match i.imm {
        0 => a & neg(m, i.a[2], 16),
        1 => a | neg(m, i.a[2], 16),
        2 => a ^ neg(m, i.a[2], 16),
        3 => !a,
        _ => a,
    };
    m.set_pred(i.a[0], r);
    Ok(Flow::Next)
}

/// `mov.pred p, 0 or 1`.
pub fn pred_const(m: &mut Machine, i: &Inst) -> Exec {
    m.set_pred(i.a[0], if i.imm != 0 { !0 } else { 0 });
    Ok(Flow::Next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cv(x: u64, s: &str, d: &str, r: Rnd, f: u32) -> u64 {
        convert(x, num(s).unwrap(), num(d).unwrap(), r, f)
    }

    #[test]
    fn float_to_integer_saturates() {
        let f = |v: f32| v.to_bits() as u64;
        assert_eq!(cv(f(3.5), "f32", "s32", Rnd::N, INTEGRAL), 4);
        assert_eq!(cv(f(2.5), "f32", "s32", Rnd::N, INTEGRAL), 2);
        assert_eq!(cv(f(-1.5), "f32", "u32", Rnd::Z, INTEGRAL), 0);
        assert_eq!(cv(f(1e20), "f32", "s32", Rnd::Z, INTEGRAL) as u32, 0x7fff_ffff);
        assert_eq!(cv(f(f32::NAN), "f32", "s32", Rnd::Z, INTEGRAL), 0);
        assert_eq!(cv(f(300.0), "f32", "u8", Rnd::Z, INTEGRAL), 255);
    }

    #[test]
    fn integers_to_floats_round_once() {
        assert_eq!(cv(16777217, "u32", "f32", Rnd::N, 0) as u32, 16777216f32.to_bits());
        assert_eq!(cv(16777217, "u32", "f32", Rnd::P, 0) as u32, 16777218f32.to_bits());
        let x = (1u64 << 60) + (1 << 36) + 1;
        assert_eq!(cv(x, "u64", "f32", Rnd::N, 0) as u32, (x as f32).to_bits());
        assert_eq!(cv(-1i64 as u64 & 0xff, "s8", "s32", Rnd::N, 0) as u32, !0);
    }
}
