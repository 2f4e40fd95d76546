//! Faults that other libraries had, with threads, random bits, transforms and products (kinds L to O), through the C
//! ABI and the safe Rust API.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

const SR: Options = Options {
    format: Format::Nvfp4,
    block: Block::OneD,
    chain: Chain::Te,
    scale_rule: ScaleRule::Floor,
    rounding: Rounding::Stochastic,
    scale_layout: ScaleLayout::Linear,
    select: Select::Single,
    hadamard: 0,
    signs: Signs::Default,
    keep_f32: false,
    range_16_17: false,
    half_scale: false,
    domain_rows: 0,
    c: 0.0,
};

#[track_caller]
fn product(
    ctx: &Ctx,
    a: &mut Packed,
    b: &mut Packed,
    desc: *const nvfp4_gemm_desc,
    dtype: Dtype,
) -> Dense {
    let d = Dense::filled(dtype, a.q.rows as usize, b.q.rows as usize, || f32::NAN);
    let view = d.c();
    // SAFETY: valid operands and room for D.
    ok(unsafe { nvfp4_gemm(ctx.0, desc, a.c(), b.c(), null(), &view, null_mut()) });
    d
}

/// Two threads, one shape, other data, one context: always the serial bytes.
#[test]
fn l1_concurrent_calls_share_nothing() {
    let work: Vec<Dense> = (0..2)
        .map(|i| {
            let mut random = Random::new(50 + i);
            Dense::filled(Dtype::Bf16, 128, 512, || random.normal())
        })
        .collect();
    let run = |ctx: &Ctx, x: &Dense| {
        let mut a = quantize_one(ctx, &SR, x, false, None);
        let mut b = a.clone();
        let d = product(ctx, &mut a, &mut b, null(), Dtype::F32);
        (a.codes, a.scales, d.bits())
    };
    let serial: Vec<_> = work.iter().map(|x| run(&Ctx::new(1), x)).collect();
    let ctx = Ctx::new(2);
    std::thread::scope(|s| {
        for (x, want) in work.iter().zip(&serial) {
            let (ctx, run) = (&ctx, &run);
            s.spawn(move || (0..250).for_each(|i| assert!(run(ctx, x) == *want, "iteration {i}")));
        }
    });
}

/// 2.25 becomes 2 or 3, 6 stays, nothing becomes 0.
#[test]
fn m1_stochastic_rounding_rounds() {
    let mut values = [2.25f32; 160];
    values.iter_mut().step_by(16).for_each(|v| *v = 6.0);
    for way in every_way(&SR, &Dense::from(10, 16, &values), Some(&[2688.0])) {
        let mut counts = [0; 16];
        for r in 0..10 {
            assert_eq!(way.codes(r)[0], 7, "{}", way.name);
            way.codes(r)[1..]
                .iter()
                .for_each(|c| counts[*c as usize] += 1);
        }
        assert_eq!(counts[4] + counts[5], 150, "{}: {counts:?}", way.name);
        assert!(counts[4] > 80 && counts[5] > 10, "{}: {counts:?}", way.name);
    }
}

/// Codes of n copies of a value at scale 1, first element of each block 6.
fn drawn(value: f32, n: usize, seed: u64, offset: u64, columnwise: bool) -> Vec<u8> {
    let cols = 1024;
    let rows = n / cols;
    let mut x = Dense::filled(Dtype::F32, rows, cols, || value);
    for r in 0..rows {
        (0..cols).step_by(16).for_each(|c| x.set(r, c, 6.0));
    }
    let source = if columnwise { x.transposed() } else { x };
    let call = quantize::Call {
        options: SR,
        columnwise,
        seed,
        offset,
        amax: Some(&[2688.0]),
        ..Default::default()
    };
    let copy = quantize_call(&Ctx::new(2), &call, &source).owned(&SR);
    assert!(copy.scales.iter().all(|s| *s == 0x38));
    let codes = (0..rows * cols).map(|i| copy.code(i / cols, i % cols));
    codes
        .enumerate()
        .filter(|(i, _)| i % 16 != 0)
        .map(|(_, c)| c)
        .collect()
}

/// The mean is the value, but for the stated 2^-8 of a step; values on the grid never move.
#[test]
fn m2_stochastic_rounding_is_unbiased() {
    for (value, step) in [(2.25f32, 1.0), (0.1, 0.5), (1.3, 0.5), (5.9, 2.0)] {
        for sign in [1.0, -1.0] {
            for columnwise in [false, true] {
                let codes = drawn(sign * value, 1 << 18, 99, 1, columnwise);
                let n = codes.len() as f64;
                let values = codes.iter().map(|c| e2m1::decode(*c) as f64);
                let mean = values.clone().sum::<f64>() / n;
                let variance = values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
                let error = (mean - (sign * value) as f64).abs();
                let allowed = 5.0 * (variance / n).sqrt() + step / 256.0;
                assert!(
                    variance > 0.0 && error <= allowed,
                    "{value} {sign}: mean {mean}, off by {error} of {allowed}"
                );
            }
        }
    }
    for code in 0..16u8 {
        let moved = drawn(e2m1::decode(code), 1 << 14, 5, 6, false)
            .into_iter()
            .filter(|c| *c != code)
            .count();
        assert_eq!(moved, 0, "code {code} moved");
    }
}

