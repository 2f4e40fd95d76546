//! Grouped quantize and the grouped product equal the loop over the groups of the scalar contract, bit for bit: any
//! group sizes, options, layouts and epilogues; nothing outside the groups is written.

mod common;
#[path = "common/groups.rs"]
mod groups;

use common::*;
use groups::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::*;
use std::ptr::null_mut;

/// Options of a copy that groups can have.
fn copy_options(random: &mut Random) -> Options {
    let mut o = Options {
        format: random.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4, Format::Bf16]),
        scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
        hadamard: random.pick(&[0, 0, 16, 32, 64, 128]),
        signs: random.pick(&[Signs::Default, Signs::Seeded, Signs::Mask([7, 1, 2, 3])]),
        ..Options::default()
    };
    if o.hadamard == 0 {
        o.signs = Signs::Default;
    } else {
        o.keep_f32 = random.below(4) == 0;
    }
    if o.format == Format::Bf16 {
        return o;
    }
    o.block = random.pick(&[Block::OneD, Block::OneD, Block::TwoD]);
    if o.block == Block::OneD {
        o.rounding = random.pick(&[Rounding::Nearest, Rounding::Stochastic]);
    }
    o.range_16_17 = random.below(4) == 0;
    if o.format == Format::Mxfp4 {
        o.scale_rule = random.pick(&[ScaleRule::Floor, ScaleRule::Ceil, ScaleRule::EncodeCentric]);
        return o;
    }
    o.chain = random.pick(&[Chain::Te, Chain::Te, Chain::Div6, Chain::Single]);
    match random.below(4) {
        0 => {
            o.select = Select::FourOverSixMae;
            o.chain = random.pick(&[Chain::Te, Chain::Div6]);
        }
        1 => {
            o = Options {
                select: Select::MsEden,
                hadamard: 128,
                signs: Signs::Seeded,
                scale_layout: o.scale_layout,
                ..Options::default()
            }
        }
        _ => {}
    }
    o
}

#[test]
fn quantizing_groups_is_quantizing_each() {
    let contexts = [1, 2, 5].map(Ctx::new);
    let mut random = Random::new(5);
    let (mut tokens, mut empty) = (0, 0);
    for case in 0..500 {
        let g = Groups::random(&mut random);
        let cols = random.pick(&[1, 16, 17, 64, 130, 257]);
        let dtype = random.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]);
        let kind = random.pick(&KINDS);
        let stride = cols + random.below(4);
        let x = Dense::new(dtype, g.bound, cols, stride, random.below(3))
            .fill(|| kind.value(&mut random));
        let which = 1 + random.below(3);
        let (row, col) = (copy_options(&mut random), copy_options(&mut random));
        let poison = random.pick(&[0xFF, 0x00]);
        let given: Vec<f32> = (0..g.count()).map(|i| i as f32 * 0.75).collect();
        let call = Call {
            nonfinite: random.pick(&[Nonfinite::Propagate, Nonfinite::Saturate]),
            seed: random.bits(),
            offset: random.bits() >> 3,
            origin: (128 * random.below(3) as u64, 128 * random.below(3) as u64),
            amax: (random.below(4) == 0).then_some(given.as_slice()),
            ..Call::default()
        };
        let align = random.pick(&[0, 0, 128]);
        let what = format!(
            "case {case}, {:?} of {}, {row:?}, {col:?}",
            g.offsets, g.bound
        );
        let pad = random.below(3);
        let mut made = GroupedCopies::new(&g, &x, which, (row, col), align, poison, pad);
        made.quantize(&contexts[random.below(3)], &g, &x, &call, which & 2 != 0);
        made.expect(&g, &x, &call, poison, &what);
        tokens += g.total();
        empty += g.sizes().filter(|n| *n == 0).count();
    }
    assert!(
        tokens > 20_000 && empty > 300,
        "{tokens} tokens, {empty} empty groups"
    );
}

