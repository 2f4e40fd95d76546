//! Asynchronous copies: cp.async and its groups, bulk copies and theirs. A copy
//! is queued when issued and happens at a random later time, at the latest when
//! somebody waits for it.

use super::space::Acc;
use super::*;
use crate::ir::{Exec, Flow, MSpace};
use crate::shared::{epoch, Conflict, Epoch};

/// Actors of a warp: its own accesses, its bulk groups, its asynchronous matrix
/// operations, its tcgen05.ld and st.
pub const ACTORS: u32 = 4;

#[derive(Default)]
pub struct Groups {
    /// Open cp.async group of each lane.
    pub cp: [u32; 32],
    /// Open bulk group of each lane.
    pub bulk: [u32; 32],
    /// Asynchronous matrix work.
    pub tensor: super::mma_ops::WarpTensor,
}

type Work = Box<dyn FnOnce(&mut Machine, &Inst) -> Result<(), Box<Fault>> + Send>;

pub enum Until {
    /// cp.async: lanes and the group each belongs to.
    Cp { mask: u32, group: [u32; 32] },
    /// Bulk copy out of shared memory by one lane.
    Bulk { lane: u32, group: u32 },
    /// Signals an mbarrier, or is ordered by something else.
    Signal,
}

pub struct Pending {
    pub w: usize,
    pub lane: u32,
    pub pc: u32,
    pub until: Until,
    pub work: Work,
}

/// Who makes an access when the access happens later than its issue.
#[derive(Clone)]
pub struct Issuer {
    pub me: Epoch,
    pub vc: Clocks,
    pub pvc: Clocks,
}

impl Machine {
    pub fn issuer(&self, actor: u32, clock: u32) -> Issuer {
        let w = &self.warps[self.w];
        Issuer { me: epoch(actor, clock), vc: w.vc.clone(), pvc: w.pvc.clone() }
    }

    pub fn enqueue(&mut self, lane: u32, until: Until, work: Work) {
        let (w, pc) = (self.w, self.pc);
        self.pending.push(Pending { w, lane, pc, until, work });
    }

    fn finish(&mut self, p: Pending) -> Result<(), Box<Fault>> {
        let saved = (self.w, self.mask, self.regs, self.preds, self.pc);
        (self.w, self.mask, self.pc) = (p.w, 1 << p.lane, p.pc);
        let l = self.l.clone();
        let r = (p.work)(self, &l.kernel.code[p.pc as usize]);
        (self.w, self.mask, self.regs, self.preds, self.pc) = saved;
        self.event();
        r
    }

    /// Let one asynchronous operation happen; false when there is none. A cp.async
    /// happens when somebody waits for it and not before (`all`: at the end), so
    /// that a missing wait always shows.
    pub fn finish_random(&mut self, all: bool) -> Result<bool, Box<Fault>> {
        let n = self.pending.len();
        if n == 0 {
            return Ok(false);
        }
        let start = (self.rand() % n as u64) as usize;
        let free = |p: &Pending| all || !matches!(p.until, Until::Cp { .. });
        let Some(k) = (0..n).map(|x| (start + x) % n).find(|&x| free(&self.pending[x])) else { return Ok(false) };
        let p = self.pending.swap_remove(k);
        self.finish(p)?;
        Ok(true)
    }

    fn finish_where(&mut self, f: impl Fn(&Pending) -> bool) -> Result<(), Box<Fault>> {
        while let Some(k) = self.pending.iter().position(&f) {
            let p = self.pending.remove(k);
            self.finish(p)?;
        }
        Ok(())
    }

    /// Finish this warp's cp.async of the active lanes: all, or all but the
    /// last `n` committed groups.
    pub fn finish_cp_async(&mut self, keep: Option<u32>) -> Result<(), Box<Fault>> {
        let (w, mask) = (self.w, self.mask);
        let open = self.warps[w].groups.cp;
        self.finish_where(|p| {
            p.w == w
                && match &p.until {
                    Until::Cp { mask: m, group } => super::lanes::Lanes(m & mask).any(|l| match keep {
                        None => true,
                        Some(n) => group[l] + n < open[l],
                    }),
                    _ => false,
                }
        })
    }

