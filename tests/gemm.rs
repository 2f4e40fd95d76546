//! The product through the C ABI equals the scalar contract, bit for bit: shapes, formats, layouts, epilogues, batches,
//! quantized output, thread counts.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::gemm::{gemm as reference, Epilogue};
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;
use std::ptr::{null, null_mut};

/// Options of both operands of a product that is legal.
fn operands(random: &mut Random) -> (Options, Options) {
    let format = random.pick(&[Format::Nvfp4, Format::Nvfp4, Format::Mxfp4, Format::Bf16]);
    let hadamard = random.pick(&[0, 0, 0, 16, 128]);
    let signs = random.pick(&[Signs::Default, Signs::Mask([7, 1, 2, 3])]);
    let one = |random: &mut Random| {
        let mut o = Options {
            format,
            hadamard,
            signs,
            scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
            ..Options::default()
        };
        if format == Format::Bf16 && random.below(2) == 0 {
            o.format = random.pick(&[Format::Nvfp4, Format::Mxfp4]);
        }
        match o.format {
            Format::Nvfp4 => {
                o.block = random.pick(&[Block::OneD, Block::TwoD]);
                o.chain = random.pick(&[Chain::Te, Chain::Div6, Chain::Single]);
                o.c = random.pick(&[0.0, 1536.0]);
                o.domain_rows = random.pick(&[0, 0, 16, 48]);
                o.range_16_17 = random.below(4) == 0;
            }
            Format::Mxfp4 => {
                o.block = random.pick(&[Block::OneD, Block::TwoD]);
                o.scale_rule = random.pick(&[ScaleRule::Floor, ScaleRule::EncodeCentric]);
                o.range_16_17 = random.below(4) == 0;
            }
            Format::Bf16 => {}
        }
        o
    };
    let (a, b) = (one(random), one(random));
    let meet = a.format == b.format || a.format == Format::Bf16 || b.format == Format::Bf16;
    if meet {
        (a, b)
    } else {
        (a, a)
    }
}

fn side(random: &mut Random, most: usize) -> usize {
    match random.below(5) {
        0 => random.below(4),
        1 => random.pick(&[16, 32, 63, 64, 65, 127, 128, 129]),
        _ => random.below(most),
    }
}

fn k_side(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(40),
        1 => random.pick(&[16, 48, 496, 512, 513, 527, 1024, 1040]),
        _ => random.below(600),
    }
}

/// The bits of an element of D, with all NaN alike (which NaN comes out is the processor's choice).
fn bits(dtype: Dtype, v: f32) -> u32 {
    if v.is_nan() {
        return 0x7FC0;
    }
    match dtype {
        Dtype::F32 => v.to_bits(),
        Dtype::Bf16 => bf16_bits(v) as u32,
        Dtype::F16 => f16_bits(v) as u32,
    }
}

#[track_caller]
fn expect(d: &Dense, want: &[f32], what: &str) {
    for r in 0..d.rows {
        for c in 0..d.cols {
            let (have, want) = (d.get(r, c), want[r * d.cols + c]);
            assert_eq!(
                bits(d.dtype, have),
                bits(d.dtype, want),
                "{what}: D[{r}][{c}] is {have:e}, the contract has {want:e}"
            );
        }
    }
}

