//! The arithmetic inside one matrix instruction, for one output element.
//!
//! Tensor cores don't round product by product. They align all products and the
//! accumulator to the largest exponent among them, cut every term (toward zero) to
//! a fixed number of fractional bits, add the cut terms exactly and truncate the
//! sum. The widths come from the open model MMA-Sim (arXiv 2511.10909):
//!
//! | unit | fractional bits | f32 result |
//! |---|---|---|
//! | sm_80 mma.sync f16, bf16, tf32 | 24, K halved and chained | truncated |
//! | sm_89 mma.sync fp8 | 13, K halved and chained | truncated to 13 mantissa bits |
//! | sm_90 wgmma fp8 | 13 | truncated to 13 mantissa bits |
//! | everything else on sm_90, sm_100, sm_120 | 25 | truncated |
//! | mxf4, mxf4nvf4 | 35, over exact sums of 16 products | truncated |
//!
//! f16 results are rounded to nearest even instead. An element's exponent is that of
//! its leading bit for normals and the format's minimum for subnormals; a zero counts
//! as 2^-126. Products add exponents, so a "large" exponent of a zero product can
//! cut other terms: that is the model, and what it was validated with.

use crate::convert::exact::{decode, encode, Cvt, Format, Round, Special, Value, BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, TF32};

/// Element types of A and B.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elem {
    /// binary16
    F16,
    /// bfloat16
    Bf16,
    /// f32 of which the low 13 bits are ignored
    Tf32,
    /// FP8, 4 exponent bits
    E4m3,
    /// FP8, 5 exponent bits
    E5m2,
    /// FP6, 2 exponent bits
    E2m3,
    /// FP6, 3 exponent bits
    E3m2,
    /// FP4
    E2m1,
}

impl Elem {
    /// Layout of the value bits.
    pub const fn format(self) -> &'static Format {
        match self {
            Elem::F16 => &F16,
            Elem::Bf16 => &BF16,
            Elem::Tf32 => &TF32,
            Elem::E4m3 => &E4M3,
            Elem::E5m2 => &E5M2,
            Elem::E2m3 => &E2M3,
            Elem::E3m2 => &E3M2,
            Elem::E2m1 => &E2M1,
        }
    }

    /// Bits an element occupies in registers and shared memory for the kinds that
    /// put everything below 8 bits into a byte (f8f6f4); packed FP4 is handled apart.
    pub const fn container_bits(self) -> usize {
        match self {
            Elem::Tf32 => 32,
            Elem::F16 | Elem::Bf16 => 16,
            _ => 8,
        }
    }
}

/// Accumulator type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acc {
    /// 32 bits a value.
    F32,
    /// 16 bits a value.
    F16,
}

/// Type of a block scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScaleType {
    /// E4M3 whose sign bit is ignored.
    Ue4m3,
    /// Power of two.
    Ue8m0,
}

/// A decoded element: `sig * 2^(exp - frac_bits of its type)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Num {
    /// Signed significand.
    pub sig: i32,
    /// Exponent that takes part in the alignment; [`SPECIAL`] for Inf (sig +-1) and NaN (sig 0).
    pub exp: i32,
}

/// Marks infinities and NaN in [`Num::exp`].
pub const SPECIAL: i32 = i32::MAX;

/// Exponent that a zero brings into the alignment.
const ZERO_EXP: i32 = -126;

/// How one unit accumulates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Fractional bits kept of every aligned term.
    pub frac_bits: i32,
    /// K is processed as two chained halves.
    pub split_k: bool,
    /// f32 results keep this many mantissa bits.
    pub out_bits: u32,
}

impl Rule {
    /// The rule of `mma.sync` on compute capability `sm` (80, 89, 90, 100, 103, 120, ...).
    /// `k` is that of the instruction.
    pub fn mma_sync(sm: u32, elem: Elem, k: usize) -> Rule {
        let fp8 = elem.container_bits() == 8;
        let before_hopper = sm < 90;
        let full_k = match elem {
            Elem::Tf32 => 8,
            Elem::F16 | Elem::Bf16 => 16,
            _ => 32,
        };
        let reduced = before_hopper && fp8;
        Rule {
            frac_bits: if reduced {
                13
            } else if before_hopper {
                24
            } else {
                25
            },
            split_k: before_hopper && sm >= 80 && k == full_k,
            out_bits: if reduced { 13 } else { 23 },
        }
    }

