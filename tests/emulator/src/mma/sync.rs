//! `mma.sync`: fragments of one warp to matrices and back, dense, integer and
//! block-scaled. Registers are `regs[r][lane]`.
//!
//! All shapes share one rule. With `per` elements in a register, lane = 4*g + t
//! holds of A, in register pair j, rows g and g+8 at k = (4*j + t) * per + i, and of
//! B, in register j, column g at the same k; of C and D, rows g and g+8 at columns
//! 2t and 2t+1 (an f16 accumulator packs the two columns in one register).

use super::arith::{block_scaled_dot_add, decode_elem, dot_add, scaled_dot_add, Acc, Elem, Num, Rule, Scale, ScaleType, E2M1_HALVES};
use crate::convert::exact::{decode, encode, Cvt, Value, F16};
use crate::plant::{self, Plant};

/// Lanes of a warp.
pub const LANES: usize = 32;

/// One register of all lanes.
pub type Reg = [u32; LANES];

/// A dense floating-point `mma.sync`; n is 8.
#[derive(Clone, Copy, Debug)]
pub struct MmaSync {
    /// Rows: 16.
    pub m: usize,
    /// Depth: 4 or 8 (tf32), 8 or 16 (16 bits), 16 or 32 (8 bits).
    pub k: usize,
    /// Type of A.
    pub a: Elem,
    /// Type of B; of A's width.
    pub b: Elem,
    /// Type of C and D.
    pub acc: Acc,
    /// `.kind::f8f6f4`: E2M1 sits in bits 5:2 of its byte.
    pub f8f6f4: bool,
    /// Compute capability that executes it, for the accumulation rule.
    pub sm: u32,
}

/// Elements of 32-bit registers: `rows[row][k]` for the A side (`m` rows) or B (8 columns).
pub(super) fn gather(regs: &[Reg], rows: usize, k: usize, bits: usize) -> Vec<Vec<u32>> {
    let per = 32 / bits;
    let halves = rows.div_ceil(8);
    let mask = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
    let mut out = vec![vec![0; k]; rows];
    for (r, reg) in regs.iter().enumerate() {
        let (j, upper) = (r / halves, r % halves);
        for (lane, word) in reg.iter().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for i in 0..per {
                out[g + 8 * upper][(4 * j + t) * per + i] = word >> (bits * i) & mask;
            }
        }
    }
    out
}

/// Accumulator bits, `out[row][column]`.
fn gather_acc(regs: &[Reg], m: usize, acc: Acc) -> Vec<[u32; 8]> {
    let mut out = vec![[0; 8]; m];
    for (row, columns) in out.iter_mut().enumerate() {
        for (column, value) in columns.iter_mut().enumerate() {
            let lane = 4 * (row % 8) + column / 2;
            *value = match acc {
                Acc::F32 => regs[2 * (row / 8) + column % 2][lane],
                Acc::F16 => regs[row / 8][lane] >> (16 * (column % 2)) & 0xFFFF,
            };
        }
    }
    out
}

fn scatter_acc(values: &[[u32; 8]], acc: Acc) -> Vec<Reg> {
    let per_half = if acc == Acc::F32 { 2 } else { 1 };
    let mut regs = vec![[0; LANES]; per_half * values.len().div_ceil(8)];
    for (row, columns) in values.iter().enumerate() {
        for (column, &value) in columns.iter().enumerate() {
            let lane = 4 * (row % 8) + column / 2;
            match acc {
                Acc::F32 => regs[2 * (row / 8) + column % 2][lane] = value,
                Acc::F16 => regs[row / 8][lane] |= value << (16 * (column % 2)),
            }
        }
    }
    regs
}

fn expect(what: &str, got: usize, want: usize) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        Err(format!("mma.sync: {what} takes {want} registers, got {got}"))
    }
}

