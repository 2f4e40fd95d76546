//! tcgen05.mma over complete memories: layouts, scales, pairs, and rejections.

use super::*;
use crate::convert::{f32_to_bf16, Cvt};
use crate::mma::arith::{hardware_gemm_step, ScaleType};
use crate::mma::desc::Swizzle;
use crate::tmem::CpShape;

const NVFP4: Kind = Kind::Mxf4nvf4 { vec: 4 };
const SIZE: usize = 0x20000;
const A_AT: u32 = 0;
const B_AT: u32 = 0x8000;
const SF_AT: u32 = 0x1F000;

fn mode(s: Swizzle) -> u64 {
    match s {
        Swizzle::None => 0,
        Swizzle::B128 => 2,
        Swizzle::B64 => 4,
        Swizzle::B32 => 6,
    }
}

fn sdesc(start: u32, lbo: u32, sbo: u32, swizzle: Swizzle) -> u64 {
    (start >> 4) as u64 | ((lbo >> 4) as u64) << 16 | ((sbo >> 4) as u64) << 32 | 1 << 46 | mode(swizzle) << 61
}

fn idesc(m: usize, n: usize, ue8m0: bool) -> u32 {
    0x480 | (n as u32 >> 3) << 17 | (ue8m0 as u32) << 23 | (m as u32 >> 7) << 27
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Rows of packed FP4 stored as W-wide panels with the swizzle, as TMA would.
fn put_rows(smem: &mut [u8], at: u32, rows: &[Vec<u8>], swizzle: Swizzle) {
    let w = swizzle.row_bytes() as usize;
    for (r, row) in rows.iter().enumerate() {
        for (b, &byte) in row.iter().enumerate() {
            let linear = at as usize + b / w * rows.len() * w + r * w + b % w;
            smem[swizzle.apply(linear as u32) as usize] = byte;
        }
    }
}

/// Descriptor of K step `s` (32 bytes of K).
fn step(at: u32, rows: usize, swizzle: Swizzle, s: usize) -> u64 {
    let w = swizzle.row_bytes() as usize;
    let start = at as usize + 32 * s / w * rows * w + 32 * s % w;
    sdesc(start as u32, (rows * w) as u32, 8 * w as u32, swizzle)
}

/// The 128x4 arrangement of scale bytes: one 512-byte tile per 128 rows and 4 blocks.
fn sf_tile(scales: &[Vec<u8>], first: usize, s: usize) -> Vec<u8> {
    let mut tile = vec![0; 512];
    for m in 0..128 {
        for b in 0..4 {
            let v = scales.get(first + m).map_or(0, |row| row[4 * s + b]);
            tile[m % 32 * 16 + m / 32 * 4 + b] = v;
        }
    }
    tile
}

struct Problem {
    m: usize,
    n: usize,
    steps: usize,
    a: Vec<Vec<u8>>,
    b: Vec<Vec<u8>>,
    sa: Vec<Vec<u8>>,
    sb: Vec<Vec<u8>>,
}

impl Problem {
    fn random(m: usize, n: usize, steps: usize, scale: ScaleType, seed: u64) -> Problem {
        let mut r = Random(seed);
        let mut scales = |rows: usize| -> Vec<Vec<u8>> {
            let mut one = || {
                let x = r.next() as u8;
                if scale == ScaleType::Ue4m3 {
                    x % 0x7F
                } else {
                    100 + x % 50
                }
            };
            (0..rows).map(|_| (0..4 * steps).map(|_| one()).collect()).collect()
        };
        let (sa, sb) = (scales(m), scales(n));
        let mut r = Random(seed + 1);
        let a = (0..m).map(|_| r.bytes(32 * steps)).collect();
        let b = (0..n).map(|_| r.bytes(32 * steps)).collect();
        Problem { m, n, steps, a, b, sa, sb }
    }

    fn expected(&self, row: usize, column: usize, vec: usize, scale: ScaleType) -> u32 {
        let mut acc = 0;
        for s in 0..self.steps {
            // In 2X mode one word of four bytes serves two steps.
            let first = if vec == 4 { 4 * s } else { 4 * (s / 2) + 2 * (s % 2) };
            acc = hardware_gemm_step(
                &self.a[row][32 * s..32 * s + 32],
                &self.b[column][32 * s..32 * s + 32],
                &self.sa[row][first..first + vec],
                &self.sb[column][first..first + vec],
                scale,
                acc,
            );
        }
        acc
    }
}

/// Columns of the tensor memory used by the runs below.
const D: u32 = 0;
const SFA: u32 = 256;
const SFB: u32 = 320;

struct Machine {
    smem: Vec<Vec<u8>>,
    tmem: Vec<TensorMemory>,
}

impl Machine {
    fn load(p: &Problem, group: usize, swizzle: Swizzle) -> Machine {
        let mut machine = Machine { smem: Vec::new(), tmem: Vec::new() };
        for rank in 0..group {
            let mut smem = vec![0xFFu8; SIZE];
            let half = |rows: &[Vec<u8>]| {
                let n = rows.len() / group;
                rows[rank * n..(rank + 1) * n].to_vec()
            };
            put_rows(&mut smem, A_AT, &half(&p.a), swizzle);
            put_rows(&mut smem, B_AT, &half(&p.b), swizzle);
            let mut tmem = TensorMemory::new();
            assert_eq!(tmem.alloc(512, group as u32).unwrap(), Some(0));
            let mut copy = |tile: Vec<u8>, column: u32| {
                smem[SF_AT as usize..SF_AT as usize + 512].copy_from_slice(&tile);
                let d = sdesc(SF_AT, 16, 128, Swizzle::None);
                tmem.copy_in(CpShape::S32x128bWarpx4, group as u32, column, d, &smem).unwrap();
            };
            let rows = half(&p.sa);
            for s in 0..p.steps {
                copy(sf_tile(&rows, 0, s), SFA + 4 * s as u32);
                if group == 2 && p.m == 128 {
                    continue; // B's scales are laid out by hand below
                }
                for half in 0..p.n.div_ceil(128) {
                    copy(sf_tile(&p.sb, 128 * half, s), SFB + (8 * s + 4 * half) as u32);
                }
            }
            if group == 2 && p.m == 128 {
                for s in 0..p.steps {
                    for (n, row) in p.sb.iter().enumerate() {
                        let word = u32::from_le_bytes(row[4 * s..4 * s + 4].try_into().unwrap());
                        let (half, n) = ((n >= p.n / 2) as u32, (n % (p.n / 2)) as u32);
                        for copy in [0, 32] {
                            let lane = 64 * half + copy + n % 32;
                            tmem.write(lane, SFB + 8 * s as u32 + n / 32, word, "").unwrap();
                        }
                    }
                }
            }
            machine.smem.push(smem);
            machine.tmem.push(tmem);
        }
        machine
    }

    fn run(&mut self, op: &Umma, args: &UmmaArgs) -> Result<(), String> {
        let smem = self.smem.iter();
        let mut ctas: Vec<CtaMemory> = smem.zip(&mut self.tmem).map(|(smem, tmem)| CtaMemory { smem, tmem }).collect();
        umma(op, args, &mut ctas)
    }
}

fn args(p: &Problem, group: usize, swizzle: Swizzle, s: usize, ue8m0: bool) -> UmmaArgs {
    UmmaArgs {
        d: D,
        a: UmmaA::Desc(step(A_AT, p.m / group, swizzle, s)),
        b: step(B_AT, p.n / group, swizzle, s),
        idesc: idesc(p.m, p.n, ue8m0),
        sfa: SFA + 4 * s as u32,
        sfb: SFB + 8 * s as u32,
        accumulate: s > 0,
        disabled_lanes: [0; 8],
    }
}

/// Where the documentation puts D[row][column]: CTA, lane, column.
fn d_at(group: usize, m: usize, n: usize, row: usize, column: usize) -> (usize, u32, u32) {
    match (group, m) {
        (1, 128) => (0, row as u32, column as u32),
        (2, 256) => (row / 128, (row % 128) as u32, column as u32),
        (2, 128) => {
            let upper = column >= n / 2;
            (row / 64, (row % 64 + 64 * upper as usize) as u32, (column % (n / 2)) as u32)
        }
        _ => unreachable!(),
    }
}

#[test]
fn nvfp4_tiles_equal_the_chained_steps_in_every_swizzle_and_group() {
    for (group, m, n) in [(1, 128, 8), (1, 128, 136), (2, 256, 48), (2, 128, 80), (2, 256, 256)] {
        for swizzle in [Swizzle::B128, Swizzle::B64, Swizzle::B32, Swizzle::None] {
            let p = Problem::random(m, n, 4, ScaleType::Ue4m3, (m + n) as u64);
            let mut machine = Machine::load(&p, group, swizzle);
            let op = Umma { kind: NVFP4, cta_group: group as u32 };
            for s in 0..p.steps {
                machine.run(&op, &args(&p, group, swizzle, s, false)).unwrap();
            }
            for row in (0..m).step_by(3) {
                for column in 0..n {
                    let (cta, lane, c) = d_at(group, m, n, row, column);
                    let got = machine.tmem[cta].read(lane, c, "").unwrap();
                    let want = p.expected(row, column, 4, ScaleType::Ue4m3);
                    assert_eq!(got, want, "group {group} {m}x{n} {swizzle:?} row {row} column {column}");
                }
            }
        }
    }
}

#[test]
fn two_scales_a_row_use_the_id_of_the_step() {
    for kind in [Kind::Mxf4, Kind::Mxf4nvf4 { vec: 2 }] {
        let p = Problem::random(128, 24, 4, ScaleType::Ue8m0, 5);
        let mut machine = Machine::load(&p, 1, Swizzle::B128);
        for s in 0..p.steps {
            let id = 2 * (s as u32 % 2);
            let mut a = args(&p, 1, Swizzle::B128, s, true);
            a.idesc |= id << 29 | id << 4;
            a.sfa = SFA + 4 * (s as u32 / 2);
            a.sfb = (SFB + 8 * (s as u32 / 2)) | id << 30; // the way CUTLASS passes it
            machine.run(&Umma { kind, cta_group: 1 }, &a).unwrap();
        }
        for row in 0..128 {
            for column in 0..24 {
                let got = machine.tmem[0].read(row as u32, column as u32, "").unwrap();
                assert_eq!(got, p.expected(row, column, 2, ScaleType::Ue8m0), "{kind:?} {row} {column}");
            }
        }
    }
}

#[test]
fn one_hot_elements_and_scales_light_one_result() {
    let zero = |rows: usize| vec![vec![0u8; 128]; rows];
    let unit = |rows: usize| vec![vec![0x38u8; 16]; rows];
    for (row, column, k) in [(0, 0, 0), (127, 39, 255), (33, 5, 63), (64, 17, 64), (99, 30, 129)] {
        for miss in [0, 1] {
            let mut p = Problem { m: 128, n: 40, steps: 4, a: zero(128), b: zero(40), sa: unit(128), sb: unit(40) };
            p.a[row][k / 2] = 2 << (4 * (k % 2));
            let kb = (k + miss) % 256;
            p.b[column][kb / 2] = 3 << (4 * (kb % 2));
            // Only the block of k has this scale: a gather from elsewhere would show.
            p.sa[row][k / 16] = 0x40;
            p.sb[column][k / 16] = 0x48;
            let mut machine = Machine::load(&p, 1, Swizzle::B128);
            for s in 0..4 {
                machine.run(&Umma { kind: NVFP4, cta_group: 1 }, &args(&p, 1, Swizzle::B128, s, false)).unwrap();
            }
            for r in 0..128 {
                for c in 0..40 {
                    let got = f32::from_bits(machine.tmem[0].read(r, c, "").unwrap());
                    let lit = (r, c) == (row as u32, column as u32) && miss == 0;
                    assert_eq!(got, if lit { 1.5 * 2.0 * 4.0 } else { 0.0 }, "{r} {c}");
                }
            }
        }
    }
}

#[test]
fn bf16_with_both_directions_and_a_from_tensor_memory() {
    let bf = |x: i32| f32_to_bf16((x as f32).to_bits(), &Cvt::RN);
    let a_at = |r: usize, k: usize| (r as i32 * 7 + k as i32 * 13) % 17 - 8;
    let b_at = |n: usize, k: usize| (n as i32 * 5 + k as i32 * 3) % 13 - 6;
    for (group, m, n) in [(1, 128, 16), (1, 64, 24), (2, 256, 32), (2, 128, 64)] {
        for transposed in [false, true] {
            for a_in_tmem in [false, true] {
                if a_in_tmem && (transposed || (group, m) == (2, 128)) {
                    continue;
                }
                let (rows, columns) = (m / group, n / group);
                let mut machine = Machine { smem: vec![], tmem: vec![] };
                for rank in 0..group {
                    let mut smem = vec![0u8; SIZE];
                    let sw = Swizzle::B32; // 16 elements wide, so that N of 16 fills a panel
                    let mut put = |at: u32, count: usize, v: &dyn Fn(usize, usize) -> i32| {
                        for i in 0..count {
                            for k in 0..16 {
                                let linear = if transposed {
                                    at + (i / 16 * 512 + k * 32 + 2 * (i % 16)) as u32
                                } else {
                                    at + (i * 32 + 2 * k) as u32
                                };
                                let to = sw.apply(linear) as usize;
                                smem[to..to + 2].copy_from_slice(&bf(v(i, k)).to_le_bytes());
                            }
                        }
                    };
                    put(A_AT, rows, &|i, k| a_at(rank * rows + i, k));
                    put(B_AT, columns, &|i, k| b_at(rank * columns + i, k));
                    let mut tmem = TensorMemory::new();
                    tmem.alloc(512, group as u32).unwrap();
                    if a_in_tmem {
                        for i in 0..rows {
                            let lane = if m == 64 { 32 * (i / 16) + i % 16 } else { i };
                            for c in 0..8 {
                                let v = |k| bf(a_at(rank * rows + i, k)) as u32;
                                let word = v(2 * c) | v(2 * c + 1) << 16;
                                tmem.write(lane as u32, 400 + c as u32, word, "").unwrap();
                            }
                        }
                    }
                    machine.smem.push(smem);
                    machine.tmem.push(tmem);
                }
                let t = transposed as u32;
                let desc = |at| sdesc(at, 512, 256, Swizzle::B32);
                let a = UmmaArgs {
                    d: 32,
                    a: if a_in_tmem { UmmaA::Tmem(400) } else { UmmaA::Desc(desc(A_AT)) },
                    b: desc(B_AT),
                    idesc: 0x490 | t << 15 | t << 16 | 1 << 13 | (n as u32 >> 3) << 17 | (m as u32 >> 4) << 24,
                    sfa: 0,
                    sfb: 0,
                    accumulate: false,
                    disabled_lanes: [0, 1 << 9, 0, 0, 0, 0, 0, 0],
                };
                let op = Umma { kind: Kind::F16, cta_group: group as u32 };
                machine.run(&op, &a).unwrap();
                for row in 0..m {
                    for column in 0..n {
                        let (cta, lane, c) =
                            if m == 64 { (0, (32 * (row / 16) + row % 16) as u32, column as u32) } else { d_at(group, m, n, row, column) };
                        let got = machine.tmem[cta].read(lane, 32 + c, "D");
                        if (cta, lane) == (0, 41) {
                            assert!(got.unwrap_err().contains("never written"));
                            continue;
                        }
                        let want: i32 = -(0..16).map(|k| a_at(row, k) * b_at(column, k)).sum::<i32>();
                        assert_eq!(f32::from_bits(got.unwrap()), want as f32, "{group} {m}x{n} {row} {column}");
                    }
                }
            }
        }
    }
}

#[test]
fn contract_descriptors_are_accepted_and_every_other_bit_is_not() {
    for (m, n, ue8m0, golden) in [
        (128, 8, false, 0x08020480),
        (128, 64, false, 0x08100480),
        (128, 128, false, 0x08200480),
        (128, 192, false, 0x08300480),
        (128, 256, false, 0x08400480),
        (256, 128, false, 0x10200480),
        (256, 192, false, 0x10300480),
        (256, 256, false, 0x10400480),
        (128, 256, true, 0x08c00480),
        (256, 256, true, 0x10c00480u32),
    ] {
        assert_eq!(idesc(m, n, ue8m0), golden);
        let group = if m == 256 { 2 } else { 1 };
        let d = InstrDesc::decode(golden, NVFP4, group).unwrap();
        assert_eq!((d.m, d.n, d.scale == ScaleType::Ue8m0), (m, n, ue8m0));
        assert_eq!(d.a_major, Major::K);
    }
    let good = idesc(128, 64, false);
    for bit in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 24, 25, 26, 27, 29, 30, 31] {
        let e = InstrDesc::decode(good ^ 1 << bit, NVFP4, 1).unwrap_err();
        assert!(e.contains("0x"), "{e}");
    }
    let fails = |word: u32, kind, group, part: &str| {
        let e = InstrDesc::decode(word, kind, group).unwrap_err();
        assert!(e.contains(part), "{e}");
    };
    fails(good, Kind::Mxf4, 1, "UE4M3");
    fails(good, Kind::Mxf4nvf4 { vec: 2 }, 1, "UE4M3");
    fails(idesc(256, 64, false), NVFP4, 1, "M of 256");
    fails(idesc(128, 0, false), NVFP4, 1, "N of 0");
    fails(idesc(128, 264, false), NVFP4, 1, "N of 264");
    fails(idesc(256, 72, false), NVFP4, 2, "N of 72");
    fails(0x490 | 1 << 17 | 8 << 24, Kind::F16, 1, "N of 8");
    fails(0x480 | 2 << 17 | 8 << 24, Kind::F16, 1, "f16 accumulator");
    fails(0x4d0 | 2 << 17 | 8 << 24, Kind::F16, 1, "reserved bit 6");
    fails(0x490 | 2 << 17 | 8 << 24 | 1 << 23, Kind::F16, 1, "reserved bit 23");
    fails(idesc(128, 64, true) | 1 << 4, Kind::Mxf4, 1, "scale-factor id 1 of B");
}

