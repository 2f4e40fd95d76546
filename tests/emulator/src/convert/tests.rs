//! Conversions against an independent path: the list of all values of the target
//! format, built with f64 powers, and a search for the neighbours of the input.
//! f64 holds every value, every midpoint and every difference met here exactly.

use super::exact::*;
use super::*;

/// Codes and values of the finite non-negative numbers, ascending.
fn positives(exp_bits: i32, man_bits: i32, bias: i32, codes: u64) -> Vec<f64> {
    (0..codes)
        .map(|c| {
            let e = (c >> man_bits) as i32;
            let m = (c & ((1 << man_bits) - 1)) as f64 / 2f64.powi(man_bits);
            assert!(e < 1 << exp_bits);
            if e == 0 {
                m * 2f64.powi(1 - bias)
            } else {
                (1.0 + m) * 2f64.powi(e - bias)
            }
        })
        .collect()
}

struct Target {
    format: Format,
    values: Vec<f64>,
    infinity: Option<u64>,
}

fn target(format: Format, codes: u64, infinity: Option<u64>) -> Target {
    let values = positives(format.exp_bits as i32, format.man_bits as i32, format.bias, codes);
    Target { format, values, infinity }
}

fn targets() -> Vec<Target> {
    vec![
        target(E2M1, 8, None),
        target(E2M3, 32, None),
        target(E3M2, 32, None),
        target(E4M3, 0x7F, None),
        target(E5M2, 0x7C, Some(0x7C)),
        target(F16, 0x7C00, Some(0x7C00)),
        target(BF16, 0x7F80, Some(0x7F80)),
        target(TF32, 0x3FC00, Some(0x3FC00)),
    ]
}

/// Rounds by looking for the neighbours. `random` is r / 2^width for stochastic.
fn search(x: f64, t: &Target, round: Round, satfinite: bool) -> u64 {
    let neg = x.is_sign_negative();
    let sign = if neg { 1 << (t.format.exp_bits + t.format.man_bits) } else { 0 };
    let a = x.abs();
    let last = t.values.len() - 1;
    let top = t.values[last];
    let step = top - t.values[last - 1];
    let hi = t.values.partition_point(|&v| v < a);
    let code = if hi <= last && t.values[hi] == a {
        hi
    } else {
        // Past the maximum the next value would be one step further.
        let lo = hi - 1;
        let (vl, vh) = (t.values[lo], if hi > last { top + step } else { t.values[hi] });
        let up = match round {
            Round::Rz => false,
            Round::Rm => neg,
            Round::Rp => !neg,
            Round::Rn => a > (vl + vh) / 2.0 || (a == (vl + vh) / 2.0 && lo % 2 == 1),
            Round::Rna => a >= (vl + vh) / 2.0,
            Round::Rs { bits, width } => {
                let f = (2f64.powi(width as i32) * ((a - vl) / (vh - vl))).floor();
                f + bits as f64 >= 2f64.powi(width as i32)
            }
        };
        if up || a >= top + step {
            hi
        } else {
            lo
        }
    };
    if code <= last {
        return sign | code as u64;
    }
    let cut = match round {
        Round::Rz => true,
        Round::Rm => !neg,
        Round::Rp => neg,
        _ => false,
    };
    match t.infinity {
        Some(i) if !satfinite && !cut => sign | i,
        _ => sign | last as u64,
    }
}

fn f32_samples() -> Vec<u32> {
    let mut v = Vec::new();
    for hi in 0..=0xFFFFu32 {
        for lo in [0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF] {
            v.push(hi << 16 | lo);
        }
    }
    v
}

fn rounds() -> Vec<Round> {
    vec![
        Round::Rn,
        Round::Rz,
        Round::Rm,
        Round::Rp,
        Round::Rna,
        Round::Rs { bits: 0, width: 8 },
        Round::Rs { bits: 0x80, width: 8 },
        Round::Rs { bits: 0xFF, width: 8 },
        Round::Rs { bits: 0x3A5C, width: 16 },
    ]
}

