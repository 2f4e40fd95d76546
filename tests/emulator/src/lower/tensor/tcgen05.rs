//! The tcgen05 family.

use super::*;
use crate::exec::mma_ops::{self as ops, MmaOp, Tcgen05Op, UmmaOp, UmmaSource};
use crate::mma::idesc::Kind;
use crate::mma::umma::Umma;
use crate::tmem::{Access, CpShape, Shape};

impl<'m> Lower<'m> {
    pub(super) fn tcgen05(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        let group = if has("cta_group::2") { 2 } else { 1 };
        let long = |a: Addr| (a.slot, a.wide, a.disp);
        let (exec, gate, op): (ExecFn, Gate, Tcgen05Op) = match p[1] {
            "alloc" => {
                let at = long(self.addr(&i.ops[0])?);
                let columns = self.src(&i.ops[1], 1, false)?;
                (ops::tcgen05_alloc, Gate::Warp, Tcgen05Op::Alloc { group, at, columns })
            }
            "dealloc" => {
                let (at, columns) = (self.src(&i.ops[0], 1, false)?, self.src(&i.ops[1], 1, false)?);
                (ops::tcgen05_alloc, Gate::Warp, Tcgen05Op::Dealloc { group, at, columns })
            }
            "relinquish_alloc_permit" => (ops::tcgen05_alloc, Gate::Warp, Tcgen05Op::Relinquish { group }),
            "wait::ld" | "wait::st" => (ops::tcgen05_order, Gate::Warp, Tcgen05Op::Wait { store: p[1] == "wait::st" }),
            "fence::before_thread_sync" | "fence::after_thread_sync" => {
                let after = p[1] == "fence::after_thread_sync";
                (ops::tcgen05_order, Gate::None, Tcgen05Op::Fence { after })
            }
            "ld" | "st" => match self.tcgen05_access(i, p)? {
                Some(op) => (ops::tcgen05_access, Gate::Warp, op),
                None => return Ok(false),
            },
            "cp" => {
                let shape = [
                    ("128x256b", CpShape::S128x256b),
                    ("128x128b", CpShape::S128x128b),
                    ("4x256b", CpShape::S4x256b),
                    ("32x128b", CpShape::S32x128bWarpx4),
                ];
                let shape = match shape.iter().find(|s| has(s.0)) {
                    Some(s) => s.1,
                    None if has("warpx2::02_13") => CpShape::S64x128bWarpx2_02_13,
                    None if has("warpx2::01_23") => CpShape::S64x128bWarpx2_01_23,
                    None => return Ok(false),
                };
                if p.iter().any(|m| m.starts_with("b8x16") || m.starts_with("b4x16") || m.starts_with("b6x16")) {
                    return Ok(false);
                }
                let at = short(self.addr(&i.ops[0])?);
                let desc = self.src(&i.ops[1], 2, false)?;
                (ops::tcgen05_copy, Gate::None, Tcgen05Op::Copy { group, shape, at, desc })
            }
            "mma" => match self.tcgen05_mma(i, p, group)? {
                Some(op) => (ops::tcgen05_mma, Gate::None, op),
                None => return Ok(false),
            },
            "commit" => {
                let at = long(self.addr(&i.ops[0])?);
                let mask = match (has("multicast::cluster"), i.ops.get(1)) {
                    (true, Some(o)) => Some(self.src(o, 1, false)?),
                    (false, None) => None,
                    _ => return Ok(false),
                };
                (ops::tcgen05_commit, Gate::None, Tcgen05Op::Commit { group, at, mask })
            }
            _ => return Ok(false),
        };
        self.mma_inst(i, exec, gate, MmaOp::Tcgen05(op));
        Ok(true)
    }

