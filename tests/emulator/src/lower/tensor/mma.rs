//! mma.sync and wgmma.

use super::*;
use crate::exec::mma_ops::{self as ops, MmaOp, WgmmaOp, WgmmaSource};
use crate::mma::arith::{Acc, Elem, ScaleType};
use crate::mma::desc::Major;
use crate::mma::sync::{BlockScale, MmaSync};
use crate::mma::wgmma::Wgmma;

fn elem(t: &str) -> Option<Elem> {
    Some(match t {
        "f16" => Elem::F16,
        "bf16" => Elem::Bf16,
        "tf32" => Elem::Tf32,
        "e4m3" => Elem::E4m3,
        "e5m2" => Elem::E5m2,
        "e2m3" => Elem::E2m3,
        "e3m2" => Elem::E3m2,
        "e2m1" => Elem::E2m1,
        _ => return None,
    })
}

fn acc(t: &str) -> Option<Acc> {
    match t {
        "f32" => Some(Acc::F32),
        "f16" => Some(Acc::F16),
        _ => None,
    }
}

/// `m16n8k64` to its numbers.
fn shape(p: &[&str]) -> Option<(usize, usize, usize)> {
    p.iter().find_map(|s| {
        let (m, rest) = s.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
    })
}

impl<'m> Lower<'m> {
    pub(super) fn mma_sync(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let has = |m: &str| p.contains(&m);
        let Some((m, 8, k)) = shape(p) else { return Ok(false) };
        if p.get(1) != Some(&"sync") || !has("row") || !has("col") || i.ops.len() < 4 {
            return Ok(false);
        }
        if has("block_scale") {
            return self.mma_block(i, p, m, k);
        }
        let types: Vec<&str> = p[p.len() - 4..].to_vec();
        let float = types[0] == "f32";
        let d = self.vec_dst(&i.ops[0])?;
        let (a, b) = (self.vec_src(&i.ops[1], false)?, self.vec_src(&i.ops[2], false)?);
        let c = self.vec_src(&i.ops[3], float)?;
        let op = if let (Some(ta), Some(tb), Some(td), Some(tc)) = (elem(types[1]), elem(types[2]), acc(types[0]), acc(types[3])) {
            if td != tc {
                return Ok(false);
            }
            let f8f6f4 = has("kind::f8f6f4");
            let sm = 0; // known when it runs
            MmaOp::Sync { op: MmaSync { m, k, a: ta, b: tb, acc: td, f8f6f4, sm }, d, a, b, c }
        } else if types[0] == "s32" && matches!(types[1], "s8" | "u8") && matches!(types[2], "s8" | "u8") {
            let (a_signed, b_signed, sat) = (types[1] == "s8", types[2] == "s8", has("satfinite"));
            MmaOp::Int { m, k, a_signed, b_signed, sat, d, a, b, c }
        } else {
            return Ok(false);
        };
        self.mma_inst(i, ops::mma, Gate::Warp, op);
        Ok(true)
    }