#[test]
fn f32_to_every_format_with_every_rounding_equals_the_neighbour_search() {
    let samples = f32_samples();
    for t in targets() {
        for round in rounds() {
            for satfinite in [false, true] {
                if t.infinity.is_none() && !satfinite {
                    continue; // PTX demands .satfinite there
                }
                let cvt = Cvt { satfinite, ..Cvt::new(round) };
                for &s in &samples {
                    let x = f32::from_bits(s);
                    let got = encode(decode(s as u64, &F32), &t.format, &cvt);
                    if x.is_nan() {
                        let nan = if t.format.special == Special::None { t.format.max_finite() } else { t.format.nan };
                        assert_eq!(got, nan, "{s:08x}");
                        continue;
                    }
                    let want = if x.is_infinite() && !satfinite {
                        t.infinity.unwrap() | if s >> 31 == 1 { t.format.sign_bit() } else { 0 }
                    } else {
                        search(x as f64, &t, round, satfinite)
                    };
                    assert_eq!(got, want, "{s:08x} {x:e} to {:?} {round:?} satfinite {satfinite}", t.format);
                }
            }
        }
    }
}

#[test]
fn every_16_bit_input_to_every_narrow_format() {
    let ts = targets();
    for x in 0..=0xFFFFu32 {
        let pair = x << 16 | (x ^ 0x8000);
        for (value, from) in [(f64::from(f32::from_bits(x << 16)), &BF16), (half_value(x as u16), &F16)] {
            let code = |t: &Target| {
                if value.is_nan() {
                    return if t.format == E2M1 { 7 } else { 0x7F };
                }
                let v = if value.is_infinite() { f64::MAX.copysign(value) } else { value };
                search(v, t, Round::Rn, true)
            };
            let flip = |c: u64, t: &Target| {
                if value.is_nan() {
                    c
                } else {
                    c ^ t.format.sign_bit()
                }
            };
            let (f4, f8, b8) = (&ts[0], &ts[3], &ts[4]);
            let bf = *from == BF16;
            let got4 = if bf { e2m1x2_from_bf16x2(pair, false) } else { e2m1x2_from_f16x2(pair, false) };
            assert_eq!(got4 as u64, code(f4) << 4 | flip(code(f4), f4), "{x:04x}");
            for (kind, t) in [(Fp8::E4m3, f8), (Fp8::E5m2, b8)] {
                let got = if bf { fp8x2_from_bf16x2(kind, pair, false) } else { fp8x2_from_f16x2(kind, pair, false) };
                assert_eq!(got as u64, code(t) << 8 | flip(code(t), t), "{x:04x} {kind:?}");
            }
        }
    }
}

/// f16 by its definition, in f64.
fn half_value(x: u16) -> f64 {
    let (s, e, m) = (x >> 15, (x >> 10 & 31) as i32, (x & 1023) as f64);
    let a = match e {
        31 if m == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        0 => m * 2f64.powi(-24),
        _ => (1024.0 + m) * 2f64.powi(e - 25),
    };
    if s == 1 {
        -a
    } else {
        a
    }
}

