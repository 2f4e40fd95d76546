//! One-hot maps of every fragment, scale lanes, and plain matrix products.

use super::*;
use crate::convert::{bf16_to_f32, e2m1_to_f32, f32_to_bf16};

/// The published fragment tables, written out per register as the documentation does:
/// (row, first k) of A register r of `lane`.
fn a_place(bits: usize, r: usize, lane: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane & 3);
    match (bits, r) {
        (4, 0) => (g, 8 * t),
        (4, 1) => (g + 8, 8 * t),
        (4, 2) => (g, 32 + 8 * t),
        (4, 3) => (g + 8, 32 + 8 * t),
        (8, 0) => (g, 4 * t),
        (8, 1) => (g + 8, 4 * t),
        (8, 2) => (g, 16 + 4 * t),
        (8, 3) => (g + 8, 16 + 4 * t),
        (16, 0) => (g, 2 * t),
        (16, 1) => (g + 8, 2 * t),
        (16, 2) => (g, 8 + 2 * t),
        (16, 3) => (g + 8, 8 + 2 * t),
        (32, 0) => (g, t),
        (32, 1) => (g + 8, t),
        (32, 2) => (g, 4 + t),
        (32, 3) => (g + 8, 4 + t),
        _ => unreachable!(),
    }
}

fn pack(bits: usize, rows: usize, code: impl Fn(usize, usize) -> u32) -> Vec<Reg> {
    let per = 32 / bits;
    (0..if rows == 16 { 4 } else { 2 })
        .map(|r| {
            std::array::from_fn(|lane| {
                let (row, k) = a_place(bits, if rows == 16 { r } else { 2 * r }, lane);
                (0..per).fold(0, |w, i| w | code(row, k + i) << (bits * i))
            })
        })
        .collect()
}

fn c_value(d: &[Reg], row: usize, column: usize) -> f32 {
    f32::from_bits(d[2 * (row / 8) + column % 2][4 * (row % 8) + column / 2])
}

const ZERO: [Reg; 4] = [[0; LANES]; 4];

