//! The tcgen05 family: allocation, ld and st, and the pipe of cp, mma and commit.
//!
//! Actors of a warp in tensor memory: 2 is its pipe (clock: operations issued), 3 its ld
//! and st (clock: accesses issued). Three kinds of knowledge: `vc` is what a warp knows
//! through barriers; `know` what it may rely on in tensor memory: fence::after_thread_sync
//! turns the first into the second, fence::before_thread_sync puts completed ld and st
//! into the first, a commit's mbarrier does so for the pipe. CUTLASS issues no such fences at
//! all and not after every ld a wait::ld, and runs: with NVFP4_EMU_FENCES=0 ld and st are
//! complete at once and every synchronization orders tensor memory.

use super::tensor_memory::Touch;
use super::*;
use crate::ir::MSpace;
use crate::mma::idesc::{InstrDesc, Kind};
use crate::mma::umma::{umma, CtaMemory, Umma, UmmaA, UmmaArgs};
use crate::shared::{epoch, Clocks};
use crate::tmem::{self, Access, CpShape, Shape};

/// Decoded operands.
pub enum Tcgen05Op {
    /// alloc: shared address (slot, wide, displacement), columns.
    Alloc {
        group: u32,
        at: (Slot, bool, i64),
        columns: Slot,
    },
    Dealloc {
        group: u32,
        at: Slot,
        columns: Slot,
    },
    Relinquish {
        group: u32,
    },
    Load {
        access: Access,
        at: (Slot, i64),
        regs: Vec<Slot>,
    },
    Store {
        access: Access,
        at: (Slot, i64),
        regs: Vec<Slot>,
    },
    Wait {
        store: bool,
    },
    Fence {
        after: bool,
    },
    Copy {
        group: u32,
        shape: CpShape,
        at: (Slot, i64),
        desc: Slot,
    },
    Mma(UmmaOp),
    /// commit: mbarrier address, and the CTA mask of a multicast.
    Commit {
        group: u32,
        at: (Slot, bool, i64),
        mask: Option<Slot>,
    },
}

/// `tcgen05.mma`
pub struct UmmaOp {
    pub op: Umma,
    pub d: (Slot, i64),
    pub a: UmmaSource,
    pub b: Slot,
    pub idesc: Slot,
    pub sfa: Option<(Slot, i64)>,
    pub sfb: Option<(Slot, i64)>,
    pub disabled: Vec<Slot>,
    pub accumulate: (u32, bool),
}

pub enum UmmaSource {
    Desc(Slot),
    Tmem((Slot, i64)),
}

const ALL_QUADS: u32 = 0b1111;

fn operands(i: &Inst) -> &Tcgen05Op {
    match &i.ext {
        Ext::Mma(op) => match &**op {
            MmaOp::Tcgen05(t) => t,
            _ => unreachable!("lowered with its operands"),
        },
        _ => unreachable!("lowered with its operands"),
    }
}

impl Machine {
    fn at(&self, i: &Inst, (slot, disp): (Slot, i64), what: &str) -> Result<u32, Box<Fault>> {
        Ok(self.uniform(i, slot, what)?.wrapping_add(disp as u32))
    }

    /// The one lane that may issue into the pipe.
    fn issuing_lane(&self, i: &Inst) -> Result<usize, Box<Fault>> {
        if self.mask.count_ones() != 1 {
            return Err(self.fault(
                i,
                format!(
                    "issued by {} threads of the warp at once (lanes {:#010x}); exactly one must issue",
                    self.mask.count_ones(),
                    self.mask
                ),
            ));
        }
        Ok(self.mask.trailing_zeros() as usize)
    }

    /// This block and, with cta_group::2, its peer, even rank first.
    fn group_ctas(&self, i: &Inst, group: u32) -> Result<Vec<usize>, Box<Fault>> {
        let own = self.cta();
        if group == 1 {
            return Ok(vec![own]);
        }
        let even = own & !1;
        if even + 1 >= self.ctas.len() {
            return Err(self.fault(i, format!("cta_group::2 needs a pair of blocks; the cluster has {}", self.ctas.len())));
        }
        Ok(vec![even, even + 1])
    }

    /// One more operation of the current warp in the pipe: who makes its accesses, and what
    /// it may rely on in tensor memory.
    fn pipe(&mut self) -> (Issuer, Clocks) {
        let actor = self.actor() + 2;
        let t = self.tensor();
        t.ops += 1;
        let clock = t.ops;
        (self.issuer(actor, clock), self.tensor_knowledge())
    }

