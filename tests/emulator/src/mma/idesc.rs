//! Instruction descriptors of `tcgen05.mma`: decoding that rejects every reserved or
//! inconsistent bit.

use super::arith::{Acc, Elem, ScaleType};
use super::desc::Major;

/// Kinds of `tcgen05.mma`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `.kind::f16`: f16 and bf16, K = 16.
    F16,
    /// `.kind::tf32`, K = 8.
    Tf32,
    /// `.kind::f8f6f4`, K = 32 (8-bit types only).
    F8f6f4,
    /// `.kind::mxf8f6f4.block_scale`, K = 32 (8-bit types only), UE8M0 for 32 elements.
    Mxf8f6f4,
    /// `.kind::mxf4.block_scale`, K = 64, UE8M0 for 32 elements.
    Mxf4,
    /// `.kind::mxf4nvf4.block_scale`: `scale_vec::4X` (`block16`) or 2X (`block32`).
    Mxf4nvf4 {
        /// 4 or 2.
        vec: usize,
    },
}

impl Kind {
    /// Depth of one dense instruction.
    pub fn k(self) -> usize {
        match self {
            Kind::F16 => 16,
            Kind::Tf32 => 8,
            Kind::F8f6f4 | Kind::Mxf8f6f4 => 32,
            Kind::Mxf4 | Kind::Mxf4nvf4 { .. } => 64,
        }
    }

    /// Scales of one row for one instruction; 0 when not block-scaled.
    pub fn scales(self) -> usize {
        match self {
            Kind::Mxf8f6f4 => 1,
            Kind::Mxf4 => 2,
            Kind::Mxf4nvf4 { vec } => vec,
            _ => 0,
        }
    }

    /// FP4, two elements a byte.
    pub fn packed_fp4(self) -> bool {
        matches!(self, Kind::Mxf4 | Kind::Mxf4nvf4 { .. })
    }

    fn name(self) -> &'static str {
        match self {
            Kind::F16 => "kind::f16",
            Kind::Tf32 => "kind::tf32",
            Kind::F8f6f4 => "kind::f8f6f4",
            Kind::Mxf8f6f4 => "kind::mxf8f6f4",
            Kind::Mxf4 => "kind::mxf4",
            Kind::Mxf4nvf4 { .. } => "kind::mxf4nvf4",
        }
    }
}

/// A decoded instruction descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstrDesc {
    /// Rows of the whole instruction (over both CTAs with cta_group::2).
    pub m: usize,
    /// Columns of the whole instruction.
    pub n: usize,
    /// Type of A.
    pub a: Elem,
    /// Type of B.
    pub b: Elem,
    /// Type of D.
    pub acc: Acc,
    /// A is multiplied by -1.
    pub negate_a: bool,
    /// B is multiplied by -1.
    pub negate_b: bool,
    /// Direction of A in shared memory.
    pub a_major: Major,
    /// Direction of B in shared memory.
    pub b_major: Major,
    /// Scale type of block-scaled kinds.
    pub scale: ScaleType,
    /// First byte of the scale word used for A.
    pub sfa_id: u32,
    /// First byte of the scale word used for B.
    pub sfb_id: u32,
}

struct Fields {
    word: u32,
    kind: Kind,
}

impl Fields {
    fn get(&self, lo: u32, n: u32) -> u32 {
        self.word >> lo & ((1 << n) - 1)
    }

    fn fail<T>(&self, why: String) -> Result<T, String> {
        Err(format!("instruction descriptor {:#010x} of {}: {why}", self.word, self.kind.name()))
    }

    fn zero(&self, ranges: &[(u32, u32)]) -> Result<(), String> {
        for &(lo, n) in ranges {
            let value = self.get(lo, n);
            if value != 0 {
                let hi = lo + n - 1;
                return self.fail(if n == 1 {
                    format!("reserved bit {lo} is set")
                } else {
                    format!("reserved bits {hi}:{lo} are {value:#x}")
                });
            }
        }
        Ok(())
    }

    fn f8(&self, side: &str, code: u32) -> Result<Elem, String> {
        match code {
            0 => Ok(Elem::E4m3),
            1 => Ok(Elem::E5m2),
            3..=5 => self.fail(format!("type {code} of {side} (6 or 4 bits in padded 16-byte groups) is not modelled")),
            _ => self.fail(format!("type {code} of {side} does not exist")),
        }
    }
}

