//! mbarrier objects: arrival counts, transaction bytes, phases.

use super::space::Acc;
use super::*;
use crate::ir::{Exec, Flow, MSpace};

pub struct Mbar {
    /// Actor under whose name copies that signal this barrier write.
    pub actor: u32,
    pub expected: u32,
    pub pending: u32,
    pub tx: i64,
    pub phase: u64,
    know: (Clocks, Clocks),
    done: (Clocks, Clocks),
}

pub const EXPECT_TX: u32 = 1;
pub const DROP: u32 = 2;
pub const PARITY: u32 = 4;
pub const TRY: u32 = 8;
pub const HAS_COUNT: u32 = 16;
pub const STATE: u32 = 32;
pub const WIDE_ADDR: u32 = 64;
pub const CLUSTER: u32 = 128;
pub const RELAXED: u32 = 256;
pub const NOINC: u32 = 512;
pub const GENERIC: u32 = 1024;

impl Machine {
    fn mbar_place(&self, i: &Inst, lane: usize, addr: u64) -> Result<(usize, u32), Box<Fault>> {
        let space = if i.flags & (CLUSTER | GENERIC) != 0 { MSpace::SharedCluster } else { MSpace::Shared };
        if i.flags & GENERIC != 0 && addr >> 56 != 1 {
            return Err(self.fault_at(
                i,
                lane as u32,
                crate::fault::ILLEGAL_ADDRESS,
                format!("mbarrier address {addr:#x} is not in shared memory"),
            ));
        }
        let place = self.shared_place(i, lane, space, addr as u32, 8)?;
        if place.1 % 8 != 0 {
            return Err(self.fault_at(i, lane as u32, crate::fault::MISALIGNED, format!("mbarrier at {addr:#x} is not 8-byte aligned")));
        }
        Ok(place)
    }

    pub fn mbar_get(&mut self, i: &Inst, cta: usize, off: u32) -> Result<&mut Mbar, Box<Fault>> {
        if !self.ctas[cta].mbars.contains_key(&off) {
            return Err(self.fault(i, format!("no mbarrier was initialised at shared+{off:#x} of block rank {cta}")));
        }
        match self.ctas[cta].mbars.get_mut(&off) {
            Some(b) => Ok(b),
            None => unreachable!("checked"),
        }
    }

    /// Complete the phase when all arrivals and bytes are in.
    fn mbar_check(&mut self, cta: usize, off: u32) {
        if let Some(b) = self.ctas[cta].mbars.get_mut(&off) {
            if b.pending == 0 && b.tx == 0 {
                b.phase += 1;
                b.pending = b.expected;
                let know = std::mem::take(&mut b.know);
                b.done.0.join(&know.0);
                b.done.1.join(&know.1);
                let c = b.phase as u32;
                b.done.0.set(b.actor, c);
                b.done.1.set(b.actor, c);
                self.next_op += 1;
            }
        }
    }

    pub fn mbar_arrive(&mut self, i: &Inst, cta: usize, off: u32, count: u32, release: bool) -> Result<(), Box<Fault>> {
        let know = if release { self.release() } else { Default::default() };
        self.mbar_arrive_with(i, cta, off, count, &know)
    }

    /// An arrival that hands on the given knowledge.
    pub fn mbar_arrive_with(&mut self, i: &Inst, cta: usize, off: u32, count: u32, know: &(Clocks, Clocks)) -> Result<(), Box<Fault>> {
        let b = self.mbar_get(i, cta, off)?;
        if b.pending < count {
            let (p, e) = (b.pending, b.expected);
            return Err(self
                .fault(i, format!("mbarrier at shared+{off:#x}: {count} arrivals, but only {p} of {e} are still expected in this phase")));
        }
        b.pending -= count;
        b.know.0.join(&know.0);
        b.know.1.join(&know.1);
        self.mbar_check(cta, off);
        Ok(())
    }

    pub fn mbar_expect(&mut self, i: &Inst, cta: usize, off: u32, bytes: i64) -> Result<(), Box<Fault>> {
        let b = self.mbar_get(i, cta, off)?;
        b.tx += bytes;
        if b.tx.abs() >= 1 << 20 {
            let t = b.tx;
            return Err(self.fault(i, format!("mbarrier at shared+{off:#x}: transaction count {t} is out of range")));
        }
        Ok(())
    }

    /// An asynchronous copy has delivered bytes.
    pub fn mbar_complete(&mut self, i: &Inst, cta: usize, off: u32, bytes: i64) -> Result<(), Box<Fault>> {
        self.mbar_expect(i, cta, off, -bytes)?;
        self.mbar_check(cta, off);
        Ok(())
    }
}