    /// Shared-memory side of a queued copy: checks in the name of the issuer.
    pub fn late_touch(
        &mut self,
        i: &Inst,
        cta: usize,
        off: u32,
        n: u32,
        acc: Acc,
        who: &Issuer,
        async_proxy: bool,
    ) -> Result<(), Box<Fault>> {
        let strict = self.l.strict;
        if off as u64 + n as u64 > self.ctas[cta].smem.len() as u64 || off < crate::shared::RESERVED {
            let what = format!("copy of {n} bytes at shared+{off:#x} leaves the block's shared memory");
            return Err(self.fault(i, what));
        }
        let s = &mut self.ctas[cta].smem;
        if async_proxy && acc == Acc::Read && strict.proxy {
            let mut bad = None;
            for o in off..off + n {
                let e = s.cells[o as usize].w;
                if e != 0 && !who.pvc.knows(e) {
                    bad = Some((o, e));
                    break;
                }
            }
            if let Some((o, e)) = bad {
                if who.vc.knows(e) {
                    let what = format!(
                        "missing fence.proxy.async: the asynchronous copy reads shared+{o:#x}, written by {} through the generic proxy",
                        self.actor_name(e)
                    );
                    return Err(self.fault(i, what));
                }
            }
        }
        let s = &mut self.ctas[cta].smem;
        let mut bad = match acc {
            Acc::Read => s.read(off, n, who.me, &who.vc, strict.races),
            _ => s.write(off, n, who.me, &who.vc, strict.races),
        };
        if matches!(bad, Some(Conflict::Unwritten(_))) && !strict.uninit {
            bad = None;
        }
        match bad {
            None => Ok(()),
            Some(c) => {
                let what = self.conflict_text(cta, c);
                Err(self.fault(i, what))
            }
        }
    }
}

/// `cp.async.ca/cg.shared.global [dst], [src], n{, src_n}`: a[0] dst, a[1] src,
/// a[2] src size (flags 1); xs = [n, dst disp, dst wide, pred or 0].
pub fn cp_async(m: &mut Machine, i: &Inst) -> Exec {
    let n = i.xs[0];
    let dst = m.addresses_of(i.a[0], i.xs[1] as i32 as i64, i.xs[2] != 0);
    let src = m.addresses(i, true);
    let mut size = if i.flags & 1 != 0 { *m.row::<u32>(i.a[2]) } else { [n; 32] };
    if i.xs[3] != 0 {
        let ignore = m.pred(i.xs[3]);
        for l in m.lanes() {
            if ignore >> l & 1 != 0 {
                size[l] = 0;
            }
        }
    }
    let mut jobs = Vec::new();
    for l in m.lanes() {
        if !dst[l].is_multiple_of(n as u64) || !src[l].is_multiple_of(n as u64) {
            let what = format!("cp.async of {n} bytes from {:#x} to shared {:#x}: not aligned to {n}", src[l], dst[l]);
            return Err(m.fault_at(i, l as u32, crate::fault::MISALIGNED, what));
        }
        if size[l] > n {
            return Err(m.fault_at(i, l as u32, crate::fault::LAUNCH_FAILED, format!("cp.async source size {} exceeds {n}", size[l])));
        }
        let (cta, off) = m.shared_place(i, l, MSpace::Shared, dst[l] as u32, n)?;
        if size[l] > 0 {
            m.global(i, l, src[l], size[l] as u64, Acc::Read)?;
        }
        jobs.push((l, cta, off, src[l], size[l]));
    }
    let who = m.issuer(m.actor(), m.warps[m.w].clock);
    let (mask, group) = (m.mask, m.warps[m.w].groups.cp);
    m.tally(i, MSpace::Global, &src, n, Acc::Read);
    let lane = mask.trailing_zeros();
    m.enqueue(
        lane,
        Until::Cp { mask, group },
        Box::new(move |m, i| {
            for (l, cta, off, src, size) in jobs {
                m.mask = 1 << l;
                m.late_touch(i, cta, off, n, Acc::Write, &who, false)?;
                let mut buf = [0u8; 16];
                // SAFETY: the source range was checked when the copy was issued.
                unsafe { std::ptr::copy_nonoverlapping(src as *const u8, buf.as_mut_ptr(), size as usize) };
                m.ctas[cta].smem.mem[off as usize..(off + n) as usize].copy_from_slice(&buf[..n as usize]);
            }
            Ok(())
        }),
    );
    Ok(Flow::Next)
}

