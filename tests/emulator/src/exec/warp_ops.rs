//! Shuffle, vote, match, reductions, election.

use super::*;
use crate::ir::{Exec, Flow};

/// `shfl.sync.mode d|p, a, b, c, mask`: a[0] d, a[1] a, a[2] b, a[3] c; xs[0] is p or 0.
pub fn shfl(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u32>(i.a[1]);
    let (b, c) = (*m.row::<u32>(i.a[2]), *m.row::<u32>(i.a[3]));
    let mut t = [0u32; 32];
    let mut p = 0u32;
    for l in m.lanes() {
        let (bval, cval) = (b[l] & 31, c[l] & 31);
        let seg = (c[l] >> 8) & 31;
        let lane = l as u32;
        let max = (lane & seg) | (cval & !seg);
        let min = lane & seg;
        let (j, ok) = match i.imm {
            0 => (lane as i32 - bval as i32, lane as i32 - bval as i32 >= max as i32), // up
            1 => (lane as i32 + bval as i32, lane + bval <= max),                      // down
            2 => ((lane ^ bval) as i32, (lane ^ bval) <= max),                         // bfly
            _ => ((min | (bval & !seg)) as i32, (min | (bval & !seg)) <= max),         // idx
        };
        let src = if ok { j as usize & 31 } else { l };
        if m.mask >> src & 1 == 0 {
            return Err(m.fault_at(
                i,
                l as u32,
                crate::fault::LAUNCH_FAILED,
                format!("shfl.sync reads lane {src}, which does not take part (active {:#010x})", m.mask),
            ));
        }
        t[l] = a[src];
        p |= (ok as u32) << l;
    }
    m.store(i.a[0], &t);
    if let Some(&q) = i.xs.first() {
        m.set_pred(q, p);
    }
    Ok(Flow::Next)
}

/// `vote.sync`: a[0] destination, a[1] predicate; flags 8: negated;
/// imm 0 all, 1 any, 2 uni, 3 ballot.
pub fn vote(m: &mut Machine, i: &Inst) -> Exec {
    let p = m.pred(i.a[1]);
    let p = (if i.flags & 8 != 0 { !p } else { p }) & m.mask;
    let r = match i.imm {
        0 => p == m.mask,
        1 => p != 0,
        2 => p == m.mask || p == 0,
        _ => {
            m.store(i.a[0], &[p; 32]);
            return Ok(Flow::Next);
        }
    };
    m.set_pred(i.a[0], if r { !0 } else { 0 });
    Ok(Flow::Next)
}

/// `match.any/all.sync`: imm 0 any, 1 all; flags 1: 64-bit values; xs[0] predicate.
pub fn matches(m: &mut Machine, i: &Inst) -> Exec {
    let a = m.addresses_of(i.a[1], 0, i.flags & 1 != 0);
    let mut t = [0u32; 32];
    for l in m.lanes() {
        for k in m.lanes() {
            t[l] |= ((a[l] == a[k]) as u32) << k;
        }
    }
    if i.imm == 1 {
        let same = m.lanes().all(|l| t[l] == m.mask);
        t.fill(if same { m.mask } else { 0 });
        if let Some(&q) = i.xs.first() {
            m.set_pred(q, if same { !0 } else { 0 });
        }
    }
    m.store(i.a[0], &t);
    Ok(Flow::Next)
}

/// `redux.sync`: imm selects the operation.
pub fn redux(m: &mut Machine, i: &Inst) -> Exec {
    let a = *m.row::<u32>(i.a[1]);
    let f = i.flags;
    let vals = m.lanes().map(|l| a[l]);
    let r = match i.imm {
        0 => vals.fold(0u32, |x, y| x.wrapping_add(y)),
        1 => vals.fold(u32::MAX, |x, y| x.min(y)),
        2 => vals.fold(0, |x, y| x.max(y)),
        3 => vals.fold(i32::MAX, |x, y| x.min(y as i32)) as u32,
        4 => vals.fold(i32::MIN, |x, y| x.max(y as i32)) as u32,
        5 => vals.fold(!0, |x, y| x & y),
        6 => vals.fold(0, |x, y| x | y),
        7 => vals.fold(0, |x, y| x ^ y),
        _ => {
            let mut it = vals.map(|v| {
                let v = f32::from_bits(v);
                if f & 32 != 0 {
                    v.abs()
                } else {
                    v
                }
            });
            let first = it.next().unwrap_or(0.0);
            it.fold(first, |x, y| super::float::min_max(x, y, f)).to_bits()
        }
    };
    m.store(i.a[0], &[r; 32]);
    Ok(Flow::Next)
}

/// `elect.sync d|p, mask`: the lowest lane.
pub fn elect(m: &mut Machine, i: &Inst) -> Exec {
    let leader = m.mask.trailing_zeros();
    if i.a[0] != u32::MAX {
        m.store(i.a[0], &[leader; 32]);
    }
    m.set_pred(i.xs[0], 1 << leader);
    Ok(Flow::Next)
}

pub fn activemask(m: &mut Machine, i: &Inst) -> Exec {
    m.store(i.a[0], &[m.mask; 32]);
    Ok(Flow::Next)
}

/// Operation number and flags of `redux.sync`.
pub fn redux_op(p: &[&str]) -> Option<(i64, u32)> {
    let ty = *p.last()?;
    let op = p[2];
    if ty == "f32" {
        let has = |s: &str| p.contains(&s) as u32;
        let f = (op == "max") as u32 * 4 | has("NaN") * 8 | has("abs") * 32;
        return Some((8, f));
    }
    Some((
        match (op, ty) {
            ("add", _) => 0,
            ("min", "u32") => 1,
            ("max", "u32") => 2,
            ("min", "s32") => 3,
            ("max", "s32") => 4,
            ("and", _) => 5,
            ("or", _) => 6,
            ("xor", _) => 7,
            _ => return None,
        },
        0,
    ))
}
