//! Asynchronous matrix work of one warp, done in the order of issue.

use super::super::async_copy::Until;
use super::*;
use crate::shared::Clocks;
use std::collections::VecDeque;

type Work = Box<dyn FnOnce(&mut Machine, &Inst) -> Result<(), Box<Fault>> + Send>;

pub(super) struct Item {
    pc: u32,
    mask: u32,
    pub(super) group: u32,
    work: Work,
}

/// A warp's asynchronous matrix state.
#[derive(Default)]
pub struct WarpTensor {
    pub(super) queue: VecDeque<Item>,
    /// wgmma: the open group, and whether a fence orders the registers.
    pub(super) group: u32,
    pub(super) fenced: bool,
    /// What this warp knew at its last wgmma.fence, and at the fence before each group.
    pub(super) fence_know: (Clocks, Clocks),
    pub(super) group_know: VecDeque<(u32, (Clocks, Clocks))>,
    /// tcgen05: operations issued into the pipe so far (its clock).
    pub(super) ops: u32,
    /// tcgen05.ld and st: issued, and known complete by wait::ld and wait::st.
    pub(super) access: u32,
    pub(super) waited: [u32; 2],
    pub(super) issued: [u32; 2],
    /// Results of loads that no wait::ld has delivered yet.
    pub(super) loads: Vec<(Slot, Reg)>,
    /// What this warp may rely on in tensor memory.
    pub(super) know: Clocks,
}

impl Machine {
    pub(super) fn tensor(&mut self) -> &mut WarpTensor {
        let w = self.w;
        &mut self.warps[w].groups.tensor
    }

    /// Queue work of the current warp behind its earlier matrix work.
    pub(super) fn later(&mut self, group: u32, work: Work) {
        let (w, pc, mask) = (self.w, self.pc, self.mask);
        self.tensor().queue.push_back(Item { pc, mask, group, work });
        let lane = mask.trailing_zeros();
        // Each entry does the oldest work there is, so the order stays that of issue.
        self.enqueue(lane, Until::Signal, Box::new(move |m, _| m.work_one(w).map(|_| ())));
    }

    /// Do the oldest queued work of warp `w`.
    fn work_one(&mut self, w: usize) -> Result<bool, Box<Fault>> {
        let Some(item) = self.warps[w].groups.tensor.queue.pop_front() else { return Ok(false) };
        let saved = (self.w, self.mask, self.pc, self.regs, self.preds);
        (self.w, self.mask, self.pc) = (w, item.mask, item.pc);
        self.regs = self.warps[w].regs.as_mut_ptr() as *mut u32;
        self.preds = self.warps[w].preds.as_mut_ptr();
        let l = self.l.clone();
        let r = (item.work)(self, &l.kernel.code[item.pc as usize]);
        (self.w, self.mask, self.pc, self.regs, self.preds) = saved;
        self.event();
        r.map(|_| true)
    }

    /// Do the queued work of warp `w` in all groups before `end`.
    pub(super) fn work_before(&mut self, w: usize, end: u32) -> Result<(), Box<Fault>> {
        while self.warps[w].groups.tensor.queue.front().is_some_and(|x| x.group < end) {
            self.work_one(w)?;
        }
        Ok(())
    }
}