/// `mbarrier.init [a], count`
pub fn init(m: &mut Machine, i: &Inst) -> Exec {
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    let count = *m.row::<u32>(i.a[2]);
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        if count[l] == 0 || count[l] >= 1 << 20 {
            return Err(m.fault_at(i, l as u32, crate::fault::LAUNCH_FAILED, format!("mbarrier.init with count {}", count[l])));
        }
        m.shared_touch(i, l, cta, off, 8, Acc::Write)?;
        let actor = m.next_actor;
        m.next_actor = (actor + 1).min(4095);
        let b = Mbar { actor, expected: count[l], pending: count[l], tx: 0, phase: 0, know: Default::default(), done: Default::default() };
        m.ctas[cta].mbars.insert(off, b);
    }
    Ok(Flow::Next)
}

/// `mbarrier.inval [a]`
pub fn inval(m: &mut Machine, i: &Inst) -> Exec {
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        m.mbar_get(i, cta, off)?;
        m.ctas[cta].mbars.remove(&off);
    }
    Ok(Flow::Next)
}

/// `mbarrier.expect_tx` / `complete_tx` (flag DROP): a[2] bytes.
pub fn expect_tx(m: &mut Machine, i: &Inst) -> Exec {
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    let tx = *m.row::<u32>(i.a[2]);
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        if i.flags & DROP != 0 {
            // CUTLASS hands a scheduler's answer on with a fence and a (relaxed) complete_tx.
            let know = m.release();
            m.mbar_arrive_with(i, cta, off, 0, &know)?;
            m.mbar_complete(i, cta, off, tx[l] as i64)?;
        } else {
            m.mbar_expect(i, cta, off, tx[l] as i64)?;
        }
    }
    Ok(Flow::Next)
}

/// `mbarrier.arrive{.expect_tx}` / `arrive_drop`: a[0] state (flag STATE), a[2]
/// count or bytes.
pub fn arrive(m: &mut Machine, i: &Inst) -> Exec {
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    let n = if i.flags & HAS_COUNT != 0 { *m.row::<u32>(i.a[2]) } else { [1; 32] };
    let release = i.flags & RELAXED == 0;
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        let phase = m.mbar_get(i, cta, off)?.phase;
        if i.flags & STATE != 0 {
            m.row::<u64>(i.a[0])[l] = phase;
        }
        if i.flags & DROP != 0 {
            let b = m.mbar_get(i, cta, off)?;
            b.expected = b.expected.saturating_sub(1);
        }
        if i.flags & EXPECT_TX != 0 {
            m.mbar_expect(i, cta, off, n[l] as i64)?;
            m.mbar_arrive(i, cta, off, 1, release)?;
        } else {
            m.mbar_arrive(i, cta, off, n[l], release)?;
        }
    }
    Ok(Flow::Next)
}

/// `mbarrier.test_wait/try_wait{.parity} p, [a], state`
pub fn wait(m: &mut Machine, i: &Inst) -> Exec {
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    let parity = i.flags & PARITY != 0;
    let mut p = 0u32;
    let mut seen = None;
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        let want = if parity { m.row::<u32>(i.a[2])[l] as u64 } else { m.row::<u64>(i.a[2])[l] };
        if parity && want > 1 {
            return Err(m.fault_at(
                i,
                l as u32,
                crate::fault::LAUNCH_FAILED,
                format!("mbarrier wait with phase parity {want}, which is neither 0 nor 1"),
            ));
        }
        let b = m.mbar_get(i, cta, off)?;
        let done = if parity { b.phase & 1 != want } else { b.phase > want };
        if done {
            p |= 1 << l;
            if seen != Some((cta, off)) {
                seen = Some((cta, off));
                let know = m.mbar_get(i, cta, off)?.done.clone();
                m.acquire(&know);
            }
        }
    }
    if p == 0 && i.flags & TRY != 0 {
        // A try_wait may suspend the thread until the phase completes.
        return Ok(m.poll("an mbarrier phase"));
    }
    m.set_pred(i.a[0], p);
    Ok(if p == m.mask { Flow::Next } else { Flow::Yield })
}

/// `cp.async.mbarrier.arrive{.noinc}`: when this thread's earlier cp.async are done.
pub fn cp_async_arrive(m: &mut Machine, i: &Inst) -> Exec {
    m.finish_cp_async(None)?;
    let addrs = m.addresses(i, i.flags & WIDE_ADDR != 0);
    for l in m.lanes() {
        let (cta, off) = m.mbar_place(i, l, addrs[l])?;
        if i.flags & NOINC == 0 {
            // The pending count goes up by one and down again.
            m.mbar_get(i, cta, off)?.pending += 1;
        }
        m.mbar_arrive(i, cta, off, 1, true)?;
    }
    Ok(Flow::Next)
}

/// `mbarrier.pending_count`: not kept in the state word here.
pub fn pending_count(m: &mut Machine, i: &Inst) -> Exec {
    Err(m.fault(i, "unsupported instruction: mbarrier.pending_count"))
}