    fn mma_block(&mut self, i: &Instr, p: &[&str], m: usize, k: usize) -> Res<bool> {
        let types = &p[p.len() - 5..];
        let vec = [("scale_vec::1X", 1), ("scale_vec::2X", 2), ("scale_vec::4X", 4)].iter().find(|v| p.contains(&v.0)).map(|v| v.1);
        let scale = match types[4] {
            "ue4m3" => ScaleType::Ue4m3,
            "ue8m0" => ScaleType::Ue8m0,
            _ => return Ok(false),
        };
        let has = |m: &str| p.contains(&m);
        let op = if has("kind::mxf8f6f4") {
            let (Some(a), Some(b)) = (elem(types[1]), elem(types[2])) else { return Ok(false) };
            if (m, k, vec.unwrap_or(1), scale) != (16, 32, 1, ScaleType::Ue8m0) {
                return Ok(false);
            }
            BlockScale::Mx8 { a, b }
        } else {
            let default = if has("kind::mxf4") { Some(2) } else { None };
            let Some(vec) = vec.or(default) else { return Ok(false) };
            if (m, k) != (16, 64) || types[1..3] != ["e2m1", "e2m1"] || (has("kind::mxf4") && vec != 2) {
                return Ok(false);
            }
            BlockScale::Packed { vec, scale }
        };
        if i.ops.len() != 8 {
            return self.err(format!("mma with block scales takes 8 operands, got {}", i.ops.len()));
        }
        let d = self.vec_dst(&i.ops[0])?;
        let (a, b) = (self.vec_src(&i.ops[1], false)?, self.vec_src(&i.ops[2], false)?);
        let c = self.vec_src(&i.ops[3], true)?;
        let mut side = |s: &Opnd, v: &Opnd| -> Res<[Slot; 3]> {
            let select = self.vec_src(v, false)?;
            if select.len() != 2 {
                return self.err("a scale selector is {byte-id, thread-id}");
            }
            // The scale register stands alone or in braces.
            match self.vec_src(s, false)?[..] {
                [scale] => Ok([scale, select[0], select[1]]),
                _ => self.err("a scale is one register"),
            }
        };
        let (sfa, sfb) = (side(&i.ops[4], &i.ops[5])?, side(&i.ops[6], &i.ops[7])?);
        self.mma_inst(i, ops::mma, Gate::Warp, MmaOp::Block { op, d, a, b, c, sfa, sfb });
        Ok(true)
    }

    pub(super) fn wgmma(&mut self, i: &Instr, p: &[&str]) -> Res<bool> {
        let plain = |l: &mut Self, e: ExecFn, imm: i64| {
            l.emit(&i.op, e, |x| {
                x.gate = Gate::Warp;
                x.imm = imm;
            });
            Ok(true)
        };
        match p[1] {
            "fence" => return plain(self, ops::wgmma_fence, 0),
            "commit_group" => return plain(self, ops::wgmma_commit, 0),
            "wait_group" => {
                let n = self.imm(&i.ops[0], "the number of wgmma groups")?;
                return plain(self, ops::wgmma_wait, n);
            }
            "mma_async" => {}
            _ => return Ok(false),
        }
        let Some((64, n, k)) = shape(p) else { return Ok(false) };
        let t = &p[p.len() - 3..];
        let (Some(acc), Some(a), Some(b)) = (acc(t[0]), elem(t[1]), elem(t[2])) else { return Ok(false) };
        if p.contains(&"sp") || k * a.container_bits() != 256 || i.ops.len() < 6 {
            return Ok(false);
        }
        let d = self.vec_dst(&i.ops[0])?;
        let source = match &i.ops[1] {
            v @ Opnd::Vec(_) => WgmmaSource::Regs(self.vec_src(v, false)?),
            x => WgmmaSource::Desc(self.src(x, 2, false)?),
        };
        let desc_b = self.src(&i.ops[2], 2, false)?;
        let scale_d = self.pred(&i.ops[3])?;
        let rest: Vec<i64> = i.ops[4..].iter().map(|o| self.imm(o, "scales and transposes of wgmma")).collect::<Res<_>>()?;
        for &s in &rest[..2] {
            if s != 1 && s != -1 && s as i32 != -1 {
                return self.err(format!("imm-scale of {s} is neither 1 nor -1"));
            }
        }
        let major = |v: Option<&i64>| if v == Some(&1) { Major::Mn } else { Major::K };
        let (a_major, b_major) = match (&source, &rest[2..]) {
            (_, []) => (Major::K, Major::K),
            (WgmmaSource::Regs(_), t) => (Major::K, major(t.first())),
            (WgmmaSource::Desc(_), t) => (major(t.first()), major(t.get(1))),
        };
        let op = Wgmma { n, a, b, acc, scale_d: true, negate_a: rest[0] != 1, negate_b: rest[1] != 1, a_major, b_major };
        let op = MmaOp::Wgmma(WgmmaOp { op, d, a: source, b: desc_b, scale_d });
        self.mma_inst(i, ops::wgmma_async, Gate::Warp, op);
        Ok(true)
    }
}