/// Value bits of an element in its f8f6f4 byte.
pub fn container_value(elem: Elem, byte: u32, f8f6f4: bool) -> u32 {
    if f8f6f4 && elem == Elem::E2m1 {
        byte >> 2 & 15
    } else {
        byte
    }
}

fn nums(elem: Elem, row: &[u32], f8f6f4: bool) -> Vec<Num> {
    row.iter().map(|&x| decode_elem(elem, container_value(elem, x, f8f6f4))).collect()
}

/// D = A * B + C for one warp. `a` has m/8 * k*bits/128 registers, `b` half of those
/// for m = 16, `c` 4 (f32) or 2 (f16).
pub fn mma_sync(op: &MmaSync, a: &[Reg], b: &[Reg], c: &[Reg]) -> Result<Vec<Reg>, String> {
    let bits = op.a.container_bits();
    if bits != op.b.container_bits() {
        return Err(format!("mma.sync: A is {:?} and B is {:?}, of another width", op.a, op.b));
    }
    let span = 128 / bits;
    if op.m != 16 || !op.k.is_multiple_of(span) || op.k < span || op.k / span > 2 {
        return Err(format!("mma.sync: no shape m{}n8k{} for {:?}", op.m, op.k, op.a));
    }
    expect("A", a.len(), op.m / 8 * op.k / span)?;
    expect("B", b.len(), op.k / span)?;
    expect("C", c.len(), if op.acc == Acc::F32 { 4 } else { 2 })?;
    let rows: Vec<_> = gather(a, op.m, op.k, bits).iter().map(|r| nums(op.a, r, op.f8f6f4)).collect();
    let columns: Vec<_> = gather(b, 8, op.k, bits).iter().map(|r| nums(op.b, r, op.f8f6f4)).collect();
    let mut values = gather_acc(c, op.m, op.acc);
    let through_f16 = bits == 8 && !op.f8f6f4 && (90..120).contains(&op.sm);
    let rule = Rule::mma_sync(op.sm, op.a, op.k);
    for (row, x) in values.iter_mut().zip(&rows) {
        for (value, y) in row.iter_mut().zip(&columns) {
            *value = if through_f16 { fp8_through_f16(op, x, y, *value) } else { dot_add(op.a, x, op.b, y, *value, op.acc, &rule) };
        }
    }
    Ok(scatter_acc(&values, op.acc))
}

/// sm_90 to sm_110 have no warp-wide FP8 unit. The assembler widens to f16 and issues
/// two f16 MMAs, the first over the lower two bytes of every register, the second over
/// the upper two, from zero, and then adds C with an ordinary addition.
fn fp8_through_f16(op: &MmaSync, a: &[Num], b: &[Num], c: u32) -> u32 {
    // The model decodes FP8 elements with exponents down to their own subnormals; as
    // f16 values these are normal. Re-decode the exact f16 value.
    let widen = |elem: Elem, x: &Num| -> Num {
        if x.sig == 0 || x.exp == super::arith::SPECIAL {
            return *x;
        }
        let shift = 10 - elem.format().man_bits as i32;
        let value = Value::Finite { neg: x.sig < 0, mag: (x.sig.unsigned_abs() as u64) << shift, exp: x.exp - 10 };
        decode_elem(Elem::F16, encode(value, &F16, &Cvt::RN) as u32)
    };
    let rule = Rule::mma_sync(op.sm, Elem::F16, op.k / 2);
    let mut d = 0;
    for pair in 0..2 {
        let half = |elem: Elem, x: &[Num]| -> Vec<Num> {
            x.chunks(4).flat_map(|w| [widen(elem, &w[2 * pair]), widen(elem, &w[2 * pair + 1])]).collect()
        };
        d = dot_add(Elem::F16, &half(op.a, a), Elem::F16, &half(op.b, b), d, op.acc, &rule);
    }
    match op.acc {
        Acc::F32 => {
            let sum = f32::from_bits(d) + f32::from_bits(c);
            if sum.is_nan() {
                0x7FFF_FFFF
            } else {
                sum.to_bits()
            }
        }
        Acc::F16 => add_f16(d, c),
    }
}