    fn tcgen05_access(&mut self, i: &Instr, p: &[&str]) -> Res<Option<Tcgen05Op>> {
        let has = |m: &str| p.contains(&m);
        if has("red") {
            return Ok(None);
        }
        let store = p[1] == "st";
        let Some(num) = p.iter().find_map(|m| m.strip_prefix('x')?.parse::<u32>().ok()) else { return Ok(None) };
        let split_at = if store { 1 } else { 2 };
        let shapes = [("32x32b", Shape::S32x32b), ("16x64b", Shape::S16x64b), ("16x128b", Shape::S16x128b), ("16x256b", Shape::S16x256b)];
        let shape = match shapes.iter().find(|s| has(s.0)) {
            Some(s) => s.1,
            None if has("16x32bx2") => Shape::S16x32bx2 { split: self.imm(&i.ops[split_at], "immHalfSplitoff")? as u32 },
            None => return Ok(None),
        };
        let access = Access { shape, num, packed: has("pack::16b") || has("unpack::16b") };
        let (memory, vector) = if store { (0, i.ops.len() - 1) } else { (1, 0) };
        let at = short(self.addr(&i.ops[memory])?);
        let regs = if store { self.vec_src(&i.ops[vector], true)? } else { self.vec_dst(&i.ops[vector])? };
        if regs.len() != access.registers() {
            return self.err(format!("tcgen05.{} {shape:?}.x{num} takes {} registers, got {}", p[1], access.registers(), regs.len()));
        }
        Ok(Some(if store { Tcgen05Op::Store { access, at, regs } } else { Tcgen05Op::Load { access, at, regs } }))
    }

    fn tcgen05_mma(&mut self, i: &Instr, p: &[&str], group: u32) -> Res<Option<Tcgen05Op>> {
        let has = |m: &str| p.contains(&m);
        if has("ws") || has("sp") || has("ashift") {
            return Ok(None);
        }
        let vectors = [("scale_vec::1X", 1), ("scale_vec::2X", 2), ("scale_vec::4X", 4), ("block32", 2), ("block16", 4)];
        let vec = vectors.iter().find(|v| has(v.0)).map(|v| v.1);
        let Some(kind) = p.iter().find(|m| m.starts_with("kind::")) else { return Ok(None) };
        // block32 is one scale for mxf8f6f4.
        let vec = if *kind == "kind::mxf8f6f4" { None } else { vec };
        let Some(kind) = Kind::parse(kind, vec) else { return Ok(None) };
        if (kind.scales() != 0) != has("block_scale") {
            return Ok(None);
        }
        let ops = &i.ops;
        if ops.len() < 5 {
            return Ok(None);
        }
        let d = short(self.addr(&ops[0])?);
        let a = match &ops[1] {
            m @ Opnd::Mem(_) => UmmaSource::Tmem(short(self.addr(m)?)),
            x => UmmaSource::Desc(self.src(x, 2, false)?),
        };
        let (b, idesc) = (self.src(&ops[2], 2, false)?, self.src(&ops[3], 1, false)?);
        let op = Umma { kind, cta_group: group };
        let mut rest = &ops[4..];
        let (mut sfa, mut sfb, mut disabled) = (None, None, Vec::new());
        if kind.scales() != 0 {
            if rest.len() != 3 {
                return Ok(None);
            }
            sfa = Some(short(self.addr(&rest[0])?));
            sfb = Some(short(self.addr(&rest[1])?));
            rest = &rest[2..];
        } else if let v @ Opnd::Vec(_) = &rest[0] {
            disabled = self.vec_src(v, false)?;
            if disabled.len() != 4 * group as usize {
                return self.err(format!("disable-output-lane takes {} registers, got {}", 4 * group, disabled.len()));
            }
            rest = &rest[1..];
        }
        // scale-input-d is not modelled.
        let [enable] = rest else { return Ok(None) };
        let accumulate = self.pred(enable)?;
        Ok(Some(Tcgen05Op::Mma(UmmaOp { op, d, a, b, idesc, sfa, sfb, disabled, accumulate })))
    }
}
