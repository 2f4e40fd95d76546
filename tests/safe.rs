//! The safe Rust API equals the scalar contract, and refuses what does not fit.

mod common;

use common::{Dense, Random};
use nvfp4::numerics::gemm::{gemm as gemm_reference, Epilogue};
use nvfp4::numerics::quantize::{quantize as quantize_reference, Call};
use nvfp4::numerics::*;
use nvfp4::{Context, Error, Gemm, Hadamard, Layer, Quantize, QuantizedTensor, Recipe, Tensor};

fn tensor(x: &Dense) -> Tensor {
    Tensor::from_f32(x.rows, x.cols, x.values())
        .unwrap()
        .to(x.dtype)
}

fn dense(seed: u64, dtype: Dtype, rows: usize, cols: usize) -> Dense {
    let mut random = Random::new(seed);
    Dense::filled(dtype, rows, cols, || random.normal())
}

fn same_copy(have: &QuantizedTensor, want: &matrix::Quantized) {
    assert_eq!(have.codes(), want.codes);
    assert_eq!(have.scales(), want.scales);
    assert_eq!(have.amax(), want.amax);
    assert_eq!(
        (have.rows(), have.cols(), have.source_cols()),
        (want.rows, want.cols, want.source_cols)
    );
    assert_eq!(
        (have.sign_words(), have.is_transposed()),
        (want.signs, want.transposed)
    );
    assert_eq!(*have.options(), want.options);
}

#[test]
fn both_copies_of_a_slice() {
    let ctx = Context::cpu(2);
    let x = dense(1, Dtype::Bf16, 64, 96);
    let o = Options {
        rounding: Rounding::Stochastic,
        hadamard: 32,
        ..Options::default()
    };
    let call = Quantize {
        rowwise: Some(Options::default()),
        columnwise: Some(o),
        seed: 4,
        offset: 5,
        origin: (128, 256),
        columnwise_amax: Some(&[9.0]),
        ..Quantize::default()
    };
    let (row, col) = nvfp4::quantize_with(&ctx, &tensor(&x), &call).unwrap();
    let (row, col) = (row.unwrap(), col.unwrap());
    let base = Call {
        seed: 4,
        offset: 5,
        origin: (128, 256),
        ..Call::default()
    };
    same_copy(&row, &quantize_reference(&x.reference(), &base).unwrap());
    let want = Call {
        options: o,
        columnwise: true,
        amax: Some(&[9.0]),
        ..base
    };
    let want = quantize_reference(&x.reference(), &want).unwrap();
    same_copy(&col, &want);
    let back = nvfp4::dequantize_transposed(&ctx, &col, Dtype::F32).unwrap();
    assert_eq!((back.rows(), back.cols()), (64, 96));
    assert_eq!(back.to_f32()[96 + 2].to_bits(), want.value(2, 1).to_bits());
    assert_eq!(
        nvfp4::amax(&ctx, &tensor(&x), &Options::default()).unwrap(),
        row.amax()
    );
}

#[test]
fn products_with_their_epilogue() {
    let ctx = Context::cpu(3);
    let (x, w) = (dense(2, Dtype::F32, 33, 70), dense(3, Dtype::F32, 21, 70));
    let (c, bias) = (dense(4, Dtype::F16, 33, 21), dense(5, Dtype::Bf16, 1, 21));
    let o = Options::default();
    let quantized = |m: &Dense| nvfp4::quantize(&ctx, &tensor(m), &o).unwrap();
    let (a, b) = (quantized(&x), quantized(&w));
    let call = Gemm {
        alpha: 0.25,
        c: Some((-2.0, &tensor(&c))),
        bias: Some(&tensor(&bias)),
        activation: Activation::Silu,
        dtype: Dtype::Bf16,
        ..Gemm::default()
    };
    let d = nvfp4::gemm(&ctx, &a, &b, &call).unwrap();
    let reference = |m: &Dense| quantize_reference(&m.reference(), &Call::default()).unwrap();
    let epilogue = Epilogue {
        alpha: 0.25,
        beta: -2.0,
        c: Some(c.reference()),
        bias: Some(bias.reference()),
        activation: Activation::Silu,
        ..Epilogue::default()
    };
    let want =
        gemm_reference(Accumulate::Block, &reference(&x), &reference(&w), &epilogue).unwrap();
    let want: Vec<u16> = want.into_iter().map(rounding::bf16_bits).collect();
    assert_eq!(d.bits(), want);
    // From parts, the same operand.
    let parts = QuantizedTensor::from_parts(&o, 33, 70, a.codes(), a.scales(), a.amax()).unwrap();
    assert_eq!(parts, a);
    assert_eq!(nvfp4::gemm(&ctx, &parts, &b, &call).unwrap(), d);
}

#[test]
fn transforms_go_there_and_back() {
    let ctx = Context::cpu(1);
    let x = tensor(&dense(6, Dtype::F32, 30, 50));
    for columns in [false, true] {
        let call = Hadamard {
            n: 64,
            columns,
            signs: Signs::Seeded,
            seed: 1,
            ..Hadamard::default()
        };
        let y = nvfp4::hadamard(&ctx, &x, &call).unwrap();
        assert_eq!(
            (y.rows(), y.cols()),
            if columns { (64, 50) } else { (30, 64) }
        );
        let z = nvfp4::hadamard(
            &ctx,
            &y,
            &Hadamard {
                inverse: true,
                ..call
            },
        )
        .unwrap();
        let (z, x) = (z.to_f32(), x.to_f32());
        let cols = if columns { 50 } else { 64 };
        for r in 0..30 {
            for c in 0..50 {
                assert!((z[r * cols + c] - x[r * 50 + c]).abs() < 1e-5);
            }
        }
    }
}

