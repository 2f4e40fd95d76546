//! D = act(alpha' * A B^T + beta * C + bias) on quantized operands (docs/format.md, section 10). This file holds the
//! BLOCK accumulator, the outer factor and the epilogue; `gemm_hardware` and `gemm_fast` the other two modes.

use super::matrix::{has_amax, Matrix, Quantized};
use super::quantize::{quantize, Call};
use super::rounding::bf16_value;
use super::scale::{decode_amax, DecodeScale, ONE_SIXTH, RANGE_DECODE};
use super::{activation, e2m1, e4m3, e8m0, gemm_hardware};
use super::{Accumulate, Activation, Chain, Format, ScaleRule};
use crate::{Error, Result};

/// What follows the accumulator.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    pub alpha: f32,
    /// 0 does not read `c`.
    pub beta: f32,
    /// [M, N]; needed where beta is not 0.
    pub c: Option<Matrix<'a>>,
    /// [1, N].
    pub bias: Option<Matrix<'a>>,
    pub activation: Activation,
    /// One factor a row of D, one a column of D, multiplied into alpha' in this order.
    pub row_factors: Option<&'a [f32]>,
    pub col_factors: Option<&'a [f32]>,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue {
            alpha: 1.0,
            beta: 0.0,
            c: None,
            bias: None,
            activation: Activation::None,
            row_factors: None,
            col_factors: None,
        }
    }
}

/// D in f32, [M, N], before its cast (`rounding::round_to`) or quantization (`quantize` with a given amax). A is
/// [M, K], B is [N, K]. FAST names a bound, not bits: see `gemm_fast`.
pub fn gemm(
    mode: Accumulate,
    a: &Quantized,
    b: &Quantized,
    epilogue: &Epilogue,
) -> Result<Vec<f32>> {
    check_operands(a, b)?;
    let acc = match mode {
        Accumulate::Default | Accumulate::Block => block(a, b),
        Accumulate::Hardware => gemm_hardware::accumulate(a, b, gemm_hardware::K64)?,
        Accumulate::HardwareK96 => gemm_hardware::accumulate(a, b, gemm_hardware::K96)?,
        Accumulate::Fast => {
            return Err(Error::NotSupported(
                "FAST has a bound and no reference bits".into(),
            ))
        }
    };
    let mut d = Vec::with_capacity(acc.len());
    for i in 0..a.rows {
        for j in 0..b.rows {
            d.push(finish(
                acc[i * b.rows + j],
                outer_factor(a, i, b, j),
                epilogue,
                i,
                j,
            ));
        }
    }
    Ok(d)
}

/// D quantized: f32 after the activation, without a cast before it. `call` gives the amax where the format has one,
/// because D's own is known only when all of it has been computed.
pub fn gemm_quantized(
    mode: Accumulate,
    a: &Quantized,
    b: &Quantized,
    epilogue: &Epilogue,
    call: &Call,
) -> Result<Quantized> {
    if has_amax(&call.options) && call.amax.is_none() {
        return Err(Error::InvalidArgument(
            "a quantized D needs a given amax; there is none".into(),
        ));
    }
    let d = gemm(mode, a, b, epilogue)?;
    quantize(&Matrix::f32(&d, a.rows, b.rows), call)
}

/// One element of D from its accumulator and outer factor.
pub fn finish(acc: f32, outer: f32, e: &Epilogue, row: usize, col: usize) -> f32 {
    let mut alpha = e.alpha * outer;
    if let Some(f) = e.row_factors {
        alpha *= f[row];
    }
    if let Some(f) = e.col_factors {
        alpha *= f[col];
    }
    let mut d = alpha * acc;
    if let (true, Some(c)) = (e.beta != 0.0, e.c) {
        d += e.beta * c.at(row, col);
    }
    if let Some(bias) = e.bias {
        d += bias.at(0, col);
    }
    activation::apply(e.activation, d)
}

/// The outer scale of an operand's row as (a, C): NVFP4 as decode has it; (1, 1) for SINGLE, MXFP4 and BF16; (fl(1/6),
/// 1) for ENCODE_CENTRIC.
fn outer_scale(d: &DecodeScale) -> (f32, f32) {
    match (d.format, d.chain) {
        (Format::Nvfp4, Chain::Te | Chain::Div6) => (decode_amax(d.amax, d.c), d.c),
        (Format::Mxfp4, _) if d.scale_rule == ScaleRule::EncodeCentric => (ONE_SIXTH, 1.0),
        _ => (1.0, 1.0),
    }
}

/// g of two scale domains: fl(fl(aA * aB) / fl(C_A * C_B)), or, where fl(aA * aB) is outside 2^-100..2^100,
/// fl(fl(aA * fl(1/C_A)) * fl(aB * fl(1/C_B))); then times 17/16 for each operand that needs it, A first.
pub fn global_factor(a: &DecodeScale, b: &DecodeScale) -> f32 {
    let ((amax_a, c_a), (amax_b, c_b)) = (outer_scale(a), outer_scale(b));
    let product = amax_a * amax_b;
    let mut g = if (2f32.powi(-100)..=2f32.powi(100)).contains(&product) {
        product / (c_a * c_b)
    } else {
        (amax_a * (1.0 / c_a)) * (amax_b * (1.0 / c_b))
    };
    for operand in [a, b] {
        if operand.range_16_17 {
            g *= RANGE_DECODE;
        }
    }
    g
}

