//! Divergence: splitting the lanes of a warp and bringing them together again.

use super::*;
use crate::ir::{Exec, Flow};

pub fn bra(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Branch)
}

pub fn exit(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Exit)
}

pub fn nop(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Next)
}

pub fn trap(m: &mut Machine, i: &Inst) -> Exec {
    Err(m.fault(i, "trap executed"))
}

/// `brx.idx a, targets`: `xs` holds the target pcs.
pub fn brx(m: &mut Machine, i: &Inst) -> Exec {
    let idx = *m.row::<u32>(i.a[1]);
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for l in m.lanes() {
        let Some(&pc) = i.xs.get(idx[l] as usize) else {
            return Err(m.fault_at(
                i,
                l as u32,
                crate::fault::LAUNCH_FAILED,
                format!("brx.idx index {} of {} targets", idx[l], i.xs.len()),
            ));
        };
        match parts.iter_mut().find(|p| p.0 == pc) {
            Some(p) => p.1 |= 1 << l,
            None => parts.push((pc, 1 << l)),
        }
    }
    let rest = m.warps[m.w].frags[m.frag].mask & !m.mask;
    if rest != 0 {
        parts.push((m.pc + 1, rest));
    }
    m.split(&parts, i.join);
    Ok(Flow::Control)
}

impl Machine {
    /// Send parts of the current fragment to different places; they meet at `join`.
    pub fn split(&mut self, parts: &[(u32, u32)], join: u32) {
        let f = self.frag;
        let w = &mut self.warps[self.w];
        if parts.len() == 1 {
            w.frags[f].pc = parts[0].0;
            return;
        }
        let (whole, outer) = (w.frags[f].mask, w.frags[f].rec);
        let same = outer != NO_REC && w.recs[outer as usize].pc == join;
        let rec = if same || join == NO_REC {
            outer
        } else {
            w.recs.push(Rec { pc: join, parent: outer, pending: whole, arrived: 0 });
            w.recs.len() as u32 - 1
        };
        for (n, &(pc, mask)) in parts.iter().enumerate() {
            let frag = Frag { pc, mask, rec, state: State::Ready };
            if n == 0 {
                w.frags[f] = frag;
            } else {
                w.frags.push(frag);
            }
        }
    }

    /// The current fragment stands at its reconvergence point: park it there,
    /// and go on when all lanes have come. Returns false when it must wait.
    pub fn arrive(&mut self) -> bool {
        let f = self.frag;
        let w = &mut self.warps[self.w];
        let (mask, rec) = (w.frags[f].mask, w.frags[f].rec as usize);
        let r = &mut w.recs[rec];
        r.pending &= !mask;
        r.arrived |= mask;
        if r.pending == 0 {
            w.frags[f] = Frag { pc: r.pc, mask: r.arrived, rec: r.parent, state: State::Ready };
            self.trim();
            return true;
        }
        w.frags.swap_remove(f);
        false
    }

    /// Drop records that nobody uses, from the top.
    fn trim(&mut self) {
        let w = &mut self.warps[self.w];
        while let Some(last) = w.recs.last() {
            let id = w.recs.len() as u32 - 1;
            let used =
                last.arrived != 0 && last.pending != 0 || w.frags.iter().any(|f| f.rec == id) || w.recs.iter().any(|r| r.parent == id);
            if used {
                break;
            }
            w.recs.pop();
        }
    }

    /// Lanes leave the kernel.
    pub fn retire(&mut self, gone: u32) {
        let f = self.frag;
        let w = &mut self.warps[self.w];
        w.alive &= !gone;
        let left = w.frags[f].mask & !gone;
        if left == 0 {
            w.frags.swap_remove(f);
        } else {
            w.frags[f].mask = left;
            w.frags[f].pc += 1;
        }
        // Nobody waits for the dead.
        for id in (0..w.recs.len()).rev() {
            let r = &mut w.recs[id];
            let was = r.pending;
            r.pending &= !gone;
            if was != 0 && r.pending == 0 && r.arrived != 0 {
                let frag = Frag { pc: r.pc, mask: r.arrived, rec: r.parent, state: State::Ready };
                r.arrived = 0;
                w.frags.push(frag);
            }
        }
        for fr in &mut w.frags {
            if matches!(fr.state, State::Gate { .. }) {
                fr.state = State::Ready;
            }
        }
        self.trim();
    }
}