    /// What the current warp may rely on in tensor memory.
    fn tensor_knowledge(&mut self) -> Clocks {
        let mut know = self.tensor().know.clone();
        if !self.l.strict.fences {
            know.join(&self.warps[self.w].vc);
        }
        know
    }
}

/// alloc, dealloc, relinquish_alloc_permit: whole warp.
pub fn tcgen05_alloc(m: &mut Machine, i: &Inst) -> Exec {
    let cta = m.cta();
    match operands(i) {
        Tcgen05Op::Alloc { group, at, columns } => {
            let n = m.uniform(i, *columns, "the number of columns")?;
            m.group_ctas(i, *group)?;
            let base = match m.ctas[cta].tmem.get().mem.alloc(n, *group) {
                Err(e) => return Err(m.fault(i, e)),
                Ok(None) => return Ok(m.poll("free columns of tensor memory (tcgen05.alloc)")),
                Ok(Some(base)) => base,
            };
            let addr = m.addresses_of(at.0, at.2, at.1);
            let lane = m.mask.trailing_zeros() as usize;
            let (own, off) = m.shared_place(i, lane, MSpace::Shared, addr[lane] as u32, 4)?;
            m.shared_touch(i, lane, own, off, 4, Acc::Write)?;
            m.ctas[own].smem.mem[off as usize..off as usize + 4].copy_from_slice(&base.to_le_bytes());
        }
        Tcgen05Op::Dealloc { group, at, columns } => {
            let n = m.uniform(i, *columns, "the number of columns")?;
            let base = m.uniform(i, *at, "the tensor-memory address")?;
            let me = next_access(m);
            // Kernels proven on silicon free behind a plain barrier, without fence::after_thread_sync.
            let mut know = m.tensor().know.clone();
            know.join(&m.warps[m.w].vc);
            if n <= tmem::COLUMNS && base < tmem::COLUMNS {
                m.tensor_touch(i, cta, (base, n), ALL_QUADS, Touch::Write, me, &know)?;
            }
            if let Err(e) = m.ctas[cta].tmem.get().mem.dealloc(base, n, *group) {
                return Err(m.fault(i, e));
            }
            m.event();
        }
        Tcgen05Op::Relinquish { group } => {
            if let Err(e) = m.ctas[cta].tmem.get().mem.relinquish(*group) {
                return Err(m.fault(i, e));
            }
        }
        _ => unreachable!("other instruction"),
    }
    Ok(Flow::Next)
}

/// The epoch of the current warp's next ld or st.
fn next_access(m: &mut Machine) -> u32 {
    let actor = m.actor() + 3;
    let t = m.tensor();
    t.access += 1;
    epoch(actor, t.access)
}

/// Columns an access covers, packed pairs counted twice.
fn columns_of(access: &Access) -> u32 {
    let one = match access.shape {
        Shape::S32x32b => access.num,
        Shape::S16x64b => 2 * access.num,
        Shape::S16x128b => 4 * access.num,
        Shape::S16x256b => 8 * access.num,
        Shape::S16x32bx2 { split } => access.num + split,
    };
    one * (1 + access.packed as u32)
}

/// What a register holds between tcgen05.ld and wait::ld.
const POISON: u32 = 0x7FBA_D1D5;

/// ld and st: whole warp.
pub fn tcgen05_access(m: &mut Machine, i: &Inst) -> Exec {
    let (access, at, store) = match operands(i) {
        Tcgen05Op::Load { access, at, .. } => (access, at, false),
        Tcgen05Op::Store { access, at, .. } => (access, at, true),
        _ => unreachable!("other instruction"),
    };
    let address = m.at(i, *at, "the tensor-memory address")?;
    let (cta, warp) = (m.cta(), m.warps[m.w].index);
    let me = next_access(m);
    let clock = m.tensor().access;
    m.tensor().issued[store as usize] = clock;
    let know = m.tensor_knowledge();
    let touch = if store { Touch::Write } else { Touch::Read };
    let quad = 1 << (warp % 4);
    m.tensor_touch(i, cta, (tmem::split(address).1, columns_of(access)), quad, touch, me, &know)?;
    match operands(i) {
        Tcgen05Op::Load { regs, .. } => {
            let values = match m.ctas[cta].tmem.get().mem.load(access, address, warp) {
                Ok(v) => v,
                Err(e) => return Err(m.fault(i, e)),
            };
            for (&slot, value) in regs.iter().zip(&values) {
                if !m.l.strict.fences {
                    m.store(slot, value);
                    continue;
                }
                m.store(slot, &[POISON; 32]);
                m.tensor().loads.push((slot, *value));
            }
        }
        Tcgen05Op::Store { regs, .. } => {
            let values = m.regs_of(regs);
            if let Err(e) = m.ctas[cta].tmem.get().mem.store(access, address, warp, &values) {
                return Err(m.fault(i, e));
            }
        }
        _ => unreachable!("other instruction"),
    }
    if !m.l.strict.fences {
        let w = m.w;
        let actor = m.actor() + 3;
        m.warps[w].vc.set(actor, clock);
    }
    Ok(Flow::Next)
}

