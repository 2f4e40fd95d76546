//! Tensor copies.

use super::*;
use crate::exec::tma_ops::{self as ops, Direction, TmaOp};

impl<'m> Lower<'m> {
    pub(in crate::lower) fn tensor_copy(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        if p.iter().any(|m| m.starts_with("im2col") || m.starts_with("tile::")) {
            return Ok(false);
        }
        let Some(rank) = p.iter().find_map(|m| m.strip_suffix('d')?.parse::<usize>().ok()) else { return Ok(false) };
        let names = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
        let spaces: Vec<&str> = p.iter().copied().filter(|m| matches!(*m, "global" | "shared::cta" | "shared::cluster")).collect();
        let direction = match (p[1], spaces.first()) {
            ("reduce", _) => match names.iter().find(|n| has(n)) {
                Some(n) => Direction::Reduce(n),
                None => return Ok(false),
            },
            _ if has("prefetch") => Direction::Prefetch,
            (_, Some(&"global")) => Direction::Store,
            (_, Some(_)) => Direction::Load,
            _ => return Ok(false),
        };
        let map_at = (direction == Direction::Load) as usize;
        let Some(Opnd::Mem(items)) = i.ops.get(map_at) else { return Ok(false) };
        let [map, coords] = &items[..] else { return self.err("a tensor operand is [map, {coordinates}]") };
        let long = |a: Addr| (a.slot, a.wide, a.disp);
        let map = long(self.addr_item(map)?);
        let coords = self.vec_src(coords, false)?;
        if coords.len() != rank {
            return self.err(format!("{rank}d tensor copy with {} coordinates", coords.len()));
        }
        let none = (0, false, 0);
        let mut op = TmaOp { direction, map, coords, shared: none, mbar: none, mask: None, pair: has("cta_group::2") };
        match direction {
            Direction::Load => {
                op.shared = long(self.addr(&i.ops[0])?);
                op.mbar = long(self.addr(&i.ops[2])?);
                if has("multicast::cluster") {
                    op.mask = Some(self.src(&i.ops[3], 1, false)?);
                }
            }
            Direction::Store | Direction::Reduce(_) => op.shared = long(self.addr(&i.ops[1])?),
            Direction::Prefetch => {}
        }
        self.emit(&i.op, ops::tensor_copy, |x| x.ext = Ext::Tma(Box::new(op)));
        Ok(true)
    }
}
