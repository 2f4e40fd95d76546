//! The decoded form of a kernel: a flat array of instructions whose operands
//! are register slots, ready for the interpreter.

use crate::exec::Machine;
use crate::fault::Fault;

/// A 128-byte unit of a warp's register file: 32 lanes of 32 bits. A 64-bit
/// register takes two, a 128-bit one four. Constants live there too.
pub type Slot = u32;

pub type Exec = Result<Flow, Box<Fault>>;
pub type ExecFn = fn(&mut Machine, &Inst) -> Exec;

/// What the warp does after an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flow {
    Next,
    /// Lanes in the active mask go to `imm`, the rest falls through.
    Branch,
    /// The instruction has set the fragment's own pc or split it.
    Control,
    /// Lanes in the active mask leave the kernel.
    Exit,
    /// Wait, then run the same instruction again.
    Retry,
    /// Wait (state already set); continue behind the instruction when released.
    Wait,
    /// Continue, but let other warps run first.
    Yield,
}

/// Which lanes must arrive together before the instruction runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    None,
    /// All live lanes of the warp (`.aligned`).
    Warp,
    /// The lanes named by the member mask in register `a[4]`.
    Members,
    /// As `Members`, but the lanes may stand at different instructions.
    Anywhere,
}

/// What an instruction does to the program counter. (Functions cannot be told apart by their addresses.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    None,
    /// To `imm`.
    Branch,
    /// To one of `xs`.
    Indexed,
    Exit,
}

pub struct Inst {
    pub exec: ExecFn,
    pub jump: Jump,
    /// 0: none; else predicate index + 1.
    pub guard: u32,
    pub guard_not: bool,
    pub gate: Gate,
    /// Index into `Kernel::kinds`.
    pub kind: u16,
    pub a: [Slot; 5],
    pub flags: u32,
    pub imm: i64,
    /// Reconvergence pc of a branch.
    pub join: u32,
    pub xs: Box<[u32]>,
    pub ext: Ext,
    pub line: u32,
    pub loc: u32,
}

/// Operands of the instructions that do not fit the common form.
pub enum Ext {
    None,
    Mem(MemOp),
    Text(Box<[String]>),
    Tma(Box<crate::exec::tma_ops::TmaOp>),
    Mma(Box<crate::exec::mma_ops::MmaOp>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MSpace {
    Generic,
    Global,
    Const,
    Shared,
    SharedCluster,
    Local,
    /// Kernel parameters.
    Param,
}

/// How strong a memory access is, as far as the checks care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Weak,
    /// volatile, relaxed, acquire or release: takes part in synchronization.
    Strong,
}

#[derive(Clone, Copy, Debug)]
pub struct MemOp {
    pub space: MSpace,
    /// Bytes of one element.
    pub esize: u8,
    pub vec: u8,
    pub signed: bool,
    /// Is the address register 64 bits wide?
    pub wide: bool,
    pub order: Order,
}

/// A constant that a warp finds in its register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    Bits(u64, u64),
    /// Address inside the block's shared memory: static offset.
    Shared(i64),
    /// Offset from the start of dynamic shared memory.
    Dynamic(i64),
}

pub struct Kernel {
    pub name: String,
    pub code: Vec<Inst>,
    /// Size of a warp's register file, in slots.
    pub slots: u32,
    pub preds: u32,
    pub consts: Vec<(Const, Slot, u8)>,
    /// Static shared memory, behind the reserved bytes.
    pub static_smem: u32,
    pub local_bytes: u32,
    pub params: Vec<ParamInfo>,
    pub param_bytes: u32,
    pub kinds: Vec<String>,
    pub files: std::collections::HashMap<u32, String>,
    pub locs: Vec<crate::parse::Loc>,
    /// Text of the module by line, for reports.
    pub text: std::sync::Arc<String>,
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub reqcluster: Option<[u32; 3]>,
    pub target: String,
}

#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    pub offset: u32,
    pub size: u32,
}

// SAFETY: instructions hold only plain data and function pointers.
unsafe impl Send for Kernel {}
// SAFETY: a kernel is never changed once it is lowered.
unsafe impl Sync for Kernel {}