/// wait::ld, wait::st and the two fences.
pub fn tcgen05_order(m: &mut Machine, i: &Inst) -> Exec {
    let actor = m.actor() + 3;
    let w = m.w;
    match operands(i) {
        Tcgen05Op::Wait { store } => {
            let t = m.tensor();
            t.waited[*store as usize] = t.issued[*store as usize];
            // Both kinds share one clock: complete is what neither kind still has open.
            let open = (0..2).filter(|&k| t.waited[k] != t.issued[k]).map(|k| t.waited[k] + 1).min();
            let done = open.map_or(t.access, |o| o - 1);
            t.know.set(actor, done);
            if !*store {
                for (slot, value) in std::mem::take(&mut t.loads) {
                    m.store(slot, &value);
                }
            }
        }
        Tcgen05Op::Fence { after: true } => {
            let vc = m.warps[w].vc.clone();
            m.tensor().know.join(&vc);
        }
        Tcgen05Op::Fence { after: false } => {
            let done = m.tensor().know.get(actor);
            if done > 0 {
                m.warps[w].vc.set(actor, done);
            }
        }
        _ => unreachable!("other instruction"),
    }
    Ok(Flow::Next)
}

/// cp: queued in the pipe.
pub fn tcgen05_copy(m: &mut Machine, i: &Inst) -> Exec {
    let Tcgen05Op::Copy { group, shape, at, desc } = operands(i) else { unreachable!("other instruction") };
    let lane = m.issuing_lane(i)?;
    let ctas = m.group_ctas(i, *group)?;
    let address = m.at(i, *at, "the tensor-memory address")?;
    let (desc, group, shape) = (m.row::<u64>(*desc)[lane], *group, *shape);
    let (who, know) = m.pipe();
    m.later(
        0,
        Box::new(move |m, i| {
            let columns = if matches!(shape, CpShape::S128x256b | CpShape::S4x256b) { 8 } else { 4 };
            for cta in ctas {
                m.tensor_touch(i, cta, (tmem::split(address).1, columns), ALL_QUADS, Touch::Write, who.me, &know)?;
                with_memories(m, i, &[cta], &who, |c| c[0].tmem.copy_in(shape, group, address, desc, c[0].smem))?;
            }
            Ok(())
        }),
    );
    Ok(Flow::Next)
}

/// Runs `f` over the memories of `ctas`; a fault while reading shared memory wins over the
/// sentence it caused.
fn with_memories(
    m: &mut Machine,
    i: &Inst,
    ctas: &[usize],
    who: &Issuer,
    f: impl FnOnce(&mut [CtaMemory]) -> Result<(), String>,
) -> Result<(), Box<Fault>> {
    // Tensor memory is taken out, so that shared memory can be read through the machine.
    let mut taken: Vec<TensorMemory> = ctas.iter().map(|&c| std::mem::take(&mut m.ctas[c].tmem)).collect();
    let failed = RefCell::new(None);
    let r = {
        let machine = RefCell::new(&mut *m);
        let views: Vec<_> = ctas.iter().map(|&cta| SmemView { machine: &machine, failed: &failed, inst: i, cta, who }).collect();
        let mut memories: Vec<CtaMemory> =
            taken.iter_mut().zip(&views).map(|(t, smem)| CtaMemory { smem, tmem: &mut t.get().mem }).collect();
        f(&mut memories)
    };
    for (&c, t) in ctas.iter().zip(taken) {
        m.ctas[c].tmem = t;
    }
    match r {
        Ok(()) => Ok(()),
        Err(e) => Err(failed.into_inner().unwrap_or_else(|| m.fault(i, e))),
    }
}

