//! cp.async, bulk and tensor copies.

use super::*;
use crate::exec::{async_copy as ac, atom, mbar};

impl<'m> Lower<'m> {
    pub(super) fn copies(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if p[0] != "cp" {
            return Ok(false);
        }
        let has = |m: &str| p.contains(&m);
        if has("bulk") {
            return self.bulk(i, p);
        }
        if p.get(1) != Some(&"async") {
            return Ok(false);
        }
        match p.get(2) {
            Some(&"commit_group") => self.emit(&i.op, ac::cp_async_commit, |_| {}),
            Some(&"wait_all") => self.emit(&i.op, ac::cp_async_wait, |x| x.imm = -1),
            Some(&"wait_group") => {
                let Some(Opnd::Int(n)) = i.ops.first() else { return self.err("cp.async.wait_group without a number") };
                let n = *n as i64;
                self.emit(&i.op, ac::cp_async_wait, |x| x.imm = n);
            }
            Some(&"mbarrier") => {
                let a = self.addr(&i.ops[0])?;
                let mut f = a.wide as u32 * mbar::WIDE_ADDR | has("noinc") as u32 * mbar::NOINC;
                if memory::space_of(p) == MSpace::Generic {
                    f |= mbar::GENERIC;
                }
                self.emit(&i.op, mbar::cp_async_arrive, |x| {
                    x.a[1] = a.slot;
                    (x.imm, x.flags) = (a.disp, f);
                });
            }
            _ => return self.cp_async(i, p),
        }
        Ok(true)
    }

    fn cp_async(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let (d, s) = (self.addr(&i.ops[0])?, self.addr(&i.ops[1])?);
        let Some(Opnd::Int(n)) = i.ops.get(2) else { return self.err("cp.async without a size") };
        let n = *n as u32;
        if !matches!(n, 4 | 8 | 16) {
            return self.err(format!("cp.async of {n} bytes"));
        }
        let hint = p.contains(&"L2::cache_hint") as usize;
        let extra = &i.ops[3..i.ops.len() - hint];
        let (mut size, mut f, mut ignore) = (0, 0, 0);
        if let Some(o) = extra.first() {
            let is_pred = matches!(o, Opnd::Name(n) if matches!(self.lookup(n)?, Some(Sym::Pred(_))));
            if is_pred {
                ignore = self.pred(o)?.0;
            } else {
                size = self.src(o, 1, false)?;
                f = 1;
            }
        }
        if !s.wide {
            return self.err("cp.async source address must be 64 bits");
        }
        self.emit(&i.op, ac::cp_async, |x| {
            x.a = [d.slot, s.slot, size, 0, 0];
            x.imm = s.disp;
            x.flags = f;
            x.xs = Box::new([n, d.disp as u32, d.wide as u32, ignore]);
        });
        Ok(true)
    }

    fn bulk(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        if has("commit_group") {
            self.emit(&i.op, ac::bulk_commit, |_| {});
            return Ok(true);
        }
        if has("wait_group") {
            let Some(Opnd::Int(n)) = i.ops.first() else { return self.err("cp.async.bulk.wait_group without a number") };
            let n = *n as i64;
            self.emit(&i.op, ac::bulk_wait, |x| x.imm = n);
            return Ok(true);
        }
        if has("prefetch") && !has("tensor") {
            self.emit(&i.op, ac::hint, |_| {});
            return Ok(true);
        }
        if has("tensor") {
            return self.tensor_copy(i, p);
        }
        let spaces: Vec<&str> = p.iter().copied().filter(|m| matches!(*m, "global" | "shared::cta" | "shared::cluster")).collect();
        if spaces.len() != 2 {
            return Ok(false);
        }
        let mut f = match (spaces[0], spaces[1]) {
            ("global", _) => ac::TO_GLOBAL,
            (_, "global") => ac::TO_SHARED,
            _ => ac::SHARED_TO_SHARED,
        };
        let reduce = p[1] == "reduce";
        let (d, s) = (self.addr(&i.ops[0])?, self.addr(&i.ops[1])?);
        let n = self.src(&i.ops[2], 1, false)?;
        f |= d.wide as u32 * ac::WIDE_DST | s.wide as u32 * ac::WIDE_SRC;
        let mut bar = operand::Addr { slot: 0, wide: false, disp: 0 };
        let mut mask = 0;
        if f & 3 != ac::TO_GLOBAL {
            bar = self.addr(&i.ops[3])?;
            f |= bar.wide as u32 * ac::WIDE_BAR;
            if has("multicast::cluster") {
                mask = self.src(&i.ops[4], 1, false)?;
                f |= ac::MULTICAST;
            }
        }
        let mut code = 0;
        if reduce {
            if f & 3 != ac::TO_GLOBAL {
                return Ok(false);
            }
            let Some((c, _)) = atom::encode(p) else { return Ok(false) };
            code = c;
            f |= ac::REDUCE;
        }
        self.emit(&i.op, ac::bulk, |x| {
            x.a = [d.slot, s.slot, n, bar.slot, mask];
            x.flags = f;
            x.xs = Box::new([d.disp as u32, s.disp as u32, bar.disp as u32, 0, code]);
        });
        Ok(true)
    }
}
