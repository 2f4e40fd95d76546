//! Faults that other libraries had, with scales, special values and rounding (kinds A to E: zero and degenerate scales,
//! tiny values, saturation, NaN and Inf, exactness), through every entry point. Names keep the kind and number of the
//! project's list.

mod common;

use common::*;
use nvfp4::numerics::*;

fn div6() -> Options {
    Options {
        chain: Chain::Div6,
        ..Options::default()
    }
}

fn mx(scale_rule: ScaleRule) -> Options {
    Options {
        format: Format::Mxfp4,
        scale_rule,
        ..Options::default()
    }
}

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// Every variant of NVFP4 that is shipped, without a transform.
fn variants() -> Vec<Options> {
    let plain = Options::default();
    vec![
        plain,
        div6(),
        Options {
            block: Block::TwoD,
            ..plain
        },
        Options {
            rounding: Rounding::Stochastic,
            ..plain
        },
        Options {
            select: Select::FourOverSixMae,
            ..plain
        },
        Options {
            select: Select::FourOverSixMse,
            block: Block::TwoD,
            ..plain
        },
        Options {
            domain_rows: 16,
            ..plain
        },
    ]
}

/// A zero block beside a tiny one: no byte is NaN.
#[test]
fn a1_zero_block_beside_a_tiny_one() {
    let values: Vec<f32> = (0..32).map(|i| if i < 16 { 0.0 } else { 0.006 }).collect();
    for o in [Options::default(), div6()] {
        for way in every_way(&o, &Dense::from(1, 32, &values), None) {
            assert_eq!(way.scales(0), [0x00, 0x7E], "{}", way.name);
            assert!(way.codes(0)[..16].iter().all(|c| *c == 0), "{}", way.name);
            assert!(
                way.row(0)[..16].iter().all(|v| v.to_bits() == 0),
                "{}",
                way.name
            );
            way.row(0)[16..]
                .iter()
                .for_each(|v| near(*v, 0.006, 1, &way.name));
        }
    }
}

/// A tensor of zeros is zeros, everywhere, and products with it are 0.
#[test]
fn a2_zero_tensors() {
    for (rows, cols) in [(1, 16), (33, 48), (64, 1024)] {
        for dtype in DTYPES {
            let x = Dense::filled(dtype, rows, cols, || 0.0);
            for mut o in variants() {
                for hadamard in [0, 16] {
                    o.hadamard = hadamard;
                    for way in every_way(&o, &x, None) {
                        assert!(way.q.amax.iter().all(|a| *a == 0.0), "{} {o:?}", way.name);
                        assert!(way.q.scales.iter().all(|s| *s == 0), "{} {o:?}", way.name);
                        assert!(way.q.codes.iter().all(|c| *c == 0), "{} {o:?}", way.name);
                        assert!(
                            way.values.iter().all(|v| v.to_bits() == 0),
                            "{} {o:?}",
                            way.name
                        );
                    }
                }
            }
        }
    }
}

/// One zero row among others: exactly zero, and the others as without it.
#[test]
fn a3_a_zero_row_among_others() {
    let mut random = Random::new(1);
    let mut x = Dense::filled(Dtype::Bf16, 4, 64, || random.normal());
    (0..64).for_each(|c| x.set(2, c, 0.0));
    let amax = x.values().iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut without = Dense::filled(Dtype::Bf16, 3, 64, || 0.0);
    for (to, from) in [0, 1, 3].into_iter().enumerate() {
        (0..64).for_each(|c| without.set(to, c, x.get(from, c)));
    }
    for o in variants() {
        let given = vec![amax; matrix::amax_count(&o, 4)];
        let ways = every_way(&o, &x, Some(&given));
        let others = every_way(&o, &without, Some(&given));
        for (way, other) in ways.iter().zip(&others) {
            assert!(
                way.row(2).iter().all(|v| v.to_bits() == 0),
                "{} {o:?}",
                way.name
            );
            let drawn_apart = o.rounding == Rounding::Stochastic;
            if o.block == Block::OneD && !drawn_apart {
                for (to, from) in [0, 1, 3].into_iter().enumerate() {
                    assert_eq!(way.codes(from), other.codes(to), "{} {o:?}", way.name);
                    assert_eq!(way.scales(from), other.scales(to), "{} {o:?}", way.name);
                }
            }
        }
    }
}

