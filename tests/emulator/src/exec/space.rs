//! Addresses: which state space a byte is in, and whether it may be touched.

use super::*;
use crate::fault::{ILLEGAL_ADDRESS, MISALIGNED};
use crate::ir::{MSpace, Order};
use crate::shared::{Conflict, RESERVED};

/// Windows of the generic address space; host addresses lie far below.
pub const SHARED_BASE: u64 = 1 << 56;
pub const LOCAL_BASE: u64 = 2 << 56;
pub const PARAM_BASE: u64 = 3 << 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acc {
    Read,
    Write,
    /// Atomic read-modify-write.
    Atomic,
}

/// The space behind a generic address and the address inside it.
#[inline(always)]
pub fn generic(addr: u64) -> (MSpace, u64) {
    match addr >> 56 {
        0 => (MSpace::Global, addr),
        1 => (MSpace::SharedCluster, addr & 0xffff_ffff),
        2 => (MSpace::Local, addr & 0xffff_ffff),
        3 => (MSpace::Param, addr & 0xffff_ffff),
        _ => (MSpace::Global, addr),
    }
}

impl Machine {
    /// Check an access of `n` bytes and give the host address of its bytes.
    #[inline]
    pub fn access(
        &mut self,
        i: &Inst,
        lane: usize,
        space: MSpace,
        addr: u64,
        n: u32,
        acc: Acc,
        order: Order,
    ) -> Result<*mut u8, Box<Fault>> {
        let (space, addr) = if space == MSpace::Generic { generic(addr) } else { (space, addr) };
        if addr & (n as u64 - 1) != 0 {
            return Err(self.fault_at(
                i,
                lane as u32,
                MISALIGNED,
                format!("misaligned {acc:?} of {n} bytes at {space:?} address {addr:#x}"),
            ));
        }
        match space {
            MSpace::Global | MSpace::Const => self.global(i, lane, addr, n as u64, acc),
            MSpace::Shared | MSpace::SharedCluster => self.shared(i, lane, space, addr as u32, n, acc, order),
            MSpace::Local => {
                let size = self.l.kernel.local_bytes as u64;
                if addr + n as u64 > size {
                    return Err(self.fault_at(
                        i,
                        lane as u32,
                        ILLEGAL_ADDRESS,
                        format!("{acc:?} of {n} bytes at local address {addr:#x}, out of {size} bytes"),
                    ));
                }
                let at = lane * size as usize + addr as usize;
                Ok(self.warps[self.w].local[at..].as_mut_ptr())
            }
            MSpace::Param => {
                let size = self.l.params.len() as u64;
                if addr + n as u64 > size || acc != Acc::Read {
                    return Err(self.fault_at(
                        i,
                        lane as u32,
                        ILLEGAL_ADDRESS,
                        format!("{acc:?} of {n} bytes at parameter offset {addr:#x}, out of {size} bytes"),
                    ));
                }
                Ok(self.l.params[addr as usize..].as_ptr() as *mut u8)
            }
            MSpace::Generic => unreachable!("resolved above"),
        }
    }

    #[inline]
    pub fn global(&mut self, i: &Inst, lane: usize, addr: u64, n: u64, acc: Acc) -> Result<*mut u8, Box<Fault>> {
        let hit = self.l.allocs.get(self.last_alloc).is_some_and(|a| a.contains(addr, n));
        if !hit {
            let at = self.l.allocs.partition_point(|a| a.base <= addr);
            let ok = at > 0 && self.l.allocs[at - 1].contains(addr, n);
            if !ok {
                return Err(self.outside(i, lane, addr, n, acc));
            }
            self.last_alloc = at - 1;
        }
        let a = &self.l.allocs[self.last_alloc];
        if acc != Acc::Write && self.l.strict.uninit {
            if let Some(at) = a.unwritten(addr, n) {
                let what = format!(
                    "{acc:?} of {n} bytes at global address {addr:#x} touches byte {at:#x}, which nobody has written (allocation {} of {} bytes, offset {})",
                    a.id, a.size, at - a.base
                );
                return Err(self.fault_at(i, lane as u32, crate::fault::LAUNCH_FAILED, what));
            }
        }
        if acc != Acc::Read {
            a.set_written(addr, n);
        }
        Ok(addr as *mut u8)
    }

