//! How lowering finds the function of an arithmetic instruction: by its opcode,
//! it gets the function and the kind of each operand.

use crate::ir::ExecFn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Register of so many slots; immediates are converted to the type.
    R {
        slots: u8,
        float: bool,
    },
    Pred,
}

pub struct Sel {
    pub exec: ExecFn,
    pub dst: Arg,
    pub src: Vec<Arg>,
    pub flags: u32,
    pub imm: i64,
}

impl Sel {
    pub fn flags(mut self, f: u32) -> Sel {
        self.flags = f;
        self
    }
    pub fn imm(mut self, v: i64) -> Sel {
        self.imm = v;
        self
    }
}

pub const R32: Arg = Arg::R { slots: 1, float: false };
pub const R64: Arg = Arg::R { slots: 2, float: false };
pub const F32: Arg = Arg::R { slots: 1, float: true };

pub fn sel(exec: ExecFn, dst: Arg, src: &[Arg]) -> Sel {
    Sel { exec, dst, src: src.to_vec(), flags: 0, imm: 0 }
}

/// Operand kind of a lane type.
#[macro_export]
macro_rules! arg {
    ($t:ty) => {
        $crate::exec::sel::Arg::R { slots: <$t as $crate::exec::lanes::Lane>::W, float: <$t as $crate::exec::lanes::Lane>::FLOAT }
    };
}

#[macro_export]
macro_rules! un {
    ($a:ty => $d:ty, $f:expr) => {{
        fn e(m: &mut $crate::exec::Machine, i: &$crate::ir::Inst) -> $crate::ir::Exec {
            m.un::<$a, $d>(i, $f);
            Ok($crate::ir::Flow::Next)
        }
        $crate::exec::sel::sel(e, $crate::arg!($d), &[$crate::arg!($a)])
    }};
}

#[macro_export]
macro_rules! bin {
    ($a:ty, $b:ty => $d:ty, $f:expr) => {{
        fn e(m: &mut $crate::exec::Machine, i: &$crate::ir::Inst) -> $crate::ir::Exec {
            m.bin::<$a, $b, $d>(i, $f);
            Ok($crate::ir::Flow::Next)
        }
        $crate::exec::sel::sel(e, $crate::arg!($d), &[$crate::arg!($a), $crate::arg!($b)])
    }};
}

#[macro_export]
macro_rules! tri {
    ($a:ty, $b:ty, $c:ty => $d:ty, $f:expr) => {{
        fn e(m: &mut $crate::exec::Machine, i: &$crate::ir::Inst) -> $crate::ir::Exec {
            m.tri::<$a, $b, $c, $d>(i, $f);
            Ok($crate::ir::Flow::Next)
        }
        $crate::exec::sel::sel(e, $crate::arg!($d), &[$crate::arg!($a), $crate::arg!($b), $crate::arg!($c)])
    }};
}

/// Expand `$e` with `T` bound to the lane type of an integer type name.
#[macro_export]
macro_rules! ints {
    ($ty:expr, $t:ident => $e:expr) => {
        match $ty {
            "u16" | "b16" => {
                type $t = u16;
                Some($e)
            }
            "s16" => {
                type $t = i16;
                Some($e)
            }
            "u32" | "b32" => {
                type $t = u32;
                Some($e)
            }
            "s32" => {
                type $t = i32;
                Some($e)
            }
            "u64" | "b64" => {
                type $t = u64;
                Some($e)
            }
            "s64" => {
                type $t = i64;
                Some($e)
            }
            _ => None,
        }
    };
}

/// As `ints`, for untyped bits.
#[macro_export]
macro_rules! bits {
    ($ty:expr, $t:ident => $e:expr) => {
        match $ty {
            "b8" | "u8" | "s8" => {
                type $t = u8;
                Some($e)
            }
            "b16" | "u16" | "s16" | "f16" | "bf16" => {
                type $t = u16;
                Some($e)
            }
            "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => {
                type $t = u32;
                Some($e)
            }
            "b64" | "u64" | "s64" | "f64" | "f32x2" => {
                type $t = u64;
                Some($e)
            }
            "b128" => {
                type $t = u128;
                Some($e)
            }
            _ => None,
        }
    };
}
