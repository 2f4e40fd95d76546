//! Arithmetic, logic, conversion, comparison and moves.

use super::*;
use crate::exec::{alu, cvt, float, half};

impl<'m> Lower<'m> {
    pub(super) fn alu(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let ty = *p.last().unwrap_or(&"");
        match p[0] {
            "setp" => return self.setp(i, p),
            "set" => return self.set(i, p),
            "mov" if self.mov(i, ty)? => {
                return Ok(true);
            }
            "and" | "or" | "xor" | "not" if ty == "pred" => return self.pred_logic(i, p[0]),
            "lop3" => return self.lop3(i),
            "selp" => {
                let Some(s) = cvt::select_selp(ty) else { return Ok(false) };
                let (q, neg) = self.pred(&i.ops[3])?;
                let (d, a, b) = (self.arg_dst(&i.ops[0], s.dst)?, self.arg_src(&i.ops[1], s.src[0])?, self.arg_src(&i.ops[2], s.src[1])?);
                self.emit(&i.op, s.exec, |x| {
                    x.a = [d, a, b, q, 0];
                    x.flags = neg as u32 * 8;
                });
                return Ok(true);
            }
            "slct" => {
                let (d, c) = (p[p.len() - 2], ty);
                let Some(s) = cvt::select_slct(d, c) else { return Ok(false) };
                return self.simple(i, s);
            }
            "cvt" => return self.cvt(i, p),
            _ => {}
        }
        let n = i.ops.len().saturating_sub(1);
        let s = float::select(p, n).or_else(|| half::select(p, n)).or_else(|| alu::select(p));
        match s {
            Some(s) => self.simple(i, s),
            None => Ok(false),
        }
    }

    fn arg_dst(&mut self, o: &Opnd, a: Arg) -> Res<u32> {
        match a {
            Arg::R { slots, .. } => self.dst(o, slots),
            Arg::Pred => Ok(self.pred(o)?.0),
        }
    }

    fn arg_src(&mut self, o: &Opnd, a: Arg) -> Res<u32> {
        match a {
            Arg::R { slots, float } => self.src(o, slots, float),
            Arg::Pred => {
                let (p, neg) = self.pred(o)?;
                if neg {
                    return self.err("negated predicate is not supported here");
                }
                Ok(p)
            }
        }
    }

    pub(super) fn simple(&mut self, i: &Instr, s: Sel) -> Res<bool> {
        if i.ops.len() != s.src.len() + 1 {
            return self.err(format!("{} with {} operands; {} expected", i.op, i.ops.len(), s.src.len() + 1));
        }
        let mut a = [0; 5];
        a[0] = self.arg_dst(&i.ops[0], s.dst)?;
        for (k, &x) in s.src.iter().enumerate() {
            a[k + 1] = self.arg_src(&i.ops[k + 1], x)?;
        }
        self.emit(&i.op, s.exec, |x| {
            x.a = a;
            x.flags = s.flags;
            x.imm = s.imm;
        });
        Ok(true)
    }

    fn combine_flags(&mut self, p: &[&str], ops: &[Opnd]) -> Res<(u32, u32)> {
        let op = if p.len() > 3 {
            match p.iter().skip(2).find(|m| matches!(**m, "and" | "or" | "xor")) {
                Some(&"and") => 1,
                Some(&"or") => 2,
                Some(_) => 3,
                None => 0,
            }
        } else {
            0
        };
        if op == 0 {
            return Ok((0, 0));
        }
        let Some(o) = ops.get(3) else { return self.err("comparison without the predicate to combine with") };
        let (c, neg) = self.pred(o)?;
        Ok((op << 4 | neg as u32 * 8, c))
    }

    fn setp(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let Some(s) = cvt::select_setp(p) else { return Ok(false) };
        let (d, q) = match &i.ops[0] {
            Opnd::Pair(a, b) => {
                let q = if matches!(&**b, Opnd::Name(n) if n == "_") { 0 } else { self.pred(b)?.0 };
                (self.pred(a)?.0, q)
            }
            o => (self.pred(o)?.0, 0),
        };
        let (a, b) = (self.arg_src(&i.ops[1], s.src[0])?, self.arg_src(&i.ops[2], s.src[1])?);
        let (f, c) = self.combine_flags(p, &i.ops)?;
        self.emit(&i.op, s.exec, |x| {
            x.a = [d, a, b, q, c];
            x.flags = f;
            x.imm = s.imm;
        });
        Ok(true)
    }

    fn set(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let Some(s) = cvt::select_set(p) else { return Ok(false) };
        let d = self.arg_dst(&i.ops[0], s.dst)?;
        let (a, b) = (self.arg_src(&i.ops[1], s.src[0])?, self.arg_src(&i.ops[2], s.src[1])?);
        let (f, c) = self.combine_flags(p, &i.ops)?;
        self.emit(&i.op, s.exec, |x| {
            x.a = [d, a, b, 0, c];
            x.flags = f;
            x.imm = s.imm;
        });
        Ok(true)
    }

    fn pred_logic(&mut self, i: &Instr, op: &str) -> Res<bool> {
        let imm = match op {
            "and" => 0,
            "or" => 1,
            "xor" => 2,
            _ => 3,
        };
        let d = self.pred(&i.ops[0])?.0;
        let (a, na) = self.pred(&i.ops[1])?;
        let (b, nb) = if imm == 3 { (0, false) } else { self.pred(&i.ops[2])? };
        self.emit(&i.op, cvt::pred_op, |x| {
            x.a = [d, a, b, 0, 0];
            x.flags = na as u32 * 8 | nb as u32 * 16;
            x.imm = imm;
        });
        Ok(true)
    }

