//! wgmma against plain sums of small integers (exact in every unit), every layout.

use super::*;
use crate::convert::{f32_to_bf16, fp8_from_f32, Cvt, Fp8};
use crate::mma::desc::Swizzle;

const SWIZZLES: [(Swizzle, u64); 4] = [(Swizzle::None, 0), (Swizzle::B128, 1), (Swizzle::B64, 2), (Swizzle::B32, 3)];

fn desc(start: u32, lbo: u32, sbo: u32, mode: u64) -> u64 {
    (start >> 4) as u64 | ((lbo >> 4) as u64) << 16 | ((sbo >> 4) as u64) << 32 | mode << 62
}

/// Stores an operand of `rows` x `depth` two-byte elements the way TMA would: boxes of
/// one swizzle row, K or MN contiguous. Returns the descriptor and the step of K.
fn store(
    smem: &mut [u8],
    start: u32,
    rows: usize,
    depth: usize,
    major: Major,
    (swizzle, mode): (Swizzle, u64),
    value: impl Fn(usize, usize) -> u16,
) -> (u64, impl Fn(usize) -> u32) {
    let w = swizzle.row_bytes() as usize;
    let (lines, length) = if major == Major::K { (rows, depth) } else { (depth, rows) };
    // Panels: `w` bytes wide, all lines deep.
    let panel = lines * w;
    for line in 0..lines {
        for x in 0..length {
            let byte = 2 * x;
            let linear = start as usize + byte / w * panel + line * w + byte % w;
            let addr = swizzle.apply(linear as u32) as usize;
            let v = if major == Major::K { value(line, x) } else { value(x, line) };
            smem[addr..addr + 2].copy_from_slice(&v.to_le_bytes());
        }
    }
    let group = 8 * w as u32;
    let d = match (major, swizzle) {
        (Major::K, Swizzle::None) => desc(start, panel as u32, group, mode),
        (Major::K, _) => desc(start, 16, group, mode),
        (Major::Mn, Swizzle::None) => desc(start, group, panel as u32, mode),
        (Major::Mn, _) => desc(start, panel as u32, group, mode),
    };
    // 16 elements of K further.
    let step = move |s: usize| match major {
        Major::K => (32 * s / w * panel + 32 * s % w) as u32,
        Major::Mn => (2 * s) as u32 * group,
    };
    (d, step)
}

fn bf(x: i32) -> u16 {
    f32_to_bf16((x as f32).to_bits(), &Cvt::RN)
}

fn a_at(r: usize, k: usize) -> i32 {
    (r as i32 * 7 + k as i32 * 13) % 17 - 8
}

fn b_at(n: usize, k: usize) -> i32 {
    (n as i32 * 5 + k as i32 * 3) % 13 - 6
}

const BF16: Wgmma = Wgmma {
    n: 40,
    a: Elem::Bf16,
    b: Elem::Bf16,
    acc: Acc::F32,
    scale_d: true,
    negate_a: false,
    negate_b: false,
    a_major: Major::K,
    b_major: Major::K,
};