impl InstrDesc {
    /// Decodes `word` for `kind` and `cta_group`.
    pub fn decode(word: u32, kind: Kind, cta_group: u32) -> Result<InstrDesc, String> {
        let f = Fields { word, kind };
        if f.get(2, 1) != 0 {
            return f.fail("sparsity (bit 2) is not modelled".into());
        }
        f.zero(&[(0, 2)])?;
        let m = if kind.scales() == 0 { f.get(24, 5) << 4 } else { f.get(27, 2) << 7 } as usize;
        let n = (f.get(17, 6) << 3) as usize;
        let major = |bit| {
            if f.get(bit, 1) == 1 {
                Major::Mn
            } else {
                Major::K
            }
        };
        let mut d = InstrDesc {
            m,
            n,
            a: Elem::E2m1,
            b: Elem::E2m1,
            acc: Acc::F32,
            negate_a: f.get(13, 1) == 1,
            negate_b: f.get(14, 1) == 1,
            a_major: major(15),
            b_major: major(16),
            scale: ScaleType::Ue8m0,
            sfa_id: 0,
            sfb_id: 0,
        };
        if kind.scales() == 0 {
            Self::dense(&f, &mut d)?;
        } else {
            Self::scaled(&f, &mut d)?;
        }
        Self::shape(&f, &d, cta_group)?;
        Ok(d)
    }

    fn dense(f: &Fields, d: &mut InstrDesc) -> Result<(), String> {
        f.zero(&[(3, 1), (6, 1), (23, 1), (29, 1), (30, 2)])?;
        d.acc = match f.get(4, 2) {
            0 => Acc::F16,
            1 => Acc::F32,
            other => return f.fail(format!("D type {other} does not exist")),
        };
        let (a, b) = (f.get(7, 3), f.get(10, 3));
        match f.kind {
            Kind::F16 => {
                let elem = |side: &str, code| match code {
                    0 => Ok(Elem::F16),
                    1 => Ok(Elem::Bf16),
                    other => f.fail(format!("type {other} of {side} does not exist")),
                };
                d.a = elem("A", a)?;
                d.b = elem("B", b)?;
                if d.acc == Acc::F16 && (d.a, d.b) != (Elem::F16, Elem::F16) {
                    return f.fail("an f16 accumulator needs f16 operands".into());
                }
            }
            Kind::Tf32 => {
                if (a, b) != (2, 2) {
                    return f.fail(format!("types {a} and {b} must both be 2 (TF32)"));
                }
                if d.acc == Acc::F16 {
                    return f.fail("TF32 needs an f32 accumulator".into());
                }
                d.a = Elem::Tf32;
                d.b = Elem::Tf32;
            }
            _ => {
                d.a = f.f8("A", a)?;
                d.b = f.f8("B", b)?;
            }
        }
        Ok(())
    }

    fn scaled(f: &Fields, d: &mut InstrDesc) -> Result<(), String> {
        f.zero(&[(3, 1), (6, 1), (24, 3)])?;
        d.sfb_id = f.get(4, 2);
        d.sfa_id = f.get(29, 2);
        d.scale = if f.get(23, 1) == 1 { ScaleType::Ue8m0 } else { ScaleType::Ue4m3 };
        if f.kind.packed_fp4() {
            f.zero(&[(12, 1)])?;
            if f.get(31, 1) != 0 {
                return f.fail("K = 96 (bit 31, sm_103a) is not modelled".into());
            }
            let (a, b) = (f.get(7, 3), f.get(10, 2));
            if (a, b) != (1, 1) {
                return f.fail(format!("types {a} and {b} must both be 1 (E2M1)"));
            }
            if d.a_major == Major::Mn || d.b_major == Major::Mn {
                return f.fail("FP4 operands cannot be transposed (bits 15 and 16)".into());
            }
        } else {
            f.zero(&[(31, 1)])?;
            d.a = f.f8("A", f.get(7, 3))?;
            d.b = f.f8("B", f.get(10, 3))?;
        }
        let vec = f.kind.scales() as u32;
        if d.scale == ScaleType::Ue4m3 && vec != 4 {
            return f.fail(format!("scale type UE4M3 (bit 23 = 0) with {vec} scales a row: it needs scale_vec::4X (block16)"));
        }
        for (side, id) in [("A", d.sfa_id), ("B", d.sfb_id)] {
            if id % vec != 0 {
                return f.fail(format!(
                    "scale-factor id {id} of {side} must be {} with {vec} scales a row",
                    ["", "0 to 3", "0 or 2", "", "0"][vec as usize]
                ));
            }
        }
        Ok(())
    }

    fn shape(f: &Fields, d: &InstrDesc, cta_group: u32) -> Result<(), String> {
        let scaled = f.kind.scales() != 0;
        let ms: &[usize] = match (cta_group, scaled) {
            (1, true) => &[128],
            (1, false) => &[64, 128],
            _ => &[128, 256],
        };
        if !ms.contains(&d.m) {
            return f.fail(format!("M of {} with cta_group::{cta_group} must be one of {ms:?}", d.m));
        }
        let step = match (cta_group, scaled, d.m) {
            (1, true, _) | (1, false, 64) => 8,
            _ => 16,
        };
        if d.n < step || d.n > 256 || !d.n.is_multiple_of(step) {
            return f.fail(format!("N of {} with M of {} and cta_group::{cta_group} must be a multiple of {step} up to 256", d.n, d.m));
        }
        Ok(())
    }
}
