//! `wgmma`: each warp of a warpgroup computes its sixteen rows.

use super::*;
use crate::mma::wgmma::{wgmma_warp, WarpA, Wgmma};

/// Operands of `wgmma.mma_async`.
pub struct WgmmaOp {
    /// Fixed parts; `scale_d` is taken from the predicate.
    pub op: Wgmma,
    /// Accumulator.
    pub d: Vec<Slot>,
    /// A: one 64-bit descriptor or four registers.
    pub a: WgmmaSource,
    /// Descriptor of B.
    pub b: Slot,
    /// scale-d: predicate and negation.
    pub scale_d: (u32, bool),
}

/// Where A comes from.
pub enum WgmmaSource {
    Desc(Slot),
    Regs(Vec<Slot>),
}

impl Machine {
    /// A 64-bit operand that all lanes must agree on.
    pub(super) fn uniform64(&self, i: &Inst, slot: Slot, what: &str) -> Result<u64, Box<Fault>> {
        let row = *self.row::<u64>(slot);
        let first = row[self.mask.trailing_zeros() as usize];
        match self.lanes().find(|&l| row[l] != first) {
            None => Ok(first),
            Some(l) => Err(self.fault_at(
                i,
                l as u32,
                crate::fault::LAUNCH_FAILED,
                format!("{what} must be the same in all lanes: {first:#x} and {:#x}", row[l]),
            )),
        }
    }
}

/// `wgmma.mma_async`
pub fn wgmma_async(m: &mut Machine, i: &Inst) -> Exec {
    let Ext::Mma(op) = &i.ext else { unreachable!("lowered with its operands") };
    let MmaOp::Wgmma(w) = &**op else { unreachable!("lowered with its operands") };
    m.counts.mma += 1;
    if !m.tensor().fenced {
        return Err(m.fault(i, "missing wgmma.fence: the registers of this wgmma are not ordered after earlier accesses"));
    }
    let scale = m.pred(w.scale_d.0) ^ if w.scale_d.1 { !0 } else { 0 };
    let scale = scale & m.mask;
    if scale != 0 && scale != m.mask {
        return Err(m.fault(i, "wgmma: scale-d must be the same in all lanes"));
    }
    let instr = Wgmma { scale_d: scale != 0, ..w.op };
    let a_desc = match &w.a {
        WgmmaSource::Desc(s) => Some(m.uniform64(i, *s, "the descriptor of A")?),
        WgmmaSource::Regs(_) => None,
    };
    let b_desc = m.uniform64(i, w.b, "the descriptor of B")?;
    let cta = m.cta();
    let warp = m.warps[m.w].index as usize % 4;
    let group = m.tensor().group;
    let who = m.issuer(m.actor() + 2, group + 1);
    m.later(
        group,
        Box::new(move |m, i| {
            let Ext::Mma(op) = &i.ext else { unreachable!("same instruction") };
            let MmaOp::Wgmma(w) = &**op else { unreachable!("same instruction") };
            let mut acc = m.regs_of(&w.d);
            let regs = match &w.a {
                WgmmaSource::Regs(s) => m.regs_of(s),
                WgmmaSource::Desc(_) => Vec::new(),
            };
            let a = a_desc.map_or(WarpA::Regs(&regs), WarpA::Desc);
            let failed = RefCell::new(None);
            let r = {
                let machine = RefCell::new(&mut *m);
                let smem = SmemView { machine: &machine, failed: &failed, inst: i, cta, who: &who };
                wgmma_warp(&instr, warp, a, b_desc, &smem, &mut acc)
            };
            if let Err(e) = r {
                return Err(failed.into_inner().unwrap_or_else(|| m.fault(i, e)));
            }
            m.set_regs(&w.d, &acc);
            Ok(())
        }),
    );
    Ok(Flow::Next)
}

/// `wgmma.fence`
pub fn wgmma_fence(m: &mut Machine, _: &Inst) -> Exec {
    m.tensor().fenced = true;
    let know = m.release();
    m.tensor().fence_know = know;
    Ok(Flow::Next)
}

/// `wgmma.commit_group`
pub fn wgmma_commit(m: &mut Machine, _: &Inst) -> Exec {
    let t = m.tensor();
    t.group_know.push_back((t.group, t.fence_know.clone()));
    t.group += 1;
    m.event();
    Ok(Flow::Next)
}

/// `wgmma.wait_group n`. The warpgroup works as one: what one warp waits for is complete for
/// all four (pipelines rely on it, letting one thread release a stage), so all of them must
/// have issued it.
pub fn wgmma_wait(m: &mut Machine, i: &Inst) -> Exec {
    let n = i.imm as u32;
    let done = m.tensor().group.saturating_sub(n);
    let first = m.w - m.warps[m.w].index as usize % 4;
    let own = m.cta();
    let group: Vec<usize> = (first..first + 4).filter(|&w| m.warps.get(w).is_some_and(|x| x.cta == own)).collect();
    if group.len() != 4 {
        return Err(m.fault(i, format!("wgmma in a warpgroup of {} warps", group.len())));
    }
    if group.iter().any(|&w| m.warps[w].groups.tensor.group < done) {
        return Ok(m.poll("the other warps of its warpgroup to issue the same wgmma"));
    }
    for &w in &group {
        m.work_before(w, done)?;
    }
    if n == 0 {
        m.tensor().fenced = false;
    }
    let w = m.w;
    for &other in &group {
        // The warps meet at the fence before a wgmma (WARPGROUP.ARRIVE on the chip), so what
        // another one did before it is ordered before the end of the wgmma.
        let list = &mut m.warps[other].groups.tensor.group_know;
        while list.len() > 1 && list[1].0 < done.saturating_sub(8) {
            list.pop_front();
        }
        let know = list.iter().rev().find(|k| k.0 < done).map(|k| k.1.clone());
        if let Some(k) = know {
            m.acquire(&k);
        }
        if done > 0 {
            let reads = other as u32 * crate::exec::async_copy::ACTORS + 2;
            m.warps[w].vc.set(reads, done);
        }
    }
    Ok(Flow::Next)
}