/// The same key draws the same bits; another offset, seed or side draws others, and neighbours are independent.
#[test]
fn m3_bits_follow_their_key() {
    let first = drawn(2.25, 1 << 18, 3, 4, false);
    assert_eq!(first, drawn(2.25, 1 << 18, 3, 4, false));
    let up = |codes: &[u8]| {
        codes
            .iter()
            .map(|c| (*c == 5) as u8 as f64 - 0.25)
            .collect::<Vec<_>>()
    };
    let correlation = |a: &[f64], b: &[f64]| {
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64 / 0.1875
    };
    let base = up(&first);
    for (what, other) in [
        ("offset", drawn(2.25, 1 << 18, 3, 5, false)),
        ("seed", drawn(2.25, 1 << 18, 4, 4, false)),
        ("copy", drawn(2.25, 1 << 18, 3, 4, true)),
    ] {
        let differ =
            first.iter().zip(&other).filter(|(a, b)| a != b).count() as f64 / first.len() as f64;
        assert!(
            (differ - 0.375).abs() < 0.006,
            "{what}: {differ} of the codes differ"
        );
        let r = correlation(&base, &up(&other));
        assert!(r.abs() < 0.012, "{what}: correlation {r}");
    }
    // 15 codes a block, 960 a row.
    for (what, shift) in [("element", 1), ("block", 15), ("row", 960)] {
        let r = correlation(&base[..base.len() - shift], &base[shift..]);
        assert!(r.abs() < 0.012, "neighbouring {what}: correlation {r}");
    }
}

/// Both operands of a contraction must have gone through the same signs; then the transform cancels.
#[test]
fn n1_signs_must_agree() {
    let ctx = Ctx::new(1);
    let rht = |signs| Options {
        hadamard: 16,
        signs,
        ..Options::default()
    };
    let (s, t) = (rht(Signs::Mask16(0x00F0)), rht(Signs::Mask16(0x00F1)));
    let mut values = (0..16).map(|i| if i == 0 { 1.0 } else { 0.0 });
    let e0 = Dense::filled(Dtype::F32, 16, 1, || values.next().unwrap());
    for (oa, ob) in [(s, s), (s, t), (t, s)] {
        let mut dy = quantize_one(&ctx, &oa, &e0, true, None);
        let mut x = quantize_one(&ctx, &ob, &e0, true, None);
        let d = Dense::filled(Dtype::F32, 1, 1, || 7.0);
        let view = d.c();
        // SAFETY: valid operands and room.
        let status = unsafe { nvfp4_gemm(ctx.0, null(), dy.c(), x.c(), null(), &view, null_mut()) };
        if oa == ob {
            ok(status);
            near(d.get(0, 0), 1.0, 4, "e0^T e0");
        } else {
            fails(status, NVFP4_ERR_MISMATCH, &["000000f0", "000000f1"]);
            assert_eq!(d.get(0, 0), 7.0);
        }
    }
}

/// amax is of the values that are quantized: after the transform and its rounding to bf16.
#[test]
fn n2_amax_of_what_is_quantized() {
    let mut values = [0.0f32; 16];
    (values[0], values[1]) = (1.0, 2f32.powi(-9));
    let x = Dense::from(1, 16, &values);
    let plain = Options {
        hadamard: 16,
        signs: Signs::Mask16(0),
        ..Options::default()
    };
    for (o, amax) in [
        (plain, 0.25),
        (
            Options {
                keep_f32: true,
                ..plain
            },
            0.250_488_28,
        ),
    ] {
        for way in every_way(&o, &x, None) {
            assert_eq!(way.q.amax, [amax], "{}", way.name);
        }
        let ctx = Ctx::new(1);
        let mut desc: nvfp4_quantize_desc = zero();
        desc.rowwise = c_options(&o);
        let mut have = 0f32;
        let view = x.c();
        // SAFETY: valid pointers.
        ok(unsafe { nvfp4_amax(ctx.0, &desc, &view, &mut have, null_mut(), null_mut()) });
        assert_eq!(have, amax);
    }
}

