//! Block barriers (`bar`, `barrier`) and the cluster barrier.

use super::*;
use crate::ir::{Exec, Flow};

#[derive(Clone, Default)]
pub struct Bar {
    pub arrived: u32,
    /// Threads of the current round; 0 when nobody has come yet.
    pub expected: u32,
    /// Did the instruction give the count itself?
    explicit: bool,
    red_or: bool,
    red_and: bool,
    red_count: u32,
    know: (Clocks, Clocks),
}

#[derive(Clone, Default)]
pub struct ClusterBar {
    pub arrived: u32,
    pub phase: u64,
    know: (Clocks, Clocks),
    /// What the last completed phase hands to its waiters.
    done: (Clocks, Clocks),
}

pub const SYNC: u32 = 1;
pub const ALIGNED: u32 = 2;
pub const COUNT: u32 = 4;
/// bar.red: op << 4: 1 popc, 2 and, 3 or
pub const RED: u32 = 0x30;
pub const NOT: u32 = 8;

impl Machine {
    fn live_threads(&self, cta: usize) -> u32 {
        let c = &self.ctas[cta];
        self.warps[c.first_warp..c.first_warp + c.warps].iter().filter(|w| w.alive != 0).count() as u32 * 32
    }

    fn release_bar(&mut self, cta: usize, id: u32) {
        let l = self.l.clone();
        let b = std::mem::take(&mut self.ctas[cta].bars[id as usize]);
        let (first, n) = (self.ctas[cta].first_warp, self.ctas[cta].warps);
        for w in first..first + n {
            let warp = &mut self.warps[w];
            let mut woke = false;
            for f in &mut warp.frags {
                if f.state == State::Barrier(id) {
                    let i = &l.kernel.code[f.pc as usize];
                    bar_result(warp.regs.as_mut_ptr() as *mut u32, &mut warp.preds, i, f.mask, &b);
                    f.state = State::Ready;
                    f.pc += 1;
                    woke = true;
                }
            }
            if woke {
                warp.vc.join(&b.know.0);
                warp.pvc.join(&b.know.1);
            }
        }
        self.event();
    }

    /// Threads have left: a barrier that waits for all may be complete now.
    pub fn barrier_recheck(&mut self, w: usize) -> Result<(), Box<Fault>> {
        let cta = self.warps[w].cta;
        if self.warps[w].alive == 0 {
            for id in 0..16 {
                let live = self.live_threads(cta);
                let b = &mut self.ctas[cta].bars[id as usize];
                if b.arrived == 0 || b.explicit {
                    continue;
                }
                b.expected = live;
                if b.arrived >= live {
                    self.release_bar(cta, id);
                }
            }
            if self.cluster_bar.arrived != 0 {
                self.cluster_check();
            }
        }
        Ok(())
    }

    fn cluster_check(&mut self) {
        let live: u32 = self.warps.iter().map(|w| w.alive.count_ones()).sum();
        if self.cluster_bar.arrived >= live {
            let b = &mut self.cluster_bar;
            b.arrived = 0;
            b.phase += 1;
            b.done = std::mem::take(&mut b.know);
            self.event();
        }
    }
}

fn bar_result(regs: *mut u32, preds: &mut [u32], i: &Inst, mask: u32, b: &Bar) {
    match i.flags & RED {
        0x10 => {
            for l in super::lanes::Lanes(mask) {
                // SAFETY: the destination slot lies inside the warp's file.
                unsafe { *regs.add(i.a[0] as usize * 32 + l) = b.red_count };
            }
        }
        x @ (0x20 | 0x30) => {
            let v = if x == 0x20 { b.red_and } else { b.red_or };
            let p = &mut preds[i.a[0] as usize];
            *p = if v { *p | mask } else { *p & !mask };
        }
        _ => {}
    }
}

