//! The syntax tree of one PTX module.

use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Reg,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Opnd {
    /// Register, symbol, label or special register.
    Name(String),
    Int(u64),
    F32(u32),
    F64(u64),
    Not(Box<Opnd>),
    Vec(Vec<Opnd>),
    /// `[a+off, b, {c,d}]`: the items inside brackets.
    Mem(Vec<Opnd>),
    /// `base+offset`, inside brackets or as an initializer.
    Off(Box<Opnd>, i64),
    /// `d|p`
    Pair(Box<Opnd>, Box<Opnd>),
    /// `(a, b)` of a call.
    List(Vec<Opnd>),
}

#[derive(Clone, Debug)]
pub struct Var {
    pub space: Space,
    pub name: String,
    pub align: u32,
    /// Bytes; 0 for an unsized extern array.
    pub size: u32,
    pub ty: String,
    pub init: Vec<u8>,
    /// (byte offset, symbol, addend, generic) of initializers that are addresses.
    pub relocs: Vec<(u32, String, i64, bool)>,
    pub external: bool,
}

#[derive(Clone, Debug)]
pub struct Instr {
    pub guard: Option<(String, bool)>,
    /// The full opcode, as written.
    pub op: String,
    pub ops: Vec<Opnd>,
    pub line: u32,
    /// Source position: index into `Func::locs`, 0 for none.
    pub loc: u32,
}

#[derive(Clone, Debug)]
pub enum Stmt {
    Reg { ty: String, vec: u32, names: Vec<(String, Option<u32>)> },
    Var(Var),
    Label(String),
    Inst(Instr),
    Block(Vec<Stmt>),
    Targets(String, Vec<String>),
}

#[derive(Clone, Debug, Default)]
pub struct Func {
    pub name: String,
    pub entry: bool,
    pub params: Vec<Var>,
    pub rets: Vec<Var>,
    pub body: Option<Vec<Stmt>>,
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub reqcluster: Option<[u32; 3]>,
    pub line: u32,
}

/// A source position: file and line, and where that was inlined (0: nowhere).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loc {
    pub file: u32,
    pub line: u32,
    pub at_file: u32,
    pub at_line: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Module {
    pub version: (u32, u32),
    pub target: String,
    pub funcs: Vec<Func>,
    pub vars: Vec<Var>,
    pub files: HashMap<u32, String>,
    /// What `Instr::loc` points at; entry 0 means unknown.
    pub locs: Vec<Loc>,
}