#[test]
fn tiles_transpose_and_layers_agree_with_their_parts() {
    let ctx = Context::cpu(2);
    let (x, w, dy) = (
        dense(7, Dtype::F32, 20, 48),
        dense(8, Dtype::F32, 36, 48),
        dense(9, Dtype::F32, 20, 36),
    );
    let recipe = Recipe::named("nvfp4").unwrap();
    let layer = Layer {
        recipe,
        seed: 2,
        offset: 3,
    };
    let rowwise = nvfp4::quantize(&ctx, &tensor(&w), &recipe.weight_rowwise).unwrap();
    let turned = nvfp4::transpose(&ctx, &rowwise, ScaleLayout::Linear).unwrap();
    // dgrad's weight is the columnwise copy, which for tiles is the transpose of the rowwise one.
    let call = Quantize {
        rowwise: Some(recipe.gradient_rowwise),
        seed: 2,
        offset: 3 | 2 << 60,
        ..Quantize::default()
    };
    let gradient = nvfp4::quantize_with(&ctx, &tensor(&dy), &call)
        .unwrap()
        .0
        .unwrap();
    let dx = nvfp4::linear_dgrad(&ctx, &layer, &tensor(&dy), &tensor(&w)).unwrap();
    assert_eq!(
        dx,
        nvfp4::gemm(&ctx, &gradient, &turned, &Gemm::default()).unwrap()
    );
    let activation = nvfp4::quantize(&ctx, &tensor(&x), &recipe.activation_rowwise).unwrap();
    let y = nvfp4::linear_fprop(&ctx, &layer, &tensor(&x), &tensor(&w), None).unwrap();
    assert_eq!(
        y,
        nvfp4::gemm(&ctx, &activation, &rowwise, &Gemm::default()).unwrap()
    );
    let dw = nvfp4::linear_wgrad(&ctx, &layer, &tensor(&dy), &tensor(&x)).unwrap();
    assert_eq!((dw.rows(), dw.cols(), dw.dtype()), (36, 48, Dtype::F32));
    assert!(dw.to_f32().iter().any(|v| *v != 0.0));
}

#[test]
fn what_does_not_fit_is_refused_with_its_values() {
    let ctx = Context::cpu(1);
    let shape = |e: Error, words: &[&str]| {
        let text = e.to_string();
        words
            .iter()
            .for_each(|w| assert!(text.contains(w), "{text:?} does not hold {w:?}"));
    };
    shape(
        Tensor::from_f32(3, 5, vec![0.0; 14]).unwrap_err(),
        &["14", "[3, 5]"],
    );
    shape(
        Tensor::from_bits(Dtype::F32, 1, 1, vec![0]).unwrap_err(),
        &["F32"],
    );
    shape(
        Tensor::zeros(Dtype::F32, usize::MAX, 2).unwrap_err(),
        &["address space"],
    );
    let o = Options::default();
    let (a, b) = (
        Tensor::zeros(Dtype::F32, 4, 32).unwrap(),
        Tensor::zeros(Dtype::F32, 4, 48).unwrap(),
    );
    let (qa, qb) = (
        nvfp4::quantize(&ctx, &a, &o).unwrap(),
        nvfp4::quantize(&ctx, &b, &o).unwrap(),
    );
    shape(
        nvfp4::gemm(&ctx, &qa, &qb, &Gemm::default()).unwrap_err(),
        &["[4, 32]", "[4, 48]"],
    );
    let bias = Gemm {
        bias: Some(&a),
        ..Gemm::default()
    };
    shape(
        nvfp4::gemm(&ctx, &qa, &qa, &bias).unwrap_err(),
        &["bias is [4, 32]", "[1, 4]"],
    );
    let call = Quantize {
        rowwise: Some(o),
        rowwise_amax: Some(&[1.0, 2.0]),
        ..Quantize::default()
    };
    shape(
        nvfp4::quantize_with(&ctx, &a, &call).unwrap_err(),
        &["2 values", "1 scale domains"],
    );
    shape(
        nvfp4::quantize_with(&ctx, &a, &Quantize::default()).unwrap_err(),
        &["rowwise and columnwise"],
    );
    let bad = |codes: usize, scales: usize, amax: &[f32]| {
        QuantizedTensor::from_parts(&o, 2, 33, &vec![0; codes], &vec![0; scales], amax).unwrap_err()
    };
    shape(bad(33, 6, &[1.0]), &["33", "34"]);
    shape(bad(34, 5, &[1.0]), &["5", "6"]);
    shape(bad(34, 6, &[]), &["0 values", "1"]);
    shape(bad(34, 6, &[f32::NAN]), &["NaN"]);
    shape(
        nvfp4::transpose(&ctx, &qa, ScaleLayout::Linear).unwrap_err(),
        &["square tiles"],
    );
    let layer = Layer {
        offset: 1 << 60,
        ..Layer::default()
    };
    shape(
        nvfp4::linear_fprop(&ctx, &layer, &a, &a, None).unwrap_err(),
        &["2^60"],
    );
    shape(
        nvfp4::linear_fprop(&ctx, &Layer::default(), &a, &b, None).unwrap_err(),
        &["32", "48"],
    );
}
