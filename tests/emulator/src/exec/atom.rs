//! Atomics and reductions on global and shared memory.

use super::space::Acc;
use super::*;
use crate::fp::*;
use crate::ir::{Exec, Flow, MSpace, Order};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    B16,
    U32,
    S32,
    B32,
    U64,
    S64,
    B64,
    B128,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
}

const OPS: [(&str, Op); 10] = [
    ("add", Op::Add),
    ("min", Op::Min),
    ("max", Op::Max),
    ("inc", Op::Inc),
    ("dec", Op::Dec),
    ("and", Op::And),
    ("or", Op::Or),
    ("xor", Op::Xor),
    ("exch", Op::Exch),
    ("cas", Op::Cas),
];
const TYS: [(&str, Ty, u32); 14] = [
    ("b16", Ty::B16, 2),
    ("u32", Ty::U32, 4),
    ("s32", Ty::S32, 4),
    ("b32", Ty::B32, 4),
    ("u64", Ty::U64, 8),
    ("s64", Ty::S64, 8),
    ("b64", Ty::B64, 8),
    ("b128", Ty::B128, 16),
    ("f16", Ty::F16, 2),
    ("bf16", Ty::Bf16, 2),
    ("f16x2", Ty::F16x2, 4),
    ("bf16x2", Ty::Bf16x2, 4),
    ("f32", Ty::F32, 4),
    ("f64", Ty::F64, 8),
];

/// Operation and type as `flags`: op | type << 8 | noftz << 16.
pub fn encode(p: &[&str]) -> Option<(u32, u32)> {
    let op = p.iter().find_map(|m| OPS.iter().position(|o| o.0 == *m))?;
    let ty = TYS.iter().position(|t| t.0 == *p.last().unwrap_or(&""))?;
    Some((op as u32 | (ty as u32) << 8, TYS[ty].2))
}

fn half(op: Op, bf: bool, a: u16, b: u16) -> u16 {
    let w = |v| if bf { bf16_to_f32(v) } else { f16_to_f32(v) };
    let r = match op {
        Op::Add => w(a) + w(b),
        Op::Min => super::float::min_max(w(a), w(b), 0),
        _ => super::float::min_max(w(a), w(b), 4),
    };
    if bf {
        f32_to_bf16(r)
    } else {
        f32_to_f16(r)
    }
}