/// Square tiles: rowwise, columnwise, both, and of the transpose, are one set of codes and scales.
#[test]
fn n3_tiles_transpose() {
    let ctx = Ctx::new(2);
    let o = Options {
        block: Block::TwoD,
        ..Options::default()
    };
    let mut w = Dense::filled(Dtype::F32, 48, 32, || 0.0);
    for i in 0..48 {
        for j in 0..32 {
            w.set(i, j, ((37 * i + 11 * j) % 29) as f32 / 8.0 - 14.0 / 8.0);
        }
    }
    let rowwise = quantize_one(&ctx, &o, &w, false, None).owned(&o);
    let columnwise = quantize_one(&ctx, &o, &w, true, None).owned(&o);
    let of_transpose = quantize_one(&ctx, &o, &w.transposed(), false, None).owned(&o);
    let mut desc: nvfp4_quantize_desc = zero();
    (desc.rowwise, desc.columnwise) = (c_options(&o), c_options(&o));
    let (mut r, mut c) = (
        Packed::room(&o, 48, 32, 0xFF, 0),
        Packed::room(&o, 32, 48, 0xFF, 0),
    );
    quantize(&ctx, &desc, &w, Some(&mut r), Some(&mut c));
    assert_eq!(r.owned(&o), rowwise);
    assert_eq!(c.owned(&o), columnwise);
    assert_eq!(of_transpose.codes, columnwise.codes);
    assert_eq!(of_transpose.scales, columnwise.scales);
    let mut tiles = std::collections::BTreeSet::new();
    for i in 0..48 {
        for j in 0..32 {
            assert_eq!(rowwise.code(i, j), columnwise.code(j, i), "[{i}][{j}]");
            let byte = rowwise.scale_byte(i, j / 16);
            assert_eq!(byte, columnwise.scale_byte(j, i / 16));
            assert_eq!(byte, rowwise.scale_byte(i / 16 * 16, j / 16));
            assert_eq!(
                rowwise.value(i, j).to_bits(),
                of_transpose.value(j, i).to_bits()
            );
            tiles.insert((i / 16, j / 16, byte));
        }
    }
    assert_eq!(tiles.len(), 6, "one byte a tile");
    // Not so for 1x16 blocks, and nothing says so.
    let plain = Options::default();
    let a = quantize_one(&ctx, &plain, &w, false, None).owned(&plain);
    let b = quantize_one(&ctx, &plain, &w, true, None).owned(&plain);
    assert!((0..48 * 32).any(|i| a.value(i / 32, i % 32) != b.value(i % 32, i / 32)));
}

/// Each block of 16 has its own scale.
#[test]
fn n4_blocks_of_sixteen() {
    let values: Vec<f32> = (0..64)
        .map(|i| if i / 16 % 2 == 0 { 1.0 } else { 100.0 })
        .collect();
    for way in every_way(&Options::default(), &Dense::from(1, 64, &values), None) {
        assert_eq!(way.scales(0), [0x49, 0x7E, 0x49, 0x7E], "{}", way.name);
        assert!(
            way.row(0)[..16].iter().all(|v| (v - 1.00446).abs() < 1e-5),
            "{}",
            way.name
        );
        way.row(0)[16..32]
            .iter()
            .for_each(|v| near(*v, 100.0, 1, &way.name));
    }
}

/// Both outer scales are applied, for one row as for many; a missing one is an error unless there is none.
#[test]
fn o2_outer_scales_on_every_path() {
    for threads in [1, 3] {
        let ctx = Ctx::new(threads);
        let o = Options::default();
        let w = Dense::filled(Dtype::F32, 9, 128, || 5.0);
        let mut b = quantize_one(&ctx, &o, &w, false, None);
        for m in [1, 2, 64] {
            let x = Dense::filled(Dtype::F32, m, 128, || 3.0);
            let mut a = quantize_one(&ctx, &o, &x, false, None);
            product(&ctx, &mut a, &mut b, null(), Dtype::F32)
                .values()
                .iter()
                .for_each(|v| near(*v, 1920.0, 2, "3 * 5 * 128"));
            let d = Dense::filled(Dtype::F32, m, 9, || 7.0);
            let view = d.c();
            a.c();
            a.q.amax = null_mut();
            // SAFETY: a missing amax is what is tested.
            let status =
                unsafe { nvfp4_gemm(ctx.0, null(), &a.q, b.c(), null(), &view, null_mut()) };
            fails(status, NVFP4_ERR_NULL_POINTER, &["amax"]);
            assert!(d.values().iter().all(|v| *v == 7.0));
        }
        let single = Options {
            chain: Chain::Single,
            ..o
        };
        let x = Dense::filled(Dtype::F32, 2, 128, || 3.0);
        let mut a = quantize_one(&ctx, &single, &x, false, None);
        a.c();
        a.q.amax = null_mut();
        a.q.amax_count = 0;
        let d = Dense::filled(Dtype::F32, 2, 9, || 7.0);
        let view = d.c();
        // SAFETY: chain SINGLE has no amax.
        ok(unsafe { nvfp4_gemm(ctx.0, null(), &a.q, b.c(), null(), &view, null_mut()) });
        d.values()
            .iter()
            .for_each(|v| near(*v, 1920.0, 4, "single level"));
    }
}