/// MXFP4's zero block: E8M0 has no zero, and NaN it is not.
#[test]
fn a7_a_zero_block_of_mxfp4() {
    let values: Vec<f32> = (0..64).map(|i| if i < 32 { 0.0 } else { 3.0 }).collect();
    for (rule, byte, code) in [(ScaleRule::Floor, 126, 7), (ScaleRule::Ceil, 126, 7)] {
        for way in every_way(&mx(rule), &Dense::from(1, 64, &values), None) {
            assert_eq!(way.scales(0), [0, byte], "{}", way.name);
            assert!(
                way.codes(0)[..32].iter().all(|c| *c == 0)
                    && way.codes(0)[32..].iter().all(|c| *c == code)
            );
            assert_eq!(way.values, values, "{}", way.name);
        }
    }
}

/// Inputs near the smallest: finite, and no larger than they were.
#[test]
fn b1_subnormal_scales_of_mxfp4() {
    let smallest = 2f32.powi(-126);
    let floor = mx(ScaleRule::Floor);
    for way in every_way(&floor, &Dense::filled(Dtype::F32, 1, 32, || smallest), None) {
        assert_eq!(way.scales(0), [0], "{}", way.name);
        assert!(way.codes(0).iter().all(|c| *c == 4), "{}", way.name);
        assert!(way.values.iter().all(|v| *v == smallest), "{}", way.name);
    }
    let mut first = true;
    let mixed = Dense::filled(Dtype::F32, 1, 32, || {
        if std::mem::take(&mut first) {
            1.0
        } else {
            1e-38
        }
    });
    let tiny = Dense::filled(Dtype::Bf16, 1, 32, || 9.2e-40);
    for x in [mixed, tiny] {
        assert!(x.get(0, 31) != 0.0);
        for way in every_way(&floor, &x, None) {
            for (v, x) in way.values.iter().zip(x.values()) {
                assert!(
                    v.is_finite() && (v - x).abs() <= x.abs(),
                    "{}: {v:e} for {x:e}",
                    way.name
                );
            }
        }
    }
}

/// Scale bytes decode by the table, subnormal ones too; the ends of E8M0 are 2^-127 and NaN.
#[test]
fn b2_b3_scale_bytes_by_their_table() {
    let ctx = nvfp4::Context::cpu(1);
    let decode = |o: &Options, byte: u8, codes: &[u8], amax: &[f32]| {
        let q = nvfp4::QuantizedTensor::from_parts(o, 1, 2 * codes.len(), codes, &[byte], amax)
            .unwrap();
        nvfp4::dequantize(&ctx, &q, Dtype::F32).unwrap().to_f32()
    };
    for byte in 0..=0xFFu8 {
        let exponent = (byte >> 3 & 15) as i32;
        let mantissa = (byte & 7) as f64;
        let want = match byte & 0x7F {
            0x7F => f64::NAN,
            _ if exponent == 0 => mantissa * 2f64.powi(-9),
            _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
        };
        // Code 2 is 1.0, and an amax of 2688 makes the outer factor 1.
        let have = decode(&Options::default(), byte, &[0x22; 8], &[2688.0])[0] as f64;
        assert!(
            have == want || (have.is_nan() && want.is_nan()),
            "E4M3 byte {byte:#04x}: {have}, want {want}"
        );
        let want = if byte == 255 {
            f64::NAN
        } else {
            2f64.powi(byte as i32 - 127)
        };
        let have = decode(&mx(ScaleRule::Floor), byte, &[0x22; 16], &[])[0] as f64;
        assert!(
            have == want || (have.is_nan() && want.is_nan()),
            "E8M0 byte {byte}: {have:e}, want {want:e}"
        );
    }
    let large = Dense::filled(Dtype::F32, 1, 32, || 3.0 * 2f32.powi(125));
    for way in every_way(&mx(ScaleRule::Floor), &large, None) {
        assert_eq!(way.values, large.values(), "{}", way.name);
    }
}