/// mma: queued in the pipe.
pub fn tcgen05_mma(m: &mut Machine, i: &Inst) -> Exec {
    let Tcgen05Op::Mma(u) = operands(i) else { unreachable!("other instruction") };
    let lane = m.issuing_lane(i)?;
    m.counts.mma += 1;
    let ctas = m.group_ctas(i, u.op.cta_group)?;
    let address = |m: &Machine, (slot, disp): (Slot, i64)| m.row::<u32>(slot)[lane].wrapping_add(disp as u32);
    let mut disabled_lanes = [0; 8];
    for (word, &slot) in disabled_lanes.iter_mut().zip(&u.disabled) {
        *word = m.row::<u32>(slot)[lane];
    }
    let args = UmmaArgs {
        d: address(m, u.d),
        a: match &u.a {
            UmmaSource::Desc(s) => UmmaA::Desc(m.row::<u64>(*s)[lane]),
            UmmaSource::Tmem(at) => UmmaA::Tmem(address(m, *at)),
        },
        b: m.row::<u64>(u.b)[lane],
        idesc: m.row::<u32>(u.idesc)[lane],
        sfa: u.sfa.map_or(0, |at| address(m, at)),
        sfb: u.sfb.map_or(0, |at| address(m, at)),
        accumulate: (m.pred(u.accumulate.0) >> lane & 1 == 1) != u.accumulate.1,
        disabled_lanes,
    };
    let op = u.op;
    // A descriptor that is wrong is wrong at its issue.
    let idesc = match InstrDesc::decode(args.idesc, op.kind, op.cta_group) {
        Ok(d) => d,
        Err(e) => return Err(m.fault(i, e)),
    };
    let (who, know) = m.pipe();
    m.later(
        0,
        Box::new(move |m, i| {
            let column = |a: u32| tmem::split(a & 0x3FFF_FFFF).1;
            for &cta in &ctas {
                let touch = |m: &mut Machine, columns, t| m.tensor_touch(i, cta, columns, ALL_QUADS, t, who.me, &know);
                if let UmmaA::Tmem(a) = args.a {
                    touch(m, (column(a), 8), Touch::Read)?;
                }
                if op.kind.scales() != 0 {
                    let pair_of_halves = op.cta_group == 2 && idesc.m == 128;
                    let b_columns = if pair_of_halves { idesc.n / 2 } else { idesc.n };
                    touch(m, (column(args.sfa), (idesc.m as u32 / op.cta_group).div_ceil(32)), Touch::Read)?;
                    touch(m, (column(args.sfb), (b_columns as u32).div_ceil(32)), Touch::Read)?;
                }
                let d_columns = if op.cta_group == 2 && idesc.m == 128 { idesc.n / 2 } else { idesc.n };
                touch(m, (column(args.d), d_columns as u32), Touch::Write)?;
            }
            with_memories(m, i, &ctas, &who, |memories| umma(&op, &args, memories))
        }),
    );
    Ok(Flow::Next)
}

/// commit: an arrival when all earlier operations of this thread in the pipe are done.
pub fn tcgen05_commit(m: &mut Machine, i: &Inst) -> Exec {
    let Tcgen05Op::Commit { group, at, mask } = operands(i) else { unreachable!("other instruction") };
    let lane = m.issuing_lane(i)?;
    m.group_ctas(i, *group)?;
    let cta = m.cta();
    if let Err(e) = m.ctas[cta].tmem.get().mem.use_group(*group) {
        return Err(m.fault(i, e));
    }
    let addr = m.addresses_of(at.0, at.2, at.1)[lane];
    let (own, off) = m.shared_place(i, lane, MSpace::SharedCluster, addr as u32, 8)?;
    let targets: Vec<usize> = match mask {
        None => vec![own],
        Some(s) => {
            let bits = m.row::<u32>(*s)[lane] & 0xFFFF;
            if let Some(rank) = super::super::lanes::Lanes(bits).find(|&r| r >= m.ctas.len()) {
                return Err(
                    m.fault(i, format!("tcgen05.commit: ctaMask {bits:#x} names block rank {rank} of a cluster of {}", m.ctas.len()))
                );
            }
            super::super::lanes::Lanes(bits).collect()
        }
    };
    let actor = m.actor() + 2;
    let (_, mut know) = m.pipe();
    know.set(actor, m.tensor().ops);
    m.later(
        0,
        Box::new(move |m, i| {
            for cta in targets {
                m.mbar_arrive_with(i, cta, off, 1, &(know.clone(), know.clone()))?;
            }
            Ok(())
        }),
    );
    Ok(Flow::Next)
}

impl Kind {
    /// From the `.kind` modifier and the scale-vector size.
    pub fn parse(kind: &str, vec: Option<usize>) -> Option<Kind> {
        Some(match (kind, vec) {
            ("kind::f16", None) => Kind::F16,
            ("kind::tf32", None) => Kind::Tf32,
            ("kind::f8f6f4", None) => Kind::F8f6f4,
            ("kind::mxf8f6f4", None | Some(1)) => Kind::Mxf8f6f4,
            ("kind::mxf4", None | Some(2)) => Kind::Mxf4,
            ("kind::mxf4nvf4", Some(vec @ (2 | 4))) => Kind::Mxf4nvf4 { vec },
            _ => return None,
        })
    }
}
