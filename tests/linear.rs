//! fprop, dgrad and wgrad by recipe: bit for bit the product of the operands that the recipe names, and within the
//! stated bound of an f64 model of the same quantized operands.

mod common;

use common::*;
use nvfp4::abi::*;
use nvfp4::ffi::*;
use nvfp4::numerics::gemm::{gemm as reference, Epilogue};
use nvfp4::numerics::gemm_fast::{bound, exact};
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::*;
use nvfp4::recipe::{Recipe, Role};
use std::ffi::CString;
use std::ptr::{null, null_mut};

const NAMES: [&str; 4] = ["nvfp4", "nvfp4_no_rht", "mxfp4", "bf16"];
const SEED: u64 = 77;
const OFFSET: u64 = 5;

fn recipe(name: &str) -> nvfp4_recipe {
    let mut recipe: nvfp4_recipe = zero();
    let name = CString::new(name).unwrap();
    // SAFETY: valid pointers.
    ok(unsafe { nvfp4_recipe_init(name.as_ptr(), &mut recipe) });
    recipe
}

/// A linear descriptor with a workspace of exactly the size that is asked for.
struct Layer {
    desc: nvfp4_linear_desc,
    _recipe: Box<nvfp4_recipe>,
    _workspace: Vec<u128>,
}

fn layer(ctx: &Ctx, r: nvfp4_recipe, tokens: usize, inputs: usize, outputs: usize) -> Layer {
    let r = Box::new(r);
    let mut desc: nvfp4_linear_desc = zero();
    desc.recipe = &*r;
    (desc.seed, desc.offset) = (SEED, OFFSET);
    let mut bytes = 0;
    let (t, i, o) = (tokens as i64, inputs as i64, outputs as i64);
    // SAFETY: valid pointers.
    ok(unsafe { nvfp4_linear_workspace(ctx.0, &desc, t, i, o, NVFP4_F32, &mut bytes) });
    let mut workspace = vec![!0u128; bytes.div_ceil(16)];
    desc.workspace = workspace.as_mut_ptr().cast();
    desc.workspace_bytes = bytes;
    Layer {
        desc,
        _recipe: r,
        _workspace: workspace,
    }
}

/// An operand as the contract quantizes it for this layer.
fn operand(r: &Recipe, role: Role, columnwise: bool, x: &Dense) -> matrix::Quantized {
    let mut options = *r.options(role, columnwise);
    if options.hadamard != 0 && options.signs == Signs::Seeded {
        options.signs = Signs::Mask(hadamard::sign_words(
            Signs::Seeded,
            options.hadamard as usize,
            SEED,
            OFFSET,
        ));
    }
    let call = Call {
        options,
        columnwise,
        nonfinite: r.nonfinite,
        seed: SEED,
        offset: OFFSET | (role as u64) << 60,
        ..Call::default()
    };
    quantize_reference(&x.reference(), &call).unwrap()
}

#[track_caller]
fn check(d: &Dense, a: &matrix::Quantized, b: &matrix::Quantized, epilogue: &Epilogue, what: &str) {
    let want = reference(Accumulate::Block, a, b, epilogue).unwrap();
    assert_eq!(d.values().len(), want.len());
    for (i, (have, want)) in d.values().iter().zip(&want).enumerate() {
        assert_eq!(
            have.to_bits(),
            want.to_bits(),
            "{what}: element {i} is {have:e}, want {want:e}"
        );
    }
    // The f64 model: exact sums of the operands' values, with their outer scales.
    let model = exact(a, b).unwrap();
    for (i, (have, sum)) in d.values().iter().zip(&model).enumerate() {
        let (row, col) = (i / d.cols, i % d.cols);
        let outer = gemm::global_factor(&a.decode_scale(row), &b.decode_scale(col)) as f64;
        let c = epilogue
            .c
            .map_or(0.0, |c| c.at(row, col) as f64 * epilogue.beta as f64);
        let bias = epilogue.bias.map_or(0.0, |bias| bias.at(0, col) as f64);
        let want = outer * sum.sum + c + bias;
        let slack = outer * bound(a.cols, sum.magnitude)
            + 2f64.powi(-22) * (want.abs() + c.abs() + bias.abs());
        assert!(
            (*have as f64 - want).abs() <= slack,
            "{what}: element {i} is {have:e}, the model has {want:e} within {slack:e}"
        );
    }
}