#[test]
fn random_products_equal_the_contract() {
    let contexts = [1, 2, 3, 8].map(Ctx::new);
    let mut random = Random::new(11);
    let mut nonzero = 0;
    for case in 0..400 {
        let (m, n, k) = (
            side(&mut random, 150),
            side(&mut random, 150),
            k_side(&mut random),
        );
        let (oa, ob) = operands(&mut random);
        let kind = random.pick(&[
            Kind::Normal,
            Kind::Normal,
            Kind::Wide,
            Kind::Sparse,
            Kind::Nonfinite,
            Kind::Extremes,
        ]);
        let x = Dense::filled(Dtype::F32, m, k, || kind.value(&mut random));
        let w = Dense::filled(Dtype::F32, n, k, || kind.value(&mut random));
        let ctx = &contexts[random.below(4)];
        let (mut a, mut b) = (
            quantize_one(ctx, &oa, &x, false, None),
            quantize_one(ctx, &ob, &w, false, None),
        );
        let fp4 = oa.format != Format::Bf16 && ob.format != Format::Bf16;
        let mode = random.pick(&[
            Accumulate::Default,
            Accumulate::Block,
            Accumulate::Block,
            if fp4 {
                Accumulate::Hardware
            } else {
                Accumulate::Block
            },
            if fp4 {
                Accumulate::HardwareK96
            } else {
                Accumulate::Block
            },
        ]);
        let alpha = random.pick(&[1.0, 0.5, -3.7]);
        let beta = random.pick(&[0.0, 0.0, 1.0, -0.3]);
        let c_dtype = random.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]);
        let d_dtype = random.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]);
        let c = Dense::new(c_dtype, m, n, n + 3, 1).fill(|| random.normal());
        let bias = Dense::filled(
            random.pick(&[Dtype::F32, Dtype::Bf16, Dtype::F16]),
            1,
            n,
            || random.normal(),
        );
        let with_bias = random.below(2) == 0;
        let rows: Vec<f32> = (0..m).map(|_| random.normal()).collect();
        let cols: Vec<f32> = (0..n).map(|_| random.normal()).collect();
        let (with_rows, with_cols) = (random.below(3) == 0, random.below(3) == 0);
        let activation = random.pick(&[
            Activation::None,
            Activation::Gelu,
            Activation::Silu,
            Activation::Relu2,
        ]);
        let epilogue = Epilogue {
            alpha,
            beta,
            c: Some(c.reference()),
            bias: with_bias.then(|| bias.reference()),
            activation,
            row_factors: with_rows.then_some(&rows),
            col_factors: with_cols.then_some(&cols),
        };
        let want = reference(mode, &a.owned(&oa), &b.owned(&ob), &epilogue).unwrap();
        nonzero += want.iter().filter(|v| **v != 0.0).count();
        let mut desc: nvfp4_gemm_desc = zero();
        desc.accumulate = mode as u32;
        desc.activation = activation as u32;
        desc.alpha = &alpha;
        desc.beta = &beta;
        if with_bias {
            desc.bias = bias.c().data;
            desc.bias_dtype = bias.dtype as u32;
        }
        desc.row_factors = if with_rows { rows.as_ptr() } else { null() };
        desc.col_factors = if with_cols { cols.as_ptr() } else { null() };
        let d = Dense::new(d_dtype, m, n, n + random.pick(&[0, 5]), 2);
        let before = d.bits();
        let (dc, cc) = (d.c(), c.c());
        // SAFETY: valid operands and room for D.
        ok(unsafe { nvfp4_gemm(ctx.0, &desc, a.c(), b.c(), &cc, &dc, null_mut()) });
        let what =
            format!("case {case}: {m} x {n} x {k} {kind:?} {mode:?}\n  a {oa:?}\n  b {ob:?}\n ");
        expect(&d, &want, &what);
        outside_is_untouched(&d, &before);
    }
    assert!(nonzero > 100_000, "{nonzero} elements that are not zero");
}

/// Nothing between rows or around the matrix was written.
fn outside_is_untouched(d: &Dense, before: &[u32]) {
    for (i, (a, b)) in d.bits().iter().zip(before).enumerate() {
        let inside = i >= d.shift && (i - d.shift) % d.stride.max(1) < d.cols;
        assert!(inside || a == b, "element {i} outside D was written");
    }
}