#[test]
fn widening_is_exact_for_every_code() {
    for x in 0..=0xFFFFu16 {
        let v = half_value(x);
        let got = f16_to_f32(x);
        if v.is_nan() {
            assert_eq!(got, 0x7FFF_FFFF);
            assert_eq!(bf16_to_f32(0x7F81), 0x7FFF_FFFF);
        } else {
            assert_eq!(got, (v as f32).to_bits());
        }
        let b = f32::from_bits((x as u32) << 16);
        if !b.is_nan() {
            assert_eq!(bf16_to_f32(x), (x as u32) << 16);
        }
    }
    let e2m1 = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for c in 0..16u8 {
        let v = if c & 8 != 0 { -e2m1[c as usize & 7] } else { e2m1[c as usize] };
        assert_eq!(e2m1_to_f32(c), v.to_bits());
        let both = f16x2_from_e2m1x2(c << 4 | (c ^ 8), false);
        assert_eq!(half_value((both >> 16) as u16).to_bits(), (v as f64).to_bits());
        assert_eq!(half_value(both as u16).to_bits(), (-v as f64).to_bits());
        let relu = f16x2_from_e2m1x2(c << 4, true) >> 16;
        assert_eq!(half_value(relu as u16).to_bits(), if c & 8 != 0 { 0 } else { (v as f64).to_bits() });
    }
    for c in 0..=255u8 {
        for (kind, man, bias, nan_from) in [(Fp8::E4m3, 3, 7, 0x7F), (Fp8::E5m2, 2, 15, 0x7D)] {
            let wide = f16x2_from_fp8x2(kind, (c as u16) << 8, false) >> 16;
            let a = c & 0x7F;
            let (e, m) = ((a >> man) as i32, (a & ((1 << man) - 1)) as f64);
            let v = if e == 0 { m * 2f64.powi(1 - bias - man) } else { (m + 2f64.powi(man)) * 2f64.powi(e - bias - man) };
            let v = if c > 127 { -v } else { v };
            let f = if kind == Fp8::E4m3 { e4m3_to_f32(c) } else { e5m2_to_f32(c) };
            if a >= nan_from {
                assert_eq!((wide, f), (0x7FFF, 0x7FFF_FFFF), "{kind:?} {c:02x}");
            } else if kind == Fp8::E5m2 && a == 0x7C {
                assert_eq!((wide & 0x7FFF, f & 0x7FFF_FFFF), (0x7C00, 0x7F80_0000));
            } else {
                assert_eq!(half_value(wide as u16).to_bits(), v.to_bits(), "{kind:?} {c:02x}");
                assert_eq!(f, (v as f32).to_bits());
            }
        }
        let pair = bf16x2_from_ue8m0x2((c as u16) << 8 | 0x7F);
        assert_eq!(pair & 0xFFFF, 0x3F80);
        if c == 255 {
            assert_eq!((pair >> 16, ue8m0_to_f32(c)), (0x7FFF, 0x7FFF_FFFF));
        } else {
            let v = 2f64.powi(c as i32 - 127) as f32;
            assert_eq!((pair & 0xFFFF_0000, ue8m0_to_f32(c)), (v.to_bits(), v.to_bits()));
        }
    }
}

#[test]
fn e2m1_thresholds_and_specials() {
    let below = |x: f32| f32::from_bits(x.to_bits() - 1);
    let above = |x: f32| f32::from_bits(x.to_bits() + 1);
    for (edge, low_on_tie, lo) in
        [(0.25, true, 0), (0.75, false, 1), (1.25, true, 2), (1.75, false, 3), (2.5, true, 4), (3.5, false, 5), (5.0, true, 6)]
    {
        assert_eq!(e2m1_from_f32(below(edge).to_bits(), false), lo);
        assert_eq!(e2m1_from_f32(edge.to_bits(), false), lo + !low_on_tie as u8);
        assert_eq!(e2m1_from_f32(above(edge).to_bits(), false), lo + 1);
        assert_eq!(e2m1_from_f32((-edge).to_bits(), false), (lo + !low_on_tie as u8) | 8);
    }
    for (x, code) in [(-0.0f32, 8), (-0.1, 8), (f32::INFINITY, 7), (f32::NEG_INFINITY, 15), (1e30, 7), (-1e30, 15), (1e-44, 0)] {
        assert_eq!(e2m1_from_f32(x.to_bits(), false), code, "{x}");
        assert_eq!(e2m1_from_f32(x.to_bits(), true), if code & 8 != 0 { 0 } else { code });
    }
    for nan in [0x7FC0_0000u32, 0xFFC0_0000, 0x7F80_0001, 0xFFFF_FFFF] {
        assert_eq!((e2m1_from_f32(nan, false), e2m1_from_f32(nan, true)), (7, 7));
        assert_eq!((fp8_from_f32(Fp8::E4m3, nan, false), fp8_from_f32(Fp8::E5m2, nan, true)), (0x7F, 0x7F));
    }
    assert_eq!(e2m1x2_from_f32(6f32.to_bits(), 0.5f32.to_bits(), false), 0x71);
    assert_eq!(fp8x2_from_f32(Fp8::E4m3, 448f32.to_bits(), 1f32.to_bits(), false), 0x7E38);
    // Measured on an H200: ties and signs of the smallest E4M3 results.
    for (x, code) in [(2f32.powi(-10), 0), (1.5 * 2f32.powi(-10), 1), (-2f32.powi(-11), 0x80), (-0.0, 0x80), (1e9, 0x7E), (-1e9, 0xFE)] {
        assert_eq!(fp8_from_f32(Fp8::E4m3, x.to_bits(), false), code, "{x}");
    }
}