/// The outer scale is an f32 and is clamped as one.
#[test]
fn b4_tiny_tensors() {
    for (value, byte, decoded, ulps) in [
        (1e-36, 0x66, 9.874e-37, 4000),
        (8e-36, 0x7E, 8e-36, 2),
        (0.01, 0x7E, 0.01, 1),
    ] {
        let x = Dense::filled(Dtype::F32, 1, 16, || value);
        for way in every_way(&div6(), &x, None) {
            assert_eq!(way.scales(0), [byte], "{} {value:e}", way.name);
            assert!(
                way.codes(0).iter().all(|c| *c == 7),
                "{} {value:e}",
                way.name
            );
            way.values
                .iter()
                .for_each(|v| near(*v, decoded, ulps, &way.name));
        }
    }
}

/// A given amax below the data saturates, and is counted.
#[test]
fn c1_a_static_amax_too_small() {
    let mut values = [1.0; 16];
    values[0] = 10.0;
    for o in [Options::default(), div6()] {
        for way in every_way(&o, &Dense::from(1, 16, &values), Some(&[1.0])) {
            assert_eq!(way.scales(0), [0x7E], "{}", way.name);
            assert!(way.codes(0).iter().all(|c| *c == 7), "{}", way.name);
            way.values.iter().for_each(|v| near(*v, 1.0, 1, &way.name));
        }
    }
    let ctx = Ctx::new(1);
    let mut stats = nvfp4::abi::nvfp4_stats::default();
    let mut desc = zero::<nvfp4::abi::nvfp4_quantize_desc>();
    desc.rowwise_amax = &1.0;
    desc.stats = &mut stats;
    let mut copy = Packed::room(&Options::default(), 1, 16, 0, 0);
    quantize(
        &ctx,
        &desc,
        &Dense::from(1, 16, &values),
        Some(&mut copy),
        None,
    );
    assert_eq!(
        (stats.saturated, stats.nonfinite, stats.underflowed),
        (1, 0, 0)
    );
}

/// One level of scales ends at 2688: it saturates with the sign kept.
#[test]
fn c2_single_level_saturates() {
    let mut values = [0.0; 16];
    values[..3].copy_from_slice(&[3000.0, -2900.0, 100.0]);
    let x = Dense::from(1, 16, &values);
    let single = Options {
        chain: Chain::Single,
        ..Options::default()
    };
    for way in every_way(&single, &x, None) {
        assert_eq!(way.scales(0), [0x7E], "{}", way.name);
        assert_eq!(way.row(0)[..3], [2688.0, -2688.0, 0.0], "{}", way.name);
    }
    for way in every_way(&Options::default(), &x, None) {
        near(way.row(0)[0], 3000.0, 1, &way.name);
    }
}

/// A value that is not finite marks its block, wherever in it, and no other.
#[test]
fn d1_nan_and_inf_stay_visible() {
    for dtype in DTYPES {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 1, 15, 31] {
                let mut x = Dense::filled(dtype, 1, 64, || 1.0);
                x.set(0, at, bad);
                for way in every_way(&mx(ScaleRule::Floor), &x, None) {
                    assert_eq!(way.scales(0), [0xFF, 125], "{}", way.name);
                    assert!(way.row(0)[..32].iter().all(|v| v.is_nan()), "{}", way.name);
                    assert!(way.row(0)[32..].iter().all(|v| *v == 1.0), "{}", way.name);
                }
                for way in every_way(&Options::default(), &x, None) {
                    let mut want = [0x7E; 4];
                    want[at / 16] = 0x7F;
                    assert_eq!(way.scales(0), want, "{}", way.name);
                    assert_eq!(
                        way.q.amax,
                        [1.0],
                        "{}: the amax of the finite elements",
                        way.name
                    );
                    for (i, v) in way.row(0).iter().enumerate() {
                        assert_eq!(v.is_nan(), i / 16 == at / 16, "{}: element {i}", way.name);
                    }
                }
            }
        }
    }
}

