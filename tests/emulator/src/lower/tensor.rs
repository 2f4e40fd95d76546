//! Matrix instructions, tensor copies and narrow conversions.

mod mma;
mod narrow;
mod tcgen05;
mod tma;

use super::*;
use crate::exec::matrix_ldst as mx;
use operand::Addr;

impl<'m> Lower<'m> {
    pub(super) fn tensor(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        match p[0] {
            "ldmatrix" | "stmatrix" => self.matrix(i, p),
            "movmatrix" => {
                let (d, a) = (self.dst(&i.ops[0], 1)?, self.src(&i.ops[1], 1, false)?);
                self.emit(&i.op, mx::movmatrix, |x| {
                    x.a = [d, a, 0, 0, 0];
                    x.gate = Gate::Warp;
                });
                Ok(true)
            }
            "mma" => self.mma_sync(i, p),
            "wgmma" => self.wgmma(i, p),
            "tcgen05" => self.tcgen05(i, p),
            _ => Ok(false),
        }
    }

    fn matrix(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if !p.contains(&"m8n8") || p.last() != Some(&"b16") {
            return Ok(false);
        }
        let load = p[0] == "ldmatrix";
        let (regs, addr) = if load { (&i.ops[0], &i.ops[1]) } else { (&i.ops[1], &i.ops[0]) };
        let a = self.addr(addr)?;
        let xs = self.elements(regs, 1, false, load)?;
        let want = ["x1", "x2", "x4"].iter().position(|x| p.contains(x)).map(|k| 1 << k);
        if want != Some(xs.len()) {
            return self.err(format!("{} with {} registers", i.op, xs.len()));
        }
        let generic = memory::space_of(p) == MSpace::Generic;
        let flags = p.contains(&"trans") as u32 * mx::TRANS | a.wide as u32 * mx::WIDE | generic as u32 * mx::GENERIC;
        let e: ExecFn = if load { mx::ldmatrix } else { mx::stmatrix };
        self.emit(&i.op, e, |x| {
            x.a[1] = a.slot;
            x.imm = a.disp;
            x.flags = flags;
            x.xs = xs.into();
            x.gate = Gate::Warp;
        });
        Ok(true)
    }

    /// Slots of a vector of 32-bit registers.
    fn vec_src(&mut self, o: &Opnd, float: bool) -> Res<Vec<Slot>> {
        match o {
            Opnd::Vec(v) => v.iter().map(|x| self.src(x, 1, float)).collect(),
            x => Ok(vec![self.src(x, 1, float)?]),
        }
    }

    fn vec_dst(&mut self, o: &Opnd) -> Res<Vec<Slot>> {
        match o {
            Opnd::Vec(v) => v.iter().map(|x| self.dst(x, 1)).collect(),
            x => Ok(vec![self.dst(x, 1)?]),
        }
    }

    /// An operand that is a constant in the instruction.
    fn imm(&self, o: &Opnd, what: &str) -> Res<i64> {
        match o {
            Opnd::Int(v) => Ok(*v as i64),
            _ => self.err(format!("{what} must be an immediate")),
        }
    }

    fn mma_inst(&mut self, i: &Instr, exec: ExecFn, gate: Gate, op: exec::mma_ops::MmaOp) {
        self.emit(&i.op, exec, |x| {
            x.gate = gate;
            x.ext = Ext::Mma(Box::new(op));
        });
    }
}

/// `[slot + displacement]` of a 32-bit address.
fn short(a: Addr) -> (Slot, i64) {
    (a.slot, a.disp)
}
