//! Operands: names to slots, literals to constants.

use super::*;
use crate::exec::sreg;

/// A memory operand: base register, whether it is 64 bits wide, displacement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addr {
    pub slot: Slot,
    pub wide: bool,
    pub disp: i64,
}

impl<'m> Lower<'m> {
    pub(super) fn lookup(&mut self, name: &str) -> Res<Option<Sym>> {
        for s in (0..self.scopes.len()).rev() {
            if let Some(x) = self.scopes[s].syms.get(name) {
                return Ok(Some(x.clone()));
            }
            let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
            let (prefix, num) = name.split_at(name.len() - digits);
            if digits > 0 {
                let hit = self.scopes[s].ranges.iter().find(|r| r.0 == prefix).map(|r| (r.1.clone(), r.2));
                if let Some((ty, count)) = hit {
                    if num.parse::<u32>().is_ok_and(|n| n < count) {
                        let x = self.new_reg(&ty)?;
                        self.scopes[s].syms.insert(name.to_string(), x.clone());
                        return Ok(Some(x));
                    }
                }
            }
            if self.scopes[s].wall {
                break;
            }
        }
        // Module variables.
        if let Some(v) = self.m.vars.iter().find(|v| v.name == name) {
            if v.space == Space::Shared {
                if v.external && v.size == 0 {
                    return Ok(None); // dynamic: handled by `address`
                }
                let (align, size) = (v.align, v.size);
                return Ok(Some(Sym::Shared(self.place_shared(name, align, size))));
            }
        }
        Ok(None)
    }

    pub(super) fn pred_name(&mut self, name: &str) -> Res<u32> {
        match self.lookup(name)? {
            Some(Sym::Pred(p)) => Ok(p),
            _ => self.err(format!("'{name}' is not a predicate register")),
        }
    }

    /// A predicate source: index and negation. Constants become a predicate.
    pub(super) fn pred(&mut self, o: &Opnd) -> Res<(u32, bool)> {
        match o {
            Opnd::Name(n) => Ok((self.pred_name(n)?, false)),
            Opnd::Not(x) => {
                let (p, n) = self.pred(x)?;
                Ok((p, !n))
            }
            Opnd::Int(v) => {
                self.preds += 1;
                let (p, v) = (self.preds - 1, *v);
                let g = std::mem::take(&mut self.guard);
                self.emit("mov.pred", exec::cvt::pred_const, |i| {
                    i.a[0] = p;
                    i.imm = v as i64;
                });
                self.guard = g;
                Ok((p, false))
            }
            _ => self.err(format!("{o:?} is not a predicate")),
        }
    }

    pub(super) fn constant(&mut self, c: Const, words: u8) -> Slot {
        if let Some(&s) = self.consts.get(&(c, words)) {
            return s;
        }
        let r = self.new_slots(words);
        self.consts.insert((c, words), r.slot);
        r.slot
    }

    pub(super) fn bits(&mut self, v: u64, words: u8) -> Slot {
        let v = if words == 1 { v & 0xffff_ffff } else { v };
        let hi = if words == 4 && (v as i64) < 0 { u64::MAX } else { 0 };
        self.constant(Const::Bits(v, hi), words)
    }

    /// The value of a variable's name: its address.
    pub(super) fn address_of(&mut self, name: &str, add: i64) -> Res<Option<Const>> {
        if let Some(&a) = self.env.globals.get(name) {
            return Ok(Some(Const::Bits(a.wrapping_add(add as u64), 0)));
        }
        match self.lookup(name)? {
            Some(Sym::Shared(o)) => return Ok(Some(Const::Shared(o as i64 + add))),
            Some(Sym::Local(o)) => return Ok(Some(Const::Bits((o as i64 + add) as u64, 0))),
            Some(Sym::Param(o)) => return Ok(Some(Const::Bits((o as i64 + add) as u64, 0))),
            Some(_) => return Ok(None),
            None => {}
        }
        let dynamic = self.m.vars.iter().any(|v| v.name == name && v.space == Space::Shared && v.external && v.size == 0);
        Ok(dynamic.then_some(Const::Dynamic(add)))
    }