#[test]
fn stochastic_rounding_follows_its_random_bits() {
    // 2.25 lies a quarter of the way from 2 to 3: up iff r >= 192.
    for r in 0..256u32 {
        let x = 2.25f32.to_bits();
        let code = if r >= 192 { 5 } else { 4 };
        for (slot, byte) in [(12, 24), (8, 8), (4, 16), (0, 0)] {
            let d = e2m1x4_rs([x; 4], r << byte, false);
            for s in [0, 4, 8, 12] {
                let want = if s == slot { code } else { 4 };
                assert_eq!(d >> s & 15, want, "r {r} byte at {byte} slot {s}");
            }
        }
        // Exact codes never move, whatever the bits; saturation and NaN as in rn.
        let exact = [1.5f32.to_bits(), (-6f32).to_bits(), 1e9f32.to_bits(), f32::NAN.to_bits()];
        assert_eq!(e2m1x4_rs(exact, r * 0x0101_0101, false), 0x3F77);
        assert_eq!(e2m1x4_rs(exact, r * 0x0101_0101, true), 0x3077);
        // Between 4 and 6 the step is 2, between 0 and 0.5 it is 0.5.
        let d = e2m1x4_rs([5.5f32.to_bits(), 0.125f32.to_bits(), (-0.125f32).to_bits(), 0], r * 0x0101_0101, false);
        assert_eq!(d >> 12, if r >= 64 { 7 } else { 6 });
        assert_eq!(d >> 8 & 15, (r >= 192) as u16);
        assert_eq!(d >> 4 & 15, 8 + (r >= 192) as u16);
    }
    // 1 + 1/16 is half of an E4M3 step: up iff r >= 2^15, a and b from the upper half.
    let x = [(1.0f32 + 1.0 / 16.0).to_bits(); 4];
    assert_eq!(fp8x4_rs(Fp8::E4m3, x, 0x8000_7FFF, false), 0x3939_3838);
    assert_eq!(fp8x4_rs(Fp8::E4m3, x, 0x7FFF_8000, false), 0x3838_3939);
    // bf16: 16 discarded bits, so bits add up exactly.
    assert_eq!(bf16x2_rs(0x3F80_0001, 0x3F80_FFFF, 0xFFFF_0001, false, false), 0x3F81_3F81);
    assert_eq!(bf16x2_rs(0x3F80_0001, 0x3F80_FFFE, 0xFFFE_0001, false, false), 0x3F80_3F80);
    // f16: 13 discarded bits.
    assert_eq!(f16x2_rs(0x3F80_0001, 0x3F80_0002, 0x1FFF_1FFE, false, false), 0x3C01_3C01);
    assert_eq!(f16x2_rs(0x3F80_0001, 0x3F80_0002, 0x1FFE_1FFD, false, false), 0x3C00_3C00);
}

#[test]
fn ue8m0_rounds_to_powers_of_two() {
    let code = |v: f64, up: bool| -> u8 {
        let v = v.abs();
        let floor = (0..=254).rev().find(|&c| 2f64.powi(c - 127) <= v);
        let Some(f) = floor else { return 0 };
        (f + (up && 2f64.powi(f - 127) != v) as i32).min(254) as u8
    };
    for s in f32_samples() {
        let x = f32::from_bits(s);
        for (round, up) in [(Round::Rz, false), (Round::Rp, true)] {
            let want = if x.is_nan() {
                255
            } else if x.is_infinite() {
                254
            } else {
                code(x as f64, up)
            };
            assert_eq!(ue8m0_from_f32(s, round, true), want, "{s:08x} {round:?}");
        }
    }
    assert_eq!(ue8m0_from_f32(f32::INFINITY.to_bits(), Round::Rz, false), 255);
    assert_eq!(ue8m0_from_f32(f32::MAX.to_bits(), Round::Rp, false), 255);
    assert_eq!(ue8m0_from_f32(f32::MAX.to_bits(), Round::Rz, false), 254);
    assert_eq!(ue8m0x2_from_f32(2f32.to_bits(), 3f32.to_bits(), Round::Rp, true), 0x8081);
    assert_eq!(ue8m0x2_from_bf16x2(0x4000_4040, Round::Rz, true), 0x8080);
}