    /// Moves that are more than a copy: predicates, packing, unpacking, wide symbols.
    fn mov(&mut self, i: &Instr, ty: &str) -> Res<bool> {
        if ty == "pred" {
            let d = self.pred(&i.ops[0])?.0;
            let (a, na) = self.pred(&i.ops[1])?;
            self.emit(&i.op, cvt::pred_op, |x| {
                x.a = [d, a, 0, 0, 0];
                x.flags = na as u32 * 8;
                x.imm = 4;
            });
            return Ok(true);
        }
        let bits = type_bytes(&format!(".{ty}")) * 8;
        match (&i.ops[0], &i.ops[1]) {
            (Opnd::Vec(d), Opnd::Vec(s)) if d.len() == s.len() => {
                return self.err("mov between vectors is not supported");
            }
            (Opnd::Vec(d), s) => {
                let n = d.len() as u32;
                let words = if bits <= 32 { 1 } else { (bits / 32) as u8 };
                let s = self.src(s, words, false)?;
                let xs = self.elements(&i.ops[0], (bits / n / 32).max(1) as u8, false, true)?;
                self.emit(&i.op, alu::unpack, |x| {
                    x.a[1] = s;
                    x.imm = (bits / n) as i64;
                    x.flags = bits;
                    x.xs = xs.into();
                });
                return Ok(true);
            }
            (d, Opnd::Vec(s)) => {
                let n = s.len() as u32;
                let words = if bits <= 32 { 1 } else { (bits / 32) as u8 };
                let d = self.dst(d, words)?;
                let xs = self.elements(&i.ops[1], (bits / n / 32).max(1) as u8, false, false)?;
                self.emit(&i.op, alu::pack, |x| {
                    x.a[0] = d;
                    x.imm = (bits / n) as i64;
                    x.flags = bits;
                    x.xs = xs.into();
                });
                return Ok(true);
            }
            _ => {}
        }
        if let Opnd::Name(n) = &i.ops[1] {
            if n == "%is_explicit_cluster" {
                let d = self.pred(&i.ops[0])?.0;
                self.emit(&i.op, exec::sreg::read, |x| {
                    x.a[0] = d;
                    x.imm = 43;
                    x.flags = 2;
                });
                return Ok(true);
            }
            // A special register may be read at another width than its own.
            if let Some(s) = exec::sreg::NAMES.iter().find(|s| s.0 == *n) {
                let d = self.reg(&i.ops[0])?;
                self.emit("mov.sreg", exec::sreg::read, |x| {
                    x.a[0] = d.slot;
                    x.imm = s.1 as i64;
                    x.flags = (d.words == 2) as u32;
                });
                return Ok(true);
            }
        }
        if matches!(ty, "f32" | "f64") {
            let words = if ty == "f32" { 1 } else { 2 };
            let (d, a) = (self.dst(&i.ops[0], words)?, self.src(&i.ops[1], words, true)?);
            let Some(s) = alu::select(&["mov", if words == 1 { "b32" } else { "b64" }]) else { return Ok(false) };
            self.emit(&i.op, s.exec, |x| x.a = [d, a, 0, 0, 0]);
            return Ok(true);
        }
        Ok(false)
    }

    fn lop3(&mut self, i: &Instr) -> Res<bool> {
        // lop3.b32 d, a, b, c, lut; the .BoolOp form has p and q too.
        if matches!(i.ops[0], Opnd::Pair(..)) {
            return Ok(false);
        }
        let Some(Opnd::Int(lut)) = i.ops.get(4) else { return self.err("lop3 without an immediate table") };
        let Some(s) = alu::select(&["lop3", "b32"]) else { return Ok(false) };
        let d = self.dst(&i.ops[0], 1)?;
        let (a, b, c) = (self.src(&i.ops[1], 1, false)?, self.src(&i.ops[2], 1, false)?, self.src(&i.ops[3], 1, false)?);
        let lut = *lut as i64;
        self.emit(&i.op, s.exec, |x| {
            x.a = [d, a, b, c, 0];
            x.imm = lut;
        });
        Ok(true)
    }

    fn cvt(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if p[1] == "pack" {
            return Ok(false);
        }
        if let Some(done) = self.cvt_narrow(i, p)? {
            return Ok(done);
        }
        let (d, s) = (p[p.len() - 2], p[p.len() - 1]);
        let dst = self.reg(&i.ops[0])?;
        let sw = match self.reg(&i.ops[1]) {
            Ok(r) => r.words,
            Err(_) if matches!(s, "u64" | "s64" | "f64" | "b64") => 2,
            Err(_) => 1,
        };
        let Some(sel) = cvt::select_cvt(p, dst.words == 2, sw == 2) else { return Ok(false) };
        let _ = d;
        let Arg::R { float, .. } = sel.src[0] else { return Ok(false) };
        let a = self.src(&i.ops[1], sw, float)?;
        self.emit(&i.op, sel.exec, |x| {
            x.a = [dst.slot, a, 0, 0, 0];
            x.flags = sel.flags;
            x.imm = sel.imm;
        });
        Ok(true)
    }
}