#[test]
fn a_step_by_every_recipe() {
    let mut random = Random::new(31);
    for (tokens, inputs, outputs) in [
        (1, 16, 16),
        (37, 53, 29),
        (129, 70, 201),
        (64, 128, 256),
        (5, 300, 1),
        (3, 1, 40),
    ] {
        for name in NAMES {
            let r = Recipe::named(name).unwrap();
            let x = Dense::filled(Dtype::Bf16, tokens, inputs, || random.normal());
            let w = Dense::filled(Dtype::F32, outputs, inputs, || random.normal() * 0.1);
            let dy = Dense::filled(Dtype::F16, tokens, outputs, || random.normal() * 0.01);
            let bias = Dense::filled(Dtype::F32, 1, outputs, || random.normal());
            for threads in [1, 3] {
                let ctx = Ctx::new(threads);
                let l = layer(&ctx, recipe(name), tokens, inputs, outputs);
                let what = format!("{name}, {tokens} tokens, {inputs} -> {outputs}");
                let null = null_mut();
                let y = Dense::filled(Dtype::F32, tokens, outputs, || f32::NAN);
                let dx = Dense::filled(Dtype::F32, tokens, inputs, || f32::NAN);
                let dw = Dense::filled(Dtype::F32, outputs, inputs, || f32::NAN);
                let (xv, wv, dyv, bv) = (x.c(), w.c(), dy.c(), bias.c());
                let (yv, dxv, dwv) = (y.c(), dx.c(), dw.c());
                // SAFETY: valid matrices and workspace.
                unsafe {
                    ok(nvfp4_linear_fprop(ctx.0, &l.desc, &xv, &wv, &bv, &yv, null));
                    ok(nvfp4_linear_dgrad(ctx.0, &l.desc, &dyv, &wv, &dxv, null));
                    ok(nvfp4_linear_wgrad(ctx.0, &l.desc, &dyv, &xv, &dwv, null));
                }
                let q = |role, columnwise, m| operand(&r, role, columnwise, m);
                let with_bias = Epilogue {
                    bias: Some(bias.reference()),
                    ..Epilogue::default()
                };
                let plain = Epilogue::default();
                check(
                    &y,
                    &q(Role::Activation, false, &x),
                    &q(Role::Weight, false, &w),
                    &with_bias,
                    &format!("{what} y"),
                );
                check(
                    &dx,
                    &q(Role::Gradient, false, &dy),
                    &q(Role::Weight, true, &w),
                    &plain,
                    &format!("{what} dx"),
                );
                check(
                    &dw,
                    &q(Role::Gradient, true, &dy),
                    &q(Role::Activation, true, &x),
                    &plain,
                    &format!("{what} dw"),
                );
                // dw += dy^T x.
                let before = dw.clone();
                let mut desc = l.desc;
                desc.accumulate_wgrad = 1;
                let dwv = dw.c();
                // SAFETY: as above.
                ok(unsafe { nvfp4_linear_wgrad(ctx.0, &desc, &dyv, &xv, &dwv, null) });
                let add = Epilogue {
                    beta: 1.0,
                    c: Some(before.reference()),
                    ..Epilogue::default()
                };
                check(
                    &dw,
                    &q(Role::Gradient, true, &dy),
                    &q(Role::Activation, true, &x),
                    &add,
                    &format!("{what} dw +="),
                );
            }
        }
    }
}

/// Micro-batches of the same data add up: nothing is lost between calls.
#[test]
fn four_accumulated_micro_batches_are_four_times_one() {
    let mut random = Random::new(32);
    let ctx = Ctx::new(2);
    let dy = Dense::filled(Dtype::Bf16, 40, 24, || random.normal());
    let x = Dense::filled(Dtype::Bf16, 40, 48, || random.normal());
    let mut l = layer(&ctx, recipe("nvfp4"), 40, 48, 24);
    l.desc.accumulate_wgrad = 1;
    let once = Dense::filled(Dtype::F32, 24, 48, || 0.0);
    let four = once.clone();
    for (dw, times) in [(&once, 1), (&four, 4)] {
        for _ in 0..times {
            let (dyv, xv, dwv) = (dy.c(), x.c(), dw.c());
            // SAFETY: valid matrices and workspace.
            ok(unsafe { nvfp4_linear_wgrad(ctx.0, &l.desc, &dyv, &xv, &dwv, null_mut()) });
        }
    }
    for (a, b) in once.values().iter().zip(four.values()) {
        assert!((4.0 * a - b).abs() <= 1e-6 * b.abs(), "{a} {b}");
    }
}