    /// The rule of `wgmma`.
    pub fn wgmma(elem: Elem) -> Rule {
        let fp8 = elem.container_bits() == 8;
        let (frac_bits, out_bits) = if fp8 { (13, 13) } else { (25, 23) };
        Rule { frac_bits, split_k: false, out_bits }
    }

    /// The rule of `tcgen05.mma` kinds f16, tf32, f8f6f4 and mxf8f6f4.
    pub const TCGEN05: Rule = Rule { frac_bits: 25, split_k: false, out_bits: 23 };
}

/// Decodes one element. `bits` holds the container, value bits lowest (a TF32 operand
/// is the whole f32 register).
pub fn decode_elem(elem: Elem, bits: u32) -> Num {
    let bits = if elem == Elem::Tf32 { bits >> 13 } else { bits };
    let f = elem.format();
    match decode(bits as u64, f) {
        Value::Nan => Num { sig: 0, exp: SPECIAL },
        Value::Inf(neg) => Num { sig: if neg { -1 } else { 1 }, exp: SPECIAL },
        Value::Finite { mag: 0, .. } => Num { sig: 0, exp: ZERO_EXP },
        Value::Finite { neg, mag, exp } => {
            let sig = mag as i32;
            Num { sig: if neg { -sig } else { sig }, exp: exp + f.man_bits as i32 }
        }
    }
}

/// Significand bits below the leading one of an element type.
fn frac(elem: Elem) -> i32 {
    elem.format().man_bits as i32
}

/// A term of a fused sum: `mant * 2^(exp - frac)`, aligned by `exp`.
#[derive(Clone, Copy)]
struct Term {
    mant: i64,
    frac: i32,
    exp: i32,
}

impl Term {
    /// The mantissa in units of `2^(max_exp - frac_bits)`, cut toward zero.
    #[inline]
    fn aligned(self, max_exp: i32, frac_bits: i32) -> i64 {
        let shift = frac_bits + self.exp - max_exp - self.frac;
        if shift >= 0 {
            self.mant << shift
        } else if shift <= -64 {
            0
        } else {
            let cut = (self.mant.unsigned_abs() >> -shift) as i64;
            if self.mant < 0 {
                -cut
            } else {
                cut
            }
        }
    }
}

/// Accumulator bits as a term, or the special value that decides the result.
fn accumulator(c: u32, acc: Acc) -> Result<Term, Value> {
    let format = if acc == Acc::F32 { &F32 } else { &F16 };
    match decode(c as u64, format) {
        Value::Finite { mag: 0, .. } => Ok(Term { mant: 0, frac: 0, exp: ZERO_EXP }),
        Value::Finite { neg, mag, exp } => {
            let mant = if neg { -(mag as i64) } else { mag as i64 };
            let frac = format.man_bits as i32;
            Ok(Term { mant, frac, exp: exp + frac })
        }
        special => Err(special),
    }
}

/// f32 that keeps 13 mantissa bits, as FP8 units before Blackwell return it.
const F32_E8M13: Format = Format { exp_bits: 8, man_bits: 13, bias: 127, special: Special::Ieee, nan: 0 };

/// `sum * 2^exp` in the accumulator type: truncated for f32, nearest even for f16.
/// A sum past the range becomes infinite; one that vanishes becomes +0 whatever its
/// sign, as in the published model.
fn pack(sum: i64, exp: i32, acc: Acc, out_bits: u32) -> u32 {
    if sum == 0 {
        return 0;
    }
    let value = Value::Finite { neg: sum < 0, mag: sum.unsigned_abs(), exp };
    let (format, round, shift) = match (acc, out_bits) {
        (Acc::F16, _) => (&F16, Round::Rn, 0),
        (Acc::F32, 13) => (&F32_E8M13, Round::Rz, 10),
        (Acc::F32, _) => (&F32, Round::Rz, 0),
    };
    let r = encode(value, format, &Cvt::new(round)) as u32;
    if r << shift & if acc == Acc::F16 { 0x7FFF } else { 0x7FFF_FFFF } == 0 {
        return 0;
    }
    let overflowed = round == Round::Rz && 64 - sum.unsigned_abs().leading_zeros() as i32 + exp > 128;
    if overflowed {
        return (r << shift) & 0x8000_0000 | 0x7F80_0000;
    }
    r << shift
}