#[test]
fn every_layout_and_both_directions_multiply_and_advance_along_k() {
    let depth = 64;
    for n in [8usize, 40, 136, 256] {
        for sa in SWIZZLES {
            for sb in SWIZZLES {
                for (a_major, b_major) in [(Major::K, Major::K), (Major::Mn, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::Mn)] {
                    // MN-major panels are filled whole: round N up to one.
                    let per = sb.0.row_bytes() as usize / 2;
                    let n_pad = if b_major == Major::Mn { n.div_ceil(per) * per } else { n };
                    let mut smem = vec![0xFFu8; 0x20000];
                    let (da, step_a) = store(&mut smem, 0x2000, 64, depth, a_major, sa, |r, k| bf(a_at(r, k)));
                    let (db, step_b) = store(&mut smem, 0x8000, n_pad, depth, b_major, sb, |c, k| bf(b_at(c, k)));
                    let mut acc = vec![[0x7FFF_FFFF; THREADS]; n / 2];
                    for s in 0..depth / 16 {
                        let op = Wgmma { n, scale_d: s > 0, a_major, b_major, ..BF16 };
                        let a = WgmmaA::Desc(da + (step_a(s) >> 4) as u64);
                        wgmma(&op, a, db + (step_b(s) >> 4) as u64, &smem, &mut acc).unwrap();
                    }
                    for (i, reg) in acc.iter().enumerate() {
                        for (thread, word) in reg.iter().enumerate() {
                            let (row, column, _) = place(Acc::F32, i, 0, thread);
                            let want: i32 = (0..depth).map(|k| a_at(row, k) * b_at(column, k)).sum();
                            assert_eq!(
                                f32::from_bits(*word),
                                want as f32,
                                "n {n} {sa:?} {a_major:?} {sb:?} {b_major:?} row {row} column {column}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn accumulator_places_cover_the_tile_once() {
    for (acc, n) in [(Acc::F32, 256), (Acc::F16, 256), (Acc::F32, 8), (Acc::F16, 8)] {
        let (regs, halves) = if acc == Acc::F32 { (n / 2, 1) } else { (n / 4, 2) };
        let mut seen = vec![0; 64 * n];
        for i in 0..regs {
            for half in 0..halves {
                for thread in 0..THREADS {
                    let (row, column, _) = place(acc, i, half, thread);
                    seen[row * n + column] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&x| x == 1));
    }
    // The documented corners: d0 of thread 0 and of lane 5, d2 of warp 3.
    assert_eq!(place(Acc::F32, 0, 0, 0), (0, 0, 0));
    assert_eq!(place(Acc::F32, 1, 0, 5), (1, 3, 0));
    assert_eq!(place(Acc::F32, 6, 0, 96), (56, 8, 0));
    assert_eq!(place(Acc::F16, 1, 1, 5), (9, 3, 16));
}

#[test]
fn a_from_registers_equals_a_from_shared_memory() {
    let mut smem = vec![0u8; 0x10000];
    let (da, _) = store(&mut smem, 0, 64, 16, Major::K, SWIZZLES[3], |r, k| bf(a_at(r, k)));
    let (db, _) = store(&mut smem, 0x4000, 40, 64, Major::K, SWIZZLES[1], |c, k| bf(b_at(c, k)));
    let regs: Vec<WgReg> = (0..4)
        .map(|r| {
            std::array::from_fn(|thread| {
                let (w, g, t) = (thread / 32, thread % 32 / 4, thread % 4);
                let (row, k) = (16 * w + g + 8 * (r % 2), 2 * t + 8 * (r / 2));
                bf(a_at(row, k)) as u32 | (bf(a_at(row, k + 1)) as u32) << 16
            })
        })
        .collect();
    let start: Vec<WgReg> = (0..20).map(|i| std::array::from_fn(|t| ((i * 128 + t) as f32).to_bits())).collect();
    let (mut x, mut y) = (start.clone(), start.clone());
    let op = Wgmma { negate_a: true, ..BF16 };
    wgmma(&op, WgmmaA::Desc(da), db, &smem, &mut x).unwrap();
    wgmma(&op, WgmmaA::Regs(&regs), db, &smem, &mut y).unwrap();
    assert_eq!(x, y);
    let (row, column, _) = place(Acc::F32, 7, 0, 77);
    let dot: i32 = (0..16).map(|k| a_at(row, k) * b_at(column, k)).sum();
    assert_eq!(f32::from_bits(x[7][77]), f32::from_bits(start[7][77]) - dot as f32);
}

#[test]
fn fp8_operands_are_32_deep_and_keep_13_bits() {
    let f8 = |x: i32| fp8_from_f32(Fp8::E4m3, (x as f32).to_bits(), false);
    let mut smem = vec![0u8; 0x8000];
    let sw = Swizzle::B128;
    let mut put = |start: u32, rows: usize, v: &dyn Fn(usize, usize) -> u8| {
        for r in 0..rows {
            for k in 0..128 {
                smem[sw.apply(start + (r * 128 + k) as u32) as usize] = v(r, k);
            }
        }
        desc(start, 16, 1024, 1)
    };
    let da = put(0, 64, &|r, k| f8(a_at(r, k)));
    let db = put(0x4000, 16, &|n, k| f8(b_at(n, k)));
    let op = Wgmma { n: 16, a: Elem::E4m3, b: Elem::E4m3, ..BF16 };
    for step in 0..4 {
        let mut acc = vec![[0u32; THREADS]; 8];
        wgmma(&op, WgmmaA::Desc(da + 2 * step), db + 2 * step, &smem, &mut acc).unwrap();
        for (i, reg) in acc.iter().enumerate() {
            for (thread, word) in reg.iter().enumerate() {
                let (row, column, _) = place(Acc::F32, i, 0, thread);
                let dot: i32 = (0..32).map(|k| k + 32 * step as usize).map(|k| a_at(row, k) * b_at(column, k)).sum();
                assert_eq!(f32::from_bits(*word), dot as f32);
                assert_eq!(word & 0x3FF, 0);
            }
        }
    }
}

#[test]
fn wrong_descriptors_are_rejected_with_a_sentence() {
    let smem = vec![0u8; 0x4000];
    let good_a = desc(0, 16, 1024, 1);
    let good_b = desc(0x2000, 16, 1024, 1);
    let run = |a: u64, b: u64, op: &Wgmma| {
        let mut acc = vec![[0u32; THREADS]; op.n / 2];
        wgmma(op, WgmmaA::Desc(a), b, &smem, &mut acc)
    };
    run(good_a, good_b, &BF16).unwrap();
    for bit in [14, 15, 30, 31, 46, 47, 48, 49, 52, 60, 61] {
        let e = run(good_a | 1 << bit, good_b, &BF16).unwrap_err();
        assert!(e.contains("descriptor of A"), "{e}");
    }
    let message = |a, b, op: &Wgmma, part: &str| {
        let e = run(a, b, op).unwrap_err();
        assert!(e.contains(part), "{e}");
    };
    message(good_a + (128 >> 4), good_b, &BF16, "row group 1");
    message(good_a + (112 >> 4), good_b, &BF16, "leave the 128-byte row");
    message(desc(0, 16, 0, 1), good_b, &BF16, "stride offset of 0 bytes");
    message(desc(0, 16, 512, 1), good_b, &BF16, "stride offset of 512 bytes");
    message(desc(0, 0, 128, 0), good_b, &BF16, "leading offset of 0 bytes");
    message(good_a, desc(0x3000, 16, 1024, 1), &BF16, "outside");
    message(good_a, good_b, &Wgmma { n: 12, ..BF16 }, "N of 12");
    message(good_a, good_b, &Wgmma { b: Elem::F16, ..BF16 }, "no form");
    let fp8 = Wgmma { a: Elem::E4m3, b: Elem::E4m3, b_major: Major::Mn, ..BF16 };
    message(good_a, good_b, &fp8, "K-major");
}