#[test]
fn every_field_can_be_overridden_and_bad_ones_are_refused() {
    let ctx = Ctx::new(1);
    let mut random = Random::new(33);
    let x = Dense::filled(Dtype::F32, 33, 48, || random.normal());
    let w = Dense::filled(Dtype::F32, 20, 48, || random.normal());
    let y = Dense::filled(Dtype::F32, 33, 20, || 7.0);
    let (xv, wv, yv) = (x.c(), w.c(), y.c());
    let fprop = |r: nvfp4_recipe| {
        let l = layer(&ctx, r, 33, 48, 20);
        // SAFETY: valid matrices and workspace.
        unsafe { nvfp4_linear_fprop(ctx.0, &l.desc, &xv, &wv, null(), &yv, null_mut()) }
    };
    let mut r = recipe("nvfp4");
    r.activation_rowwise.hadamard = 32;
    fails(fprop(r), NVFP4_ERR_MISMATCH, &["Hadamard transform of 32"]);
    assert!(y.values().iter().all(|v| *v == 7.0), "y was written");
    r.weight_rowwise.hadamard = 32;
    r.activation_rowwise.select = NVFP4_SELECT_4OVER6_MSE;
    r.activation_rowwise.signs = NVFP4_SIGNS_SEEDED;
    r.weight_rowwise.signs = NVFP4_SIGNS_SEEDED;
    ok(fprop(r));
    let mut rust = Recipe::named("nvfp4").unwrap();
    for o in [&mut rust.activation_rowwise, &mut rust.weight_rowwise] {
        o.hadamard = 32;
        o.signs = Signs::Seeded;
    }
    rust.activation_rowwise.select = Select::FourOverSixMse;
    let (a, b) = (
        operand(&rust, Role::Activation, false, &x),
        operand(&rust, Role::Weight, false, &w),
    );
    check(&y, &a, &b, &Epilogue::default(), "overridden");
    let mut r = recipe("nvfp4");
    r.weight_rowwise.block = 9;
    let mut desc: nvfp4_linear_desc = zero();
    desc.recipe = &r;
    let mut bytes = 0;
    // SAFETY: valid pointers.
    let status = unsafe { nvfp4_linear_workspace(ctx.0, &desc, 1, 1, 1, 0, &mut bytes) };
    fails(
        status,
        NVFP4_ERR_INVALID_ARGUMENT,
        &["desc.recipe.weight_rowwise.block is 9"],
    );
}

#[test]
fn the_workspace_is_checked() {
    let ctx = Ctx::new(1);
    let x = Dense::filled(Dtype::F32, 33, 48, || 1.0);
    let w = Dense::filled(Dtype::F32, 20, 48, || 1.0);
    let y = Dense::filled(Dtype::F32, 33, 20, || 7.0);
    let (xv, wv, yv) = (x.c(), w.c(), y.c());
    let l = layer(&ctx, recipe("nvfp4"), 33, 48, 20);
    let run = |desc: &nvfp4_linear_desc| {
        // SAFETY: valid matrices; the workspace is what is tested.
        unsafe { nvfp4_linear_fprop(ctx.0, desc, &xv, &wv, null(), &yv, null_mut()) }
    };
    ok(run(&l.desc));
    let mut bad = l.desc;
    bad.workspace = null_mut();
    fails(run(&bad), NVFP4_ERR_NULL_POINTER, &["workspace"]);
    bad = l.desc;
    bad.workspace_bytes = 100;
    fails(run(&bad), NVFP4_ERR_BUFFER_SIZE, &["100"]);
    bad = l.desc;
    bad.workspace = l.desc.workspace.cast::<u8>().wrapping_add(1).cast();
    fails(run(&bad), NVFP4_ERR_ALIGNMENT, &["16"]);
    bad = l.desc;
    bad.offset = 1 << 60;
    fails(run(&bad), NVFP4_ERR_INVALID_ARGUMENT, &["2^60"]);
    bad = l.desc;
    bad.recipe = null();
    fails(run(&bad), NVFP4_ERR_NULL_POINTER, &["recipe"]);
}
