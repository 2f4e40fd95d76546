//! `tcgen05.mma`: one instruction over one CTA or a pair.
//!
//! Accumulators in tensor memory (column = base + n unless said otherwise):
//! M = 128 of one CTA and M = 256 of two: row r of the CTA in lane r. M = 64 of one CTA:
//! row r in lane 32*(r/16) + r%16. M = 128 of two: each CTA holds 64 rows; columns below
//! N/2 in lanes 0-63, the others in lanes 64-127 at column n - N/2.
//! f16 accumulators take the low half of a word.
//!
//! With cta_group::2 rank 0 supplies the first half of A's rows and of B's columns, rank 1
//! the other halves; each CTA holds the scales of its own rows and those of all columns.

use super::arith::{block_scaled_dot_add, decode_elem, dot_add, scaled_dot_add, unpack_e2m1, Acc, Num, Rule, Scale};
use super::desc::{elements, Family, Major, MatrixDesc};
use super::idesc::{InstrDesc, Kind};
use super::SharedMemory;
use crate::plant::{self, Plant};
use crate::tmem::{split, TensorMemory};

/// The fixed parts of the instruction.
#[derive(Clone, Copy, Debug)]
pub struct Umma {
    /// `.kind`.
    pub kind: Kind,
    /// `.cta_group`.
    pub cta_group: u32,
}

/// Where A comes from.
#[derive(Clone, Copy, Debug)]
pub enum UmmaA {
    /// A shared-memory descriptor.
    Desc(u64),
    /// A tensor-memory address.
    Tmem(u32),
}

/// The operands of one issue.
#[derive(Clone, Copy, Debug)]
pub struct UmmaArgs {
    /// Address of D.
    pub d: u32,
    /// A.
    pub a: UmmaA,
    /// Descriptor of B.
    pub b: u64,
    /// Instruction descriptor.
    pub idesc: u32,
    /// Address of A's scales (block-scaled kinds).
    pub sfa: u32,
    /// Address of B's scales (block-scaled kinds).
    pub sfb: u32,
    /// enable-input-d: false computes D = A*B.
    pub accumulate: bool,
    /// disable-output-lane: bit i of word i/32 keeps lane i as it is; words 0-3 for the
    /// even CTA, 4-7 for the odd one. Dense kinds only.
    pub disabled_lanes: [u32; 8],
}

/// The memories of one CTA; with cta_group::2 pass rank 0 (even) first.
pub struct CtaMemory<'a> {
    /// Its shared memory.
    pub smem: &'a dyn SharedMemory,
    /// Its tensor memory.
    pub tmem: &'a mut TensorMemory,
}

/// Where the accumulator of a CTA's row and a column lies, relative to D's address.
fn place(d: &InstrDesc, cta_group: u32, row: usize, column: usize) -> (u32, u32) {
    let (row, column, half) = (row as u32, column as u32, d.n as u32 / 2);
    match (cta_group, d.m) {
        (1, 64) => (32 * (row / 16) + row % 16, column),
        (2, 128) if column >= half => (64 + row, column - half),
        _ => (row, column),
    }
}

/// One row or column ready to multiply.
enum Line {
    /// FP4 in halves with the scales of its blocks.
    Packed(Vec<i8>, Vec<Scale>),
    /// mxf8f6f4 with its one UE8M0 byte.
    Scaled(Vec<Num>, u8),
    Dense(Vec<Num>),
}