/// Every block's own scale, along the whole of K.
#[test]
fn o3_scales_along_k() {
    let mut q = Packed::room(&Options::default(), 32, 512, 0x22, 0);
    let byte = |block: usize| 0x38 + 8 * (block % 3) as u8;
    let bytes: Vec<u8> = (0..32 * 32).map(|i| byte(i % 32)).collect();
    q.scales[..1024].copy_from_slice(&bytes);
    q.amax = vec![2688.0];
    (q.q.rows, q.q.cols) = (32, 512);
    let mut other = q.clone();
    for threads in [1, 2, 3, 8] {
        let ctx = Ctx::new(threads);
        for mode in [
            NVFP4_ACCUMULATE_DEFAULT,
            NVFP4_ACCUMULATE_FAST,
            NVFP4_ACCUMULATE_HARDWARE,
        ] {
            let mut desc: nvfp4_gemm_desc = zero();
            desc.accumulate = mode;
            let d = product(&ctx, &mut q, &mut other, &desc, Dtype::F32);
            assert!(d.values().iter().all(|v| *v == 3440.0), "{:?}", d.values());
        }
    }
}

/// alpha is applied in f32 before the cast to fp16; what is too large there is Inf.
#[test]
fn o4_half_precision_output() {
    let ctx = Ctx::new(1);
    let o = Options::default();
    let hundred = Dense::filled(Dtype::F32, 3, 64, || 100.0);
    let (mut a, mut b) = (
        quantize_one(&ctx, &o, &hundred, false, None),
        quantize_one(&ctx, &o, &hundred, false, None),
    );
    for (dtype, want, ulps) in [(Dtype::F32, 640_000.0, 2), (Dtype::Bf16, 638_976.0, 0)] {
        let d = product(&ctx, &mut a, &mut b, null(), dtype);
        d.values()
            .iter()
            .for_each(|v| near(*v, want, ulps, &format!("{dtype:?}")));
    }
    let d = product(&ctx, &mut a, &mut b, null(), Dtype::F16);
    assert!(d.values().iter().all(|v| *v == f32::INFINITY));
    let large = Dense::filled(Dtype::F32, 2, 4096, || 2688.0);
    let (mut a, mut b) = (
        quantize_one(&ctx, &o, &large, false, None),
        quantize_one(&ctx, &o, &large, false, None),
    );
    let alpha = 2f32.powi(-20);
    let mut desc: nvfp4_gemm_desc = zero();
    desc.alpha = &alpha;
    let d = product(&ctx, &mut a, &mut b, &desc, Dtype::F16);
    assert!(d.values().iter().all(|v| *v == 28224.0), "{:?}", d.values());
}

/// The contraction runs along the packed axis of both; K x N packed along N does not fit.
#[test]
fn o7_packing_is_along_k() {
    let ctx = Ctx::new(1);
    let o = Options::default();
    let mut random = Random::new(6);
    let x = Dense::filled(Dtype::F32, 3, 32, || random.normal());
    let w = Dense::filled(Dtype::F32, 5, 32, || random.normal());
    let mut a = quantize_one(&ctx, &o, &x, false, None);
    // [N, K] packed along K, from W itself and, columnwise, from its transpose [K, N].
    let mut b = quantize_one(&ctx, &o, &w, false, None);
    let mut from_transpose = quantize_one(&ctx, &o, &w.transposed(), true, None);
    let want = gemm::gemm(
        Accumulate::Block,
        &a.owned(&o),
        &b.owned(&o),
        &Default::default(),
    )
    .unwrap();
    assert!(want.iter().all(|v| *v != 0.0));
    for operand in [&mut b, &mut from_transpose] {
        assert_eq!(
            product(&ctx, &mut a, operand, null(), Dtype::F32).values(),
            want
        );
    }
    // [K, N] packed along N.
    let mut wrong = quantize_one(&ctx, &o, &w.transposed(), false, None);
    let d = Dense::filled(Dtype::F32, 3, 32, || 7.0);
    let view = d.c();
    // SAFETY: valid operands; the shapes are what is tested.
    let status = unsafe { nvfp4_gemm(ctx.0, null(), a.c(), wrong.c(), null(), &view, null_mut()) };
    fails(status, NVFP4_ERR_SHAPE, &["[3, 32]", "[32, 5]"]);
}
