//! Happens-before bookkeeping of warps and asynchronous actors.
//!
//! Actors: for every warp one for its own accesses, one for its bulk-copy
//! groups, one for its asynchronous matrix operations, one for its tcgen05.ld and st;
//! then one for every mbarrier.

use super::async_copy::ACTORS;
use super::*;
use crate::shared::{epoch, Conflict, Epoch, CLOCK_BITS, CLOCK_MAX};

impl Machine {
    pub fn actor(&self) -> u32 {
        self.w as u32 * ACTORS
    }

    pub fn me(&self) -> Epoch {
        epoch(self.actor(), self.warps[self.w].clock)
    }

    /// What the current warp knows, to hand on; later accesses are not part of it.
    pub fn release(&mut self) -> (Clocks, Clocks) {
        let a = self.actor();
        let w = &mut self.warps[self.w];
        let out = (w.vc.clone(), w.pvc.clone());
        w.clock += 1;
        w.vc.set(a, w.clock);
        out
    }

    pub fn release_into(&mut self, to: &mut (Clocks, Clocks)) {
        let (v, p) = self.release();
        to.0.join(&v);
        to.1.join(&p);
    }

    pub fn acquire(&mut self, from: &(Clocks, Clocks)) {
        let w = &mut self.warps[self.w];
        w.vc.join(&from.0);
        w.pvc.join(&from.1);
    }

    /// `fence.proxy.async`: all that is known now is visible to the async proxy.
    pub fn proxy_fence(&mut self) {
        let w = &mut self.warps[self.w];
        let vc = w.vc.clone();
        w.pvc.join(&vc);
        // Later writes must be fenced again.
        let a = self.actor();
        let w = &mut self.warps[self.w];
        w.clock += 1;
        w.vc.set(a, w.clock);
    }

    pub fn actor_name(&self, e: Epoch) -> String {
        let a = e >> CLOCK_BITS;
        let w = (a / ACTORS) as usize;
        if w < self.warps.len() {
            let warp = &self.warps[w];
            let c = self.ctas[warp.cta].rank;
            let what = match a % ACTORS {
                0 => "",
                1 => "bulk copy of ",
                2 => "matrix operations of ",
                _ => "tcgen05.ld and st of ",
            };
            return format!("{what}warp {} of block rank {c}", warp.index);
        }
        for c in &self.ctas {
            for (off, b) in &c.mbars {
                if b.actor == a {
                    return format!(
                        "asynchronous copy signalled by the mbarrier at shared+{off:#x} of block rank {} (phase {})",
                        c.rank,
                        (e & CLOCK_MAX).wrapping_sub(1)
                    );
                }
            }
        }
        format!("actor {a}")
    }

    pub fn conflict_text(&self, cta: usize, c: Conflict) -> String {
        let byte = |o: u32| {
            let s = &self.ctas[cta].smem;
            format!("shared+{o:#x} (value {:#04x})", s.mem[o as usize])
        };
        match c {
            Conflict::Unwritten(o) => format!("read of uninitialised shared memory at {}", byte(o)),
            Conflict::ReadWrite(o, e) => {
                format!("shared-memory race: write to {} not ordered after the read by {}", byte(o), self.actor_name(e))
            }
            Conflict::WriteRead(o, e) => {
                format!("shared-memory race: read of {} not ordered after the write by {}", byte(o), self.actor_name(e))
            }
            Conflict::WriteWrite(o, e) => {
                format!("shared-memory race: write to {} not ordered after the write by {}", byte(o), self.actor_name(e))
            }
        }
    }
}
