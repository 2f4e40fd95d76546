//! Calls of device functions, inlined at each place; `printf` and `assert`.

use super::*;

impl<'m> Lower<'m> {
    pub(super) fn call(&mut self, i: &Instr) -> Res<()> {
        let mut ops = &i.ops[..];
        let mut rets: &[Opnd] = &[];
        if let Some(Opnd::List(r)) = ops.first() {
            rets = r;
            ops = &ops[1..];
        }
        let Some(Opnd::Name(name)) = ops.first() else { return self.err("call without a function name") };
        let args: &[Opnd] = if let Some(Opnd::List(a)) = ops.get(1) { a } else { &[] };
        let m = self.m;
        match name.as_str() {
            "vprintf" => return self.vprintf(rets, args),
            "__assertfail" => return self.assertfail(args),
            _ => {}
        }
        let Some(f) = m.funcs.iter().find(|f| f.name == *name) else {
            return self.err(format!("call of '{name}': indirect calls and unknown functions are not supported"));
        };
        let Some(body) = &f.body else { return self.err(format!("call of '{name}', which has no body")) };
        if self.calls.iter().any(|c| c.0 == *name) {
            return self.err(format!("'{name}' is recursive, which is not supported"));
        }
        if args.len() != f.params.len() || rets.len() != f.rets.len() {
            return self.err(format!(
                "call of '{name}' with {} arguments and {} results; it has {} and {}",
                args.len(),
                rets.len(),
                f.params.len(),
                f.rets.len()
            ));
        }
        let mut scope = Scope { wall: true, ..Scope::default() };
        for (a, p) in args.iter().zip(&f.params).chain(rets.iter().zip(&f.rets)) {
            let Opnd::Name(n) = a else { return self.err("call argument is not a name") };
            let Some(sym) = self.lookup(n)? else { return self.err(format!("unknown call argument '{n}'")) };
            scope.syms.insert(p.name.clone(), sym);
        }
        // A guarded call becomes a branch around the body.
        let end = self.new_label();
        if self.guard.0 != 0 {
            self.guard.1 = !self.guard.1;
            self.fixups.push((self.code.len(), end));
            self.emit("bra", exec::branch::bra, |x| x.jump = Jump::Branch);
            self.guard = (0, false);
        }
        self.calls.push((name.clone(), end));
        self.scopes.push(scope);
        let func = std::mem::replace(&mut self.func, name.clone());
        let (line, loc) = (self.line, self.loc);
        self.block(body)?;
        (self.line, self.loc) = (line, loc);
        self.func = func;
        self.scopes.pop();
        self.calls.pop();
        self.labels[end] = self.code.len() as u32;
        Ok(())
    }

    /// Load a call argument from its buffer into a fresh register.
    fn arg(&mut self, o: &Opnd, words: u8) -> Res<Slot> {
        let Opnd::Name(n) = o else { return self.err("call argument is not a name") };
        let Some(Sym::Local(at)) = self.lookup(n)? else { return self.err(format!("unknown call argument '{n}'")) };
        let base = self.bits(at as u64, 2);
        let r = self.new_slots(words);
        let flag = if words == 2 { exec::ldst::WIDE } else { 0 };
        let op = MemOp { space: MSpace::Local, esize: words * 4, vec: 1, signed: false, wide: true, order: Order::Weak };
        self.emit("ld.param", exec::ldst::ld, |i| {
            i.a[1] = base;
            i.xs = Box::new([r.slot | flag]);
            i.ext = Ext::Mem(op);
        });
        Ok(r.slot)
    }

    fn vprintf(&mut self, rets: &[Opnd], args: &[Opnd]) -> Res<()> {
        let (f, a) = (self.arg(&args[0], 2)?, self.arg(&args[1], 2)?);
        let r = self.new_slots(1);
        self.emit("call.vprintf", exec::printf::vprintf, |i| {
            i.a[0] = r.slot;
            i.a[1] = f;
            i.a[2] = a;
        });
        if let Some(Opnd::Name(n)) = rets.first() {
            let Some(Sym::Local(at)) = self.lookup(n)? else { return self.err("bad printf result") };
            let base = self.bits(at as u64, 2);
            let op = MemOp { space: MSpace::Local, esize: 4, vec: 1, signed: false, wide: true, order: Order::Weak };
            self.emit("st.param", exec::ldst::st, |i| {
                i.a[1] = base;
                i.xs = Box::new([r.slot]);
                i.ext = Ext::Mem(op);
            });
        }
        Ok(())
    }

    fn assertfail(&mut self, args: &[Opnd]) -> Res<()> {
        let x = [self.arg(&args[0], 2)?, self.arg(&args[1], 2)?, self.arg(&args[2], 1)?, self.arg(&args[3], 2)?];
        self.emit("call.__assertfail", exec::printf::assertfail, |i| i.xs = Box::new(x));
        Ok(())
    }
}
