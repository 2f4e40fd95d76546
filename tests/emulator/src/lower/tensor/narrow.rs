//! Conversions to and from formats below 16 bits, to pairs of 16 bits, to TF32, and
//! stochastic rounding.

use super::*;
use crate::convert::*;
use crate::exec::Machine;
use crate::plant::{self, Plant};

/// What `Inst::imm` of a narrow conversion selects.
type Convert = fn([u32; 4], u32, u32) -> u32;

const RELU: u32 = 1;
const SATFINITE: u32 = 2;
const UP: u32 = 4;

/// `xs` = source slots a, b, e, f; `a[1]` random bits; `flags`; `imm` = index into [`TABLE`].
fn run(m: &mut Machine, i: &Inst) -> Exec {
    let f = TABLE[i.imm as usize].4;
    let sources: Vec<[u32; 32]> = i.xs.iter().map(|&s| *m.row::<u32>(s)).collect();
    let random = *m.row::<u32>(i.a[1]);
    let mut out = [0u32; 32];
    for l in m.lanes() {
        let mut x = [0; 4];
        for (v, s) in x.iter_mut().zip(&sources) {
            *v = s[l];
        }
        out[l] = f(x, random[l], i.flags);
    }
    m.store(i.a[0], &out);
    Ok(Flow::Next)
}

fn relu(f: u32) -> bool {
    f & RELU != 0
}

fn sat(f: u32) -> bool {
    f & SATFINITE != 0
}

fn power(f: u32) -> Round {
    if f & UP != 0 {
        Round::Rp
    } else {
        Round::Rz
    }
}

fn plain(round: Round, f: u32) -> Cvt {
    Cvt { relu: relu(f), satfinite: sat(f), ..Cvt::new(round) }
}

fn tf32(x: u32, round: Round, f: u32) -> u32 {
    f32_to_tf32(x, &plain(round, f))
}

fn e2m1x2(x: [u32; 4], relu: bool) -> u32 {
    match plant::is(Plant::E2m1x2) {
        true => e2m1x2_from_f32(x[1], x[0], relu) as u32,
        false => e2m1x2_from_f32(x[0], x[1], relu) as u32,
    }
}

fn e4m3x2(x: [u32; 4], relu: bool) -> u32 {
    let tie_is_up = |v: u32| if plant::is(Plant::E4m3x2) && v & 0xF_FFFF == 0x8_0000 { v + 1 } else { v };
    fp8x2_from_f32(Fp8::E4m3, tie_is_up(x[0]), tie_is_up(x[1]), relu) as u32
}

fn random_word(r: u32) -> u32 {
    match plant::is(Plant::E2m1x4Rs) {
        true => r & 0xFF00_00FF | (r & 0xFF00) << 8 | (r & 0xFF_0000) >> 8,
        false => r,
    }
}