/// Executes the instruction. Nothing is written unless all of it is valid.
pub fn umma(op: &Umma, args: &UmmaArgs, ctas: &mut [CtaMemory]) -> Result<(), String> {
    let group = op.cta_group;
    if ctas.len() != group as usize {
        return Err(format!("tcgen05.mma.cta_group::{group} with {} CTAs", ctas.len()));
    }
    for cta in ctas.iter_mut() {
        cta.tmem.use_group(group)?;
    }
    let d = InstrDesc::decode(args.idesc, op.kind, group)?;
    let vec = op.kind.scales();
    let scaled = vec != 0;
    if scaled && args.disabled_lanes != [0; 8] {
        return Err("tcgen05.mma: block-scaled kinds have no disable-output-lane".into());
    }
    let (d_lane, d_column) = split(args.d);
    let lane_ok = d_lane == 0 || (d.m == 64 && d_lane == 16);
    if !lane_ok {
        return Err(format!(
            "tcgen05.mma: D at {:#x} starts at lane {d_lane}; M of {} starts at lane 0{}",
            args.d,
            d.m,
            if d.m == 64 { " or 16" } else { "" }
        ));
    }
    let halves = group as usize;
    let (rows, columns) = (d.m / halves, d.n / halves);

    // Gather B from all CTAs, then A and the scales of each.
    let mut b_bytes = Vec::new();
    for cta in ctas.iter() {
        b_bytes.extend(read_smem(op.kind, args.b, d.b_major, columns, cta.smem, "B")?);
    }
    let mut outputs = Vec::new();
    for (rank, cta) in ctas.iter().enumerate() {
        let a_bytes = match args.a {
            UmmaA::Desc(desc) => read_smem(op.kind, desc, d.a_major, rows, cta.smem, "A")?,
            UmmaA::Tmem(address) => read_tmem_a(&d, group, address, rows, cta.tmem)?,
        };
        let (sa, sb) = if scaled {
            (read_sfa(args, &d, vec, rows, cta.tmem)?, read_sfb(args, &d, vec, group, cta.tmem)?)
        } else {
            (Vec::new(), Vec::new())
        };
        let a = lines(op.kind, &d, true, &a_bytes, &sa);
        let b = lines(op.kind, &d, false, &b_bytes, &sb);
        for (r, x) in a.iter().enumerate() {
            for (n, y) in b.iter().enumerate() {
                let (lane, column) = place(&d, group, r, n);
                let (lane, column) = (d_lane + lane, d_column + column);
                let mask = args.disabled_lanes[4 * rank + (lane / 32) as usize];
                if mask >> (lane % 32) & 1 == 1 {
                    continue;
                }
                let c = if args.accumulate {
                    cta.tmem.read(lane, column, "tcgen05.mma reading D")?
                } else {
                    cta.tmem.check(lane, 1, column, 1, "tcgen05.mma writing D")?;
                    0
                };
                outputs.push((rank, lane, column, multiply(&d, x, y, c)));
            }
        }
    }
    for (rank, lane, column, value) in outputs {
        ctas[rank].tmem.write(lane, column, value, "tcgen05.mma writing D")?;
    }
    Ok(())
}

fn multiply(d: &InstrDesc, x: &Line, y: &Line, c: u32) -> u32 {
    match (x, y) {
        (Line::Packed(a, sa), Line::Packed(b, sb)) => block_scaled_dot_add(a, b, sa, sb, c),
        (Line::Scaled(a, sa), Line::Scaled(b, sb)) => scaled_dot_add(d.a, a, d.b, b, *sa, *sb, c),
        (Line::Dense(a), Line::Dense(b)) => {
            let c = if d.acc == Acc::F16 { c & 0xFFFF } else { c };
            dot_add(d.a, a, d.b, b, c, d.acc, &Rule::TCGEN05)
        }
        _ => unreachable!("both operands are of one kind"),
    }
}

fn read_smem(kind: Kind, desc: u64, major: Major, rows: usize, smem: &dyn SharedMemory, what: &str) -> Result<Vec<u8>, String> {
    let desc = MatrixDesc::decode(desc, Family::Tcgen05, what)?;
    if kind.packed_fp4() {
        return desc.read_k_major(0, rows, kind.k() / 2, smem, what);
    }
    desc.read(major, 0..rows, kind.k(), 32 / kind.k(), smem, what)
}

/// A in tensor memory: row r in D's lane of row r, 32 bytes of K in 8 columns.
fn read_tmem_a(d: &InstrDesc, group: u32, address: u32, rows: usize, tmem: &TensorMemory) -> Result<Vec<u8>, String> {
    if group == 2 && d.m == 128 {
        return Err("tcgen05.mma: A in tensor memory with cta_group::2 and M of 128 is not modelled".into());
    }
    if d.a_major == Major::Mn {
        return Err("tcgen05.mma: A in tensor memory cannot be transposed".into());
    }
    let (lane0, column0) = split(address);
    if lane0 != 0 && !(d.m == 64 && lane0 == 16) {
        return Err(format!("tcgen05.mma: A at {address:#x} starts at lane {lane0}, not 0"));
    }
    let mut out = Vec::with_capacity(rows * 32);
    for r in 0..rows {
        let (lane, _) = place(d, group, r, 0);
        for c in 0..8 {
            let word = tmem.read(lane0 + lane, column0 + c, "tcgen05.mma reading A")?;
            out.extend(word.to_le_bytes());
        }
    }
    Ok(out)
}

