//! The trial of the quantizers that use conversion instructions: every scale byte, every tie between scale bytes, every
//! tie between codes, values just beside them, blocks that are not finite, and random bits.

use super::driver::Stream;
use super::trial::{elements, matrix, shape, Numbers, Place, Side, Twin};
use super::{quantize, Cuda};
use crate::numerics::{e4m3, Chain, Dtype, Options, Rounding, ScaleLayout};
use crate::plan::quantize::plan;
use crate::plan::{QuantizePlan, QuantizeRequest, Seed, Source};
use crate::Result;

const ROWS: usize = 80;
const COLS: usize = 144;

/// Halves between neighbouring codes, and codes.
const STEPS: [f32; 14] = [
    0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0,
];

/// Blocks along rows whose scales and elements are what rounding is about, where the outer scale is 1.
fn values() -> Vec<f32> {
    let mut r = Numbers::new(4);
    let mut x = Vec::with_capacity(ROWS * COLS);
    for block in 0..ROWS * COLS / 16 {
        let byte = (block / 3 % 126) as u8;
        let (low, high) = (e4m3::decode(byte), e4m3::decode(byte + 1));
        let scale = match block % 3 {
            0 => high,
            1 => 0.5 * (low + high),
            _ => high * (1.0 + r.below(64) as f32 / 64.0),
        };
        for i in 0..16 {
            let sign = if r.below(2) == 0 { 1.0 } else { -1.0 };
            let beside = [1.0, 1.0, 1.0078125, 0.9921875][r.below(4) as usize];
            let v = match (block, i) {
                (_, 0) => 6.0 * scale.min(448.0),
                (700, 5) => f32::NAN,
                (701, 6) => f32::INFINITY,
                (702, _) => 0.0,
                _ => (STEPS[r.below(14) as usize] * high * beside).min(6.0 * scale),
            };
            x.push(sign * v);
        }
    }
    // So that the outer scale is 1 in every chain.
    x[3] = 2688.0;
    x
}

/// What differs, if anything does.
pub fn conversions(cuda: &Cuda, t: &mut Twin) -> Result<Option<String>> {
    let plain = Options::default();
    let stochastic = Options {
        rounding: Rounding::Stochastic,
        ..plain
    };
    let single = Options {
        chain: Chain::Single,
        ..plain
    };
    let transformed = Options {
        hadamard: 16,
        ..stochastic
    };
    let swizzled = Options {
        scale_layout: ScaleLayout::Swizzled,
        ..plain
    };
    for (what, dtype, row, col) in [
        ("nearest", Dtype::Bf16, single, Some(single)),
        ("stochastic", Dtype::Bf16, stochastic, Some(transformed)),
        ("nearest, f16", Dtype::F16, swizzled, None),
    ] {
        if let Some(how) = copies(cuda, t, &values(), (ROWS, COLS), dtype, Some(row), col)? {
            return Ok(Some(format!("{what}: {how}")));
        }
    }
    Ok(None)
}

/// Quantize of one matrix into the copies asked for.
pub fn copies(
    cuda: &Cuda,
    t: &mut Twin,
    values: &[f32],
    (rows, cols): (usize, usize),
    dtype: Dtype,
    row: Option<Options>,
    col: Option<Options>,
) -> Result<Option<String>> {
    t.reset();
    let x = t.put("x", &elements(dtype, values.iter().copied()));
    let mut place = |o: Option<Options>, columnwise, names| -> Result<Option<Place>> {
        o.map(|o| Ok(Place::take(t, shape(&o, rows, cols, columnwise)?, names)))
            .transpose()
    };
    let row_at = place(
        row,
        false,
        ["rowwise codes", "rowwise scales", "rowwise amax"],
    )?;
    let col_at = place(
        col,
        true,
        ["columnwise codes", "columnwise scales", "columnwise amax"],
    )?;
    let request = QuantizeRequest {
        rowwise: row.unwrap_or_default(),
        columnwise: col.unwrap_or_default(),
        seed: Seed::Host(7, 3),
        ..QuantizeRequest::default()
    };
    let make = |t: &mut Twin, side: Side| -> Result<QuantizePlan> {
        let source = Source::Matrix(matrix(t, side, x, dtype, rows, cols)?);
        let row = row_at.map(|p| p.buffers(t, side));
        let col = col_at.map(|p| p.buffers(t, side));
        plan(&request, side.device(), source, row.as_ref(), col.as_ref())
    };
    t.run(
        None,
        |t| {
            let plan = make(t, Side::Host)?;
            t.cpu.quantize(&plan)
        },
        |t, stream: Stream| quantize::run(cuda, &make(t, Side::Device)?, stream),
    )
}