pub fn cp_async_commit(m: &mut Machine, _: &Inst) -> Exec {
    for l in m.lanes() {
        m.warps[m.w].groups.cp[l] += 1;
    }
    Ok(Flow::Next)
}

/// `cp.async.wait_group n` / `wait_all` (imm -1).
pub fn cp_async_wait(m: &mut Machine, i: &Inst) -> Exec {
    m.finish_cp_async(if i.imm < 0 { None } else { Some(i.imm as u32) })?;
    Ok(Flow::Next)
}

pub fn bulk_commit(m: &mut Machine, _: &Inst) -> Exec {
    for l in m.lanes() {
        m.warps[m.w].groups.bulk[l] += 1;
    }
    Ok(Flow::Next)
}

/// `cp.async.bulk.wait_group{.read} n`
pub fn bulk_wait(m: &mut Machine, i: &Inst) -> Exec {
    let (w, mask) = (m.w, m.mask);
    let open = m.warps[w].groups.bulk;
    let keep = i.imm as u32;
    m.finish_where(|p| {
        p.w == w && matches!(p.until, Until::Bulk { lane, group } if mask >> lane & 1 != 0 && group + keep < open[lane as usize])
    })?;
    let a = m.actor() + 1;
    for l in m.lanes() {
        let done = open[l].saturating_sub(keep);
        m.warps[w].vc.set(a, done * 32 + l as u32 + 1);
    }
    Ok(Flow::Next)
}

/// What a bulk copy moves.
pub const TO_SHARED: u32 = 1;
pub const TO_GLOBAL: u32 = 2;
pub const SHARED_TO_SHARED: u32 = 3;
pub const MULTICAST: u32 = 4;
pub const WIDE_DST: u32 = 8;
pub const WIDE_SRC: u32 = 16;
pub const WIDE_BAR: u32 = 32;
/// Reduction of cp.reduce.async.bulk: (op | type << 8) in xs[4].
pub const REDUCE: u32 = 64;