#[test]
fn f64_integers_and_integral_rounding_agree_with_the_host() {
    let mut seed = 1u64;
    for i in 0..200_000u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let wide = seed ^ seed >> 29;
        let d = f64::from_bits(wide);
        if !d.is_nan() {
            assert_eq!(f64_to_f32(wide, &Cvt::RN), (d as f32).to_bits(), "{d:e}");
        }
        let n = wide >> (i % 64);
        assert_eq!(int_to_float(false, n, &F32, Round::Rn), (n as f32).to_bits() as u64);
        assert_eq!(int_to_float(true, n, &F64, Round::Rn), if n == 0 { 0 } else { (-(n as f64)).to_bits() });
        let f = f32::from_bits((wide as u32 & 0x807F_FFFF) | ((100 + i as u32 % 60) << 23));
        let v = decode(f.to_bits() as u64, &F32);
        assert_eq!(f32_to_integral(f.to_bits(), Round::Rz, false, false), f.trunc().to_bits());
        assert_eq!(f32_to_integral(f.to_bits(), Round::Rn, false, false), f.round_ties_even().to_bits());
        assert_eq!(f32_to_integral(f.to_bits(), Round::Rm, false, false), f.floor().to_bits());
        assert_eq!(f32_to_integral(f.to_bits(), Round::Rp, false, false), f.ceil().to_bits());
        assert_eq!(float_to_int(v, 32, true, Round::Rz) as u32, f as i32 as u32);
        assert_eq!(float_to_int(v, 64, true, Round::Rm), f.floor() as i64 as u64);
        assert_eq!(float_to_int(v, 8, false, Round::Rn), f.round_ties_even() as u8 as u64);
        assert_eq!(float_to_int(v, 16, true, Round::Rp) as u16, f.ceil() as i16 as u16);
    }
    assert_eq!(float_to_int(Value::Nan, 32, true, Round::Rz), 0);
    assert_eq!(float_to_int(Value::Inf(true), 32, true, Round::Rz), 0x8000_0000);
}

#[test]
fn f32_modifiers() {
    let rn = Cvt::RN;
    let sub = 0x0000_0001u32;
    assert_eq!(f32_to_bf16(sub, &Cvt { round: Round::Rp, ..rn }), 1);
    assert_eq!(f32_to_bf16(sub, &Cvt { round: Round::Rp, ftz: true, ..rn }), 0);
    assert_eq!(f32_to_bf16(sub | 1 << 31, &Cvt { round: Round::Rm, ftz: true, ..rn }), 0x8000);
    let sat = Cvt { sat: true, ..rn };
    for (x, want) in [(-1.0f32, 0u16), (0.5, 0x3800), (1.5, 0x3C00), (f32::NAN, 0), (f32::INFINITY, 0x3C00), (f32::NEG_INFINITY, 0)] {
        assert_eq!(f32_to_f16(x.to_bits(), &sat), want, "{x}");
    }
    let relu = Cvt { relu: true, ..rn };
    assert_eq!(f32_to_bf16((-2f32).to_bits(), &relu), 0);
    assert_eq!(f32_to_bf16((-0f32).to_bits(), &relu), 0);
    assert_eq!(f32_to_bf16(f32::NAN.to_bits(), &relu), 0x7FFF);
    assert_eq!(f32_to_tf32(0x3F80_1000, &rn), 0x3F80_0000);
    assert_eq!(f32_to_tf32(0x3F80_1000, &Cvt::new(Round::Rna)), 0x3F80_2000);
    assert_eq!(f32_to_tf32(0xFFC0_0000, &rn), 0x7FFF_FFFF);
    assert_eq!(f32_to_f16(1e9f32.to_bits(), &Cvt { satfinite: true, ..rn }), 0x7BFF);
    assert_eq!(f32_to_f16(1e9f32.to_bits(), &rn), 0x7C00);
    assert_eq!(f64_to_f32(1e-40f64.to_bits(), &Cvt { ftz: true, ..rn }), 0);
}