/// f16 addition, to nearest even: the exact sum fits a 64-bit integer of 2^-24.
fn add_f16(x: u32, y: u32) -> u32 {
    let fixed = |v: Value| match v {
        Value::Finite { neg, mag, exp } => {
            let n = (mag << (exp + 24)) as i64;
            Some((if neg { -n } else { n }, neg))
        }
        _ => None,
    };
    match (decode(x as u64, &F16), decode(y as u64, &F16)) {
        (Value::Nan, _) | (_, Value::Nan) => 0x7FFF,
        (Value::Inf(p), Value::Inf(q)) if p != q => 0x7FFF,
        (Value::Inf(_), _) => x,
        (_, Value::Inf(_)) => y,
        (p, q) => {
            let ((p, pn), (q, qn)) = (fixed(p).unwrap(), fixed(q).unwrap());
            let neg = if p + q == 0 { pn && qn } else { p + q < 0 };
            let value = Value::Finite { neg, mag: (p + q).unsigned_abs(), exp: -24 };
            encode(value, &F16, &Cvt::RN) as u32
        }
    }
}

/// `mma.sync ... .s32.{s8,u8}.{s8,u8}.s32`: m8n8k16, m16n8k16, m16n8k32. Wraps, or
/// clamps the sum to the s32 range with `.satfinite`.
#[allow(clippy::too_many_arguments)]
pub fn mma_sync_int(
    m: usize,
    k: usize,
    a_signed: bool,
    b_signed: bool,
    satfinite: bool,
    a: &[Reg],
    b: &[Reg],
    c: &[Reg],
) -> Result<Vec<Reg>, String> {
    if !matches!((m, k), (8, 16) | (16, 16) | (16, 32)) {
        return Err(format!("mma.sync: no integer shape m{m}n8k{k}"));
    }
    expect("A", a.len(), m / 8 * k / 16)?;
    expect("B", b.len(), k / 16)?;
    expect("C", c.len(), m / 4)?;
    let value = |x: u32, signed: bool| {
        if signed {
            x as u8 as i8 as i64
        } else {
            x as i64
        }
    };
    let (rows, columns) = (gather(a, m, k, 8), gather(b, 8, k, 8));
    let mut values = gather_acc(c, m, Acc::F32);
    for (row, x) in values.iter_mut().zip(&rows) {
        for (out, y) in row.iter_mut().zip(&columns) {
            let dot: i64 = x.iter().zip(y).map(|(&p, &q)| value(p, a_signed) * value(q, b_signed)).sum();
            let sum = *out as i32 as i64 + dot;
            *out = if satfinite { sum.clamp(i32::MIN as i64, i32::MAX as i64) } else { sum } as u32;
        }
    }
    Ok(scatter_acc(&values, Acc::F32))
}

/// The block-scaled kinds of `mma.sync` (m16n8k64 packed FP4, m16n8k32 mxf8f6f4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockScale {
    /// `.kind::mxf4` and `.kind::mxf4nvf4`: scales a row for K = 64 (2 or 4) and their type.
    Packed {
        /// 4 (`scale_vec::4X`) or 2 (`scale_vec::2X`).
        vec: usize,
        /// `.ue4m3` only with 4X.
        scale: ScaleType,
    },
    /// `.kind::mxf8f6f4.scale_vec::1X`, UE8M0.
    Mx8 {
        /// Type of A.
        a: Elem,
        /// Type of B.
        b: Elem,
    },
}

/// The two immediates beside a scale register: byte-id and thread-id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// First byte used.
    pub byte: u32,
    /// Which lanes of a quad supply the scales.
    pub thread: u32,
}

