//! From syntax tree to decoded instructions: registers get slots, labels pcs,
//! calls are inlined, and each opcode finds its function.

mod alu;
mod calls;
mod copies;
mod flow;
mod launch_control;
mod memory;
mod operand;
mod sync;
mod tensor;

use crate::exec;
use crate::exec::sel::{Arg, Sel};
use crate::ir::*;
use crate::parse::*;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub struct LowerError {
    pub line: u32,
    pub msg: String,
}

pub type Res<T> = Result<T, LowerError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg {
    pub slot: Slot,
    pub words: u8,
}

#[derive(Clone, Debug)]
enum Sym {
    Reg(Reg),
    Pred(u32),
    Label(usize),
    /// Offset in the thread's local memory: `.local` variables and `.param` buffers.
    Local(u32),
    Shared(u32),
    /// Offset in the kernel's parameter block.
    Param(u32),
    Targets(Vec<String>),
}

#[derive(Default)]
struct Scope {
    syms: HashMap<String, Sym>,
    /// Register ranges: prefix, type, count.
    ranges: Vec<(String, String, u32)>,
    /// An inlined function starts here: outer register names are not visible.
    wall: bool,
}

/// Module-level facts that lowering needs.
pub struct Env {
    /// Device addresses of `.global` and `.const` variables.
    pub globals: HashMap<String, u64>,
}

pub struct Lower<'m> {
    m: &'m Module,
    env: &'m Env,
    code: Vec<Inst>,
    slots: u32,
    preds: u32,
    consts: HashMap<(Const, u8), Slot>,
    scopes: Vec<Scope>,
    labels: Vec<u32>,
    fixups: Vec<(usize, usize)>,
    brx_fixups: Vec<(usize, Vec<usize>)>,
    kinds: Vec<String>,
    kind_of: HashMap<String, u16>,
    static_smem: u32,
    shared: HashMap<String, u32>,
    local: u32,
    calls: Vec<(String, usize)>,
    /// The instruction being lowered: guard, line, location.
    guard: (u32, bool),
    line: u32,
    loc: u32,
    func: String,
}

const UNPLACED: u32 = u32::MAX;

/// Lower one entry function.
pub fn lower(m: &Module, f: &Func, env: &Env, text: Arc<String>) -> Res<Kernel> {
    let mut l = Lower {
        m,
        env,
        code: Vec::new(),
        slots: 0,
        preds: 1,
        consts: HashMap::new(),
        scopes: vec![Scope::default()],
        labels: Vec::new(),
        fixups: Vec::new(),
        brx_fixups: Vec::new(),
        kinds: Vec::new(),
        kind_of: HashMap::new(),
        static_smem: 0,
        shared: HashMap::new(),
        local: 0,
        calls: Vec::new(),
        guard: (0, false),
        line: f.line,
        loc: 0,
        func: f.name.clone(),
    };
    let mut at = 0u32;
    let mut params = Vec::new();
    for p in &f.params {
        at = at.next_multiple_of(p.align.max(1));
        params.push(ParamInfo { offset: at, size: p.size });
        l.scopes[0].syms.insert(p.name.clone(), Sym::Param(at));
        at += p.size;
    }
    let Some(body) = &f.body else {
        return Err(LowerError { line: f.line, msg: format!("{} has no body", f.name) });
    };
    l.block(body)?;
    // Falling off the end leaves the kernel.
    l.guard = (0, false);
    l.emit("exit", exec::branch::exit, |x| x.jump = Jump::Exit);
    l.patch()?;
    flow::set_joins(&mut l.code);
    if l.consts.keys().any(|c| matches!(c.0, Const::Dynamic(_))) {
        // Dynamic shared memory follows the static part, aligned as it is declared.
        let dynamic = m.vars.iter().filter(|v| v.space == Space::Shared && v.external && v.size == 0);
        let align = dynamic.map(|v| v.align).max().unwrap_or(16).max(16);
        l.static_smem = l.static_smem.next_multiple_of(align);
    }
    let mut consts: Vec<_> = l.consts.iter().map(|(&(c, w), &s)| (c, s, w)).collect();
    consts.sort_by_key(|c| c.1);
    Ok(Kernel {
        name: f.name.clone(),
        code: l.code,
        slots: l.slots,
        preds: l.preds,
        consts,
        static_smem: l.static_smem,
        local_bytes: l.local.next_multiple_of(16),
        params,
        param_bytes: at,
        kinds: l.kinds,
        files: m.files.clone(),
        locs: m.locs.clone(),
        text,
        maxntid: f.maxntid,
        reqntid: f.reqntid,
        reqcluster: f.reqcluster,
        target: m.target.clone(),
    })
}

impl<'m> Lower<'m> {
    fn err<T>(&self, msg: impl Into<String>) -> Res<T> {
        Err(LowerError { line: self.line, msg: msg.into() })
    }

    fn emit(&mut self, op: &str, exec: ExecFn, set: impl FnOnce(&mut Inst)) {
        let kind = match self.kind_of.get(op) {
            Some(&k) => k,
            None => {
                let k = self.kinds.len() as u16;
                self.kinds.push(op.to_string());
                self.kind_of.insert(op.to_string(), k);
                k
            }
        };
        let mut i = Inst {
            exec,
            jump: Jump::None,
            guard: self.guard.0,
            guard_not: self.guard.1,
            gate: Gate::None,
            kind,
            a: [0; 5],
            flags: 0,
            imm: 0,
            join: exec::NO_REC,
            xs: Box::new([]),
            ext: Ext::None,
            line: self.line,
            loc: self.loc,
        };
        set(&mut i);
        self.code.push(i);
    }

