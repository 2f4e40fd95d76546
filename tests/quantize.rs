//! Quantize through the C ABI equals the scalar contract, byte for byte, whatever the shape, type, stride, options and
//! thread count; and writes nothing else.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::quantize::{quantize as reference, quantize_with_stats, Call};
use nvfp4::numerics::*;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

/// Options that go together, one of each kind at random.
fn random_options(random: &mut Random) -> Options {
    let format = random.pick(&[
        Format::Nvfp4,
        Format::Nvfp4,
        Format::Nvfp4,
        Format::Mxfp4,
        Format::Bf16,
    ]);
    let mut o = Options {
        format,
        scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
        hadamard: random.pick(&[0, 0, 16, 32, 64, 128]),
        signs: random.pick(&[
            Signs::Default,
            Signs::Seeded,
            Signs::Mask16(0x1234),
            Signs::Mask([1, 0xDEAD_BEEF, 3, 0x8000_0000]),
        ]),
        keep_f32: random.below(4) == 0,
        ..Options::default()
    };
    if format == Format::Bf16 {
        return o;
    }
    o.block = random.pick(&[Block::OneD, Block::TwoD]);
    o.rounding = random.pick(&[Rounding::Nearest, Rounding::Stochastic]);
    o.range_16_17 = random.below(4) == 0;
    if format == Format::Mxfp4 {
        o.scale_rule = random.pick(&[
            ScaleRule::Floor,
            ScaleRule::Ceil,
            ScaleRule::Even,
            ScaleRule::EncodeCentric,
        ]);
        o.half_scale = o.scale_rule == ScaleRule::EncodeCentric
            && o.block == Block::TwoD
            && random.below(2) == 0;
        return o;
    }
    o.chain = random.pick(&[Chain::Te, Chain::Te, Chain::Div6, Chain::Single]);
    o.c = random.pick(&[0.0, 2688.0, 1536.0]);
    o.domain_rows = random.pick(&[0, 0, 16, 48, if o.block == Block::OneD { 1 } else { 16 }]);
    o.select = random.pick(&[
        Select::Single,
        Select::Single,
        Select::FourOverSixMae,
        Select::FourOverSixMse,
        Select::FourOverSixAbsMax,
        Select::MsEden,
    ]);
    if o.select == Select::MsEden {
        o = Options {
            block: Block::OneD,
            rounding: Rounding::Nearest,
            chain: random.pick(&[Chain::Te, Chain::Div6]),
            hadamard: 128,
            signs: random.pick(&[Signs::Seeded, Signs::Mask([1, 2, 3, 4])]),
            range_16_17: false,
            c: 0.0,
            domain_rows: random.pick(&[0, 1]),
            ..o
        };
    }
    o
}

fn random_side(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(5),
        1 => random.below(40),
        2 => random.pick(&[16, 32, 64, 127, 128, 129, 255, 256]),
        _ => random.below(200),
    }
}

/// Both copies, alone and from one call, against the contract.
fn check_case(contexts: &[Ctx], random: &mut Random, case: usize) {
    let (rows, cols) = (random_side(random), random_side(random));
    let kind = random.pick(&KINDS);
    let dtype = random.pick(&DTYPES);
    let mut x = Dense::new(
        dtype,
        rows,
        cols,
        cols + random.pick(&[0, 0, 1, 7]),
        random.pick(&[0, 0, 1, 3]),
    );
    x = x.fill(|| kind.value(random));
    let seed = random.bits();
    let nonfinite = random.pick(&[Nonfinite::Propagate, Nonfinite::Saturate]);
    let base = Call {
        nonfinite,
        seed,
        offset: random.bits() >> 2,
        ..Call::default()
    };
    // Origins that cut nothing: 128 and 48 cover every block, transform and domain.
    let origin = (384 * random.below(3) as u64, 384 * random.below(3) as u64);
    let (ro, co) = (random_options(random), random_options(random));
    let row_call = Call {
        options: ro,
        origin,
        ..base
    };
    let col_call = Call {
        options: co,
        columnwise: true,
        origin,
        ..base
    };
    let what = format!(
        "case {case}: {rows} x {cols} {dtype:?} {kind:?}\n  rowwise {ro:?}\n  columnwise {co:?}\n "
    );
    let want_row = reference(&x.reference(), &row_call).unwrap();
    let want_col = reference(&x.reference(), &col_call).unwrap();
    let mut desc = desc_of(&row_call);
    desc.columnwise = c_options(&co);
    let ctx = random.pick(&[0usize, 1, 2, 3]);
    let ctx = &contexts[ctx];
    let poison = random.pick(&[0x00, 0xFF]);
    let pad = random.pick(&[0, 0, 1, 5]);
    let room = |o: &Options, rows, cols| Packed::room(o, rows, cols, poison, pad);
    let (mut r, mut c) = (room(&ro, rows, cols), room(&co, cols, rows));
    quantize(ctx, &desc, &x, Some(&mut r), Some(&mut c));
    r.expect(&want_row, poison, &format!("{what} rowwise of both"));
    c.expect(&want_col, poison, &format!("{what} columnwise of both"));
    let (mut r, mut c) = (room(&ro, rows, cols), room(&co, cols, rows));
    quantize(ctx, &desc, &x, Some(&mut r), None);
    r.expect(&want_row, poison, &format!("{what} rowwise alone"));
    quantize(ctx, &desc, &x, None, Some(&mut c));
    c.expect(&want_col, poison, &format!("{what} columnwise alone"));
    check_amax(ctx, &desc, &x, &want_row, &want_col, &what);
}

