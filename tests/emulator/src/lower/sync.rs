//! Warp-wide operations, barriers, mbarriers, fences.

use super::*;
use crate::exec::{async_copy, barrier, mbar, warp_ops};

impl<'m> Lower<'m> {
    pub(super) fn sync(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        match p[0] {
            "shfl" => self.shfl(i, p),
            "vote" => self.vote(i, p),
            "match" => self.matches(i, p),
            "redux" => self.redux(i, p),
            "elect" => {
                let Opnd::Pair(d, q) = &i.ops[0] else { return self.err("elect.sync needs d|p") };
                let d = if matches!(&**d, Opnd::Name(n) if n == "_") { u32::MAX } else { self.dst(d, 1)? };
                let (q, m) = (self.pred(q)?.0, self.src(&i.ops[1], 1, false)?);
                self.emit(&i.op, warp_ops::elect, |x| {
                    x.a = [d, 0, 0, 0, m];
                    x.xs = Box::new([q]);
                    x.gate = Gate::Members;
                });
                Ok(true)
            }
            "activemask" => {
                let d = self.dst(&i.ops[0], 1)?;
                self.emit(&i.op, warp_ops::activemask, |x| x.a[0] = d);
                Ok(true)
            }
            "bar" if p.get(1) == Some(&"warp") => {
                let m = self.src(&i.ops[0], 1, false)?;
                self.emit(&i.op, barrier::warp_sync, |x| {
                    x.a[4] = m;
                    x.gate = Gate::Anywhere;
                });
                Ok(true)
            }
            "bar" | "barrier" if p.get(1) != Some(&"cluster") => self.bar(i, p),
            "barrier" => {
                let gate = if p.contains(&"aligned") { Gate::Warp } else { Gate::None };
                let relaxed = p.contains(&"relaxed");
                let e: ExecFn = if p.contains(&"arrive") { barrier::cluster_arrive } else { barrier::cluster_wait };
                self.emit(&i.op, e, |x| {
                    x.gate = gate;
                    x.flags = relaxed as u32;
                });
                Ok(true)
            }
            "mbarrier" => self.mbarrier(i, p),
            "fence" => {
                // Only the generic-to-async proxy fence orders accesses that are checked.
                let proxy = p.get(1) == Some(&"proxy") && p.iter().any(|m| m.starts_with("async"));
                let e: ExecFn = if proxy { async_copy::fence_proxy } else { async_copy::hint };
                self.emit(&i.op, e, |_| {});
                Ok(true)
            }
            "membar" | "griddepcontrol" => {
                self.emit(&i.op, async_copy::hint, |_| {});
                Ok(true)
            }
            "setmaxnreg" => {
                let Some(Opnd::Int(n)) = i.ops.first() else { return self.err("setmaxnreg without an immediate") };
                if *n < 24 || *n > 256 || n % 8 != 0 {
                    return self.err(format!("setmaxnreg {n}: must be 24 to 256 in steps of 8"));
                }
                self.emit(&i.op, async_copy::hint, |x| x.gate = Gate::Warp);
                Ok(true)
            }
            "nanosleep" => {
                self.emit(&i.op, async_copy::sleep, |_| {});
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn shfl(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if p.get(1) != Some(&"sync") {
            return Ok(false);
        }
        let Some(mode) = ["up", "down", "bfly", "idx"].iter().position(|m| p.contains(m)) else { return Ok(false) };
        let (d, q) = match &i.ops[0] {
            Opnd::Pair(d, q) => (self.dst(d, 1)?, Some(self.pred(q)?.0)),
            d => (self.dst(d, 1)?, None),
        };
        let a = self.src(&i.ops[1], 1, false)?;
        let (b, c, m) = (self.src(&i.ops[2], 1, false)?, self.src(&i.ops[3], 1, false)?, self.src(&i.ops[4], 1, false)?);
        self.emit(&i.op, warp_ops::shfl, |x| {
            x.a = [d, a, b, c, m];
            x.imm = mode as i64;
            x.xs = q.into_iter().collect();
            x.gate = Gate::Members;
        });
        Ok(true)
    }

    fn vote(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        if p.get(1) != Some(&"sync") {
            return Ok(false);
        }
        let Some(mode) = ["all", "any", "uni", "ballot"].iter().position(|m| p.contains(m)) else { return Ok(false) };
        let d = if mode == 3 { self.dst(&i.ops[0], 1)? } else { self.pred(&i.ops[0])?.0 };
        let (q, neg) = self.pred(&i.ops[1])?;
        let m = self.src(&i.ops[2], 1, false)?;
        self.emit(&i.op, warp_ops::vote, |x| {
            x.a = [d, q, 0, 0, m];
            x.imm = mode as i64;
            x.flags = neg as u32 * 8;
            x.gate = Gate::Members;
        });
        Ok(true)
    }

    fn matches(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let words = if p.last() == Some(&"b64") { 2 } else { 1 };
        let (d, q) = match &i.ops[0] {
            Opnd::Pair(d, q) => (self.dst(d, 1)?, Some(self.pred(q)?.0)),
            d => (self.dst(d, 1)?, None),
        };
        let a = self.src(&i.ops[1], words, false)?;
        let m = self.src(&i.ops[2], 1, false)?;
        let all = p.contains(&"all");
        self.emit(&i.op, warp_ops::matches, |x| {
            x.a = [d, a, 0, 0, m];
            x.imm = all as i64;
            x.flags = (words == 2) as u32;
            x.xs = q.into_iter().collect();
            x.gate = Gate::Members;
        });
        Ok(true)
    }

    fn redux(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let Some((op, flags)) = warp_ops::redux_op(p) else { return Ok(false) };
        let d = self.dst(&i.ops[0], 1)?;
        let (a, m) = (self.src(&i.ops[1], 1, op == 8)?, self.src(&i.ops[2], 1, false)?);
        self.emit(&i.op, warp_ops::redux, |x| {
            x.a = [d, a, 0, 0, m];
            x.imm = op;
            x.flags = flags;
            x.gate = Gate::Members;
        });
        Ok(true)
    }

    fn bar(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let aligned = p[0] == "bar" || p.contains(&"aligned");
        let red = p.contains(&"red");
        let sync = p.contains(&"sync") || red;
        let mut f = (sync as u32) * barrier::SYNC | (aligned as u32) * barrier::ALIGNED;
        let mut ops = &i.ops[..];
        let (mut d, mut q) = (0, 0);
        if red {
            let kind = if p.contains(&"popc") {
                1
            } else if p.contains(&"and") {
                2
            } else {
                3
            };
            f |= kind << 4;
            d = if kind == 1 { self.dst(&ops[0], 1)? } else { self.pred(&ops[0])?.0 };
            let (x, neg) = self.pred(&ops[ops.len() - 1])?;
            q = x;
            f |= neg as u32 * barrier::NOT;
            ops = &ops[1..ops.len() - 1];
        }
        let id = self.src(&ops[0], 1, false)?;
        let mut n = 0;
        if let Some(o) = ops.get(1) {
            n = self.src(o, 1, false)?;
            f |= barrier::COUNT;
        }
        self.emit(&i.op, barrier::bar, |x| {
            x.a = [d, id, n, q, 0];
            x.flags = f;
            x.gate = if aligned { Gate::Warp } else { Gate::None };
        });
        Ok(true)
    }

    fn mbarrier(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        let mut f = has("shared::cluster") as u32 * mbar::CLUSTER
            | has("relaxed") as u32 * mbar::RELAXED
            | has("expect_tx") as u32 * mbar::EXPECT_TX
            | has("parity") as u32 * mbar::PARITY;
        if memory::space_of(p) == MSpace::Generic {
            f |= mbar::GENERIC;
        }
        let wide = |a: operand::Addr| a.wide as u32 * mbar::WIDE_ADDR;
        match p[1] {
            "init" => {
                let a = self.addr(&i.ops[0])?;
                let n = self.src(&i.ops[1], 1, false)?;
                self.emit(&i.op, mbar::init, |x| {
                    x.a = [0, a.slot, n, 0, 0];
                    (x.imm, x.flags) = (a.disp, f | wide(a));
                });
            }
            "inval" => {
                let a = self.addr(&i.ops[0])?;
                self.emit(&i.op, mbar::inval, |x| {
                    x.a[1] = a.slot;
                    (x.imm, x.flags) = (a.disp, f | wide(a));
                });
            }
            "expect_tx" | "complete_tx" => {
                let a = self.addr(&i.ops[0])?;
                let n = self.src(&i.ops[1], 1, false)?;
                let drop = (p[1] == "complete_tx") as u32 * mbar::DROP;
                self.emit(&i.op, mbar::expect_tx, |x| {
                    x.a = [0, a.slot, n, 0, 0];
                    (x.imm, x.flags) = (a.disp, (f & !mbar::EXPECT_TX) | wide(a) | drop);
                });
            }
            "arrive" | "arrive_drop" => {
                let state = !matches!(i.ops[0], Opnd::Mem(_));
                let mut d = 0;
                if state && !matches!(&i.ops[0], Opnd::Name(n) if n == "_") {
                    d = self.dst(&i.ops[0], 2)?;
                    f |= mbar::STATE;
                }
                let at = state as usize;
                let a = self.addr(&i.ops[at])?;
                let mut n = 0;
                if let Some(o) = i.ops.get(at + 1) {
                    n = self.src(o, 1, false)?;
                    f |= mbar::HAS_COUNT;
                }
                let drop = (p[1] == "arrive_drop") as u32 * mbar::DROP;
                self.emit(&i.op, mbar::arrive, |x| {
                    x.a = [d, a.slot, n, 0, 0];
                    (x.imm, x.flags) = (a.disp, f | wide(a) | drop);
                });
            }
            "test_wait" | "try_wait" => {
                let d = self.pred(&i.ops[0])?.0;
                let a = self.addr(&i.ops[1])?;
                let s = self.src(&i.ops[2], if has("parity") { 1 } else { 2 }, false)?;
                let t = (p[1] == "try_wait") as u32 * mbar::TRY;
                self.emit(&i.op, mbar::wait, |x| {
                    x.a = [d, a.slot, s, 0, 0];
                    (x.imm, x.flags) = (a.disp, f | wide(a) | t);
                });
            }
            "pending_count" => self.emit(&i.op, mbar::pending_count, |_| {}),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