#[test]
fn sizes_hold_for_any_offsets() {
    let ctx = Ctx::new(1);
    let mut random = Random::new(6);
    for _ in 0..100 {
        let g = Groups::random(&mut random);
        let o = copy_options(&mut random);
        let quantize = desc_of(&Call {
            options: o,
            ..Call::default()
        });
        let mut desc: nvfp4_grouped_quantize_desc = zero();
        desc.quantize = &quantize;
        desc.groups = g.count() as i64;
        let mut sizes = nvfp4_sizes::default();
        // SAFETY: valid descriptors; the offsets need not be there.
        ok(unsafe {
            nvfp4_grouped_quantize_sizes(
                ctx.0,
                &desc,
                g.bound as i64,
                70,
                NVFP4_BF16,
                3,
                &mut sizes,
            )
        });
        // SAFETY: as above.
        ok(unsafe {
            nvfp4_supports_grouped_quantize(ctx.0, &desc, g.bound as i64, 70, NVFP4_BF16, 3)
        });
        let row = Packed::room(&o, g.bound, 70, 0, 0);
        let col = Packed::room(&o, 70, columns_bound(&g, &o, 0), 0, 0);
        let amax = if matrix::has_amax(&scale::resolve(&o)) {
            g.count()
        } else {
            0
        };
        assert_eq!(
            [
                sizes.rowwise_codes_bytes,
                sizes.rowwise_scales_bytes,
                sizes.rowwise_amax_count
            ],
            [row.q.codes_bytes, row.q.scales_bytes, amax]
        );
        assert_eq!(
            [
                sizes.columnwise_codes_bytes,
                sizes.columnwise_scales_bytes,
                sizes.columnwise_amax_count
            ],
            [col.q.codes_bytes, col.q.scales_bytes, amax]
        );
        assert!(g.starts(align_of(&o, 0))[g.count()] <= columns_bound(&g, &o, 0));
    }
}

/// Options of a pair of operands.
fn pair(random: &mut Random) -> (Options, Options) {
    let format = random.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4, Format::Bf16]);
    let hadamard = random.pick(&[0, 0, 16, 128]);
    let one = |random: &mut Random| Options {
        format,
        hadamard,
        chain: match format {
            Format::Nvfp4 => random.pick(&[Chain::Te, Chain::Te, Chain::Single]),
            _ => Chain::Te,
        },
        scale_rule: match format {
            Format::Mxfp4 => random.pick(&[ScaleRule::Floor, ScaleRule::EncodeCentric]),
            _ => ScaleRule::Floor,
        },
        scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
        range_16_17: format != Format::Bf16 && random.below(4) == 0,
        ..Options::default()
    };
    (one(random), one(random))
}

#[test]
fn products_of_groups_are_the_products_of_each() {
    let contexts = [1, 2, 5].map(Ctx::new);
    let mut random = Random::new(7);
    let (mut nonzero, mut compared) = (0, 0);
    for case in 0..250 {
        let p = GroupedProduct::random(&mut random, pair);
        let what = format!("case {case}: {p:?}");
        let (have, want) = p.run(&contexts[random.below(3)]);
        for (i, (have, want)) in have.iter().zip(&want).enumerate() {
            assert_eq!(
                have, want,
                "{what}: element {i} has the bits {have:08x}, want {want:08x}"
            );
        }
        compared += have.len();
        nonzero += want.iter().filter(|b| **b << 1 != 0).count();
    }
    assert!(nonzero * 4 > compared, "{nonzero} of {compared} are not 0");
}

