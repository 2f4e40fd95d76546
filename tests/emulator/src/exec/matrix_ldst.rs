//! `ldmatrix`, `stmatrix`, `movmatrix` of 8x8 tiles of 16-bit elements.

use super::space::*;
use super::*;
use crate::ir::{Exec, Flow, MSpace, Order};

pub const TRANS: u32 = 1;
pub const WIDE: u32 = 2;
pub const GENERIC: u32 = 4;

/// Row addresses: lane 8j + r gives row r of matrix j.
fn rows(m: &mut Machine, i: &Inst, count: usize, acc: Acc) -> Result<Vec<*mut u8>, Box<Fault>> {
    let addrs = m.addresses(i, i.flags & WIDE != 0);
    let space = if i.flags & GENERIC != 0 { MSpace::Generic } else { MSpace::Shared };
    let mut out = Vec::with_capacity(8 * count);
    for l in 0..8 * count {
        out.push(m.access(i, l, space, addrs[l], 16, acc, Order::Weak)?);
    }
    // Each matrix is one pass of 8 rows of 16 bytes over all banks.
    let mut extra = 0;
    for j in 0..count {
        let mut a = [0u64; 32];
        a[..8].copy_from_slice(&addrs[8 * j..8 * j + 8]);
        extra += super::ldst::bank_conflicts(0xff, &a, 16);
    }
    m.counts.kinds[i.kind as usize].conflicts += extra;
    Ok(out)
}

/// Which element of the matrix is half `h` of a lane's register.
fn place(lane: usize, h: usize, trans: bool) -> (usize, usize) {
    let (a, b) = (lane / 4, 2 * (lane % 4) + h);
    if trans {
        (b, a)
    } else {
        (a, b)
    }
}

pub fn ldmatrix(m: &mut Machine, i: &Inst) -> Exec {
    let p = rows(m, i, i.xs.len(), Acc::Read)?;
    let trans = i.flags & TRANS != 0;
    for (j, &d) in i.xs.iter().enumerate() {
        let row = m.row::<u32>(d);
        for (l, x) in row.iter_mut().enumerate() {
            let mut v = 0;
            for h in 0..2 {
                let (r, c) = place(l, h, trans);
                // SAFETY: 16 bytes of each row were checked.
                v |= (unsafe { (p[8 * j + r].add(2 * c) as *const u16).read_unaligned() } as u32) << (16 * h);
            }
            *x = v;
        }
    }
    Ok(Flow::Next)
}

pub fn stmatrix(m: &mut Machine, i: &Inst) -> Exec {
    let p = rows(m, i, i.xs.len(), Acc::Write)?;
    let trans = i.flags & TRANS != 0;
    for (j, &s) in i.xs.iter().enumerate() {
        let row = *m.row::<u32>(s);
        for (l, x) in row.iter().enumerate() {
            for h in 0..2 {
                let (r, c) = place(l, h, trans);
                // SAFETY: 16 bytes of each row were checked.
                unsafe { (p[8 * j + r].add(2 * c) as *mut u16).write_unaligned((x >> (16 * h)) as u16) };
            }
        }
    }
    Ok(Flow::Next)
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`
pub fn movmatrix(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u32>(i.a[1]);
    let mut t = [0u32; 32];
    for (l, x) in t.iter_mut().enumerate() {
        for h in 0..2 {
            // Element (r, c) of the result is element (c, r) of the source.
            let (r, c) = place(l, h, true);
            let v = a[4 * r + c / 2] >> (16 * (c % 2)) & 0xffff;
            *x |= v << (16 * h);
        }
    }
    m.store(i.a[0], &t);
    Ok(Flow::Next)
}
