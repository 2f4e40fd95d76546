//! Matrix instructions: registers, descriptors and memories of the machine meet the
//! arithmetic of [`crate::mma`].
//!
//! `mma.sync` acts at once. `wgmma` and the tcgen05 pipe are asynchronous: an issue is
//! queued behind earlier ones of the same warp and happens at a random later time, at the
//! latest when somebody waits for it. Until then its results are not there, and what it
//! reads must not change: both show as wrong results or as a race.

mod queue;
mod tcgen05;
mod tensor_memory;
mod wgmma;

pub use queue::WarpTensor;
pub use tcgen05::*;
pub use tensor_memory::TensorMemory;
pub use wgmma::*;

use super::async_copy::Issuer;
use super::space::Acc;
use super::*;
use crate::ir::{Exec, Ext, Flow, Slot};
use crate::mma::sync::{mma_sync, mma_sync_block_scale, mma_sync_int, BlockScale, MmaSync, Reg, Selector};
use crate::mma::SharedMemory;
use std::cell::RefCell;

/// Decoded operands of a matrix instruction.
pub enum MmaOp {
    /// `mma.sync` on floats.
    Sync { op: MmaSync, d: Vec<Slot>, a: Vec<Slot>, b: Vec<Slot>, c: Vec<Slot> },
    /// `mma.sync` on bytes.
    Int { m: usize, k: usize, a_signed: bool, b_signed: bool, sat: bool, d: Vec<Slot>, a: Vec<Slot>, b: Vec<Slot>, c: Vec<Slot> },
    /// `mma.sync ... block_scale`: scale registers with their byte and thread selectors.
    Block { op: BlockScale, d: Vec<Slot>, a: Vec<Slot>, b: Vec<Slot>, c: Vec<Slot>, sfa: [Slot; 3], sfb: [Slot; 3] },
    /// `wgmma.mma_async`
    Wgmma(WgmmaOp),
    /// The tcgen05 family.
    Tcgen05(Tcgen05Op),
}

impl Machine {
    fn regs_of(&self, slots: &[Slot]) -> Vec<Reg> {
        slots.iter().map(|&s| *self.row::<u32>(s)).collect()
    }

    fn set_regs(&mut self, slots: &[Slot], values: &[Reg]) {
        for (&s, v) in slots.iter().zip(values) {
            self.store(s, v);
        }
    }

    /// The one value that all active lanes hold.
    fn uniform(&self, i: &Inst, slot: Slot, what: &str) -> Result<u32, Box<Fault>> {
        let row = *self.row::<u32>(slot);
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

/// `mma.sync`
pub fn mma(m: &mut Machine, i: &Inst) -> Exec {
    let Ext::Mma(op) = &i.ext else { unreachable!("lowered with its operands") };
    m.counts.mma += 1;
    let (d, values) = match &**op {
        MmaOp::Sync { op, d, a, b, c } => {
            let op = MmaSync { sm: m.l.arch.cc, ..*op };
            (d, mma_sync(&op, &m.regs_of(a), &m.regs_of(b), &m.regs_of(c)))
        }
        MmaOp::Int { m: rows, k, a_signed, b_signed, sat, d, a, b, c } => {
            (d, mma_sync_int(*rows, *k, *a_signed, *b_signed, *sat, &m.regs_of(a), &m.regs_of(b), &m.regs_of(c)))
        }
        MmaOp::Block { op, d, a, b, c, sfa, sfb } => {
            let select = |s: &[Slot; 3], side: &str| -> Result<Selector, Box<Fault>> {
                let byte = m.uniform(i, s[1], &format!("byte-id of scale {side}"))? & 0xFFFF;
                let thread = m.uniform(i, s[2], &format!("thread-id of scale {side}"))? & 0xFFFF;
                Ok(Selector { byte, thread })
            };
            let (sel_a, sel_b) = (select(sfa, "A")?, select(sfb, "B")?);
            let (ra, rb) = (*m.row::<u32>(sfa[0]), *m.row::<u32>(sfb[0]));
            (d, mma_sync_block_scale(op, &m.regs_of(a), &m.regs_of(b), &m.regs_of(c), &ra, sel_a, &rb, sel_b))
        }
        _ => unreachable!("other instruction"),
    };
    match values {
        Ok(v) => {
            m.set_regs(d, &v);
            Ok(Flow::Next)
        }
        Err(e) => Err(m.fault(i, e)),
    }
}

/// Shared memory of one block as an asynchronous reader sees it: every read is checked in
/// the name of the issuer. A fault is kept for [`SmemView::fault`].
struct SmemView<'a> {
    machine: &'a RefCell<&'a mut Machine>,
    failed: &'a RefCell<Option<Box<Fault>>>,
    inst: &'a Inst,
    cta: usize,
    who: &'a Issuer,
}

impl SharedMemory for SmemView<'_> {
    fn read(&self, addr: u32, out: &mut [u8]) -> Result<(), String> {
        let mut m = self.machine.borrow_mut();
        match m.late_touch(self.inst, self.cta, addr, out.len() as u32, Acc::Read, self.who, true) {
            Ok(()) => {
                let at = addr as usize;
                out.copy_from_slice(&m.ctas[self.cta].smem.mem[at..at + out.len()]);
                Ok(())
            }
            Err(f) => {
                let text = f.what.clone();
                *self.failed.borrow_mut() = Some(f);
                Err(text)
            }
        }
    }
}