/// `cp.async.bulk`: a[0] dst, a[1] src, a[2] size, a[3] mbarrier, a[4] cta mask;
/// xs = displacements of dst, src, mbarrier.
pub fn bulk(m: &mut Machine, i: &Inst) -> Exec {
    let f = i.flags;
    let dst = m.addresses_of(i.a[0], i.xs[0] as i32 as i64, f & WIDE_DST != 0);
    let src = m.addresses_of(i.a[1], i.xs[1] as i32 as i64, f & WIDE_SRC != 0);
    let size = *m.row::<u32>(i.a[2]);
    let signal = f & 3 != TO_GLOBAL;
    let bar = if signal { m.addresses_of(i.a[3], i.xs[2] as i32 as i64, f & WIDE_BAR != 0) } else { [0; 32] };
    for l in m.lanes() {
        let n = size[l];
        if !n.is_multiple_of(16) || !dst[l].is_multiple_of(16) || !src[l].is_multiple_of(16) {
            let what =
                format!("cp.async.bulk of {n} bytes from {:#x} to {:#x}: size and addresses must be multiples of 16", src[l], dst[l]);
            return Err(m.fault_at(i, l as u32, crate::fault::MISALIGNED, what));
        }
        if n == 0 {
            if signal {
                continue;
            }
            continue;
        }
        match f & 3 {
            TO_SHARED => {
                m.global(i, l, src[l], n as u64, Acc::Read)?;
                let (own, off) = m.shared_place(i, l, MSpace::SharedCluster, dst[l] as u32, n)?;
                let (bcta, boff) = m.shared_place(i, l, MSpace::SharedCluster, bar[l] as u32, 8)?;
                let ranks = if f & MULTICAST != 0 { m.row::<u32>(i.a[4])[l] & 0xffff } else { 1 << own };
                let who = m.issuer(0, 0);
                m.counts.kinds[i.kind as usize].read += n as u64;
                m.counts.kinds[i.kind as usize].sectors += n as u64 / 32;
                let from = src[l];
                m.enqueue(
                    l as u32,
                    Until::Signal,
                    Box::new(move |m, i| {
                        // SAFETY: the range was checked at issue.
                        let data = unsafe { std::slice::from_raw_parts(from as *const u8, n as usize) }.to_vec();
                        for r in super::lanes::Lanes(ranks) {
                            let b = if ranks.count_ones() > 1 { r } else { bcta };
                            m.deliver(i, r, off, &data, b, boff, &who)?;
                        }
                        Ok(())
                    }),
                );
            }
            SHARED_TO_SHARED => {
                let (scta, soff) = m.shared_place(i, l, MSpace::Shared, src[l] as u32, n)?;
                let (dcta, doff) = m.shared_place(i, l, MSpace::SharedCluster, dst[l] as u32, n)?;
                let (bcta, boff) = m.shared_place(i, l, MSpace::SharedCluster, bar[l] as u32, 8)?;
                let clock = m.warps[m.w].groups.bulk[l] * 32 + l as u32 + 1;
                let who = m.issuer(m.actor() + 1, clock);
                m.enqueue(
                    l as u32,
                    Until::Signal,
                    Box::new(move |m, i| {
                        m.late_touch(i, scta, soff, n, Acc::Read, &who, true)?;
                        let data = m.ctas[scta].smem.mem[soff as usize..(soff + n) as usize].to_vec();
                        m.deliver(i, dcta, doff, &data, bcta, boff, &who)
                    }),
                );
            }
            _ => {
                m.global(i, l, dst[l], n as u64, Acc::Write)?;
                let (scta, soff) = m.shared_place(i, l, MSpace::Shared, src[l] as u32, n)?;
                let group = m.warps[m.w].groups.bulk[l];
                let who = m.issuer(m.actor() + 1, (group + 1) * 32 + l as u32 + 1);
                m.counts.kinds[i.kind as usize].written += n as u64;
                m.counts.kinds[i.kind as usize].sectors += n as u64 / 32;
                let to = dst[l];
                let red = if f & REDUCE != 0 { Some(i.xs[4]) } else { None };
                m.enqueue(
                    l as u32,
                    Until::Bulk { lane: l as u32, group },
                    Box::new(move |m, i| {
                        m.late_touch(i, scta, soff, n, Acc::Read, &who, true)?;
                        let data = &m.ctas[scta].smem.mem[soff as usize..(soff + n) as usize];
                        match red {
                            // SAFETY: the range was checked at issue.
                            None => unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to as *mut u8, n as usize) },
                            Some(code) => super::atom::reduce_bytes(code, to, data),
                        }
                        Ok(())
                    }),
                );
            }
        }
    }
    Ok(Flow::Next)
}

impl Machine {
    /// Bytes arrive in shared memory under the name of an mbarrier.
    #[allow(clippy::too_many_arguments)]
    pub fn deliver(&mut self, i: &Inst, cta: usize, off: u32, data: &[u8], bcta: usize, boff: u32, who: &Issuer) -> Result<(), Box<Fault>> {
        let n = data.len() as u32;
        let b = self.mbar_get(i, bcta, boff)?;
        let w = Issuer { me: epoch(b.actor, b.phase as u32 + 1), ..who.clone() };
        self.late_touch(i, cta, off, n, Acc::Write, &w, true)?;
        self.ctas[cta].smem.mem[off as usize..(off + n) as usize].copy_from_slice(data);
        self.mbar_complete(i, bcta, boff, n as i64)
    }
}

/// `fence.proxy.async`
pub fn fence_proxy(m: &mut Machine, _: &Inst) -> Exec {
    m.proxy_fence();
    Ok(Flow::Next)
}

/// `griddepcontrol`, `prefetch` and other instructions without functional effect.
pub fn hint(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Next)
}

/// `nanosleep`: let others run.
pub fn sleep(_: &mut Machine, _: &Inst) -> Exec {
    Ok(Flow::Yield)
}