#[test]
fn a_batch_is_its_products() {
    let mut random = Random::new(12);
    let o = Options::default();
    for (m, n, k, batch) in [
        (3, 5, 272, 3),
        (70, 130, 48, 4),
        (1, 1, 17, 7),
        (2, 3, 0, 2),
    ] {
        let ctx = Ctx::new(2);
        let xs: Vec<Dense> = (0..batch)
            .map(|_| Dense::filled(Dtype::F32, m, k, || random.normal()))
            .collect();
        let ws: Vec<Dense> = (0..batch)
            .map(|_| Dense::filled(Dtype::F32, n, k, || random.normal()))
            .collect();
        let quantized = |ds: &[Dense]| -> Vec<Packed> {
            ds.iter()
                .map(|d| quantize_one(&ctx, &o, d, false, None))
                .collect()
        };
        let (a, b) = (quantized(&xs), quantized(&ws));
        let join = |parts: &[Packed]| -> Packed {
            let mut all = parts[0].clone();
            let (codes, scales) = (all.q.codes_bytes, all.q.scales_bytes);
            all.codes = parts
                .iter()
                .flat_map(|p| p.codes[..codes].to_vec())
                .collect();
            all.scales = parts
                .iter()
                .flat_map(|p| p.scales[..scales].to_vec())
                .collect();
            all.amax = parts.iter().flat_map(|p| p.amax.clone()).collect();
            all.q.amax_count = all.amax.len();
            all
        };
        let (mut ja, mut jb) = (join(&a), join(&b));
        let mut desc: nvfp4_gemm_desc = zero();
        desc.batch = batch as i64;
        desc.a_codes_batch_stride = ja.q.codes_bytes as i64;
        desc.a_scales_batch_stride = ja.q.scales_bytes as i64;
        desc.a_amax_batch_stride = 1;
        desc.b_codes_batch_stride = jb.q.codes_bytes as i64;
        desc.b_scales_batch_stride = jb.q.scales_bytes as i64;
        desc.b_amax_batch_stride = 1;
        desc.d_batch_stride = (m * n) as i64;
        for joined in [&mut ja, &mut jb] {
            joined.q.codes_bytes = joined.codes.len();
            joined.q.scales_bytes = joined.scales.len();
        }
        let d = Dense::new(Dtype::F32, m * batch, n, n, 0);
        let mut dc = d.c();
        dc.rows = m as i64;
        // SAFETY: valid operands and room for every D.
        ok(unsafe { nvfp4_gemm(ctx.0, &desc, ja.c(), jb.c(), null(), &dc, null_mut()) });
        for i in 0..batch {
            let want = reference(
                Accumulate::Block,
                &a[i].owned(&o),
                &b[i].owned(&o),
                &Epilogue::default(),
            )
            .unwrap();
            expect(
                &d.slice(i * m..(i + 1) * m, 0..n),
                &want,
                &format!("product {i} of {batch}"),
            );
        }
    }
}

#[test]
fn quantized_output_is_the_quantized_product() {
    let mut random = Random::new(13);
    let contexts = [1, 3].map(Ctx::new);
    for case in 0..60 {
        let (m, n, k) = (
            side(&mut random, 150),
            side(&mut random, 300),
            k_side(&mut random),
        );
        let o = Options::default();
        let x = Dense::filled(Dtype::Bf16, m, k, || random.normal());
        let w = Dense::filled(Dtype::Bf16, n, k, || random.normal());
        let ctx = &contexts[case % 2];
        let (mut a, mut b) = (
            quantize_one(ctx, &o, &x, false, None),
            quantize_one(ctx, &o, &w, false, None),
        );
        let out = Options {
            block: random.pick(&[Block::OneD, Block::TwoD]),
            rounding: random.pick(&[Rounding::Nearest, Rounding::Stochastic]),
            scale_layout: random.pick(&[ScaleLayout::Linear, ScaleLayout::Swizzled]),
            select: random.pick(&[Select::Single, Select::FourOverSixMae]),
            hadamard: random.pick(&[0, 16, 128]),
            domain_rows: random.pick(&[0, 32]),
            ..Options::default()
        };
        let out = match random.below(3) {
            0 => Options {
                format: Format::Mxfp4,
                select: Select::Single,
                domain_rows: 0,
                ..out
            },
            _ => out,
        };
        let given = vec![7.5f32; matrix::amax_count(&out, m)];
        let d = reference(
            Accumulate::Block,
            &a.owned(&o),
            &b.owned(&o),
            &Epilogue::default(),
        )
        .unwrap();
        let call = Call {
            options: out,
            seed: 3,
            offset: 4,
            amax: Some(&given),
            ..Call::default()
        };
        let want = quantize_reference(&matrix::Matrix::f32(&d, m, n), &call).unwrap();
        let mut room = Packed::room(&out, m, n, 0xFF, 3);
        let mut desc: nvfp4_gemm_desc = zero();
        desc.d_quantized = room.c();
        desc.d_options = c_options(&out);
        desc.d_quantized_amax = given.as_ptr();
        (desc.seed, desc.offset) = (3, 4);
        // SAFETY: valid operands and room for D.
        ok(unsafe { nvfp4_gemm(ctx.0, &desc, a.c(), b.c(), null(), null(), null_mut()) });
        room.expect(
            &want,
            0xFF,
            &format!("case {case}: {m} x {n} x {k} {out:?}"),
        );
    }
}