    #[cold]
    fn outside(&self, i: &Inst, lane: usize, addr: u64, n: u64, acc: Acc) -> Box<Fault> {
        let at = self.l.allocs.partition_point(|a| a.base <= addr);
        let mut near = String::from("no allocation lies below it");
        if at > 0 {
            let a = &self.l.allocs[at - 1];
            near = format!("the allocation below ({}) has {} bytes from {:#x}, so this is offset {}", a.id, a.size, a.base, addr - a.base);
        }
        self.fault_at(i, lane as u32, ILLEGAL_ADDRESS, format!("{acc:?} of {n} bytes at global address {addr:#x} is out of bounds: {near}"))
    }

    /// The block and offset behind a shared address.
    #[inline]
    pub fn shared_place(&self, i: &Inst, lane: usize, space: MSpace, addr: u32, n: u32) -> Result<(usize, u32), Box<Fault>> {
        let (rank, off) = ((addr >> 24) as usize, addr & 0xff_ffff);
        let own = self.cta();
        if rank >= self.ctas.len() || (space == MSpace::Shared && rank != own) {
            let what =
                format!("shared address {addr:#x} names block rank {rank}; the cluster has {} and this is rank {own}", self.ctas.len());
            return Err(self.fault_at(i, lane as u32, ILLEGAL_ADDRESS, what));
        }
        let size = self.ctas[rank].smem.len();
        if off < RESERVED || off as u64 + n as u64 > size as u64 {
            let what = format!(
                "{n} bytes at shared address {addr:#x} are out of bounds: the block has shared memory from {RESERVED:#x} to {size:#x}"
            );
            return Err(self.fault_at(i, lane as u32, ILLEGAL_ADDRESS, what));
        }
        Ok((rank, off))
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn shared(&mut self, i: &Inst, lane: usize, space: MSpace, addr: u32, n: u32, acc: Acc, order: Order) -> Result<*mut u8, Box<Fault>> {
        let (cta, off) = self.shared_place(i, lane, space, addr, n)?;
        if order == Order::Strong || acc == Acc::Atomic {
            // Strong accesses carry synchronization with them.
            let mut flag = (self.ctas[cta].flags.remove(&off).unwrap_or_default(), Clocks::default());
            self.acquire(&flag);
            if acc != Acc::Read {
                self.release_into(&mut flag);
            }
            self.ctas[cta].flags.insert(off, flag.0);
        }
        self.shared_touch(i, lane, cta, off, n, acc)?;
        Ok(self.ctas[cta].smem.mem[off as usize..].as_mut_ptr())
    }

    /// Initialisation and race checks of the current warp's own access.
    #[inline]
    pub fn shared_touch(&mut self, i: &Inst, lane: usize, cta: usize, off: u32, n: u32, acc: Acc) -> Result<(), Box<Fault>> {
        let me = self.me();
        let races = self.l.strict.races;
        let vc = &self.warps[self.w].vc;
        let s = &mut self.ctas[cta].smem;
        let mut bad = if acc == Acc::Write { None } else { s.read(off, n, me, vc, races) };
        if let Some(Conflict::Unwritten(_)) = bad {
            if !self.l.strict.uninit {
                bad = None;
            }
        }
        if bad.is_none() && acc != Acc::Read {
            bad = s.write(off, n, me, vc, races);
        }
        match bad {
            None => Ok(()),
            Some(c) => {
                let what = self.conflict_text(cta, c);
                Err(self.fault_at(i, lane as u32, crate::fault::LAUNCH_FAILED, what))
            }
        }
    }
}
