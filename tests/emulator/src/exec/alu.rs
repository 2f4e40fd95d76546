//! Integer, logic, shift and bit instructions.

use super::sel::*;
use super::*;
use crate::ir::{Exec, Flow};
use crate::{arg, bin, bits, ints, tri, un};

/// Predicate 0 is the carry flag of `.cc` instructions.
pub const CC: u32 = 0;

fn carry_op<T: super::lanes::Lane>(m: &mut Machine, i: &Inst, f: impl Fn(T, T, bool) -> (T, bool), uses: bool, sets: bool) -> Exec {
    let (a, b) = (*m.row::<T::C>(i.a[1]), *m.row::<T::C>(i.a[2]));
    let cc = m.pred(CC);
    let (mut t, mut out) = ([T::C::default(); 32], 0u32);
    for l in 0..32 {
        let (v, c) = f(T::get(a[l]), T::get(b[l]), uses && cc >> l & 1 != 0);
        t[l] = v.put();
        out |= (c as u32) << l;
    }
    m.store(i.a[0], &t);
    if sets {
        m.set_pred(CC, out);
    }
    Ok(Flow::Next)
}

macro_rules! carry {
    ($t:ty, $uses:expr, $sets:expr, $f:expr) => {{
        fn e(m: &mut Machine, i: &Inst) -> Exec {
            carry_op::<$t>(m, i, $f, $uses, $sets)
        }
        sel(e, arg!($t), &[arg!($t), arg!($t)])
    }};
}

macro_rules! carries {
    ($t:ty, $uses:expr, $sets:expr, $sub:expr) => {
        match ($uses, $sets, $sub) {
            (false, _, false) => carry!($t, false, true, |a, b, _| a.overflowing_add(b)),
            (true, true, false) => carry!($t, true, true, |a, b, c| {
                let (x, o) = a.overflowing_add(b);
                let (y, p) = x.overflowing_add(c as $t);
                (y, o | p)
            }),
            (true, false, false) => carry!($t, true, false, |a, b, c| (a.wrapping_add(b).wrapping_add(c as $t), false)),
            (false, _, true) => carry!($t, false, true, |a, b, _| a.overflowing_sub(b)),
            (true, true, true) => carry!($t, true, true, |a, b, c| {
                let (x, o) = a.overflowing_sub(b);
                let (y, p) = x.overflowing_sub(c as $t);
                (y, o | p)
            }),
            (true, false, true) => carry!($t, true, false, |a, b, c| (a.wrapping_sub(b).wrapping_sub(c as $t), false)),
        }
    };
}

/// mad.lo/hi with carry: d = part(a*b) + c [+ CC].
fn mad_cc(m: &mut Machine, i: &Inst) -> Exec {
    let (hi, uses, sets, wide) = (i.flags & 1 != 0, i.flags & 2 != 0, i.flags & 4 != 0, i.flags & 8 != 0);
    let cc = m.pred(CC);
    let mut out = 0u32;
    if wide {
        let (a, b, c) = (*m.row::<u64>(i.a[1]), *m.row::<u64>(i.a[2]), *m.row::<u64>(i.a[3]));
        let mut t = [0u64; 32];
        for l in 0..32 {
            let p = a[l] as u128 * b[l] as u128;
            let p = if hi { (p >> 64) as u64 } else { p as u64 };
            let s = p as u128 + c[l] as u128 + (uses && cc >> l & 1 != 0) as u128;
            t[l] = s as u64;
            out |= ((s >> 64) as u32) << l;
        }
        m.store(i.a[0], &t);
    } else {
        let (a, b, c) = (*m.row::<u32>(i.a[1]), *m.row::<u32>(i.a[2]), *m.row::<u32>(i.a[3]));
        let mut t = [0u32; 32];
        for l in 0..32 {
            let p = a[l] as u64 * b[l] as u64;
            let p = if hi { p >> 32 } else { p & 0xffff_ffff };
            let s = p + c[l] as u64 + (uses && cc >> l & 1 != 0) as u64;
            t[l] = s as u32;
            out |= ((s >> 32) as u32) << l;
        }
        m.store(i.a[0], &t);
    }
    if sets {
        m.set_pred(CC, out);
    }
    Ok(Flow::Next)
}