fn nan(acc: Acc) -> u32 {
    match acc {
        Acc::F32 => 0x7FFF_FFFF,
        Acc::F16 => 0x7FFF,
    }
}

fn infinity(neg: bool, acc: Acc) -> u32 {
    match acc {
        Acc::F32 => 0x7F80_0000 | (neg as u32) << 31,
        Acc::F16 => 0x7C00 | (neg as u32) << 15,
    }
}

/// The result when an input is infinite or NaN: IEEE's for the exact sum.
fn special_sum(a: &[Num], b: &[Num], c: u32, acc: Acc) -> u32 {
    let (mut plus, mut minus) = (false, false);
    match accumulator(c, acc) {
        Err(Value::Inf(neg)) => {
            plus |= !neg;
            minus |= neg;
        }
        Err(_) => return nan(acc),
        Ok(_) => {}
    }
    for (x, y) in a.iter().zip(b) {
        if x.exp != SPECIAL && y.exp != SPECIAL {
            continue;
        }
        // A zero significand is NaN beside a special and zero times infinity otherwise.
        match x.sig.signum() * y.sig.signum() {
            0 => return nan(acc),
            s => {
                plus |= s > 0;
                minus |= s < 0;
            }
        }
    }
    if plus && minus {
        nan(acc)
    } else {
        infinity(minus, acc)
    }
}

/// One dense instruction for one output element: `c + sum a[i] * b[i]`.
/// `c` and the result are bits of the accumulator type.
pub fn dot_add(ta: Elem, a: &[Num], tb: Elem, b: &[Num], c: u32, acc: Acc, rule: &Rule) -> u32 {
    assert_eq!(a.len(), b.len());
    if rule.split_k {
        let half = a.len() / 2;
        let once = Rule { split_k: false, ..*rule };
        let first = dot_add(ta, &a[..half], tb, &b[..half], c, acc, &once);
        return dot_add(ta, &a[half..], tb, &b[half..], first, acc, &once);
    }
    fused(frac(ta) + frac(tb), a, b, 0, c, acc, rule)
}

/// mxf8f6f4: as [`dot_add`] with two UE8M0 scales whose exponents join every product.
#[allow(clippy::too_many_arguments)]
pub fn scaled_dot_add(ta: Elem, a: &[Num], tb: Elem, b: &[Num], sa: u8, sb: u8, c: u32) -> u32 {
    if sa == 0xFF || sb == 0xFF {
        return nan(Acc::F32);
    }
    let scale = sa as i32 + sb as i32 - 254;
    fused(frac(ta) + frac(tb), a, b, scale, c, Acc::F32, &Rule::TCGEN05)
}

fn fused(frac: i32, a: &[Num], b: &[Num], scale: i32, c: u32, acc: Acc, rule: &Rule) -> u32 {
    let Ok(c_term) = accumulator(c, acc) else {
        return special_sum(a, b, c, acc);
    };
    let mut max_exp = c_term.exp;
    for (x, y) in a.iter().zip(b) {
        if x.exp == SPECIAL || y.exp == SPECIAL {
            return special_sum(a, b, c, acc);
        }
        max_exp = max_exp.max(x.exp + y.exp + scale);
    }
    let mut sum = c_term.aligned(max_exp, rule.frac_bits);
    for (x, y) in a.iter().zip(b) {
        let mant = x.sig as i64 * y.sig as i64;
        sum += Term { mant, frac, exp: x.exp + y.exp + scale }.aligned(max_exp, rule.frac_bits);
    }
    pack(sum, max_exp - rule.frac_bits, acc, rule.out_bits)
}

