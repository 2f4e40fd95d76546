//! Tensor copies: `cp.async.bulk.tensor` in both directions, and reductions.

use super::async_copy::{Issuer, Until};
use super::lanes::Lanes;
use super::space::Acc;
use super::*;
use crate::ir::{Exec, Ext, Flow, MSpace, Slot};
use crate::tma::{DataType, TensorMap};

/// An address operand: slot, 64 bits wide, displacement.
pub type At = (Slot, bool, i64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Global to shared memory.
    Load,
    /// Shared to global memory.
    Store,
    /// Shared memory combined into global memory: `.add` and so on.
    Reduce(&'static str),
    /// Into L2 only.
    Prefetch,
}

/// Operands of a tensor copy.
pub struct TmaOp {
    pub direction: Direction,
    pub map: At,
    pub coords: Vec<Slot>,
    /// Shared memory: destination or source.
    pub shared: At,
    pub mbar: At,
    /// CTA mask of a multicast.
    pub mask: Option<Slot>,
    /// `.cta_group::2`: the mbarrier may be the peer's.
    pub pair: bool,
}

impl Machine {
    fn tensor_map(&mut self, i: &Inst, lane: usize, at: At) -> Result<TensorMap, Box<Fault>> {
        use crate::fault::LAUNCH_FAILED;
        let addr = self.addresses_of(at.0, at.2, at.1)[lane];
        if !addr.is_multiple_of(64) {
            return Err(self.fault_at(i, lane as u32, crate::fault::MISALIGNED, format!("tensor map at {addr:#x} is not 64-byte aligned")));
        }
        let mut bytes = [0u8; 128];
        for half in 0..2 {
            let p = self.access(i, lane, MSpace::Generic, addr + 64 * half, 64, Acc::Read, crate::ir::Order::Weak)?;
            // SAFETY: `access` checked the 64 bytes.
            unsafe { std::ptr::copy_nonoverlapping(p, bytes[64 * half as usize..].as_mut_ptr(), 64) };
        }
        TensorMap::decode(&bytes).map_err(|e| self.fault_at(i, lane as u32, LAUNCH_FAILED, format!("tensor map at {addr:#x}: {e}")))
    }

    /// Count the global traffic of a copy.
    fn tally_tensor(&mut self, i: &Inst, addr: u64, n: usize, write: bool) {
        let c = &mut self.counts.kinds[i.kind as usize];
        c.sectors += (addr + n as u64).div_ceil(32) - addr / 32;
        if write {
            c.written += n as u64;
        } else {
            c.read += n as u64;
        }
    }
}

/// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`
pub fn tensor_copy(m: &mut Machine, i: &Inst) -> Exec {
    let Ext::Tma(op) = &i.ext else { unreachable!("lowered with its operands") };
    for l in m.lanes() {
        let map = m.tensor_map(i, l, op.map)?;
        let coords: Vec<i32> = op.coords.iter().map(|&s| m.row::<u32>(s)[l] as i32).collect();
        match op.direction {
            Direction::Load => load(m, i, op, l, map, coords)?,
            Direction::Prefetch => {}
            Direction::Store | Direction::Reduce(_) => store(m, i, op, l, map, coords)?,
        }
    }
    Ok(Flow::Next)
}

fn load(m: &mut Machine, i: &Inst, op: &TmaOp, l: usize, map: TensorMap, coords: Vec<i32>) -> Result<(), Box<Fault>> {
    let dst = m.addresses_of(op.shared.0, op.shared.2, op.shared.1)[l];
    let bar = m.addresses_of(op.mbar.0, op.mbar.2, op.mbar.1)[l];
    let (own, off) = m.shared_place(i, l, MSpace::SharedCluster, dst as u32, map.box_bytes())?;
    let (bcta, boff) = m.shared_place(i, l, MSpace::SharedCluster, bar as u32, 8)?;
    let ranks = match op.mask {
        Some(s) => m.row::<u32>(s)[l] & 0xFFFF,
        None => 1 << own,
    };
    if let Some(rank) = Lanes(ranks).find(|&r| r >= m.ctas.len()) {
        return Err(m.fault_at(
            i,
            l as u32,
            crate::fault::LAUNCH_FAILED,
            format!("multicast mask {ranks:#x} names block rank {rank} of a cluster of {}", m.ctas.len()),
        ));
    }
    let (multicast, pair) = (op.mask.is_some(), op.pair);
    let who = m.issuer(0, 0);
    m.enqueue(
        l as u32,
        Until::Signal,
        Box::new(move |m, i| {
            let data = read_box(m, i, l, &map, &coords, off)?;
            for r in Lanes(ranks) {
                let b = match (multicast, pair) {
                    (false, _) => bcta,
                    (true, false) => r,
                    (true, true) => r & !1 | bcta & 1,
                };
                m.deliver(i, r, off, &data, b, boff, &who)?;
            }
            Ok(())
        }),
    );
    Ok(())
}

/// The box as it will lie in shared memory from `off` on.
fn read_box(m: &mut Machine, i: &Inst, l: usize, map: &TensorMap, coords: &[i32], off: u32) -> Result<Vec<u8>, Box<Fault>> {
    let mut data = vec![0; map.box_bytes() as usize];
    let mut failed = None;
    let r = map.load(
        coords,
        off,
        &mut |addr, out| match m.global(i, l, addr, out.len() as u64, Acc::Read) {
            Ok(p) => {
                // SAFETY: `global` checked the range.
                unsafe { std::ptr::copy_nonoverlapping(p, out.as_mut_ptr(), out.len()) };
                m.tally_tensor(i, addr, out.len(), false);
                Ok(())
            }
            Err(f) => {
                failed = Some(f);
                Err(String::new())
            }
        },
        &mut |at, bytes| {
            let at = (at - off) as usize;
            data[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        },
    );
    match (r, failed) {
        (_, Some(f)) => Err(f),
        (Err(e), None) => Err(m.fault(i, e)),
        (Ok(_), None) => Ok(data),
    }
}

fn store(m: &mut Machine, i: &Inst, op: &TmaOp, l: usize, map: TensorMap, coords: Vec<i32>) -> Result<(), Box<Fault>> {
    let src = m.addresses_of(op.shared.0, op.shared.2, op.shared.1)[l];
    let n = map.box_bytes();
    let (cta, off) = m.shared_place(i, l, MSpace::Shared, src as u32, n)?;
    let group = m.warps[m.w].groups.bulk[l];
    let who = m.issuer(m.actor() + 1, (group + 1) * 32 + l as u32 + 1);
    let reduce = match op.direction {
        Direction::Reduce(op) => match atom_type(map.data_type) {
            Some(t) => super::atom::encode(&[op, t]).map(|c| c.0),
            None => return Err(m.fault(i, format!("tensor reduction of {:?} does not exist", map.data_type))),
        },
        _ => None,
    };
    m.enqueue(
        l as u32,
        Until::Bulk { lane: l as u32, group },
        Box::new(move |m, i| write_box(m, i, l, &map, &coords, (cta, off), &who, reduce)),
    );
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn write_box(
    m: &mut Machine,
    i: &Inst,
    l: usize,
    map: &TensorMap,
    coords: &[i32],
    (cta, off): (usize, u32),
    who: &Issuer,
    reduce: Option<u32>,
) -> Result<(), Box<Fault>> {
    let n = map.box_bytes();
    m.late_touch(i, cta, off, n, Acc::Read, who, true)?;
    let data = m.ctas[cta].smem.mem[off as usize..(off + n) as usize].to_vec();
    let mut failed = None;
    let r = map.store(
        coords,
        off,
        &mut |at, out| {
            let at = (at - off) as usize;
            out.copy_from_slice(&data[at..at + out.len()]);
            Ok(())
        },
        &mut |addr, bytes| {
            let acc = if reduce.is_some() { Acc::Atomic } else { Acc::Write };
            match m.global(i, l, addr, bytes.len() as u64, acc) {
                Ok(p) => {
                    match reduce {
                        // SAFETY: `global` checked the range.
                        None => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), p, bytes.len()) },
                        Some(code) => super::atom::reduce_bytes(code, addr, bytes),
                    }
                    m.tally_tensor(i, addr, bytes.len(), true);
                    Ok(())
                }
                Err(f) => {
                    failed = Some(f);
                    Err(String::new())
                }
            }
        },
    );
    match (r, failed) {
        (_, Some(f)) => Err(f),
        (Err(e), None) => Err(m.fault(i, e)),
        (Ok(_), None) => Ok(()),
    }
}

fn atom_type(t: DataType) -> Option<&'static str> {
    Some(match t {
        DataType::U32 => "u32",
        DataType::I32 => "s32",
        DataType::U64 => "u64",
        DataType::I64 => "s64",
        DataType::F16 => "f16",
        DataType::Bf16 => "bf16",
        DataType::F32 | DataType::F32Ftz => "f32",
        DataType::F64 => "f64",
        _ => return None,
    })
}
