//! Module level: directives, variables, functions.

use super::*;

impl<'a> Parser<'a> {
    pub(super) fn module(&mut self) -> Res<()> {
        loop {
            match self.peek() {
                Tok::Eof => return Ok(()),
                Tok::Word(".version") => {
                    self.next();
                    let v = match self.next() {
                        Tok::F64(b) => f64::from_bits(b),
                        Tok::Int(i) => i as f64,
                        t => return self.err(format!("bad .version {t:?}")),
                    };
                    self.module.version = (v as u32, ((v - v.floor()) * 10.0).round() as u32);
                }
                Tok::Word(".target") => {
                    self.next();
                    self.module.target = self.word()?.to_string();
                    while self.eat(b',') {
                        self.word()?;
                    }
                }
                Tok::Word(".address_size") => {
                    self.next();
                    if self.int()? != 64 {
                        return self.err("only 64-bit addresses are supported");
                    }
                }
                Tok::Word(".file") => self.file()?,
                Tok::Word(".section") => {
                    self.next();
                    self.word()?;
                    self.skip_block()?;
                }
                Tok::Word(".pragma") => self.skip_to(b';'),
                Tok::Word(".alias") => self.skip_to(b';'),
                Tok::Word(".loc") => self.loc()?,
                Tok::Word(w) if w.starts_with('.') => self.linkage()?,
                t => return self.err(format!("unexpected {t:?} at module level")),
            }
        }
    }

    pub(super) fn file(&mut self) -> Res<()> {
        self.next();
        let n = self.int()? as u32;
        let Tok::Str(name) = self.next() else { return self.err(".file without a name") };
        self.module.files.insert(n, name.to_string());
        while self.eat(b',') {
            self.int()?;
        }
        Ok(())
    }

    /// `.loc file line column [, function_name .. , inlined_at ..]`
    pub(super) fn loc(&mut self) -> Res<()> {
        self.next();
        let f = self.int()? as u32;
        let l = self.int()? as u32;
        self.int()?;
        let mut loc = Loc { file: f, line: l, ..Loc::default() };
        while self.eat(b',') {
            match self.word()? {
                "function_name" => {
                    self.word()?;
                    if self.eat(b'+') {
                        self.int()?;
                    }
                }
                "inlined_at" => {
                    loc.at_file = self.int()? as u32;
                    loc.at_line = self.int()? as u32;
                    self.int()?;
                }
                w => return self.err(format!("unknown .loc attribute '{w}'")),
            }
        }
        self.loc = self.module.locs.len() as u32;
        self.module.locs.push(loc);
        Ok(())
    }