#[test]
fn d_may_be_c_itself() {
    let mut random = Random::new(14);
    let ctx = Ctx::new(3);
    let o = Options::default();
    let (m, n, k) = (130, 200, 100);
    let x = Dense::filled(Dtype::F32, m, k, || random.normal());
    let w = Dense::filled(Dtype::F32, n, k, || random.normal());
    let (mut a, mut b) = (
        quantize_one(&ctx, &o, &x, false, None),
        quantize_one(&ctx, &o, &w, false, None),
    );
    let d = Dense::filled(Dtype::F32, m, n, || random.normal());
    let epilogue = Epilogue {
        beta: 1.0,
        c: Some(d.reference()),
        ..Epilogue::default()
    };
    let want = reference(Accumulate::Block, &a.owned(&o), &b.owned(&o), &epilogue).unwrap();
    let one = 1f32;
    let mut desc: nvfp4_gemm_desc = zero();
    desc.beta = &one;
    let view = d.c();
    // SAFETY: valid operands; D is C.
    ok(unsafe { nvfp4_gemm(ctx.0, &desc, a.c(), b.c(), &view, &view, null_mut()) });
    expect(&d, &want, "in place");
}

#[test]
fn operands_that_must_not_meet_are_refused_with_their_values() {
    let ctx = Ctx::new(1);
    let x = Dense::filled(Dtype::F32, 4, 64, || 1.0);
    let y = Dense::filled(Dtype::F32, 5, 48, || 1.0);
    let plain = Options::default();
    let rht = |signs| Options {
        hadamard: 16,
        signs,
        ..plain
    };
    let gemm = |oa: &Options, ob: &Options, xb: &Dense, words: &[&str], want| {
        let (mut a, mut b) = (
            quantize_one(&ctx, oa, &x, false, None),
            quantize_one(&ctx, ob, xb, false, None),
        );
        let d = Dense::filled(Dtype::F32, 4, xb.rows, || 7.0);
        let view = d.c();
        // SAFETY: valid operands.
        let status = unsafe { nvfp4_gemm(ctx.0, null(), a.c(), b.c(), null(), &view, null_mut()) };
        fails(status, want, words);
        assert!(d.values().iter().all(|v| *v == 7.0), "D was written");
    };
    gemm(&plain, &plain, &y, &["[4, 64]", "[5, 48]"], NVFP4_ERR_SHAPE);
    let mx = Options {
        format: Format::Mxfp4,
        ..plain
    };
    gemm(&plain, &mx, &x, &["NVFP4", "MXFP4"], NVFP4_ERR_MISMATCH);
    gemm(
        &plain,
        &rht(Signs::Default),
        &x,
        &["0000d7e8"],
        NVFP4_ERR_MISMATCH,
    );
    gemm(
        &rht(Signs::Default),
        &rht(Signs::Mask16(1)),
        &x,
        &["0000d7e8", "00000001"],
        NVFP4_ERR_MISMATCH,
    );
}

#[test]
fn scalar_kernels_too() {
    again_in_scalar("random_products_equal_the_contract");
    again_in_scalar("quantized_output_is_the_quantized_product");
}
