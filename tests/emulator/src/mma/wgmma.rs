//! `wgmma.mma_async.sync.aligned`: one warpgroup, m64, depth 32 bytes.
//!
//! Accumulator of thread 32w + 4g + t: register i of an f32 accumulator is row
//! 16w + g + 8*((i/2)%2), column 8*(i/4) + 2t + i%2; an f16 register packs the two
//! columns, so register i is row 16w + g + 8*(i%2), columns 8*(i/2) + 2t, +1.

use super::arith::{decode_elem, dot_add, Acc, Elem, Num, Rule};
use super::desc::{elements, Family, Major, MatrixDesc};
use super::sync::{gather, Reg};
use super::SharedMemory;

/// Threads of a warpgroup.
pub const THREADS: usize = 128;

/// One register of all threads.
pub type WgReg = [u32; THREADS];

/// The instruction's fixed parts.
#[derive(Clone, Copy, Debug)]
pub struct Wgmma {
    /// Columns: a multiple of 8 up to 256.
    pub n: usize,
    /// Type of A.
    pub a: Elem,
    /// Type of B.
    pub b: Elem,
    /// Accumulator type.
    pub acc: Acc,
    /// False computes D = A*B.
    pub scale_d: bool,
    /// `imm-scale-a` is -1.
    pub negate_a: bool,
    /// `imm-scale-b` is -1.
    pub negate_b: bool,
    /// `imm-trans-a`: A is M-major.
    pub a_major: Major,
    /// `imm-trans-b`: B is N-major.
    pub b_major: Major,
}

/// Where A comes from.
#[derive(Clone, Copy, Debug)]
pub enum WgmmaA<'a> {
    /// A descriptor.
    Desc(u64),
    /// Four registers, fragments as in `mma.sync`, warp w holding rows 16w..16w+15.
    Regs(&'a [WgReg]),
}

impl Wgmma {
    /// Depth of one instruction.
    pub fn k(&self) -> usize {
        256 / self.a.container_bits()
    }

    /// Registers of the accumulator.
    pub fn acc_regs(&self) -> usize {
        self.n / if self.acc == Acc::F32 { 2 } else { 4 }
    }

    fn check(&self) -> Result<(), String> {
        if self.n == 0 || self.n > 256 || !self.n.is_multiple_of(8) {
            return Err(format!("wgmma: N of {} is not a multiple of 8 up to 256", self.n));
        }
        let ok = matches!(
            (self.a, self.b, self.acc),
            (Elem::F16, Elem::F16, _)
                | (Elem::Bf16, Elem::Bf16, Acc::F32)
                | (Elem::Tf32, Elem::Tf32, Acc::F32)
                | (Elem::E4m3 | Elem::E5m2, Elem::E4m3 | Elem::E5m2, _)
        );
        if !ok {
            return Err(format!("wgmma: no form with A {:?}, B {:?} and accumulator {:?}", self.a, self.b, self.acc));
        }
        if self.a.container_bits() != 16 && (self.a_major, self.b_major) != (Major::K, Major::K) {
            return Err(format!("wgmma: {:?} operands must be K-major", self.a));
        }
        Ok(())
    }
}

/// Row, column and bit position of value `half` of register `i` of thread `thread`.
fn place(acc: Acc, i: usize, half: usize, thread: usize) -> (usize, usize, u32) {
    let (w, g, t) = (thread / 32, thread % 32 / 4, thread % 4);
    match acc {
        Acc::F32 => (16 * w + g + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * t + i % 2, 0),
        Acc::F16 => (16 * w + g + 8 * (i % 2), 8 * (i / 2) + 2 * t + half, 16 * half as u32),
    }
}

