//! A block's tensor memory with the order of its accesses: for every column of every lane
//! quadrant, who wrote and who read it last.

use super::*;
use crate::shared::{Clocks, Conflict, Epoch, Shared};
use crate::tmem;

/// Lazily made: most kernels have none.
#[derive(Default)]
pub struct TensorMemory {
    inner: Option<Box<Inner>>,
}

pub(super) struct Inner {
    pub(super) mem: tmem::TensorMemory,
    order: Shared,
}

impl TensorMemory {
    pub(super) fn get(&mut self) -> &mut Inner {
        self.inner.get_or_insert_with(|| Box::new(Inner { mem: tmem::TensorMemory::new(), order: Shared::new(4 * tmem::COLUMNS) }))
    }

    /// What is still allocated when the block ends.
    pub fn leaked(&self) -> Option<String> {
        self.inner.as_ref()?.mem.finish().err()
    }
}

impl Inner {
    /// Record an access of columns `first..first + n` in the quadrants of `quads`.
    fn touch(&mut self, first: u32, n: u32, quads: u32, write: bool, me: Epoch, know: &Clocks) -> Option<Conflict> {
        let end = (first + n).min(tmem::COLUMNS);
        for column in first..end {
            for q in super::super::lanes::Lanes(quads) {
                let at = 4 * column + q as u32;
                let c = if write { self.order.write(at, 1, me, know, true) } else { self.order.read(at, 1, me, know, true) };
                match c {
                    None | Some(Conflict::Unwritten(_)) => {}
                    found => return found,
                }
            }
        }
        None
    }
}

/// Which access: for messages.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Touch {
    Read,
    Write,
}

impl Machine {
    /// Order check of a tensor-memory access of block `cta` in the name of `me`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn tensor_touch(
        &mut self,
        i: &Inst,
        cta: usize,
        columns: (u32, u32),
        quads: u32,
        touch: Touch,
        me: Epoch,
        know: &Clocks,
    ) -> Result<(), Box<Fault>> {
        if !self.l.strict.races {
            return Ok(());
        }
        let t = self.ctas[cta].tmem.get();
        let Some(c) = t.touch(columns.0, columns.1, quads, touch == Touch::Write, me, know) else { return Ok(()) };
        let (at, other, verb) = match c {
            Conflict::ReadWrite(at, e) => (at, e, "write not ordered after the read"),
            Conflict::WriteRead(at, e) => (at, e, "read not ordered after the write"),
            Conflict::WriteWrite(at, e) => (at, e, "write not ordered after the write"),
            Conflict::Unwritten(_) => return Ok(()),
        };
        let (column, q) = (at / 4, at % 4);
        let what = format!(
            "tensor-memory race: column {column}, lanes {} to {} of block rank {cta}: {verb} by {} (needed: completion by tcgen05.commit and its mbarrier, or wait::ld/st, then tcgen05.fence::before_thread_sync, a synchronization, and tcgen05.fence::after_thread_sync)",
            32 * q,
            32 * q + 31,
            self.actor_name(other)
        );
        Err(self.fault(i, what))
    }
}