/// The midpoints of the grid go to the even code, their neighbours do not.
#[test]
fn e1_midpoints() {
    let ties = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let codes = [0, 2, 2, 4, 4, 6, 6];
    for (move_by, shift) in [
        (0, [0i8; 7]),
        (1, [1, 0, 1, 0, 1, 0, 1]),
        (-1, [0, -1, 0, -1, 0, -1, 0]),
    ] {
        let mut values = [6.0f32; 16];
        for (i, tie) in ties.iter().enumerate() {
            let v = f32::from_bits((tie.to_bits() as i32 + move_by) as u32);
            (values[1 + i], values[8 + i]) = (v, -v);
        }
        let mut want = [7u8; 16];
        for i in 0..7 {
            let code = (codes[i] as i8 + shift[i]) as u8;
            (want[1 + i], want[8 + i]) = (code, code | 8);
        }
        for way in every_way(
            &Options::default(),
            &Dense::from(1, 16, &values),
            Some(&[2688.0]),
        ) {
            assert_eq!(way.scales(0), [0x38], "{}", way.name);
            assert_eq!(way.codes(0), want, "{} moved by {move_by} ulp", way.name);
        }
    }
}

/// Every code survives decode and encode, in both nibbles.
#[test]
fn e2_codes_round_trip() {
    let grid = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for shift in 0..2usize {
        let codes: Vec<u8> = (0..16).map(|i| ((i + shift) % 16) as u8).collect();
        let value = |c: u8| {
            if c & 8 != 0 {
                -grid[c as usize & 7]
            } else {
                grid[c as usize]
            }
        };
        let values: Vec<f32> = codes.iter().map(|c| value(*c)).collect();
        for way in every_way(
            &Options::default(),
            &Dense::from(1, 16, &values),
            Some(&[2688.0]),
        ) {
            assert_eq!(way.codes(0), codes, "{}", way.name);
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&way.values),
                bits(&values),
                "{}: signs of zero too",
                way.name
            );
        }
    }
}

/// Elements are encoded with the scale that the decoder will see.
#[test]
fn e3_the_rounded_scale_encodes() {
    for way in every_way(
        &mx(ScaleRule::Ceil),
        &Dense::filled(Dtype::F32, 1, 32, || 4.0),
        None,
    ) {
        assert_eq!(way.scales(0), [127], "{}", way.name);
        assert!(way.codes(0).iter().all(|c| *c == 6), "{}", way.name);
    }
    let mut values = [0.0; 16];
    (values[0], values[1]) = (6.3, 2.6);
    for way in every_way(
        &Options::default(),
        &Dense::from(1, 16, &values),
        Some(&[2688.0]),
    ) {
        assert_eq!(way.scales(0), [0x38], "{}", way.name);
        assert_eq!(way.codes(0)[..2], [7, 5], "{}", way.name);
        assert_eq!(way.row(0)[..2], [6.0, 3.0], "{}", way.name);
    }
}

/// The scale comes from the f32 value, and each rule is what its name says.
#[test]
fn e4_e5_rules_of_mxfp4() {
    let maxima = [
        7.9999995f32,
        3.9999998,
        4.0,
        5.0,
        6.0,
        6.0000005,
        6.5,
        7.9,
        8.0,
    ];
    for (rule, bytes) in [
        (
            ScaleRule::Floor,
            [127, 126, 127, 127, 127, 127, 127, 127, 128],
        ),
        (
            ScaleRule::Ceil,
            [128, 127, 127, 127, 127, 128, 128, 128, 128],
        ),
    ] {
        let mut values = vec![0.0; 32 * maxima.len()];
        maxima
            .iter()
            .enumerate()
            .for_each(|(i, m)| values[32 * i] = *m);
        for way in every_way(&mx(rule), &Dense::from(1, values.len(), &values), None) {
            assert_eq!(way.scales(0), bytes, "{} {rule:?}", way.name);
            for (i, m) in maxima.iter().enumerate() {
                let (v, largest) = (way.row(0)[32 * i], 6.0 * 2f32.powi(bytes[i] as i32 - 127));
                assert!(
                    rule == ScaleRule::Floor || *m <= largest,
                    "CEIL never clips"
                );
                assert!(v <= largest, "{}: {m} became {v}", way.name);
            }
        }
    }
}

/// Rounding, not truncation.
#[test]
fn e8_rounds_to_nearest() {
    let mut values = [6.0f32; 16];
    values[..6].copy_from_slice(&[0.49, 0.74, 1.74, 2.6, 3.6, 5.1]);
    for way in every_way(
        &Options::default(),
        &Dense::from(1, 16, &values),
        Some(&[2688.0]),
    ) {
        assert_eq!(
            way.row(0)[..6],
            [0.5, 0.5, 1.5, 3.0, 4.0, 6.0],
            "{}",
            way.name
        );
    }
}
