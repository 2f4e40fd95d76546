//! Function bodies: declarations, labels, instructions and their operands.

use super::*;

impl<'a> Parser<'a> {
    /// Statements up to and including the closing brace.
    pub(super) fn block(&mut self) -> Res<Vec<Stmt>> {
        let mut out = Vec::new();
        loop {
            match self.peek() {
                Tok::Punct(b'}') => {
                    self.next();
                    return Ok(out);
                }
                Tok::Punct(b'{') => {
                    self.next();
                    out.push(Stmt::Block(self.block()?));
                }
                Tok::Punct(b';') => {
                    self.next();
                }
                Tok::Punct(b'@') => out.push(Stmt::Inst(self.inst()?)),
                Tok::Eof => return self.err("function body not closed"),
                Tok::Word(".loc") => self.loc()?,
                Tok::Word(".file") => self.file()?,
                Tok::Word(".pragma") => self.skip_to(b';'),
                Tok::Word(".reg") => out.push(self.reg()?),
                Tok::Word(".callprototype") => self.skip_to(b';'),
                Tok::Word(w) if Self::space_of(w).is_some() => {
                    out.extend(self.var_decl(false)?.into_iter().map(Stmt::Var));
                }
                Tok::Word(w) if self.peek2() == Tok::Punct(b':') => {
                    self.next();
                    self.next();
                    match self.peek() {
                        Tok::Word(".branchtargets") => {
                            self.next();
                            let mut t = Vec::new();
                            while !self.eat(b';') {
                                t.push(self.word()?.to_string());
                                self.eat(b',');
                            }
                            out.push(Stmt::Targets(w.to_string(), t));
                        }
                        Tok::Word(".callprototype") => self.skip_to(b';'),
                        _ => out.push(Stmt::Label(w.to_string())),
                    }
                }
                Tok::Word(w) if w.starts_with('.') => return self.err(format!("unknown directive '{w}' in a function")),
                Tok::Word(_) => out.push(Stmt::Inst(self.inst()?)),
                t => return self.err(format!("unexpected {t:?} in a function")),
            }
        }
    }

    fn reg(&mut self) -> Res<Stmt> {
        self.next();
        let mut vec = 1;
        let mut ty = self.word()?;
        if ty == ".v2" || ty == ".v4" {
            vec = if ty == ".v2" { 2 } else { 4 };
            ty = self.word()?;
        }
        let mut names = Vec::new();
        loop {
            let n = self.word()?.to_string();
            let count = if self.eat(b'<') {
                let c = self.int()? as u32;
                self.expect(b'>')?;
                Some(c)
            } else {
                None
            };
            names.push((n, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(Stmt::Reg { ty: ty.to_string(), vec, names })
    }

    fn inst(&mut self) -> Res<Instr> {
        let mut guard = None;
        if self.eat(b'@') {
            let neg = self.eat(b'!');
            guard = Some((self.word()?.to_string(), neg));
        }
        let line = self.line();
        let op = self.word()?.to_string();
        let mut ops = Vec::new();
        while !self.eat(b';') {
            if self.peek() == Tok::Eof {
                return self.err("instruction not closed");
            }
            ops.push(self.operand()?);
            if !self.eat(b',') {
                self.expect(b';')?;
                break;
            }
        }
        Ok(Instr { guard, op, ops, line, loc: self.loc })
    }

    fn operand(&mut self) -> Res<Opnd> {
        let o = match self.next() {
            Tok::Int(v) => Opnd::Int(v),
            Tok::F32(b) => Opnd::F32(b),
            Tok::F64(b) => Opnd::F64(b),
            Tok::Word(w) => Opnd::Name(w.to_string()),
            Tok::Punct(b'-') => match self.next() {
                Tok::Int(v) => Opnd::Int((v as i64).wrapping_neg() as u64),
                Tok::F32(b) => Opnd::F32(b ^ 0x8000_0000),
                Tok::F64(b) => Opnd::F64(b ^ (1 << 63)),
                t => return self.err(format!("unexpected {t:?} after '-'")),
            },
            Tok::Punct(b'!') => Opnd::Not(Box::new(self.operand()?)),
            Tok::Punct(b'{') => Opnd::Vec(self.items(b'}')?),
            Tok::Punct(b'[') => Opnd::Mem(self.items(b']')?),
            Tok::Punct(b'(') => Opnd::List(self.items(b')')?),
            t => {
                self.pos -= 1;
                return self.err(format!("unexpected {t:?} as an operand"));
            }
        };
        if self.eat(b'|') {
            let r = self.operand()?;
            return Ok(Opnd::Pair(Box::new(o), Box::new(r)));
        }
        if self.is(b'+') || (self.is(b'-') && matches!(o, Opnd::Name(_))) {
            let neg = self.next() == Tok::Punct(b'-');
            let v = self.int()?;
            return Ok(Opnd::Off(Box::new(o), if neg { -v } else { v }));
        }
        Ok(o)
    }

    fn items(&mut self, close: u8) -> Res<Vec<Opnd>> {
        let mut v = Vec::new();
        while !self.eat(close) {
            v.push(self.operand()?);
            if !self.eat(b',') && !self.is(close) {
                return self.err(format!("expected ',' or '{}', found {:?}", close as char, self.peek()));
            }
        }
        Ok(v)
    }
}