#[test]
fn bad_calls_are_told_with_their_values() {
    let ctx = Ctx::new(1);
    let x = Dense::filled(Dtype::F32, 40, 32, || 1.0);
    let quantize =
        |offsets: &[i64],
         spoil: &dyn Fn(&mut nvfp4_grouped_quantize_desc, &mut nvfp4_quantize_desc)| {
            let mut q = desc_of(&Call::default());
            let mut desc: nvfp4_grouped_quantize_desc = zero();
            desc.groups = offsets.len() as i64 - 1;
            desc.offsets = offsets.as_ptr();
            let o = Options::default();
            let mut copy = Packed::room(&o, 32, 40 + 15 * offsets.len(), 0xA5, 0);
            copy.amax = vec![f32::from_bits(0xA5A5_A5A5); offsets.len() - 1];
            copy.q.amax_count = offsets.len() - 1;
            spoil(&mut desc, &mut q);
            if desc.quantize.is_null() {
                desc.quantize = &q;
            }
            let view = x.c();
            // SAFETY: what is spoilt is what the call must find.
            let status = unsafe {
                nvfp4_grouped_quantize(ctx.0, &desc, &view, null_mut(), copy.c(), null_mut())
            };
            if status != NVFP4_OK {
                assert!(copy.codes.iter().chain(&copy.scales).all(|b| *b == 0xA5));
                assert!(copy.amax.iter().all(|a| a.to_bits() == 0xA5A5_A5A5));
            }
            status
        };
    let as_is = |_: &mut nvfp4_grouped_quantize_desc, _: &mut nvfp4_quantize_desc| {};
    ok(quantize(&[0, 7, 7, 40], &as_is));
    ok(quantize(&[3, 7, 9], &as_is));
    use NVFP4_ERR_INVALID_ARGUMENT as INVALID;
    fails(
        quantize(&[-2, 7, 9], &as_is),
        INVALID,
        &["offsets[0] is -2"],
    );
    fails(
        quantize(&[0, 9, 7, 40], &as_is),
        INVALID,
        &["offsets[2] is 7", "offsets[1] = 9"],
    );
    fails(
        quantize(&[0, 9, 41], &as_is),
        INVALID,
        &["offsets[2] is 41", "40"],
    );
    fails(
        quantize(&[0, 9, i64::MAX], &as_is),
        INVALID,
        &["9223372036854775807"],
    );
    let at = |field: fn(&mut nvfp4_grouped_quantize_desc, &mut nvfp4_quantize_desc)| {
        quantize(&[0, 40], &move |d: &mut _, q: &mut _| field(d, q))
    };
    fails(at(|d, _| d.groups = 0), INVALID, &["groups is 0"]);
    fails(
        at(|d, _| d.groups = i64::MAX),
        NVFP4_ERR_SHAPE,
        &["9223372036854775807"],
    );
    fails(
        at(|d, _| d.offsets = std::ptr::null()),
        NVFP4_ERR_NULL_POINTER,
        &["offsets"],
    );
    fails(at(|d, _| d.column_align = 24), INVALID, &["24"]);
    fails(at(|d, _| d.reserved = 9), INVALID, &["reserved is 9"]);
    fails(at(|d, _| d.struct_size = 4), NVFP4_ERR_STRUCT_SIZE, &["4"]);
    fails(
        at(|_, q| q.columnwise.domain_rows = 16),
        NVFP4_ERR_NOT_SUPPORTED,
        &["16"],
    );
    fails(
        at(|_, q| {
            q.columnwise.block = NVFP4_BLOCK_2D;
            q.columnwise.rounding = NVFP4_ROUND_STOCHASTIC;
        }),
        NVFP4_ERR_NOT_SUPPORTED,
        &["stochastic", "tiles"],
    );
    let mut stats = nvfp4_stats::default();
    let p: *mut nvfp4_stats = &mut stats;
    fails(
        quantize(&[0, 40], &move |_: &mut _, q: &mut nvfp4_quantize_desc| {
            q.stats = p
        }),
        NVFP4_ERR_NOT_SUPPORTED,
        &["stat"],
    );
}