/// Scale words of `count` rows or columns: word i in lane i%32 of each of the `copies`
/// (lane offsets), column base + i/32. All copies must agree.
fn read_scales(
    address: u32,
    id: u32,
    vec: usize,
    count: usize,
    copies: &[u32],
    tmem: &TensorMemory,
    what: &str,
) -> Result<Vec<Vec<u8>>, String> {
    // CUTLASS leaves the byte index in address bits 31:30 as well.
    let address_id = address >> 30;
    if address_id != 0 && address_id != id {
        return Err(format!("tcgen05.mma: address {address:#x} of {what} names byte {address_id}, the instruction descriptor byte {id}"));
    }
    let (lane0, column0) = split(address & 0x3FFF_FFFF);
    if lane0 != 0 {
        return Err(format!("tcgen05.mma: {what} at {address:#x} start at lane {lane0}, not 0"));
    }
    let label = format!("tcgen05.mma reading {what}");
    (0..count as u32)
        .map(|i| {
            let at = |copy: &u32| tmem.read(copy + i % 32, column0 + i / 32, &label);
            let word = at(&copies[0])?;
            for copy in &copies[1..] {
                let other = at(copy)?;
                if other != word {
                    return Err(format!(
                        "{label}: word {i} is {word:#010x} in lane {} but {other:#010x} in lane {} (column {}); the copies must agree",
                        copies[0] + i % 32,
                        copy + i % 32,
                        column0 + i / 32
                    ));
                }
            }
            Ok(word.to_le_bytes()[id as usize..id as usize + vec].to_vec())
        })
        .collect()
}

fn read_sfa(args: &UmmaArgs, d: &InstrDesc, vec: usize, rows: usize, tmem: &TensorMemory) -> Result<Vec<Vec<u8>>, String> {
    let mut all = read_scales(args.sfa, d.sfa_id, vec, rows, &[0, 32, 64, 96], tmem, "scales of A")?;
    if plant::is(Plant::BlockScale) {
        all.iter_mut().for_each(|row| row.reverse());
    }
    Ok(all)
}

fn read_sfb(args: &UmmaArgs, d: &InstrDesc, vec: usize, group: u32, tmem: &TensorMemory) -> Result<Vec<Vec<u8>>, String> {
    let what = "scales of B";
    if group == 2 && d.m == 128 {
        let mut all = read_scales(args.sfb, d.sfb_id, vec, d.n / 2, &[0, 32], tmem, what)?;
        all.extend(read_scales(args.sfb, d.sfb_id, vec, d.n / 2, &[64, 96], tmem, what)?);
        return Ok(all);
    }
    read_scales(args.sfb, d.sfb_id, vec, d.n, &[0, 32, 64, 96], tmem, what)
}

fn lines(kind: Kind, d: &InstrDesc, is_a: bool, bytes: &[u8], scales: &[Vec<u8>]) -> Vec<Line> {
    let (elem, negate) = if is_a { (d.a, d.negate_a) } else { (d.b, d.negate_b) };
    bytes
        .chunks_exact(32)
        .enumerate()
        .map(|(i, row)| {
            if kind.packed_fp4() {
                let mut halves = unpack_e2m1(row);
                if negate {
                    halves.iter_mut().for_each(|x| *x = -*x);
                }
                let s = scales[i].iter().map(|&x| Scale::decode(d.scale, x)).collect();
                return Line::Packed(halves, s);
            }
            let nums = elements(row, elem.container_bits() / 8).map(|x| {
                let mut v = decode_elem(elem, x);
                if negate {
                    v.sig = -v.sig;
                }
                v
            });
            let nums = nums.collect();
            match scales.get(i) {
                Some(s) => Line::Scaled(nums, s[0]),
                None => Line::Dense(nums),
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "umma_tests.rs"]
mod tests;