/// A decoded block scale, significand in eighths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    sig: i32,
    exp: i32,
    nan: bool,
}

impl Scale {
    /// Decodes a scale byte. The sign bit of UE4M3 is ignored.
    pub fn decode(kind: ScaleType, byte: u8) -> Scale {
        match kind {
            ScaleType::Ue8m0 => Scale { sig: 8, exp: byte as i32 - 127, nan: byte == 0xFF },
            ScaleType::Ue4m3 => {
                let (e, m) = ((byte >> 3 & 15) as i32, (byte & 7) as i32);
                let nan = byte & 0x7F == 0x7F;
                match (e, m) {
                    (0, 0) => Scale { sig: 0, exp: ZERO_EXP, nan },
                    (0, _) => Scale { sig: m, exp: -6, nan },
                    _ => Scale { sig: 8 + m, exp: e - 7, nan },
                }
            }
        }
    }
}

/// E2M1 code to halves: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
pub const E2M1_HALVES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Fractional bits of the block-scaled units.
const BLOCK_SCALED_FRAC_BITS: i32 = 35;

/// One block-scaled instruction (mxf4, mxf4nvf4) for one output element.
/// `a`, `b`: elements in halves ([`E2M1_HALVES`]), a multiple of 16 of them (64 or 96);
/// `sa`, `sb`: one scale for every `a.len() / sa.len()` elements (16 or 32).
///
/// Each run of 16 products is summed exactly, multiplied exactly by its two scale
/// significands and aligned by the scales' exponents alone; then all runs and the
/// accumulator are cut to 35 fractional bits, added and truncated to f32.
pub fn block_scaled_dot_add(a: &[i8], b: &[i8], sa: &[Scale], sb: &[Scale], c: u32) -> u32 {
    let groups = a.len() / 16;
    let per_scale = groups / sa.len();
    debug_assert!(a.len() == b.len() && sa.len() == sb.len() && groups <= 6 && per_scale >= 1);
    if sa.iter().chain(sb).any(|s| s.nan) {
        return nan(Acc::F32);
    }
    let c_term = match accumulator(c, Acc::F32) {
        Ok(term) => term,
        Err(Value::Inf(neg)) => return infinity(neg, Acc::F32),
        Err(_) => return nan(Acc::F32),
    };
    let mut max_exp = c_term.exp;
    for (x, y) in sa.iter().zip(sb) {
        max_exp = max_exp.max(x.exp + y.exp);
    }
    let mut sum = c_term.aligned(max_exp, BLOCK_SCALED_FRAC_BITS);
    for g in 0..groups {
        let (x, y) = (sa[g / per_scale], sb[g / per_scale]);
        let dot: i32 = a[16 * g..16 * g + 16].iter().zip(&b[16 * g..16 * g + 16]).map(|(&p, &q)| p as i32 * q as i32).sum();
        // Quarters times eighths times eighths: 8 fractional bits.
        let mant = dot as i64 * x.sig as i64 * y.sig as i64;
        sum += Term { mant, frac: 8, exp: x.exp + y.exp }.aligned(max_exp, BLOCK_SCALED_FRAC_BITS);
    }
    pack(sum, max_exp - BLOCK_SCALED_FRAC_BITS, Acc::F32, 23)
}

/// Packed E2M1 bytes (low nibble first) to halves.
pub fn unpack_e2m1(packed: &[u8]) -> Vec<i8> {
    packed.iter().flat_map(|&x| [E2M1_HALVES[x as usize & 15], E2M1_HALVES[x as usize >> 4]]).collect()
}

/// One hardware step of one output element from bytes as they lie in memory; see the
/// module documentation of [`crate::mma`] for how a whole GEMM chains it.
pub fn hardware_gemm_step(a: &[u8], b: &[u8], sa: &[u8], sb: &[u8], scale_type: ScaleType, acc: u32) -> u32 {
    let scales = |s: &[u8]| s.iter().map(|&x| Scale::decode(scale_type, x)).collect::<Vec<_>>();
    block_scaled_dot_add(&unpack_e2m1(a), &unpack_e2m1(b), &scales(sa), &scales(sb), acc)
}
