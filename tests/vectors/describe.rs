//! Inputs, options and results of the reference as JSON (README.md in this folder says what each field means).

use crate::json::{bytes, floats, halves, number, text, Flag, Json, List, Number, Object};
use nvfp4::numerics::dequantize::dequantize;
use nvfp4::numerics::gemm::{gemm, gemm_quantized, Epilogue};
use nvfp4::numerics::matrix::{Elements, Matrix, Quantized};
use nvfp4::numerics::quantize::{quantize, Call};
use nvfp4::numerics::rounding::{bf16_bits, f16_bits};
use nvfp4::numerics::*;
use nvfp4::Error;

/// A case: the reference's answer to one call, with the decoded values.
pub fn quantize_case(m: &Matrix, call: &Call) -> Json {
    answer(m, call, true)
}

/// The same without the decoded values, for large cases.
pub fn quantize_bytes_case(m: &Matrix, call: &Call) -> Json {
    answer(m, call, false)
}

fn answer(m: &Matrix, call: &Call, decoded: bool) -> Json {
    let result = match quantize(m, call) {
        Ok(q) if !decoded => ("output", Object(parts(&q))),
        Ok(q) => ("output", quantized_output(&q)),
        Err(e) => ("error", error(&e)),
    };
    Object(vec![
        ("call", text("quantize")),
        ("input", matrix(m)),
        ("options", options(call)),
        result,
    ])
}

fn quantized_output(q: &Quantized) -> Json {
    let mut fields = parts(q);
    fields.push(("decoded", floats(&dequantize(q, Dtype::F32), q.cols)));
    Object(fields)
}

fn error(e: &Error) -> Json {
    Object(vec![
        ("status", Number(e.status() as i64)),
        ("sentence", text(e.to_string())),
    ])
}

pub fn matrix(m: &Matrix) -> Json {
    let all: Vec<f32> = (0..m.rows * m.cols)
        .map(|i| m.at(i / m.cols, i % m.cols))
        .collect();
    let (dtype, bits) = match m.data {
        Elements::F32(_) => ("float32", floats(&all, m.cols)),
        Elements::Bf16(d) => ("bfloat16", halves(&d[..m.rows * m.cols], m.cols)),
        Elements::F16(d) => ("float16", halves(&d[..m.rows * m.cols], m.cols)),
    };
    Object(vec![
        ("dtype", text(dtype)),
        ("rows", number(m.rows)),
        ("cols", number(m.cols)),
        ("bits", bits),
    ])
}

/// Everything that the call changes from its default, under the names that `nvfp4.quantize` uses in Python.
fn options(call: &Call) -> Json {
    let o = &call.options;
    let mut fields = vec![
        ("format", text(format_name(o.format))),
        ("block", text(block_name(o))),
    ];
    let mut add = |condition: bool, key, value: Json| {
        if condition {
            fields.push((key, value));
        }
    };
    add(
        o.format == Format::Nvfp4,
        "chain",
        text(chain_name(o.chain)),
    );
    add(
        o.format == Format::Mxfp4,
        "scale_rule",
        text(rule_name(o.scale_rule)),
    );
    add(
        o.rounding == Rounding::Stochastic,
        "rounding",
        text("stochastic"),
    );
    add(
        o.select != Select::Single,
        "select",
        text(select_name(o.select)),
    );
    add(o.hadamard != 0, "hadamard", Number(o.hadamard as i64));
    match o.signs {
        Signs::Default => {}
        Signs::Mask16(mask) => add(true, "sign_mask", Number(mask as i64)),
        Signs::Mask(words) => add(true, "sign_mask", words_list(words)),
        Signs::Seeded => add(true, "sign_mask", text("seeded")),
    }
    add(o.keep_f32, "keep_f32", Flag(true));
    add(o.range_16_17, "range_16_17", Flag(true));
    add(o.half_scale, "half_scale", Flag(true));
    add(o.domain_rows != 0, "domain", number(o.domain_rows));
    add(o.c != 0.0, "c", Number(o.c as i64));
    add(
        o.scale_layout == ScaleLayout::Swizzled,
        "scale_layout",
        text("swizzled"),
    );
    add(call.columnwise, "axis", text("column"));
    add(
        call.nonfinite == Nonfinite::Saturate,
        "nonfinite",
        text("saturate"),
    );
    add(call.seed != 0, "seed", Number(call.seed as i64));
    add(call.offset != 0, "offset", Number(call.offset as i64));
    add(
        call.origin != (0, 0),
        "origin",
        List(vec![
            Number(call.origin.0 as i64),
            Number(call.origin.1 as i64),
        ]),
    );
    if let Some(amax) = call.amax {
        add(true, "amax", floats(amax, amax.len()));
    }
    Object(fields)
}

/// A quantized tensor: what it takes to decode it.
pub fn parts(q: &Quantized) -> Vec<(&'static str, Json)> {
    let o = &q.options;
    let blocks = layout::scale_cols(o.format, q.cols);
    let linear = o.scale_layout == ScaleLayout::Linear;
    let mut fields = vec![
        ("format", text(format_name(o.format))),
        ("block", text(block_name(o))),
        ("rows", number(q.rows)),
        ("cols", number(q.cols)),
        (
            "codes",
            bytes(&q.codes, layout::code_row_bytes(o.format, q.cols)),
        ),
    ];
    let mut add = |condition: bool, key, value: Json| {
        if condition {
            fields.push((key, value));
        }
    };
    add(
        o.format != Format::Bf16,
        "scales",
        bytes(&q.scales, if linear { blocks } else { 64 }),
    );
    add(!q.amax.is_empty(), "amax", floats(&q.amax, q.amax.len()));
    add(
        o.format == Format::Nvfp4,
        "chain",
        text(chain_name(o.chain)),
    );
    add(!q.amax.is_empty(), "c_bits", bits(o.c));
    add(
        o.format == Format::Mxfp4,
        "scale_rule",
        text(rule_name(o.scale_rule)),
    );
    add(!linear, "scale_layout", text("swizzled"));
    add(o.domain_rows != 0, "domain", number(o.domain_rows));
    add(o.range_16_17, "range_16_17", Flag(true));
    add(o.hadamard != 0, "hadamard", Number(o.hadamard as i64));
    add(o.hadamard != 0, "signs", words_list(q.signs));
    add(
        q.source_cols != q.cols,
        "source_cols",
        number(q.source_cols),
    );
    add(q.transposed, "transposed", Flag(true));
    fields
}