/// The new value of a cell. `c` is the second operand of cas.
pub fn apply(op: Op, ty: Ty, old: u64, b: u64, c: u64, flush: bool) -> u64 {
    let (o32, b32) = (old as u32, b as u32);
    match (op, ty) {
        (Op::Exch, _) => b,
        (Op::Cas, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        (Op::And, _) => old & b,
        (Op::Or, _) => old | b,
        (Op::Xor, _) => old ^ b,
        (Op::Inc, _) => (if o32 >= b32 { 0 } else { o32 + 1 }) as u64,
        (Op::Dec, _) => (if o32 == 0 || o32 > b32 { b32 } else { o32 - 1 }) as u64,
        (_, Ty::F16) => half(op, false, old as u16, b as u16) as u64,
        (_, Ty::Bf16) => half(op, true, old as u16, b as u16) as u64,
        (_, Ty::F16x2 | Ty::Bf16x2) => {
            let bf = ty == Ty::Bf16x2;
            half(op, bf, old as u16, b as u16) as u64 | (half(op, bf, (old >> 16) as u16, (b >> 16) as u16) as u64) << 16
        }
        (Op::Add, Ty::F32) => {
            let f = |v: u32| if flush { ftz(f32::from_bits(v)) } else { f32::from_bits(v) };
            let r = canon(f(o32) + f(b32));
            (if flush { ftz(r) } else { r }).to_bits() as u64
        }
        (Op::Add, Ty::F64) => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        (Op::Add, Ty::U32 | Ty::S32) => o32.wrapping_add(b32) as u64,
        (Op::Add, _) => old.wrapping_add(b),
        (Op::Min, Ty::S32) => (o32 as i32).min(b32 as i32) as u32 as u64,
        (Op::Max, Ty::S32) => (o32 as i32).max(b32 as i32) as u32 as u64,
        (Op::Min, Ty::S64) => (old as i64).min(b as i64) as u64,
        (Op::Max, Ty::S64) => (old as i64).max(b as i64) as u64,
        (Op::Min, _) => old.min(b),
        (Op::Max, _) => old.max(b),
    }
}

/// # Safety
/// `p` must be valid and aligned for `n` bytes.
unsafe fn rmw(p: *mut u8, n: u32, f: impl Fn(u64) -> u64) -> u64 {
    macro_rules! go {
        ($a:ty, $t:ty) => {{
            let a = &*(p as *const $a);
            let mut old = a.load(SeqCst);
            loop {
                match a.compare_exchange(old, f(old as u64) as $t, SeqCst, SeqCst) {
                    Ok(_) => return old as u64,
                    Err(x) => old = x,
                }
            }
        }};
    }
    match n {
        2 => go!(AtomicU16, u16),
        4 => go!(AtomicU32, u32),
        _ => go!(AtomicU64, u64),
    }
}

/// `atom`/`red`: xs = destinations (vector; empty for red), then sources, then
/// the second cas operand; `a[2]` is the number of destinations.
pub fn atom(m: &mut Machine, i: &Inst) -> Exec {
    use super::ldst::{SINK, WIDE};
    let op = Machine::mem_op(i);
    let (o, ty) = (OPS[(i.flags & 0xff) as usize].1, TYS[(i.flags >> 8 & 0xff) as usize].1);
    let addrs = m.addresses(i, op.wide);
    let vec = op.vec as usize;
    let nd = i.a[2] as usize;
    let (dst, src) = i.xs.split_at(nd);
    let n = op.esize as u32;
    for l in m.lanes() {
        let p = m.access(i, l, op.space, addrs[l], n * vec as u32, Acc::Atomic, Order::Strong)?;
        let shared = matches!(op.space, MSpace::Shared | MSpace::SharedCluster) || addrs[l] >> 56 == 1 && op.space == MSpace::Generic;
        for v in 0..vec {
            let val = |s: u32| if s & WIDE != 0 { m.row::<u64>(s & !WIDE)[l] } else { m.row::<u32>(s)[l] as u64 };
            let low = |x: u64| if n == 2 { x & 0xffff } else { x };
            if ty == Ty::B128 {
                let at = |s: u32| m.row::<u128>(s & !(WIDE | super::ldst::QUAD))[l];
                // SAFETY: 16 bytes were checked. Not atomic across host threads,
                // which share no memory but global.
                unsafe {
                    let q = p as *mut u128;
                    let old = q.read_unaligned();
                    let new = if o == Op::Cas {
                        if old == at(src[0]) {
                            at(src[1])
                        } else {
                            old
                        }
                    } else {
                        at(src[0])
                    };
                    q.write_unaligned(new);
                    if let Some(&d) = dst.first() {
                        m.row::<u128>(d & !(WIDE | super::ldst::QUAD))[l] = old;
                    }
                }
                continue;
            }
            let b = low(val(src[v]));
            let c = if o == Op::Cas { low(val(src[vec])) } else { 0 };
            // Atomic f32 addition on global memory flushes subnormals.
            let flush = ty == Ty::F32 && !shared;
            // SAFETY: `access` checked the bytes and their alignment.
            let old = unsafe { rmw(p.add(v * n as usize), n, |x| apply(o, ty, x, b, c, flush)) };
            if let Some(&d) = dst.get(v) {
                if d == SINK {
                } else if d & WIDE != 0 {
                    m.row::<u64>(d & !WIDE)[l] = old;
                } else {
                    m.row::<u32>(d)[l] = old as u32;
                }
            }
        }
    }
    m.tally(i, op.space, &addrs, n * vec as u32, Acc::Atomic);
    m.event();
    Ok(Flow::Next)
}

/// Reduce bytes from shared memory into global memory (bulk reductions). The
/// destination range has been checked.
pub fn reduce_bytes(code: u32, to: u64, data: &[u8]) {
    let (o, (_, ty, n)) = (OPS[(code & 0xff) as usize].1, TYS[(code >> 8 & 0xff) as usize]);
    for (k, c) in data.chunks_exact(n as usize).enumerate() {
        let mut b = [0u8; 8];
        b[..n as usize].copy_from_slice(c);
        // SAFETY: the caller checked the destination range; bulk addresses are 16-byte aligned.
        unsafe { rmw((to as *mut u8).add(k * n as usize), n, |x| apply(o, ty, x, u64::from_le_bytes(b), 0, false)) };
    }
}