/// `bar.sync/arrive/red`: a[1] barrier number, a[2] thread count (flag COUNT),
/// a[3] predicate of `red`, a[0] its result.
pub fn bar(m: &mut Machine, i: &Inst) -> Exec {
    let first = m.mask.trailing_zeros() as usize;
    let id = m.row::<u32>(i.a[1])[first];
    if id >= 16 {
        return Err(m.fault(i, format!("barrier number {id} is not below 16")));
    }
    let cta = m.cta();
    let alive = m.warps[m.w].alive;
    let come = if m.mask == alive { 32 } else { m.mask.count_ones() };
    let expected = if i.flags & COUNT != 0 {
        let n = m.row::<u32>(i.a[2])[first];
        if n == 0 || !n.is_multiple_of(32) {
            return Err(m.fault(i, format!("barrier {id}: thread count {n} is not a positive multiple of 32")));
        }
        n
    } else {
        m.live_threads(cta)
    };
    if i.flags & SYNC == 0 && i.flags & COUNT == 0 {
        return Err(m.fault(i, format!("barrier {id}: arrive without a thread count")));
    }
    let b = &mut m.ctas[cta].bars[id as usize];
    if b.arrived != 0 && b.expected != expected {
        let was = b.expected;
        return Err(m.fault(i, format!("barrier {id}: this warp expects {expected} threads, earlier ones {was}")));
    }
    if b.arrived == 0 {
        b.red_and = true;
    }
    b.expected = expected;
    b.explicit = i.flags & COUNT != 0;
    b.arrived += come;
    if i.flags & RED != 0 {
        let p = m.pred(i.a[3]);
        let p = (if i.flags & NOT != 0 { !p } else { p }) & m.mask;
        let all = p == m.mask;
        let b = &mut m.ctas[cta].bars[id as usize];
        b.red_or |= p != 0;
        b.red_and &= all;
        b.red_count += p.count_ones();
    }
    let arrived = m.ctas[cta].bars[id as usize].arrived;
    if arrived > expected {
        return Err(m.fault(i, format!("barrier {id}: {arrived} threads arrived, {expected} expected")));
    }
    let mut know = std::mem::take(&mut m.ctas[cta].bars[id as usize].know);
    m.release_into(&mut know);
    m.ctas[cta].bars[id as usize].know = know;
    if arrived < expected {
        if i.flags & SYNC == 0 {
            return Ok(Flow::Next);
        }
        m.set_state(State::Barrier(id));
        return Ok(Flow::Wait);
    }
    // The last one: everybody goes on.
    let b = m.ctas[cta].bars[id as usize].clone();
    let (regs, mask, w) = (m.regs, m.mask, m.w);
    if i.flags & SYNC != 0 {
        bar_result(regs, &mut m.warps[w].preds, i, mask, &b);
        m.acquire(&b.know);
    }
    m.release_bar(cta, id);
    Ok(Flow::Next)
}

/// `barrier.cluster.arrive`.
pub fn cluster_arrive(m: &mut Machine, i: &Inst) -> Exec {
    let come = m.mask.count_ones();
    let phase = m.cluster_bar.phase;
    // A thread may not arrive twice in a phase.
    let key = (1u64 << 63) | m.mask.trailing_zeros() as u64;
    if m.warps[m.w].phases.insert(key, phase + 1) == Some(phase + 1) {
        return Err(m.fault(i, "barrier.cluster.arrive twice without a wait"));
    }
    let mut know = std::mem::take(&mut m.cluster_bar.know);
    if i.flags & 1 == 0 {
        m.release_into(&mut know); // .release (default); .relaxed hands on nothing
    }
    m.cluster_bar.know = know;
    m.cluster_bar.arrived += come;
    m.cluster_check();
    Ok(Flow::Next)
}

/// `barrier.cluster.wait`.
pub fn cluster_wait(m: &mut Machine, i: &Inst) -> Exec {
    let key = (1u64 << 63) | m.mask.trailing_zeros() as u64;
    let Some(&want) = m.warps[m.w].phases.get(&key) else {
        return Err(m.fault(i, "barrier.cluster.wait without an arrive"));
    };
    if m.cluster_bar.phase < want {
        return Ok(m.poll("the cluster barrier"));
    }
    let done = m.cluster_bar.done.clone();
    m.acquire(&done);
    Ok(Flow::Next)
}

/// `bar.warp.sync`: the gate has done the waiting.
pub fn warp_sync(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Next)
}