#[test]
fn one_hot_lights_one_element_in_every_kind() {
    for (elem, k) in [(Elem::Bf16, 16), (Elem::F16, 16), (Elem::E4m3, 32), (Elem::Tf32, 8)] {
        let bits = elem.container_bits();
        let one = match elem {
            Elem::Bf16 => 0x3F80,
            Elem::F16 => 0x3C00,
            Elem::E4m3 => 0x38,
            _ => 0x3F80_0000,
        };
        for sm in [80, 89, 90, 120] {
            let op = MmaSync { m: 16, k, a: elem, b: elem, acc: Acc::F32, f8f6f4: false, sm };
            for (row, column, hot) in [(0, 0, 0), (3, 5, k - 1), (11, 2, k / 2), (15, 7, 3), (8, 1, 5)] {
                for cold in [hot, (hot + 1) % k] {
                    let a = pack(bits, 16, |r, i| if (r, i) == (row, hot) { one } else { 0 });
                    let b = pack(bits, 8, |c, i| if (c, i) == (column, cold) { one } else { 0 });
                    let d = mma_sync(&op, &a, &b, &ZERO).unwrap();
                    for r in 0..16 {
                        for c in 0..8 {
                            let lit = r == row && c == column && hot == cold;
                            assert_eq!(c_value(&d, r, c), lit as u32 as f32, "{elem:?} sm {sm} {r} {c}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn block_scaled_warp_product_equals_the_step_by_step_sum() {
    let mut seed = 7u32;
    let mut next = move || {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        seed >> 16
    };
    let a: Vec<Vec<u32>> = (0..16).map(|_| (0..64).map(|_| next() & 15).collect()).collect();
    let b: Vec<Vec<u32>> = (0..8).map(|_| (0..64).map(|_| next() & 15).collect()).collect();
    let sa: Vec<u32> = (0..16).map(|_| 0x30303030 + (next() & 0x0F0F | (next() & 0x0F0F) << 16)).collect();
    let sb: Vec<u32> = (0..8).map(|_| 0x30303030 + (next() & 0x0F0F | (next() & 0x0F0F) << 16)).collect();
    let (sa4, sb4) = (sa, sb);
    let regs_a = pack(4, 16, |r, k| a[r][k]);
    let regs_b = pack(4, 8, |c, k| b[c][k]);
    for (vec, scale) in [(4, ScaleType::Ue4m3), (4, ScaleType::Ue8m0), (2, ScaleType::Ue8m0)] {
        // UE8M0 bytes near 127: products of 2^-158 would only show f32 subnormals.
        let lift = if scale == ScaleType::Ue8m0 { 0x4040_4040 } else { 0 };
        let sa: Vec<u32> = sa4.iter().map(|s| s + lift).collect();
        let sb: Vec<u32> = sb4.iter().map(|s| s + lift).collect();
        for byte in (0..4).step_by(vec) {
            for (ta, tb) in [(0, 0), (1, 3), (0, 2)] {
                // Lanes that must not be read hold NaN scales.
                let mut sfa = [0x7F7F_7F7F | 0x8080_8080; LANES];
                let mut sfb = sfa;
                for g in 0..8 {
                    sfa[4 * g + 2 * ta] = sa[g];
                    sfa[4 * g + 2 * ta + 1] = sa[g + 8];
                    sfb[4 * g + tb] = sb[g];
                }
                let sel = |thread: usize| Selector { byte: byte as u32, thread: thread as u32 };
                let op = BlockScale::Packed { vec, scale };
                let d = mma_sync_block_scale(&op, &regs_a, &regs_b, &ZERO, &sfa, sel(ta), &sfb, sel(tb)).unwrap();
                for r in 0..16 {
                    for c in 0..8 {
                        let (mut want, mut largest) = (0f64, 1f64);
                        for k in 0..64 {
                            let v = |code: u32| f32::from_bits(e2m1_to_f32(code as u8)) as f64;
                            let s = |w: u32| {
                                let x = (w >> (8 * (byte + k * vec / 64))) as u8;
                                f32::from_bits(match scale {
                                    ScaleType::Ue4m3 => crate::convert::e4m3_to_f32(x),
                                    ScaleType::Ue8m0 => crate::convert::ue8m0_to_f32(x),
                                }) as f64
                            };
                            let (x, y) = (s(sa[r]), s(sb[c]));
                            largest = largest.max(x * y);
                            want += v(a[r][k]) * v(b[c][k]) * x * y;
                        }
                        let got = c_value(&d, r, c) as f64;
                        // Five terms cut to 35 fractional bits, and one f32 truncation.
                        let bound = want.abs() * 2f64.powi(-23) + largest * 5.0 * 2f64.powi(-35);
                        assert!((got - want).abs() <= bound, "{r} {c} {got} {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn selectors_are_checked() {
    let op = BlockScale::Packed { vec: 4, scale: ScaleType::Ue4m3 };
    let run = |op: &BlockScale, a: Selector, b: Selector| mma_sync_block_scale(op, &ZERO, &ZERO[..2], &ZERO, &[0; 32], a, &[0; 32], b);
    let at = |byte, thread| Selector { byte, thread };
    assert!(run(&op, at(0, 0), at(0, 3)).is_ok());
    assert!(run(&op, at(1, 0), at(0, 0)).unwrap_err().contains("byte-id 1"));
    assert!(run(&op, at(0, 2), at(0, 0)).unwrap_err().contains("thread-id 2"));
    assert!(run(&op, at(0, 0), at(0, 4)).unwrap_err().contains("thread-id 4"));
    let two = BlockScale::Packed { vec: 2, scale: ScaleType::Ue8m0 };
    assert!(run(&two, at(2, 1), at(2, 0)).is_ok());
    assert!(run(&two, at(1, 0), at(0, 0)).is_err());
    let bad = BlockScale::Packed { vec: 2, scale: ScaleType::Ue4m3 };
    assert!(run(&bad, at(0, 0), at(0, 0)).unwrap_err().contains("ue4m3"));
}

#[test]
fn bf16_product_with_exact_sums_equals_f32() {
    // Small integers: every partial sum is exact, so all units and orders agree.
    let bf = |x: i32| f32_to_bf16((x as f32).to_bits(), &crate::convert::Cvt::RN) as u32;
    let a = |r: usize, k: usize| (r as i32 * 7 + k as i32 * 3) % 23 - 11;
    let b = |c: usize, k: usize| (c as i32 * 5 + k as i32 * 11) % 19 - 9;
    let (ra, rb) = (pack(16, 16, |r, k| bf(a(r, k))), pack(16, 8, |c, k| bf(b(c, k))));
    let c0: Vec<Reg> = (0..4).map(|r| std::array::from_fn(|l| ((r * 32 + l) as f32).to_bits())).collect();
    assert_eq!(f32::from_bits(bf16_to_f32(bf(-11) as u16)), -11.0);
    for sm in [80, 90, 100, 120] {
        let op = MmaSync { m: 16, k: 16, a: Elem::Bf16, b: Elem::Bf16, acc: Acc::F32, f8f6f4: false, sm };
        let d = mma_sync(&op, &ra, &rb, &c0).unwrap();
        for r in 0..16 {
            for c in 0..8 {
                let dot: i32 = (0..16).map(|k| a(r, k) * b(c, k)).sum();
                assert_eq!(c_value(&d, r, c), dot as f32 + c_value(&c0, r, c), "sm {sm} {r} {c}");
            }
        }
    }
}

#[test]
fn fp8_on_hopper_adds_the_accumulator_last() {
    // 2^24 + 1 - 1: as one fused sum the 1s cancel; through f16 they cancel before C too;
    // but C + 1 alone rounds to even while a fused unit truncates.
    let a = pack(8, 16, |r, k| if r == 0 && k == 0 { 0x38 } else { 0 });
    let b = pack(8, 8, |c, k| if c == 0 && k == 0 { 0x3C } else { 0 }); // 1.5
    let mut c = ZERO.to_vec();
    c[0][0] = (16777216f32).to_bits();
    let op = |sm| MmaSync { m: 16, k: 32, a: Elem::E4m3, b: Elem::E4m3, acc: Acc::F32, f8f6f4: false, sm };
    let d = |sm| c_value(&mma_sync(&op(sm), &a, &b, &c).unwrap(), 0, 0);
    assert_eq!(d(90), 16777218.0);
    assert_eq!(d(120), 16777216.0);
    // f16 accumulators: rounded once in the unit, once in the addition.
    let f16 = MmaSync { acc: Acc::F16, ..op(90) };
    let mut c = vec![[0u32; 32]; 2];
    c[0][0] = 0x6800; // 2048
    let d = mma_sync(&f16, &a, &b, &c).unwrap();
    assert_eq!(d[0][0], 0x6801); // 2049.5 to 2050
}

#[test]
fn integers_wrap_or_saturate() {
    let a: Vec<Reg> = vec![[0x7F7F_7F7F; 32]; 4];
    let b: Vec<Reg> = vec![[0xFFFF_FFFF; 32]; 2];
    let c = vec![[0x7FFF_FFF0u32; 32]; 4];
    let d = mma_sync_int(16, 32, true, true, false, &a, &b, &ZERO).unwrap();
    assert_eq!(d[3][31] as i32, -127 * 32);
    let d = mma_sync_int(16, 32, true, false, false, &a, &b, &ZERO).unwrap();
    assert_eq!(d[0][0], 127 * 255 * 32);
    let d = mma_sync_int(16, 32, true, false, true, &a, &b, &c).unwrap();
    assert_eq!(d[0][0], 0x7FFF_FFFF);
    let d = mma_sync_int(8, 16, true, false, false, &a[..1], &b[..1], &c[..2]).unwrap();
    assert_eq!(d[1][9], 0x7FFF_FFF0u32.wrapping_add(127 * 255 * 16));
    assert!(mma_sync_int(16, 8, true, true, false, &a, &b, &c).is_err());
}