    fn new_label(&mut self) -> usize {
        self.labels.push(UNPLACED);
        self.labels.len() - 1
    }

    fn patch(&mut self) -> Res<()> {
        for (at, label) in std::mem::take(&mut self.fixups) {
            if self.labels[label] == UNPLACED {
                return self.err("branch to a label that is not placed");
            }
            self.code[at].imm = self.labels[label] as i64;
        }
        for (at, labels) in std::mem::take(&mut self.brx_fixups) {
            self.code[at].xs = labels.iter().map(|&l| self.labels[l]).collect();
        }
        Ok(())
    }

    fn block(&mut self, body: &[Stmt]) -> Res<()> {
        // Labels of this block may be used before they stand.
        for s in body {
            if let Stmt::Label(n) = s {
                let id = self.new_label();
                self.top().syms.insert(n.clone(), Sym::Label(id));
            }
            if let Stmt::Targets(n, t) = s {
                let t = t.clone();
                self.top().syms.insert(n.clone(), Sym::Targets(t));
            }
        }
        for s in body {
            match s {
                Stmt::Reg { ty, vec, names } => {
                    if *vec != 1 {
                        return self.err("vector registers (.reg .v2/.v4) are not supported");
                    }
                    for (n, count) in names {
                        match count {
                            Some(c) => {
                                let (n, ty, c) = (n.clone(), ty.clone(), *c);
                                self.top().ranges.push((n, ty, c));
                            }
                            None => {
                                let s = self.new_reg(ty)?;
                                self.top().syms.insert(n.clone(), s);
                            }
                        }
                    }
                }
                Stmt::Var(v) => self.var(v)?,
                Stmt::Label(n) => {
                    let Some(Sym::Label(id)) = self.top().syms.get(n).cloned() else { unreachable!("inserted above") };
                    self.labels[id] = self.code.len() as u32;
                }
                Stmt::Targets(..) => {}
                Stmt::Block(b) => {
                    self.scopes.push(Scope::default());
                    self.block(b)?;
                    self.scopes.pop();
                }
                Stmt::Inst(i) => self.inst(i)?,
            }
        }
        Ok(())
    }

    fn top(&mut self) -> &mut Scope {
        let n = self.scopes.len() - 1;
        &mut self.scopes[n]
    }

    fn var(&mut self, v: &Var) -> Res<()> {
        let sym = match v.space {
            Space::Local | Space::Param => {
                self.local = self.local.next_multiple_of(v.align.max(1));
                let at = self.local;
                self.local += v.size;
                Sym::Local(at)
            }
            Space::Shared => Sym::Shared(self.place_shared(&format!("{}::{}", self.func, v.name), v.align, v.size)),
            Space::Reg => return self.err("register variable in a body"),
            _ => return self.err(format!("variable {} in this space inside a function", v.name)),
        };
        self.top().syms.insert(v.name.clone(), sym);
        Ok(())
    }

    fn place_shared(&mut self, key: &str, align: u32, size: u32) -> u32 {
        if let Some(&o) = self.shared.get(key) {
            return o;
        }
        let at = self.static_smem.next_multiple_of(align.max(1));
        self.static_smem = at + size;
        self.shared.insert(key.to_string(), at);
        at
    }

    fn new_reg(&mut self, ty: &str) -> Res<Sym> {
        if ty == ".pred" {
            self.preds += 1;
            return Ok(Sym::Pred(self.preds - 1));
        }
        let words = match type_bytes(ty) {
            0 => return self.err(format!("unknown register type {ty}")),
            1..=4 => 1,
            8 => 2,
            _ => 4,
        };
        Ok(Sym::Reg(self.new_slots(words)))
    }

    fn new_slots(&mut self, words: u8) -> Reg {
        // Rows of 64-bit lanes stay aligned to their size.
        self.slots = self.slots.next_multiple_of(words as u32);
        let slot = self.slots;
        self.slots += words as u32;
        Reg { slot, words }
    }

    fn inst(&mut self, i: &Instr) -> Res<()> {
        self.line = i.line;
        self.loc = i.loc;
        self.guard = (0, false);
        if let Some((p, neg)) = &i.guard {
            let idx = self.pred_name(p)?;
            self.guard = (idx + 1, *neg);
        }
        let parts: Vec<&str> = i.op.split('.').collect();
        let done = self.flow(i, &parts)?
            || self.memory(i, &parts)?
            || self.sync(i, &parts)?
            || self.copies(i, &parts)?
            || (parts[0] == "clusterlaunchcontrol" && self.clc(i, &parts)?)
            || self.tensor(i, &parts)?
            || self.alu(i, &parts)?;
        if !done {
            self.unsupported(i);
        }
        Ok(())
    }

    /// Stops the kernel when it is reached, never skipped.
    fn unsupported(&mut self, i: &Instr) {
        fn stop(m: &mut exec::Machine, i: &Inst) -> Exec {
            let Ext::Text(t) = &i.ext else { unreachable!("set below") };
            let what = format!("unsupported instruction: {}", t[0]);
            let mut f = m.fault(i, what);
            f.code = crate::fault::ILLEGAL_INSTRUCTION;
            Err(f)
        }
        let op = i.op.clone();
        self.emit(&i.op, stop, |x| x.ext = Ext::Text(Box::new([op])));
    }
}