#[test]
fn wrong_memory_is_rejected_and_leaves_d_untouched() {
    let p = Problem::random(128, 16, 1, ScaleType::Ue4m3, 9);
    let sw = Swizzle::B128;
    let op = Umma { kind: NVFP4, cta_group: 1 };
    let check = |change: &dyn Fn(&mut Machine, &mut UmmaArgs), part: &str| {
        let mut p = Problem::random(128, 16, 1, ScaleType::Ue4m3, 9);
        p.a.iter_mut().chain(&mut p.b).for_each(|r| r.resize(128, 0));
        let mut machine = Machine::load(&p, 1, sw);
        let mut a = args(&p, 1, sw, 0, false);
        change(&mut machine, &mut a);
        let e = machine.run(&op, &a).unwrap_err();
        assert!(e.contains(part), "{e}");
        assert!(machine.tmem[0].read(0, 0, "").is_err(), "D was written");
    };
    assert_eq!(p.steps, 1);
    check(&|_, a| a.accumulate = true, "reading D: lane 0, column 0 was never written");
    check(&|_, a| a.d = 500, "outside tensor memory");
    check(&|_, a| a.d = 32 << 16, "starts at lane 32");
    check(&|_, a| a.sfa += 1, "was never written");
    check(&|_, a| a.sfb += 1 << 16, "start at lane 1");
    check(&|_, a| a.sfb |= 1 << 31, "names byte 2");
    check(&|_, a| a.b ^= 1 << 46, "0b001");
    check(&|_, a| a.b ^= 1 << 61, "does not exist");
    check(&|_, a| a.b |= 1 << 52, "bit 52");
    check(&|_, a| a.b |= 1 << 55, "60:53");
    check(&|_, a| a.b |= 1 << 49, "base offset 1");
    check(&|_, a| a.b += 128 >> 4, "row group 1");
    check(&|_, a| a.disabled_lanes[0] = 1, "disable-output-lane");
    check(&|m, _| m.tmem[0].write(64 + 3, SFA, 0x01020304, "").unwrap(), "the copies must agree");
    check(
        &|m, _| {
            m.tmem[0] = {
                let mut t = TensorMemory::new();
                t.alloc(32, 2).unwrap();
                t
            }
        },
        "already used cta_group::2",
    );
    let mut machine = Machine::load(&p, 1, Swizzle::B32);
    let a = args(&p, 1, Swizzle::B32, 0, false);
    let e = machine.run(&Umma { kind: NVFP4, cta_group: 2 }, &a).unwrap_err();
    assert!(e.contains("1 CTAs"), "{e}");
}