#[test]
fn bad_products_are_told_with_their_values() {
    let ctx = Ctx::new(1);
    let o = Options::default();
    let x = Dense::filled(Dtype::F32, 40, 32, || 1.0);
    let g = Groups {
        offsets: vec![0, 7, 7, 40],
        bound: 40,
    };
    let mut made = GroupedCopies::new(&g, &x, 3, (o, o), 0, 0xFF, 0);
    made.quantize(&ctx, &g, &x, &Call::default(), true);
    let rows = made.rowwise.as_mut().unwrap();
    let rows = unsafe { *rows.c() };
    let columns = made.columnwise.as_mut().unwrap();
    let columns = unsafe { *columns.c() };
    let mut weight = quantize_one(
        &ctx,
        &o,
        &Dense::filled(Dtype::F32, 5, 32, || 1.0),
        false,
        None,
    );
    let weight = unsafe { *weight.c() };
    type Spoil<'a> = &'a dyn Fn(
        &mut nvfp4_grouped_gemm_desc,
        &mut nvfp4_quantized,
        &mut nvfp4_quantized,
        &mut nvfp4_matrix,
    );
    let call = |ragged: u32, spoil: Spoil| {
        let (mut a, mut b, m, n) = match ragged {
            NVFP4_RAGGED_M => (rows, weight, 40, 5),
            _ => (columns, columns, 32, 32),
        };
        let d = Dense::filled(Dtype::F32, 3 * m, n, || 7.5);
        let mut view = d.c();
        view.rows = m as i64;
        let mut desc: nvfp4_grouped_gemm_desc = zero();
        desc.ragged = ragged;
        desc.groups = 3;
        desc.offsets = g.offsets.as_ptr();
        spoil(&mut desc, &mut a, &mut b, &mut view);
        // SAFETY: what is spoilt is what the call must find.
        let status = unsafe {
            nvfp4_grouped_gemm(ctx.0, &desc, &a, &b, std::ptr::null(), &view, null_mut())
        };
        if status != NVFP4_OK {
            assert!(d.values().iter().all(|v| *v == 7.5), "{}", last_error());
        }
        status
    };
    use NVFP4_ERR_INVALID_ARGUMENT as INVALID;
    let (m, k) = (NVFP4_RAGGED_M, NVFP4_RAGGED_K);
    ok(call(m, &|_, _, _, _| {}));
    ok(call(k, &|_, _, _, _| {}));
    let beyond = [0i64, 7, 7, 41];
    fails(
        call(m, &|d, _, _, _| d.offsets = beyond.as_ptr()),
        INVALID,
        &["is 41", "40"],
    );
    let wide = [0i64, 20, 40, 60];
    fails(
        call(k, &|d, _, _, _| d.offsets = wide.as_ptr()),
        NVFP4_ERR_SHAPE,
        &["column 96", "80"],
    );
    fails(
        call(m, &|d, _, _, _| d.ragged = 9),
        INVALID,
        &["ragged is 9"],
    );
    fails(
        call(m, &|d, _, _, _| d.groups = 2),
        NVFP4_ERR_MISMATCH,
        &["3", "groups is 2"],
    );
    fails(
        call(m, &|d, _, _, _| d.b_codes_stride = 80),
        NVFP4_ERR_BUFFER_SIZE,
        &["is 80", "160"],
    );
    fails(
        call(m, &|d, _, _, _| d.b_amax_stride = -1),
        NVFP4_ERR_SHAPE,
        &["b_amax_stride is -1"],
    );
    fails(
        call(m, &|d, _, _, _| d.d_group_stride = 200),
        INVALID,
        &["d_group_stride is 200"],
    );
    fails(
        call(m, &|d, _, _, _| d.column_align = 16),
        INVALID,
        &["column_align is 16"],
    );
    fails(
        call(m, &|_, _, b, _| (b.groups, b.amax_count) = (3, 3)),
        NVFP4_ERR_MISMATCH,
        &["b.groups is 3"],
    );
    fails(
        call(m, &|_, _, _, d| d.rows = 39),
        NVFP4_ERR_SHAPE,
        &["[39, 5]", "[40, 5]"],
    );
    fails(
        call(m, &|d, _, _, _| d.provider = 9),
        NVFP4_ERR_NOT_SUPPORTED,
        &["provider is 9"],
    );
    let beta = 1f32;
    fails(
        call(m, &|d, _, _, _| d.beta = &beta),
        NVFP4_ERR_NULL_POINTER,
        &["c"],
    );
    fails(
        call(k, &|d, _, _, _| d.column_align = 64),
        NVFP4_ERR_SHAPE,
        &["column 128", "80"],
    );
    fails(
        call(k, &|d, _, _, _| d.d_group_stride = 1000),
        NVFP4_ERR_SHAPE,
        &["1000", "1024"],
    );
    fails(
        call(k, &|d, _, _, _| d.b_scales_stride = 3),
        INVALID,
        &["b_scales_stride is 3"],
    );
    fails(
        call(k, &|d, _, _, _| d.row_factors = &beta),
        INVALID,
        &["row_factors"],
    );
    let swizzled = |_: &mut _, _: &mut _, b: &mut nvfp4_quantized, _: &mut _| {
        (b.scale_layout, b.scales_bytes) = (NVFP4_SCALES_SWIZZLED, 1 << 20);
    };
    fails(
        call(k, &swizzled),
        NVFP4_ERR_MISMATCH,
        &["multiples of 16", "of 64"],
    );
}

#[test]
fn copies_of_groups_are_refused_where_a_matrix_is_wanted() {
    let ctx = Ctx::new(1);
    let g = Groups {
        offsets: vec![0, 5, 20],
        bound: 20,
    };
    let x = Dense::filled(Dtype::F32, 20, 32, || 1.0);
    let o = Options::default();
    let mut made = GroupedCopies::new(&g, &x, 1, (o, o), 0, 0xFF, 0);
    made.quantize(&ctx, &g, &x, &Call::default(), false);
    let copy = made.rowwise.as_mut().unwrap();
    assert_eq!(copy.q.groups, 2);
    let out = Dense::filled(Dtype::F32, 20, 32, || 0.0);
    let view = out.c();
    // SAFETY: valid buffers.
    let status = unsafe { nvfp4_dequantize(ctx.0, copy.c(), 0, &view, null_mut()) };
    fails(status, NVFP4_ERR_MISMATCH, &["groups is 2"]);
    // The first group's rows as the matrix that they are.
    let want = quantize_reference(&x.slice(0..5, 0..32).reference(), &Call::default()).unwrap();
    let mut first = copy.clone();
    (first.q.groups, first.q.rows, first.q.amax_count) = (0, 5, 1);
    let out = Dense::filled(Dtype::F32, 5, 32, || 0.0);
    let view = out.c();
    // SAFETY: valid buffers.
    ok(unsafe { nvfp4_dequantize(ctx.0, first.c(), 0, &view, null_mut()) });
    assert_eq!(out.get(4, 31), want.value(4, 31));
}

#[test]
fn scalar_kernels_give_the_same() {
    for test in [
        "quantizing_groups_is_quantizing_each",
        "products_of_groups_are_the_products_of_each",
    ] {
        again_in_scalar(test);
    }
}