/// `prmt` in its default mode.
pub fn prmt(a: u32, b: u32, s: u32) -> u32 {
    let v = (a as u64 | (b as u64) << 32).to_le_bytes();
    let mut r = 0u32;
    for k in 0..4 {
        let sel = s >> (4 * k) & 0xf;
        let mut x = v[(sel & 7) as usize];
        if sel & 8 != 0 {
            x = ((x as i8) >> 7) as u8;
        }
        r |= (x as u32) << (8 * k);
    }
    r
}

fn prmt_mode(a: u32, b: u32, s: u32, mode: u32) -> u32 {
    let v = (a as u64 | (b as u64) << 32).to_le_bytes();
    let s = (s & 3) as usize;
    let pick = |k: usize| -> u8 {
        match mode {
            0 => v[(s + k) & 7],           // f4e
            1 => v[(8 + s - k) & 7],       // b4e
            2 => v[s],                     // rc8
            3 => v[k.max(s)],              // ecl
            4 => v[k.min(s)],              // ecr
            _ => v[2 * (s & 1) + (k & 1)], // rc16
        }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

fn prmt_modal(m: &mut Machine, i: &Inst) -> Exec {
    let mode = i.flags;
    m.tri::<u32, u32, u32, u32>(i, |a, b, c| prmt_mode(a, b, c, mode));
    Ok(Flow::Next)
}

#[inline(always)]
pub fn lop3(a: u32, b: u32, c: u32, lut: u32) -> u32 {
    let mut r = 0;
    for k in 0..8 {
        if lut >> k & 1 != 0 {
            let x = if k & 4 != 0 { a } else { !a };
            let y = if k & 2 != 0 { b } else { !b };
            let z = if k & 1 != 0 { c } else { !c };
            r |= x & y & z;
        }
    }
    r
}

fn lop3_e(m: &mut Machine, i: &Inst) -> Exec {
    let lut = i.imm as u32;
    match lut {
        0x96 => m.tri::<u32, u32, u32, u32>(i, |a, b, c| a ^ b ^ c),
        0xea => m.tri::<u32, u32, u32, u32>(i, |a, b, c| (a & b) | c),
        0xf8 => m.tri::<u32, u32, u32, u32>(i, |a, b, c| a | (b & c)),
        0xca => m.tri::<u32, u32, u32, u32>(i, |a, b, c| (a & b) | (!a & c)),
        _ => m.tri::<u32, u32, u32, u32>(i, |a, b, c| lop3(a, b, c, lut)),
    }
    Ok(Flow::Next)
}

macro_rules! bfe {
    ($u:ty, $a:expr, $p:expr, $l:expr, $signed:expr) => {{
        let bits = <$u>::BITS;
        let (pos, len) = ($p & 0xff, $l & 0xff);
        let v: $u = if pos >= bits { 0 } else { $a >> pos };
        let sign_at = (pos + len).wrapping_sub(1).min(bits - 1);
        let fill = $signed && len != 0 && ($a >> sign_at) & 1 != 0;
        if len >= bits && pos == 0 {
            v
        } else {
            let mask: $u = if len >= bits { !0 } else { ((1 as $u) << len) - 1 };
            // Bits beyond the source are copies of the sign.
            let avail = bits.saturating_sub(pos);
            let have: $u = if avail >= bits { !0 } else { ((1 as $u) << avail) - 1 };
            let body = v & mask & have;
            if fill {
                body | !(mask & have)
            } else {
                body
            }
        }
    }};
}

macro_rules! bfi {
    ($u:ty, $a:expr, $b:expr, $p:expr, $l:expr) => {{
        let bits = <$u>::BITS;
        let (pos, len) = ($p & 0xff, $l & 0xff);
        if pos >= bits {
            $b
        } else {
            let mask: $u = (if len >= bits { !0 } else { ((1 as $u) << len) - 1 }) << pos;
            ($b & !mask) | (($a << pos) & mask)
        }
    }};
}

fn bfi_e<const WIDE: bool>(m: &mut Machine, i: &Inst) -> Exec {
    let (p, n) = (*m.row::<u32>(i.a[3]), *m.row::<u32>(i.a[4]));
    if WIDE {
        let (a, b) = (*m.row::<u64>(i.a[1]), *m.row::<u64>(i.a[2]));
        let mut t = [0u64; 32];
        for l in 0..32 {
            t[l] = bfi!(u64, a[l], b[l], p[l], n[l]);
        }
        m.store(i.a[0], &t);
    } else {
        let (a, b) = (*m.row::<u32>(i.a[1]), *m.row::<u32>(i.a[2]));
        let mut t = [0u32; 32];
        for l in 0..32 {
            t[l] = bfi!(u32, a[l], b[l], p[l], n[l]);
        }
        m.store(i.a[0], &t);
    }
    Ok(Flow::Next)
}

fn dp4a(a: u32, b: u32, c: u32, sa: bool, sb: bool) -> u32 {
    let ext = |x: u32, k: u32, s: bool| if s { (x >> (8 * k)) as u8 as i8 as i32 } else { (x >> (8 * k)) as u8 as i32 };
    (0..4).fold(c, |r, k| r.wrapping_add((ext(a, k, sa) * ext(b, k, sb)) as u32))
}

fn dp2a(a: u32, b: u32, c: u32, sa: bool, sb: bool, hi: bool) -> u32 {
    let ea = |k: u32| if sa { (a >> (16 * k)) as u16 as i16 as i64 } else { (a >> (16 * k)) as u16 as i64 };
    let off = if hi { 2 } else { 0 };
    let eb = |k: u32| {
        let x = (b >> (8 * (k + off))) as u8;
        if sb {
            x as i8 as i64
        } else {
            x as i64
        }
    };
    (0..2).fold(c, |r, k| r.wrapping_add((ea(k) * eb(k)) as u32))
}

fn dot(m: &mut Machine, i: &Inst) -> Exec {
    let (sa, sb, two, hi) = (i.flags & 1 != 0, i.flags & 2 != 0, i.flags & 4 != 0, i.flags & 8 != 0);
    m.tri::<u32, u32, u32, u32>(i, |a, b, c| if two { dp2a(a, b, c, sa, sb, hi) } else { dp4a(a, b, c, sa, sb) });
    Ok(Flow::Next)
}

fn halves(f: impl Fn(u16, u16) -> u16) -> impl Fn(u32, u32) -> u32 {
    move |a, b| f(a as u16, b as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16) as u32) << 16
}

/// `mov.bN {..}, a`: imm bits an element, flags bits in all.
pub fn unpack(m: &mut Machine, i: &Inst) -> Exec {
    use super::ldst::{QUAD, SINK, WIDE};
    let part = i.imm as u32;
    for l in m.lanes() {
        let v: u128 = match i.flags {
            64 => m.row::<u64>(i.a[1])[l] as u128,
            128 => m.row::<u128>(i.a[1])[l],
            _ => m.row::<u32>(i.a[1])[l] as u128,
        };
        for (k, &d) in i.xs.iter().enumerate() {
            let x = (v >> (part * k as u32)) & ((1u128 << part) - 1);
            if d == SINK {
                continue;
            }
            if d & WIDE != 0 {
                m.row::<u64>(d & !(WIDE | QUAD))[l] = x as u64;
            } else {
                m.row::<u32>(d)[l] = x as u32;
            }
        }
    }
    Ok(Flow::Next)
}

/// `mov.bN d, {..}`
pub fn pack(m: &mut Machine, i: &Inst) -> Exec {
    use super::ldst::WIDE;
    let part = i.imm as u32;
    for l in m.lanes() {
        let mut v = 0u128;
        for (k, &s) in i.xs.iter().enumerate() {
            let x = if s & WIDE != 0 { m.row::<u64>(s & !WIDE)[l] } else { m.row::<u32>(s)[l] as u64 };
            v |= (x as u128 & ((1u128 << part) - 1)) << (part * k as u32);
        }
        match i.flags {
            64 => m.row::<u64>(i.a[0])[l] = v as u64,
            128 => m.row::<u128>(i.a[0])[l] = v,
            _ => m.row::<u32>(i.a[0])[l] = v as u32,
        }
    }
    Ok(Flow::Next)
}

/// The function of an integer instruction, or None when it is not one.
pub fn select(p: &[&str]) -> Option<Sel> {
    let ty = *p.last()?;
    let has = |m: &str| p.contains(&m);
    match p[0] {
        "add" | "sub" | "addc" | "subc" if has("cc") || p[0].ends_with('c') => {
            let (uses, sets, sub) = (p[0].ends_with('c'), has("cc"), p[0].starts_with("sub"));
            match ty {
                "u32" | "s32" | "b32" => Some(carries!(u32, uses, sets, sub)),
                "u64" | "s64" | "b64" => Some(carries!(u64, uses, sets, sub)),
                _ => None,
            }
        }
        "add" if has("sat") && ty == "s32" => Some(bin!(i32, i32 => i32, |a, b| a.saturating_add(b))),
        "sub" if has("sat") && ty == "s32" => Some(bin!(i32, i32 => i32, |a, b| a.saturating_sub(b))),
        "add" | "sub" | "min" | "max" if matches!(ty, "s16x2" | "u16x2") => {
            let relu = has("relu");
            Some(match (p[0], ty, relu) {
                ("add", _, _) => bin!(u32, u32 => u32, halves(|a, b| a.wrapping_add(b))),
                ("sub", _, _) => bin!(u32, u32 => u32, halves(|a, b| a.wrapping_sub(b))),
                ("min", "u16x2", _) => bin!(u32, u32 => u32, halves(|a, b| a.min(b))),
                ("max", "u16x2", _) => bin!(u32, u32 => u32, halves(|a, b| a.max(b))),
                ("min", _, false) => bin!(u32, u32 => u32, halves(|a, b| (a as i16).min(b as i16) as u16)),
                ("max", _, false) => bin!(u32, u32 => u32, halves(|a, b| (a as i16).max(b as i16) as u16)),
                ("min", _, true) => bin!(u32, u32 => u32, halves(|a, b| (a as i16).min(b as i16).max(0) as u16)),
                _ => bin!(u32, u32 => u32, halves(|a, b| (a as i16).max(b as i16).max(0) as u16)),
            })
        }
        "add" => ints!(ty, T => bin!(T, T => T, |a, b| a.wrapping_add(b))),
        "sub" => ints!(ty, T => bin!(T, T => T, |a, b| a.wrapping_sub(b))),
        "mul" if has("wide") => Some(match ty {
            "u16" => bin!(u16, u16 => u32, |a, b| a as u32 * b as u32),
            "s16" => bin!(i16, i16 => i32, |a, b| a as i32 * b as i32),
            "u32" => bin!(u32, u32 => u64, |a, b| a as u64 * b as u64),
            "s32" => bin!(i32, i32 => i64, |a, b| a as i64 * b as i64),
            _ => return None,
        }),
        "mul" if has("hi") => Some(match ty {
            "u16" => bin!(u16, u16 => u16, |a, b| ((a as u32 * b as u32) >> 16) as u16),
            "s16" => bin!(i16, i16 => i16, |a, b| ((a as i32 * b as i32) >> 16) as i16),
            "u32" => bin!(u32, u32 => u32, |a, b| ((a as u64 * b as u64) >> 32) as u32),
            "s32" => bin!(i32, i32 => i32, |a, b| ((a as i64 * b as i64) >> 32) as i32),
            "u64" => bin!(u64, u64 => u64, |a, b| ((a as u128 * b as u128) >> 64) as u64),
            "s64" => bin!(i64, i64 => i64, |a, b| ((a as i128 * b as i128) >> 64) as i64),
            _ => return None,
        }),
        "mul" => ints!(ty, T => bin!(T, T => T, |a, b| a.wrapping_mul(b))),
        "mul24" if has("lo") => Some(match ty {
            "u32" => bin!(u32, u32 => u32, |a, b| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
            _ => bin!(i32, i32 => i32, |a, b| (a << 8 >> 8).wrapping_mul(b << 8 >> 8)),
        }),
        "mad" | "madc" if has("cc") || p[0] == "madc" => {
            let wide = ty.ends_with("64");
            let (a, hi) = (if wide { R64 } else { R32 }, has("hi"));
            if ty.starts_with('s') && hi {
                return None;
            }
            let f = hi as u32 | ((p[0] == "madc") as u32) << 1 | (has("cc") as u32) << 2 | (wide as u32) << 3;
            Some(sel(mad_cc, a, &[a, a, a]).flags(f))
        }
        "mad" if has("wide") => Some(match ty {
            "u16" => tri!(u16, u16, u32 => u32, |a, b, c| (a as u32 * b as u32).wrapping_add(c)),
            "s16" => tri!(i16, i16, i32 => i32, |a, b, c| (a as i32 * b as i32).wrapping_add(c)),
            "u32" => tri!(u32, u32, u64 => u64, |a, b, c| (a as u64 * b as u64).wrapping_add(c)),
            "s32" => tri!(i32, i32, i64 => i64, |a, b, c| (a as i64 * b as i64).wrapping_add(c)),
            _ => return None,
        }),
        "mad" if has("hi") && !has("sat") => Some(match ty {
            "u32" => tri!(u32, u32, u32 => u32, |a, b, c| (((a as u64 * b as u64) >> 32) as u32).wrapping_add(c)),
            "s32" => tri!(i32, i32, i32 => i32, |a, b, c| (((a as i64 * b as i64) >> 32) as i32).wrapping_add(c)),
            "u64" => tri!(u64, u64, u64 => u64, |a, b, c| (((a as u128 * b as u128) >> 64) as u64).wrapping_add(c)),
            "s64" => tri!(i64, i64, i64 => i64, |a, b, c| (((a as i128 * b as i128) >> 64) as i64).wrapping_add(c)),
            _ => return None,
        }),
        "mad" if has("lo") => ints!(ty, T => tri!(T, T, T => T, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
        "sad" => Some(match ty {
            "u32" => tri!(u32, u32, u32 => u32, |a, b, c| a.abs_diff(b).wrapping_add(c)),
            "s32" => tri!(i32, i32, i32 => i32, |a, b, c| (a.abs_diff(b) as i32).wrapping_add(c)),
            "u64" => tri!(u64, u64, u64 => u64, |a, b, c| a.abs_diff(b).wrapping_add(c)),
            "s64" => tri!(i64, i64, i64 => i64, |a, b, c| (a.abs_diff(b) as i64).wrapping_add(c)),
            _ => return None,
        }),
        // Division by zero gives all ones, as the device's library does.
        "div" => ints!(ty, T => bin!(T, T => T, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) })),
        "rem" => ints!(ty, T => bin!(T, T => T, |a, b| if b == 0 { a } else { a.wrapping_rem(b) })),
        "abs" => Some(match ty {
            "s16" => un!(i16 => i16, |a| a.wrapping_abs()),
            "s32" => un!(i32 => i32, |a| a.wrapping_abs()),
            "s64" => un!(i64 => i64, |a| a.wrapping_abs()),
            _ => return None,
        }),
        "neg" => ints!(ty, T => un!(T => T, |a| (0 as T).wrapping_sub(a))),
        "min" if has("relu") && ty == "s32" => Some(bin!(i32, i32 => i32, |a, b| a.min(b).max(0))),
        "max" if has("relu") && ty == "s32" => Some(bin!(i32, i32 => i32, |a, b| a.max(b).max(0))),
        "min" => ints!(ty, T => bin!(T, T => T, |a, b| a.min(b))),
        "max" => ints!(ty, T => bin!(T, T => T, |a, b| a.max(b))),
        "popc" if ty == "b32" => Some(un!(u32 => u32, |a| a.count_ones())),
        "popc" if ty == "b64" => Some(un!(u64 => u32, |a| a.count_ones())),
        "clz" if ty == "b32" => Some(un!(u32 => u32, |a| a.leading_zeros())),
        "clz" if ty == "b64" => Some(un!(u64 => u32, |a| a.leading_zeros())),
        "brev" if ty == "b32" => Some(un!(u32 => u32, |a| a.reverse_bits())),
        "brev" if ty == "b64" => Some(un!(u64 => u64, |a| a.reverse_bits())),
        "bfind" => {
            let shift = has("shiftamt");
            Some(match (ty, shift) {
                ("u32", false) => un!(u32 => u32, |a| if a == 0 { !0 } else { 31 - a.leading_zeros() }),
                ("u32", true) => un!(u32 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
                ("s32", false) => {
                    un!(i32 => u32, |a| { let v = if a < 0 { !a } else { a }; if v == 0 { !0 } else { 31 - v.leading_zeros() } })
                }
                ("s32", true) => un!(i32 => u32, |a| { let v = if a < 0 { !a } else { a }; if v == 0 { !0 } else { v.leading_zeros() } }),
                ("u64", false) => un!(u64 => u32, |a| if a == 0 { !0 } else { 63 - a.leading_zeros() }),
                ("u64", true) => un!(u64 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
                _ => return None,
            })
        }
        "bfe" => Some(match ty {
            "u32" => tri!(u32, u32, u32 => u32, |a, p, l| bfe!(u32, a, p, l, false)),
            "s32" => tri!(u32, u32, u32 => u32, |a, p, l| bfe!(u32, a, p, l, true)),
            "u64" => tri!(u64, u32, u32 => u64, |a, p, l| bfe!(u64, a, p, l, false)),
            "s64" => tri!(u64, u32, u32 => u64, |a, p, l| bfe!(u64, a, p, l, true)),
            _ => return None,
        }),
        "bfi" if ty == "b32" => Some(sel(bfi_e::<false>, R32, &[R32, R32, R32, R32])),
        "bfi" if ty == "b64" => Some(sel(bfi_e::<true>, R64, &[R64, R64, R32, R32])),
        "bmsk" => {
            let wrap = has("wrap");
            Some(if wrap {
                bin!(u32, u32 => u32, |a, b| { let (a, b) = (a & 31, b & 31); (((1u64 << b) - 1) << a) as u32 })
            } else {
                bin!(u32, u32 => u32, |a, b| if a >= 32 { 0 } else { (((1u64 << b.min(32)) - 1) << a) as u32 })
            })
        }
        "szext" => Some(match (ty, has("wrap")) {
            ("u32", false) => bin!(u32, u32 => u32, |a, b| if b >= 32 { a } else { a & ((1u64 << b) - 1) as u32 }),
            ("s32", false) => bin!(i32, u32 => i32, |a, b| if b >= 32 { a } else if b == 0 { 0 } else { a << (32 - b) >> (32 - b) }),
            ("u32", true) => bin!(u32, u32 => u32, |a, b| a & ((1u64 << (b & 31)) - 1) as u32),
            ("s32", true) => bin!(i32, u32 => i32, |a, b| { let b = b & 31; if b == 0 { 0 } else { a << (32 - b) >> (32 - b) } }),
            _ => return None,
        }),
        "and" => bits!(ty, T => bin!(T, T => T, |a, b| a & b)),
        "or" => bits!(ty, T => bin!(T, T => T, |a, b| a | b)),
        "xor" => bits!(ty, T => bin!(T, T => T, |a, b| a ^ b)),
        "not" => bits!(ty, T => un!(T => T, |a| !a)),
        "cnot" => bits!(ty, T => un!(T => T, |a| (a == 0) as T)),
        // A shift by the width or more gives 0 (or all signs).
        "shl" => bits!(ty, T => bin!(T, u32 => T, |a, b| a.checked_shl(b).unwrap_or(0))),
        "shr" => match ty {
            "s16" | "s32" | "s64" => ints!(ty, T => bin!(T, u32 => T, |a, b| a >> b.min(T::BITS - 1))),
            _ => bits!(ty, T => bin!(T, u32 => T, |a, b| a.checked_shr(b).unwrap_or(0))),
        },
        "shf" => Some(match (has("l"), has("wrap")) {
            (true, true) => tri!(u32, u32, u32 => u32, |a, b, c| ((((b as u64) << 32 | a as u64) << (c & 31)) >> 32) as u32),
            (true, false) => tri!(u32, u32, u32 => u32, |a, b, c| ((((b as u64) << 32 | a as u64) << c.min(32)) >> 32) as u32),
            (false, true) => tri!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) >> (c & 31)) as u32),
            (false, false) => tri!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) >> c.min(32)) as u32),
        }),
        "prmt" if p.len() == 2 => Some(tri!(u32, u32, u32 => u32, prmt)),
        "prmt" => {
            let mode = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"].iter().position(|m| has(m))?;
            Some(sel(prmt_modal, R32, &[R32, R32, R32]).flags(mode as u32))
        }
        "lop3" => Some(sel(lop3_e, R32, &[R32, R32, R32])),
        "dp4a" | "dp2a" => {
            let t: Vec<_> = p.iter().filter(|x| matches!(**x, "u32" | "s32")).collect();
            let f = (*t[0] == "s32") as u32 | ((*t[1] == "s32") as u32) << 1 | ((p[0] == "dp2a") as u32) << 2 | (has("hi") as u32) << 3;
            Some(sel(dot, R32, &[R32, R32, R32]).flags(f))
        }
        "mov" => bits!(ty, T => un!(T => T, |a| a)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_field_rules() {
        assert_eq!(bfe!(u32, 0xdead_beefu32, 8, 8, false), 0xbe);
        assert_eq!(bfe!(u32, 0x8000_0000u32, 28, 4, true), 0xffff_fff8);
        assert_eq!(bfe!(u32, 0x8000_0000u32, 28, 8, true), 0xffff_fff8);
        assert_eq!(bfe!(u32, 0x8000_0000u32, 40, 8, true), !0);
        assert_eq!(bfe!(u32, 5u32, 0, 0, true), 0);
        assert_eq!(bfi!(u32, 0xabu32, 0u32, 28, 8), 0xb000_0000);
        assert_eq!(bfi!(u64, 1u64, 0u64, 32, 32), 1 << 32);
    }

    #[test]
    fn lop3_and_prmt() {
        for lut in 0..256u32 {
            let (a, b, c) = (0xf0u32, 0xccu32, 0xaau32);
            assert_eq!(lop3(a, b, c, lut) & 0xff, lut);
        }
        assert_eq!(prmt(0x3322_1100, 0x7766_5544, 0x7531), 0x7755_3311);
        assert_eq!(prmt(0x0000_0080, 0, 0x8888), 0xffff_ffff);
    }
}