    /// A source operand of so many slots.
    pub(super) fn src(&mut self, o: &Opnd, words: u8, float: bool) -> Res<Slot> {
        Ok(match o {
            Opnd::Int(v) if float && words == 1 => self.bits((*v as i64 as f32).to_bits() as u64, 1),
            Opnd::Int(v) => self.bits(*v, words),
            Opnd::F32(b) if words == 2 && float => self.bits((f32::from_bits(*b) as f64).to_bits(), 2),
            Opnd::F32(b) => self.bits(*b as u64, words),
            Opnd::F64(b) if words == 1 => self.bits((f64::from_bits(*b) as f32).to_bits() as u64, 1),
            Opnd::F64(b) => self.bits(*b, words),
            Opnd::Off(b, add) => {
                let Opnd::Name(n) = &**b else { return self.err("unsupported address expression") };
                match self.address_of(n, *add)? {
                    Some(c) => self.constant(c, words),
                    None => return self.err(format!("'{n}+{add}' is not an address")),
                }
            }
            Opnd::Name(n) => {
                if let Some(r) = self.special(n)? {
                    return self.fit(r, words, n);
                }
                if let Some(c) = self.address_of(n, 0)? {
                    return Ok(self.constant(c, words));
                }
                match self.lookup(n)? {
                    Some(Sym::Reg(r)) => return self.fit(r, words, n),
                    Some(Sym::Pred(_)) => return self.err(format!("'{n}' is a predicate where a value is needed")),
                    _ => return self.err(format!("unknown name '{n}'")),
                }
            }
            _ => return self.err(format!("{o:?} cannot be a source here")),
        })
    }

    fn fit(&mut self, r: Reg, words: u8, n: &str) -> Res<Slot> {
        if r.words == words {
            return Ok(r.slot);
        }
        self.err(format!("register '{n}' has {} bits where {} are needed", r.words as u32 * 32, words as u32 * 32))
    }

    /// Reading a special register copies it first.
    fn special(&mut self, n: &str) -> Res<Option<Reg>> {
        if n == "WARP_SZ" {
            return Ok(Some(Reg { slot: self.bits(32, 1), words: 1 }));
        }
        let num = match sreg::NAMES.iter().find(|s| s.0 == n) {
            Some(s) => s.1,
            None if n.starts_with("%envreg") || n.starts_with("%pm") => return self.err(format!("special register {n} is not modelled")),
            None => return Ok(None),
        };
        let wide = sreg::wide(num);
        let r = self.new_slots(if wide { 2 } else { 1 });
        let g = std::mem::take(&mut self.guard);
        self.emit("mov.sreg", sreg::read, |i| {
            i.a[0] = r.slot;
            i.imm = num as i64;
            i.flags = wide as u32;
        });
        self.guard = g;
        Ok(Some(r))
    }

    /// Any register operand, with its width.
    pub(super) fn reg(&mut self, o: &Opnd) -> Res<Reg> {
        if let Opnd::Name(n) = o {
            if let Some(r) = self.special(n)? {
                return Ok(r);
            }
            if let Some(Sym::Reg(r)) = self.lookup(n)? {
                return Ok(r);
            }
        }
        self.err(format!("{o:?} is not a register"))
    }

    pub(super) fn dst(&mut self, o: &Opnd, words: u8) -> Res<Slot> {
        let r = self.reg(o)?;
        if r.words != words {
            return self.err(format!("destination {o:?} has {} bits where {} are needed", r.words as u32 * 32, words as u32 * 32));
        }
        Ok(r.slot)
    }

    /// Slots of a vector or single operand for ld/st: width flags included.
    pub(super) fn elements(&mut self, o: &Opnd, words: u8, float: bool, dst: bool) -> Res<Vec<u32>> {
        use crate::exec::ldst::{QUAD, SINK, WIDE};
        let one = std::slice::from_ref(o);
        let items = if let Opnd::Vec(v) = o { &v[..] } else { one };
        let mut out = Vec::new();
        for x in items {
            if dst && matches!(x, Opnd::Name(n) if n == "_") {
                out.push(SINK);
                continue;
            }
            let r = match self.reg(x) {
                Ok(r) => r,
                Err(e) if dst => return Err(e),
                Err(_) => Reg { slot: self.src(x, words, float)?, words },
            };
            out.push(match r.words {
                1 => r.slot,
                2 => r.slot | WIDE,
                _ => r.slot | QUAD,
            });
        }
        Ok(out)
    }

    /// An address operand in brackets.
    pub(super) fn addr(&mut self, o: &Opnd) -> Res<Addr> {
        let Opnd::Mem(items) = o else { return self.err(format!("{o:?} is not an address")) };
        self.addr_item(&items[0])
    }

    pub(super) fn addr_item(&mut self, o: &Opnd) -> Res<Addr> {
        let (base, disp) = match o {
            Opnd::Off(b, d) => (&**b, *d),
            x => (x, 0),
        };
        match base {
            Opnd::Int(v) => Ok(Addr { slot: self.bits(v.wrapping_add(disp as u64), 2), wide: true, disp: 0 }),
            Opnd::Name(n) => {
                if let Some(c) = self.address_of(n, disp)? {
                    return Ok(Addr { slot: self.constant(c, 2), wide: true, disp: 0 });
                }
                let r = self.reg(base)?;
                Ok(Addr { slot: r.slot, wide: r.words == 2, disp })
            }
            _ => self.err(format!("{o:?} is not an address")),
        }
    }
}