/// D = A*B + D over the warpgroup. `acc` has `n/2` (f32) or `n/4` (f16) registers and
/// is written only when everything is valid.
pub fn wgmma(op: &Wgmma, a: WgmmaA, b_desc: u64, smem: &dyn SharedMemory, acc: &mut [WgReg]) -> Result<(), String> {
    let part = |regs: &[WgReg], w: usize| -> Vec<Reg> { regs.iter().map(|r| std::array::from_fn(|lane| r[32 * w + lane])).collect() };
    let mut out = Vec::new();
    for w in 0..4 {
        let mut mine = part(acc, w);
        match a {
            WgmmaA::Desc(desc) => wgmma_warp(op, w, WarpA::Desc(desc), b_desc, smem, &mut mine)?,
            WgmmaA::Regs(regs) => wgmma_warp(op, w, WarpA::Regs(&part(regs, w)), b_desc, smem, &mut mine)?,
        }
        out.push(mine);
    }
    for (i, reg) in acc.iter_mut().enumerate() {
        for (thread, word) in reg.iter_mut().enumerate() {
            *word = out[thread / 32][i][thread % 32];
        }
    }
    Ok(())
}

/// Where one warp's sixteen rows of A come from.
#[derive(Clone, Copy, Debug)]
pub enum WarpA<'a> {
    /// The warpgroup's descriptor.
    Desc(u64),
    /// The warp's four registers.
    Regs(&'a [Reg]),
}

/// The part of `wgmma` that warp `warp` (0 to 3) of the warpgroup computes: rows
/// 16*warp to 16*warp + 15. `acc` as in [`wgmma`], for this warp's lanes.
pub fn wgmma_warp(op: &Wgmma, warp: usize, a: WarpA, b_desc: u64, smem: &dyn SharedMemory, acc: &mut [Reg]) -> Result<(), String> {
    op.check()?;
    if acc.len() != op.acc_regs() {
        return Err(format!("wgmma: the accumulator has {} registers, n{} needs {}", acc.len(), op.n, op.acc_regs()));
    }
    let k = op.k();
    let bytes = op.a.container_bits() / 8;
    let a_words: Vec<u32> = match a {
        WarpA::Desc(desc) => {
            let desc = MatrixDesc::decode(desc, Family::Wgmma, "A")?;
            let rows = 16 * warp..16 * warp + 16;
            elements(&desc.read(op.a_major, rows, k, bytes, smem, "A")?, bytes).collect()
        }
        WarpA::Regs(regs) => {
            if regs.len() != 4 {
                return Err(format!("wgmma: A takes 4 registers, got {}", regs.len()));
            }
            if op.a_major != Major::K {
                return Err("wgmma: A in registers cannot be transposed".into());
            }
            gather(regs, 16, k, 8 * bytes).concat()
        }
    };
    let b = MatrixDesc::decode(b_desc, Family::Wgmma, "B")?;
    let b_bytes = b.read(op.b_major, 0..op.n, k, bytes, smem, "B")?;
    let num = |elem: Elem, negate: bool, x: u32| -> Num {
        let mut v = decode_elem(elem, x);
        if negate {
            v.sig = -v.sig;
        }
        v
    };
    let rows: Vec<Num> = a_words.iter().map(|&x| num(op.a, op.negate_a, x)).collect();
    let columns: Vec<Num> = elements(&b_bytes, bytes).map(|x| num(op.b, op.negate_b, x)).collect();
    let rule = Rule::wgmma(op.a);
    let halves = if op.acc == Acc::F32 { 1 } else { 2 };
    let mask = if op.acc == Acc::F32 { u32::MAX } else { 0xFFFF };
    for (i, reg) in acc.iter_mut().enumerate() {
        for (lane, word) in reg.iter_mut().enumerate() {
            let mut out = 0;
            for half in 0..halves {
                let (row, column, shift) = place(op.acc, i, half, lane);
                let c = if op.scale_d { *word >> shift & mask } else { 0 };
                let (x, y) = (&rows[row * k..][..k], &columns[column * k..][..k]);
                out |= dot_add(op.a, x, op.b, y, c, op.acc, &rule) << shift;
            }
            *word = out;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "wgmma_tests.rs"]
mod tests;