    fn linkage(&mut self) -> Res<()> {
        let mut external = false;
        loop {
            let Tok::Word(w) = self.peek() else { return self.err("expected a declaration") };
            match w {
                ".visible" | ".weak" | ".common" => {
                    self.next();
                }
                ".extern" => {
                    self.next();
                    external = true;
                }
                ".entry" | ".func" => {
                    let f = self.func(w == ".entry")?;
                    // A definition replaces an earlier prototype.
                    match self.module.funcs.iter_mut().find(|g| g.name == f.name) {
                        Some(g) if f.body.is_some() => *g = f,
                        Some(_) => {}
                        None => self.module.funcs.push(f),
                    }
                    return Ok(());
                }
                _ => {
                    let vars = self.var_decl(external)?;
                    self.module.vars.extend(vars);
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn space_of(w: &str) -> Option<Space> {
        Some(match w {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            ".param" => Space::Param,
            _ => return None,
        })
    }

    /// `.global .align 8 .b8 x[16] = {..}, y;`
    pub(super) fn var_decl(&mut self, external: bool) -> Res<Vec<Var>> {
        let w = self.word()?;
        let Some(space) = Self::space_of(w) else {
            self.pos -= 1;
            return self.err(format!("unknown directive '{w}'"));
        };
        let mut out = vec![self.var(space, external)?];
        while self.eat(b',') {
            let (ty, align) = (out[0].ty.clone(), out[0].align);
            out.push(self.var_name(space, ty, align, 1, external)?);
        }
        self.expect(b';')?;
        Ok(out)
    }

    /// The part after the state space: attributes, type, name, dimensions, initializer.
    pub(super) fn var(&mut self, space: Space, external: bool) -> Res<Var> {
        let (mut align, mut vec, mut ty) = (0u32, 1u32, String::new());
        loop {
            match self.peek() {
                Tok::Word(".align") => {
                    self.next();
                    align = self.int()? as u32;
                }
                Tok::Word(".attribute") => {
                    self.next();
                    self.skip_to(b')');
                }
                Tok::Word(".ptr") => {
                    self.next();
                    while let Tok::Word(".global" | ".shared" | ".local" | ".const") = self.peek() {
                        self.next();
                    }
                    // The alignment here is the pointee's, not the parameter's.
                    if self.peek() == Tok::Word(".align") {
                        self.next();
                        self.int()?;
                    }
                }
                Tok::Word(".v2") => {
                    self.next();
                    vec = 2;
                }
                Tok::Word(".v4") => {
                    self.next();
                    vec = 4;
                }
                Tok::Word(w) if w.starts_with('.') => {
                    self.next();
                    ty = w.to_string();
                }
                _ => break,
            }
        }
        let t = if ty.is_empty() { ".b8".to_string() } else { ty };
        self.var_name(space, t, align, vec, external)
    }

    fn var_name(&mut self, space: Space, ty: String, align: u32, vec: u32, external: bool) -> Res<Var> {
        let name = self.word()?.to_string();
        let elem = type_bytes(&ty);
        let (mut count, mut unsized_dim) = (1u64, false);
        while self.eat(b'[') {
            if self.eat(b']') {
                unsized_dim = true;
                continue;
            }
            count *= self.int()? as u64;
            self.expect(b']')?;
        }
        let mut v = Var {
            space,
            name,
            align: if align == 0 { (elem * vec).max(1) } else { align },
            size: (elem * vec) * count as u32,
            ty,
            init: Vec::new(),
            relocs: Vec::new(),
            external,
        };
        if self.eat(b'=') {
            self.initializer(&mut v, elem)?;
        }
        if unsized_dim {
            v.size = v.init.len() as u32 * (!v.init.is_empty()) as u32;
        }
        Ok(v)
    }

    fn initializer(&mut self, v: &mut Var, elem: u32) -> Res<()> {
        if self.eat(b'{') {
            while !self.eat(b'}') {
                self.initializer(v, elem)?;
                self.eat(b',');
            }
            return Ok(());
        }
        let neg = self.eat(b'-');
        let push = |v: &mut Var, bits: u64| v.init.extend_from_slice(&bits.to_le_bytes()[..elem as usize]);
        match self.next() {
            Tok::Int(i) => push(v, if neg { (i as i64).wrapping_neg() as u64 } else { i }),
            Tok::F32(b) => push(v, b as u64),
            Tok::F64(b) if elem == 4 => push(v, (f64::from_bits(b) as f32).to_bits() as u64),
            Tok::F64(b) => push(v, b),
            Tok::Word(w) => {
                // symbol, generic(symbol), with +addend
                let generic = w == "generic";
                let name = if generic {
                    self.expect(b'(')?;
                    let n = self.word()?;
                    self.expect(b')')?;
                    n
                } else {
                    w
                };
                let add = if self.eat(b'+') { self.int()? } else { 0 };
                v.relocs.push((v.init.len() as u32, name.to_string(), add, generic));
                push(v, 0);
            }
            t => return self.err(format!("bad initializer {t:?}")),
        }
        Ok(())
    }

    fn params(&mut self) -> Res<Vec<Var>> {
        let mut out = Vec::new();
        self.expect(b'(')?;
        while !self.eat(b')') {
            let w = self.word()?;
            let space = match w {
                ".reg" => Space::Reg,
                ".param" => Space::Param,
                _ => return self.err(format!("bad parameter space '{w}'")),
            };
            out.push(self.var(space, false)?);
            self.eat(b',');
        }
        Ok(out)
    }

    fn func(&mut self, entry: bool) -> Res<Func> {
        let mut f = Func { entry, line: self.line(), ..Func::default() };
        self.next();
        if self.is(b'(') {
            f.rets = self.params()?;
        }
        f.name = self.word()?.to_string();
        if self.is(b'(') {
            f.params = self.params()?;
        }
        loop {
            match self.peek() {
                Tok::Word(w @ (".maxntid" | ".reqntid" | ".reqnctapercluster")) => {
                    self.next();
                    let d = self.dims()?;
                    match w {
                        ".maxntid" => f.maxntid = Some(d),
                        ".reqntid" => f.reqntid = Some(d),
                        _ => f.reqcluster = Some(d),
                    }
                }
                Tok::Word(".minnctapersm" | ".maxnctapersm" | ".maxnreg" | ".maxclusterrank") => {
                    self.next();
                    self.int()?;
                }
                Tok::Word(".noreturn" | ".explicitcluster" | ".blocksareclusters" | ".abi_preserve") => {
                    self.next();
                }
                Tok::Word(".pragma") => self.skip_to(b';'),
                Tok::Punct(b';') => {
                    self.next();
                    return Ok(f);
                }
                Tok::Punct(b'{') => {
                    self.next();
                    self.loc = 0;
                    f.body = Some(self.block()?);
                    return Ok(f);
                }
                t => return self.err(format!("unexpected {t:?} before the body of {}", f.name)),
            }
        }
    }

    fn dims(&mut self) -> Res<[u32; 3]> {
        let mut d = [1u32; 3];
        d[0] = self.int()? as u32;
        for x in d.iter_mut().skip(1) {
            if !self.eat(b',') {
                break;
            }
            *x = self.int()? as u32;
        }
        Ok(d)
    }
}
