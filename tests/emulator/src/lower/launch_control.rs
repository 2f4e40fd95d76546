//! `clusterlaunchcontrol`.

use super::*;
use crate::exec::clc;

impl<'m> Lower<'m> {
    pub(super) fn clc(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        match p[1] {
            "try_cancel" => {
                let (a, b) = (self.addr(&i.ops[0])?, self.addr(&i.ops[1])?);
                let all = has("multicast::cluster::all") as u32 * 4;
                self.emit(&i.op, clc::try_cancel, |x| {
                    x.a = [0, a.slot, b.slot, 0, 0];
                    x.flags = a.wide as u32 | (b.wide as u32) << 1 | all;
                    x.xs = Box::new([a.disp as u32, b.disp as u32]);
                });
            }
            "query_cancel" if has("is_canceled") => {
                let (d, s) = (self.pred(&i.ops[0])?.0, self.src(&i.ops[1], 4, false)?);
                self.emit(&i.op, clc::is_canceled, |x| x.a = [d, s, 0, 0, 0]);
            }
            "query_cancel" => {
                let one = p.iter().find_map(|m| m.strip_prefix("get_first_ctaid::"));
                let at = one.and_then(|d| ["x", "y", "z"].iter().position(|x| *x == d));
                let xs = self.elements(&i.ops[0], 1, false, true)?;
                let s = self.src(&i.ops[1], 4, false)?;
                self.emit(&i.op, clc::first_ctaid, |x| {
                    x.a[1] = s;
                    x.xs = xs.into();
                    x.imm = at.map_or(-1, |k| k as i64);
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