fn check_amax(
    ctx: &Ctx,
    desc: &nvfp4_quantize_desc,
    x: &Dense,
    row: &matrix::Quantized,
    col: &matrix::Quantized,
    what: &str,
) {
    for (want, columnwise) in [(row, false), (col, true)] {
        let mut amax = vec![-1f32; want.amax.len() + 1];
        let (mut r, mut c) = (std::ptr::null_mut(), std::ptr::null_mut());
        *(if columnwise { &mut c } else { &mut r }) = amax.as_mut_ptr();
        let m = x.c();
        // SAFETY: room for every domain.
        let status = unsafe { nvfp4_amax(ctx.0, desc, &m, r, c, std::ptr::null_mut()) };
        if matrix::has_amax(&want.options) {
            ok(status);
            assert_eq!(amax[..want.amax.len()], want.amax, "{what} amax");
        } else {
            fails(status, NVFP4_ERR_INVALID_ARGUMENT, &["has no amax"]);
        }
        assert_eq!(amax[want.amax.len()], -1.0);
    }
}

#[test]
fn random_calls_equal_the_contract() {
    let contexts = [1, 2, 3, 8].map(Ctx::new);
    let cases = std::env::var("NVFP4_TEST_CASES").map_or(1500, |n| n.parse().unwrap());
    let mut random = Random::new(1);
    for case in 0..cases {
        check_case(&contexts, &mut random, case);
    }
}

/// Shapes of many tiles, so that threads meet.
#[test]
fn large_shapes_equal_the_contract_at_every_thread_count() {
    let mut random = Random::new(2);
    let stochastic = Options {
        rounding: Rounding::Stochastic,
        hadamard: 16,
        ..Options::default()
    };
    let tiles = Options {
        block: Block::TwoD,
        scale_layout: ScaleLayout::Swizzled,
        ..Options::default()
    };
    for (rows, cols) in [(300, 1000), (1, 140_000), (2500, 40), (1000, 17)] {
        let x = Dense::filled(Dtype::F32, rows, cols, || random.normal());
        for (ro, co) in [(tiles, stochastic), (stochastic, tiles)] {
            let call = |options, columnwise| Call {
                options,
                columnwise,
                seed: 5,
                offset: 6,
                ..Call::default()
            };
            let want_row = reference(&x.reference(), &call(ro, false)).unwrap();
            let want_col = reference(&x.reference(), &call(co, true)).unwrap();
            let mut desc = desc_of(&call(ro, false));
            desc.columnwise = c_options(&co);
            for threads in [1, 2, 3, 8] {
                let ctx = Ctx::new(threads);
                let (mut r, mut c) = (
                    Packed::room(&ro, rows, cols, 0xFF, 0),
                    Packed::room(&co, cols, rows, 0xFF, 0),
                );
                quantize(&ctx, &desc, &x, Some(&mut r), Some(&mut c));
                r.expect(
                    &want_row,
                    0xFF,
                    &format!("{rows} x {cols}, {threads} threads, rowwise"),
                );
                c.expect(
                    &want_col,
                    0xFF,
                    &format!("{rows} x {cols}, {threads} threads, columnwise"),
                );
            }
        }
    }
}

#[test]
fn statistics_equal_the_contract_to_the_last_bit() {
    let mut random = Random::new(3);
    let contexts = [1, 3].map(Ctx::new);
    for case in 0..200 {
        let (rows, cols) = (random_side(&mut random), random_side(&mut random));
        let kind = random.pick(&KINDS);
        let x = Dense::filled(random.pick(&DTYPES), rows, cols, || kind.value(&mut random));
        let given = [1.5f32];
        let options = random_options(&mut random);
        let call = Call {
            options,
            columnwise: random.below(2) == 1,
            seed: 9,
            amax: (random.below(3) == 0 && options.domain_rows == 0).then_some(&given),
            ..Call::default()
        };
        let (want, want_stats) = quantize_with_stats(&x.reference(), &call).unwrap();
        for ctx in &contexts {
            let mut stats = nvfp4_stats {
                nonfinite: 77,
                saturated: 77,
                ..Default::default()
            };
            let mut desc = desc_of(&call);
            desc.stats = &mut stats;
            let (r, c) = if call.columnwise {
                (cols, rows)
            } else {
                (rows, cols)
            };
            let mut copy = Packed::room(&options, r, c, 0xFF, 0);
            let (row, col) = if call.columnwise {
                (None, Some(&mut copy))
            } else {
                (Some(&mut copy), None)
            };
            quantize(ctx, &desc, &x, row, col);
            let what = format!("case {case}: {rows} x {cols} {kind:?} {call:?}");
            copy.expect(&want, 0xFF, &what);
            assert_eq!(
                (stats.nonfinite, stats.saturated, stats.underflowed),
                (
                    want_stats.nonfinite,
                    want_stats.saturated,
                    want_stats.underflowed
                ),
                "{what}"
            );
            assert_eq!(
                (
                    stats.sum_squares.to_bits(),
                    stats.sum_squared_error.to_bits()
                ),
                (
                    want_stats.sum_squares.to_bits(),
                    want_stats.sum_squared_error.to_bits()
                ),
                "{what}: {stats:?} against {want_stats:?}"
            );
        }
    }
}

#[test]
fn scalar_kernels_too() {
    again_in_scalar("random_calls_equal_the_contract");
    again_in_scalar("large_shapes_equal_the_contract_at_every_thread_count");
}
