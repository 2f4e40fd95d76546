//! Matrix instructions, tensor copies and narrow conversions.

mod mma;
mod narrow;
mod tcgen05;
mod tma;

use super::*;
use operand::Addr;

impl<'m> Lower<'m> {
    pub(super) fn tensor(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        match p[0] {
            "mma" => self.mma_sync(i, p),
            "wgmma" => self.wgmma(i, p),
            "tcgen05" => self.tcgen05(i, p),
            _ => Ok(false),
        }
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