/// Decoding to one type.
pub fn dequantize_case(q: &Quantized, dtype: Dtype) -> Json {
    let values = dequantize(q, dtype);
    Object(vec![
        ("call", text("dequantize")),
        ("a", Object(parts(q))),
        ("dtype", text(dtype_name(dtype))),
        ("output", typed(&values, dtype, q.cols)),
    ])
}

/// A product, its output cast to `dtype`.
pub fn gemm_case(
    mode: Accumulate,
    a: &Quantized,
    b: &Quantized,
    e: &Epilogue,
    dtype: Dtype,
) -> Json {
    let mut fields = operands_and_epilogue(mode, a, b, e);
    fields.push(("out_dtype", text(dtype_name(dtype))));
    fields.push(match gemm(mode, a, b, e) {
        Ok(d) => {
            let d: Vec<f32> = d.iter().map(|v| rounding::round_to(dtype, *v)).collect();
            ("output", typed(&d, dtype, b.rows))
        }
        Err(e) => ("error", error(&e)),
    });
    Object(fields)
}

/// A product whose output is quantized.
pub fn gemm_quantized_case(a: &Quantized, b: &Quantized, e: &Epilogue, call: &Call) -> Json {
    let mut fields = operands_and_epilogue(Accumulate::Block, a, b, e);
    fields.push(("out_dtype", text(format_name(call.options.format))));
    fields.push(("out_options", options(call)));
    fields.push(match gemm_quantized(Accumulate::Block, a, b, e, call) {
        Ok(q) => ("output", quantized_output(&q)),
        Err(e) => ("error", error(&e)),
    });
    Object(fields)
}

fn operands_and_epilogue(
    mode: Accumulate,
    a: &Quantized,
    b: &Quantized,
    e: &Epilogue,
) -> Vec<(&'static str, Json)> {
    let mut fields = vec![
        ("call", text("gemm")),
        ("a", Object(parts(a))),
        ("b", Object(parts(b))),
    ];
    let mut add = |condition: bool, key, value: Json| {
        if condition {
            fields.push((key, value));
        }
    };
    add(true, "accumulate", text(accumulate_name(mode)));
    add(e.alpha != 1.0, "alpha", bits(e.alpha));
    add(e.beta != 0.0, "beta", bits(e.beta));
    if let (true, Some(c)) = (e.beta != 0.0, e.c) {
        add(true, "c", matrix(&c));
    }
    if let Some(bias) = e.bias {
        add(true, "bias", matrix(&bias));
    }
    if let Some(f) = e.row_factors {
        add(true, "row_factors", floats(f, f.len()));
    }
    if let Some(f) = e.col_factors {
        add(true, "col_factors", floats(f, f.len()));
    }
    add(
        e.activation != Activation::None,
        "activation",
        text(activation_name(e.activation)),
    );
    fields
}

/// Values that are already of type `dtype`, by their bits.
fn typed(values: &[f32], dtype: Dtype, per_line: usize) -> Json {
    let word = |v: &f32| match dtype {
        _ if v.is_nan() => "nan".into(),
        Dtype::F32 => format!("{:08x}", v.to_bits()),
        Dtype::Bf16 => format!("{:04x}", bf16_bits(*v)),
        Dtype::F16 => format!("{:04x}", f16_bits(*v)),
    };
    let line = |l: &[f32]| text(l.iter().map(word).collect::<Vec<_>>().join(" "));
    List(values.chunks(per_line.max(1)).map(line).collect())
}

/// One f32 by its bits.
fn bits(v: f32) -> Json {
    text(format!("{:08x}", v.to_bits()))
}

fn words_list(words: [u32; 4]) -> Json {
    List(words.iter().map(|w| Number(*w as i64)).collect())
}

fn block_name(o: &Options) -> &'static str {
    match (o.format, o.block) {
        (Format::Mxfp4, Block::OneD) => "1x32",
        (Format::Mxfp4, Block::TwoD) => "32x32",
        (_, Block::OneD) => "1x16",
        (_, Block::TwoD) => "16x16",
    }
}

pub fn format_name(f: Format) -> &'static str {
    ["nvfp4", "mxfp4", "bf16"][f as usize]
}

fn chain_name(c: Chain) -> &'static str {
    ["te", "div6", "single"][c as usize]
}

fn rule_name(r: ScaleRule) -> &'static str {
    ["floor", "ceil", "even", "encode_centric"][r as usize]
}

fn select_name(s: Select) -> &'static str {
    [
        "single",
        "4over6_mae",
        "4over6_mse",
        "4over6_absmax",
        "ms_eden",
    ][s as usize]
}

fn accumulate_name(a: Accumulate) -> &'static str {
    ["default", "fast", "block", "hardware", "hardware_k96"][a as usize]
}

pub fn activation_name(a: Activation) -> &'static str {
    ["none", "gelu", "silu", "relu2"][a as usize]
}

fn dtype_name(d: Dtype) -> &'static str {
    ["float32", "bfloat16", "float16"][d as usize]
}