fn check_selector(side: &str, sel: Selector, vec: usize, threads: u32) -> Result<(), String> {
    let step = vec as u32;
    if sel.byte + step > 4 || !sel.byte.is_multiple_of(step) {
        return Err(format!(
            "mma.sync: byte-id {} of scale {side} must be a multiple of {step} at most {} with scale_vec::{vec}X",
            sel.byte,
            4 - step
        ));
    }
    if sel.thread >= threads {
        return Err(format!("mma.sync: thread-id {} of scale {side} must be below {threads}", sel.thread));
    }
    Ok(())
}

/// D = (A * scales) (B * scales) + C for one warp: `a` 4 registers, `b` 2, `c` 4.
#[allow(clippy::too_many_arguments)]
pub fn mma_sync_block_scale(
    op: &BlockScale,
    a: &[Reg],
    b: &[Reg],
    c: &[Reg],
    sfa: &Reg,
    sfa_sel: Selector,
    sfb: &Reg,
    sfb_sel: Selector,
) -> Result<Vec<Reg>, String> {
    expect("A", a.len(), 4)?;
    expect("B", b.len(), 2)?;
    expect("C", c.len(), 4)?;
    let vec = match *op {
        BlockScale::Packed { vec: 2, scale: ScaleType::Ue4m3 } => {
            return Err("mma.sync: scale type ue4m3 needs scale_vec::4X, not 2X".into());
        }
        BlockScale::Packed { vec, .. } => vec,
        BlockScale::Mx8 { .. } => 1,
    };
    if !matches!(vec, 1 | 2 | 4) {
        return Err(format!("mma.sync: scale_vec::{vec}X does not exist"));
    }
    check_selector("A", sfa_sel, vec, 2)?;
    check_selector("B", sfb_sel, vec, 4)?;
    let row_lane = |row: usize| 4 * (row % 8) + 2 * sfa_sel.thread as usize + row / 8;
    let column_lane = |column: usize| 4 * column + sfb_sel.thread as usize;
    let bytes = |word: u32, first: u32| -> Vec<u8> { (0..vec as u32).map(|i| (word >> (8 * (first + i))) as u8).collect() };
    let mut values = gather_acc(c, 16, Acc::F32);
    match *op {
        BlockScale::Packed { scale, .. } => {
            let halves = |rows: Vec<Vec<u32>>| -> Vec<Vec<i8>> {
                rows.iter().map(|r| r.iter().map(|&x| E2M1_HALVES[x as usize]).collect()).collect()
            };
            let (rows, columns) = (halves(gather(a, 16, 64, 4)), halves(gather(b, 8, 64, 4)));
            let scales = |word: u32, first: u32| -> Vec<Scale> { bytes(word, first).iter().map(|&x| Scale::decode(scale, x)).collect() };
            for (i, (row, x)) in values.iter_mut().zip(&rows).enumerate() {
                let mut sa = scales(sfa[row_lane(i)], sfa_sel.byte);
                if plant::is(Plant::BlockScale) {
                    sa.reverse();
                }
                for (j, (value, y)) in row.iter_mut().zip(&columns).enumerate() {
                    let sb = scales(sfb[column_lane(j)], sfb_sel.byte);
                    *value = block_scaled_dot_add(x, y, &sa, &sb, *value);
                }
            }
        }
        BlockScale::Mx8 { a: ta, b: tb } => {
            let rows: Vec<_> = gather(a, 16, 32, 8).iter().map(|r| nums(ta, r, true)).collect();
            let columns: Vec<_> = gather(b, 8, 32, 8).iter().map(|r| nums(tb, r, true)).collect();
            for (i, (row, x)) in values.iter_mut().zip(&rows).enumerate() {
                let sa = bytes(sfa[row_lane(i)], sfa_sel.byte)[0];
                for (j, (value, y)) in row.iter_mut().zip(&columns).enumerate() {
                    let sb = bytes(sfb[column_lane(j)], sfb_sel.byte)[0];
                    *value = scaled_dot_add(ta, x, tb, y, sa, sb, *value);
                }
            }
        }
    }
    Ok(scatter_acc(&values, Acc::F32))
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
