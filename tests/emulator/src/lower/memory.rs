//! Loads, stores, atomics and address conversions.

use super::*;
use crate::exec::{atom, ldst, space};

/// State space named by an opcode; generic when none is.
pub(super) fn space_of(p: &[&str]) -> MSpace {
    for m in p {
        match *m {
            "global" => return MSpace::Global,
            "const" => return MSpace::Const,
            "shared" | "shared::cta" => return MSpace::Shared,
            "shared::cluster" => return MSpace::SharedCluster,
            "local" => return MSpace::Local,
            "param" | "param::entry" | "param::func" => return MSpace::Param,
            _ => {}
        }
    }
    MSpace::Generic
}

fn order_of(p: &[&str]) -> Order {
    if p.iter().any(|m| matches!(*m, "volatile" | "relaxed" | "acquire" | "release" | "mmio" | "acq_rel")) {
        Order::Strong
    } else {
        Order::Weak
    }
}

fn vec_of(p: &[&str]) -> u8 {
    for m in p {
        match *m {
            "v2" => return 2,
            "v4" => return 4,
            "v8" => return 8,
            _ => {}
        }
    }
    1
}

impl<'m> Lower<'m> {
    pub(super) fn memory(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        match p[0] {
            "ld" | "ldu" => self.load(i, p),
            "st" => self.store(i, p),
            "atom" | "red" if p.get(1) != Some(&"async") => self.atomic(i, p),
            "cvta" => self.cvta(i, p),
            "isspacep" => self.isspacep(i, p),
            "mapa" => self.mapa(i, p),
            "getctarank" => self.getctarank(i, p),
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                self.emit(&i.op, exec::async_copy::hint, |_| {});
                Ok(true)
            }
            "createpolicy" => {
                let d = self.dst(&i.ops[0], 2)?;
                let z = self.bits(0, 2);
                let Some(s) = exec::alu::select(&["mov", "b64"]) else { return Ok(false) };
                self.emit(&i.op, s.exec, |x| x.a = [d, z, 0, 0, 0]);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn mem_op(&self, p: &[&str], a: operand::Addr) -> Option<MemOp> {
        let ty = p.last()?;
        let esize = type_bytes(&format!(".{ty}")) as u8;
        if esize == 0 {
            return None;
        }
        Some(MemOp { space: space_of(p), esize, vec: vec_of(p), signed: ty.starts_with('s'), wide: a.wide, order: order_of(p) })
    }

    /// `.param` operands: a fixed offset in the kernel's parameters, or a
    /// buffer of an inlined call, which is local memory.
    fn param_place(&mut self, o: &Opnd) -> Res<Option<Sym>> {
        let Opnd::Mem(items) = o else { return Ok(None) };
        let (n, d) = match items.first() {
            Some(Opnd::Name(n)) => (n, 0),
            Some(Opnd::Off(b, d)) => match &**b {
                Opnd::Name(n) => (n, *d),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(match self.lookup(n)? {
            Some(Sym::Param(o)) => Some(Sym::Param((o as i64 + d) as u32)),
            Some(Sym::Local(o)) => Some(Sym::Local((o as i64 + d) as u32)),
            _ => None,
        })
    }

    fn load(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let fixed = if space_of(p) == MSpace::Param { self.param_place(&i.ops[1])? } else { None };
        let a = self.addr(&i.ops[1])?;
        let Some(mut op) = self.mem_op(p, a) else { return Ok(false) };
        let xs = self.elements(&i.ops[0], 1, false, true)?;
        if xs.len() != op.vec as usize {
            return self.err(format!("{} with {} registers", i.op, xs.len()));
        }
        let narrow = |x: u32| x == ldst::SINK || (op.esize == 16) == (x & ldst::QUAD != 0);
        if !xs.iter().all(|&x| narrow(x)) || (op.esize == 8 && xs.iter().any(|&x| x != ldst::SINK && x & ldst::WIDE == 0)) {
            return self.err(format!("{}: a destination is narrower than the type", i.op));
        }
        if let Some(Sym::Param(o)) = fixed {
            if op.esize != 16 {
                self.emit(&i.op, ldst::ld_param, |x| {
                    x.xs = xs.into();
                    x.imm = o as i64;
                    x.ext = Ext::Mem(op);
                });
                return Ok(true);
            }
        }
        if let Some(Sym::Local(_)) = fixed {
            op.space = MSpace::Local;
        }
        self.emit(&i.op, ldst::ld, |x| {
            x.a[1] = a.slot;
            x.imm = a.disp;
            x.xs = xs.into();
            x.ext = Ext::Mem(op);
        });
        Ok(true)
    }

    fn store(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if p.get(1) == Some(&"async") || p.get(1) == Some(&"bulk") {
            return Ok(false);
        }
        let a = self.addr(&i.ops[0])?;
        let Some(mut op) = self.mem_op(p, a) else { return Ok(false) };
        let ty = *p.last().unwrap_or(&"");
        let words = (op.esize / 4).max(1);
        let xs = self.elements(&i.ops[1], words, ty.starts_with('f'), false)?;
        if xs.len() != op.vec as usize {
            return self.err(format!("{} with {} registers", i.op, xs.len()));
        }
        if op.space == MSpace::Param {
            op.space = MSpace::Local;
        }
        self.emit(&i.op, ldst::st, |x| {
            x.a[1] = a.slot;
            x.imm = a.disp;
            x.xs = xs.into();
            x.ext = Ext::Mem(op);
        });
        Ok(true)
    }

    fn atomic(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let Some((code, esize)) = atom::encode(p) else { return Ok(false) };
        let is_atom = p[0] == "atom";
        let at = is_atom as usize;
        let a = self.addr(&i.ops[at])?;
        let vec = vec_of(p);
        let ty = *p.last().unwrap_or(&"");
        let words = (esize as u8 / 4).max(1);
        let float = ty == "f32" || ty == "f64";
        let mut xs = Vec::new();
        if is_atom {
            xs.extend(self.elements(&i.ops[0], words, float, true)?);
        }
        let nd = xs.len() as u32;
        xs.extend(self.elements(&i.ops[at + 1], words, float, false)?);
        if p.contains(&"cas") {
            xs.extend(self.elements(&i.ops[at + 2], words, float, false)?);
        }
        let op = MemOp { space: space_of(p), esize: esize as u8, vec, signed: false, wide: a.wide, order: Order::Strong };
        self.emit(&i.op, atom::atom, |x| {
            x.a = [0, a.slot, nd, 0, 0];
            x.imm = a.disp;
            x.flags = code;
            x.xs = xs.into();
            x.ext = Ext::Mem(op);
        });
        Ok(true)
    }

    fn cvta(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let to = p.contains(&"to");
        let wide = *p.last().unwrap_or(&"") == "u64";
        let words = if wide { 2 } else { 1 };
        let d = self.dst(&i.ops[0], words)?;
        let base = match space_of(p) {
            MSpace::Global | MSpace::Const => None,
            MSpace::Shared | MSpace::SharedCluster => Some(space::SHARED_BASE),
            MSpace::Local => Some(space::LOCAL_BASE),
            MSpace::Param => Some(space::PARAM_BASE),
            MSpace::Generic => return Ok(false),
        };
        let s = self.src(&i.ops[1], words, false)?;
        match base {
            None => {
                let Some(m) = exec::alu::select(&["mov", if wide { "b64" } else { "b32" }]) else { return Ok(false) };
                self.emit(&i.op, m.exec, |x| x.a = [d, s, 0, 0, 0]);
            }
            Some(b) => self.emit(&i.op, ldst::cvta, |x| {
                x.a = [d, s, 0, 0, 0];
                x.imm = if to { -1 } else { b as i64 };
                x.flags = if wide { 3 } else { 0 };
            }),
        }
        Ok(true)
    }

    fn isspacep(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let window = match space_of(p) {
            MSpace::Global | MSpace::Const => 0,
            MSpace::Shared | MSpace::SharedCluster => 1,
            MSpace::Local => 2,
            _ => 3,
        };
        let own = matches!(space_of(p), MSpace::Shared);
        let d = self.pred(&i.ops[0])?.0;
        let s = self.src(&i.ops[1], 2, false)?;
        self.emit(&i.op, ldst::isspacep, |x| {
            x.a = [d, s, 0, 0, 0];
            x.imm = window;
            x.flags = own as u32;
        });
        Ok(true)
    }

    /// `mapa{.shared::cluster}.u32/u64 d, a, rank`
    fn mapa(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let words = if p.last() == Some(&"u64") { 2 } else { 1 };
        let (d, a) = (self.dst(&i.ops[0], words)?, self.src(&i.ops[1], words, false)?);
        let r = self.src(&i.ops[2], 1, false)?;
        let e = if words == 2 {
            crate::bin!(u64, u32 => u64, |a, r| (a & !0xff00_0000) | (r as u64) << 24)
        } else {
            crate::bin!(u32, u32 => u32, |a, r| (a & 0x00ff_ffff) | r << 24)
        };
        self.emit(&i.op, e.exec, |x| x.a = [d, a, r, 0, 0]);
        Ok(true)
    }

    fn getctarank(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let words = if p.last() == Some(&"u64") { 2 } else { 1 };
        let d = self.dst(&i.ops[0], 1)?;
        let a = self.src(&i.ops[1], words, false)?;
        let e = if words == 2 { crate::un!(u64 => u32, |a| (a >> 24) as u32 & 0xff) } else { crate::un!(u32 => u32, |a| a >> 24) };
        self.emit(&i.op, e.exec, |x| x.a = [d, a, 0, 0, 0]);
        Ok(true)
    }
}