/// Rounding, destination, source, number of sources, function. An empty rounding takes any.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str, usize, Convert)] = &[
    ("rn", "e2m1x2", "f32", 2, |x, _, f| e2m1x2(x, relu(f))),
    ("rn", "e2m1x2", "f16x2", 1, |x, _, f| e2m1x2_from_f16x2(x[0], relu(f)) as u32),
    ("rn", "e2m1x2", "bf16x2", 1, |x, _, f| e2m1x2_from_bf16x2(x[0], relu(f)) as u32),
    ("rn", "f16x2", "e2m1x2", 1, |x, _, f| f16x2_from_e2m1x2(x[0] as u8, relu(f))),
    ("rn", "e4m3x2", "f32", 2, |x, _, f| e4m3x2(x, relu(f))),
    ("rn", "e5m2x2", "f32", 2, |x, _, f| fp8x2_from_f32(Fp8::E5m2, x[0], x[1], relu(f)) as u32),
    ("rn", "e4m3x2", "f16x2", 1, |x, _, f| fp8x2_from_f16x2(Fp8::E4m3, x[0], relu(f)) as u32),
    ("rn", "e5m2x2", "f16x2", 1, |x, _, f| fp8x2_from_f16x2(Fp8::E5m2, x[0], relu(f)) as u32),
    ("rn", "e4m3x2", "bf16x2", 1, |x, _, f| fp8x2_from_bf16x2(Fp8::E4m3, x[0], relu(f)) as u32),
    ("rn", "e5m2x2", "bf16x2", 1, |x, _, f| fp8x2_from_bf16x2(Fp8::E5m2, x[0], relu(f)) as u32),
    ("rn", "f16x2", "e4m3x2", 1, |x, _, f| f16x2_from_fp8x2(Fp8::E4m3, x[0] as u16, relu(f))),
    ("rn", "f16x2", "e5m2x2", 1, |x, _, f| f16x2_from_fp8x2(Fp8::E5m2, x[0] as u16, relu(f))),
    ("", "ue8m0x2", "f32", 2, |x, _, f| ue8m0x2_from_f32(x[0], x[1], power(f), sat(f)) as u32),
    ("", "ue8m0x2", "bf16x2", 1, |x, _, f| ue8m0x2_from_bf16x2(x[0], power(f), sat(f)) as u32),
    ("rn", "bf16x2", "ue8m0x2", 1, |x, _, _| bf16x2_from_ue8m0x2(x[0] as u16)),
    ("rs", "e2m1x4", "f32", 4, |x, r, f| e2m1x4_rs(x, random_word(r), relu(f)) as u32),
    ("rs", "e4m3x4", "f32", 4, |x, r, f| fp8x4_rs(Fp8::E4m3, x, r, relu(f))),
    ("rs", "e5m2x4", "f32", 4, |x, r, f| fp8x4_rs(Fp8::E5m2, x, r, relu(f))),
    ("rs", "bf16x2", "f32", 2, |x, r, f| bf16x2_rs(x[0], x[1], r, relu(f), sat(f))),
    ("rs", "f16x2", "f32", 2, |x, r, f| f16x2_rs(x[0], x[1], r, relu(f), sat(f))),
    ("rn", "bf16x2", "f32", 2, |x, _, f| bf16x2_from_f32(x[0], x[1], &plain(Round::Rn, f))),
    ("rz", "bf16x2", "f32", 2, |x, _, f| bf16x2_from_f32(x[0], x[1], &plain(Round::Rz, f))),
    ("rn", "f16x2", "f32", 2, |x, _, f| f16x2_from_f32(x[0], x[1], &plain(Round::Rn, f))),
    ("rz", "f16x2", "f32", 2, |x, _, f| f16x2_from_f32(x[0], x[1], &plain(Round::Rz, f))),
    ("rna", "tf32", "f32", 1, |x, _, f| tf32(x[0], Round::Rna, f)),
    ("rn", "tf32", "f32", 1, |x, _, f| tf32(x[0], Round::Rn, f)),
    ("rz", "tf32", "f32", 1, |x, _, f| tf32(x[0], Round::Rz, f)),
];

impl<'m> Lower<'m> {
    pub(in crate::lower) fn cvt_narrow(&mut self, i: &Instr, p: &[&str]) -> Res<Option<bool>> {
        let (d, s) = (p[p.len() - 2], p[p.len() - 1]);
        let has = |m: &str| p.contains(&m);
        let found = TABLE.iter().position(|t| (t.1, t.2) == (d, s) && (t.0.is_empty() || has(t.0)));
        let Some(index) = found else { return Ok(None) };
        let t = &TABLE[index];
        if t.0.is_empty() && !has("rz") && !has("rp") {
            return Ok(Some(false));
        }
        let dst = self.dst(&i.ops[0], 1)?;
        let float = s == "f32";
        let sources: Vec<&Opnd> = match &i.ops[1] {
            Opnd::Vec(v) => v.iter().collect(),
            _ => i.ops[1..].iter().take(t.3).collect(),
        };
        if sources.len() != t.3 {
            return self.err(format!("{} takes {} sources, got {}", i.op, t.3, sources.len()));
        }
        let xs: Vec<Slot> = sources.into_iter().map(|o| self.src(o, 1, float)).collect::<Res<_>>()?;
        let random = match has("rs") {
            true => self.src(&i.ops[i.ops.len() - 1], 1, false)?,
            false => xs[0],
        };
        let flags = has("relu") as u32 * RELU | has("satfinite") as u32 * SATFINITE | has("rp") as u32 * UP;
        self.emit(&i.op, run, |x| {
            x.a = [dst, random, 0, 0, 0];
            x.xs = xs.into();
            x.imm = index as i64;
            x.flags = flags;
        });
        Ok(Some(true))
    }
}