fn outer_factor(a: &Quantized, row: usize, b: &Quantized, col: usize) -> f32 {
    global_factor(&a.decode_scale(row), &b.decode_scale(col))
}

/// Operands that may meet: one contraction length, block size and transform.
pub fn check_operands(a: &Quantized, b: &Quantized) -> Result<()> {
    if a.cols != b.cols {
        return Err(Error::Shape(format!(
            "A has {} columns and B has {}; both are K",
            a.cols, b.cols
        )));
    }
    let (fa, fb) = (a.options.format, b.options.format);
    if fa != fb && fa != Format::Bf16 && fb != Format::Bf16 {
        return Err(Error::Mismatch(format!(
            "A is {fa:?} and B is {fb:?}: their blocks differ"
        )));
    }
    if (a.options.hadamard, a.signs) != (b.options.hadamard, b.signs) {
        return Err(Error::Mismatch(format!(
            "A went through a transform of {} with signs {:08x?}, B of {} with {:08x?}",
            a.options.hadamard, a.signs, b.options.hadamard, b.signs
        )));
    }
    Ok(())
}

/// An operand unpacked: twice its code values and its block scales in f64, where every product is exact.
struct Unpacked {
    halves: Vec<i32>,
    scales: Vec<f64>,
}

impl Unpacked {
    fn new(q: &Quantized) -> Self {
        let blocks = q.cols.div_ceil(q.options.format.block());
        let scale = |byte| match q.options.format {
            Format::Mxfp4 => e8m0::decode(byte) as f64,
            _ => e4m3::decode(byte) as f64,
        };
        let mut out = Unpacked {
            halves: Vec::new(),
            scales: Vec::new(),
        };
        for r in 0..q.rows {
            out.halves
                .extend((0..q.cols).map(|c| e2m1::decode_halves(q.code(r, c))));
            out.scales
                .extend((0..blocks).map(|k| scale(q.scale_byte(r, k))));
        }
        out
    }
}

/// The BLOCK accumulator of every element: each block's dot product times both scales exactly, rounded once to f32,
/// added in f32 in ascending k from +0. A pair with a BF16 operand: fma over single elements in ascending k.
fn block(a: &Quantized, b: &Quantized) -> Vec<f32> {
    if a.options.format == Format::Bf16 || b.options.format == Format::Bf16 {
        return elementwise(a, b);
    }
    let (ua, ub) = (Unpacked::new(a), Unpacked::new(b));
    let (k, size) = (a.cols, a.options.format.block());
    let blocks = k.div_ceil(size);
    let mut out = Vec::with_capacity(a.rows * b.rows);
    for i in 0..a.rows {
        for j in 0..b.rows {
            let mut acc = 0f32;
            for block in 0..blocks {
                let range = block * size..((block + 1) * size).min(k);
                let xs = &ua.halves[i * k..][range.clone()];
                let ys = &ub.halves[j * k..][range];
                let quarters: i32 = xs.iter().zip(ys).map(|(x, y)| x * y).sum();
                acc += block_term(
                    quarters,
                    ua.scales[i * blocks + block],
                    ub.scales[j * blocks + block],
                );
            }
            out.push(acc);
        }
    }
    out
}

/// quarters / 4 * sa * sb, exact in f64 (at most 21 significant bits, exponents within +-260), rounded once to f32.
pub fn block_term(quarters: i32, sa: f64, sb: f64) -> f32 {
    (quarters as f64 * 0.25 * sa * sb) as f32
}

/// An element without its outer scale: code times block scale, or the bf16 value.
pub fn inner_value(q: &Quantized, row: usize, col: usize) -> f32 {
    match q.options.format {
        Format::Bf16 => bf16_value(q.bf16_bits(row, col)),
        Format::Nvfp4 => e2m1::decode(q.code(row, col)) * e4m3::decode(q.scale_byte(row, col / 16)),
        Format::Mxfp4 => e2m1::decode(q.code(row, col)) * e8m0::decode(q.scale_byte(row, col / 32)),
    }
}

fn elementwise(a: &Quantized, b: &Quantized) -> Vec<f32> {
    let values = |q: &Quantized| -> Vec<f32> {
        (0..q.rows * q.cols)
            .map(|i| inner_value(q, i / q.cols, i % q.cols))
            .collect()
    };
    let (va, vb, k) = (values(a), values(b), a.cols);
    let mut out = Vec::with_capacity(a.rows * b.rows);
    for i in 0..a.rows {
        for j in 0..b.rows {
            let (x, y) = (&va[i * k..][..k], &vb[j * k..][..k]);
            out.push(x.iter().zip(y).fold(0f32, |acc, (x, y)| x.mul_add(*y, acc)));
        }
    }
    out
}
