//! Quantization of a whole matrix (docs/format.md, sections 2 to 9), one step after the other: the copy's elements in
//! f32, the transform, the amax of each domain, a scale byte a block, a code an element.

use super::check::check;
use super::matrix::{amax_count, has_amax, Matrix, Quantized};
use super::rounding::{bf16_bits, round_bf16, stochastic, Draw};
use super::scale::{block_scale, encode_multiplier, resolve, scaled, tensor_scale, TensorScale};
use super::{e2m1, e4m3, e8m0, four_over_six, hadamard, layout, ms_eden, special};
use super::{Block, Dtype, Format, Nonfinite, Options, Rounding, Select};
use crate::{Error, Result};

/// One copy of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    pub options: Options,
    /// Make the transposed copy: blocks and transform run along the source's columns.
    pub columnwise: bool,
    pub nonfinite: Nonfinite,
    pub seed: u64,
    /// Below 2^62.
    pub offset: u64,
    /// Global row and column of the source's first element.
    pub origin: (u64, u64),
    /// Given amax, one f32 a scale domain of this copy.
    pub amax: Option<&'a [f32]>,
}

/// What a quantizer did to its input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Input elements that are NaN or Inf.
    pub nonfinite: u64,
    /// Finite elements whose scaled magnitude exceeded 6.
    pub saturated: u64,
    /// Non-zero finite elements that decode to 0.
    pub underflowed: u64,
    /// Sum of x^2 and of (decoded - x)^2 over finite elements (after a transform) that decode to finite values: rows
    /// in order, each summed in order.
    pub sum_squares: f64,
    pub sum_squared_error: f64,
}

/// The quantized copy.
pub fn quantize(source: &Matrix, call: &Call) -> Result<Quantized> {
    Ok(quantize_with_stats(source, call)?.0)
}

/// Amax of each scale domain of the copy (after the transform, over finite elements), without quantizing.
pub fn amax(source: &Matrix, call: &Call) -> Result<Vec<f32>> {
    check(&call.options)?;
    Ok(domain_amax(&call.options, &Copy::new(source, call)))
}

/// The quantized copy, and what it did to the data.
pub fn quantize_with_stats(source: &Matrix, call: &Call) -> Result<(Quantized, Stats)> {
    check(&call.options)?;
    let options = resolve(&call.options);
    let copy = Copy::new(source, call);
    let amax = match call.amax {
        Some(given) if has_amax(&options) => {
            check_given_amax(given, amax_count(&options, copy.rows))?.to_vec()
        }
        _ => domain_amax(&options, &copy),
    };
    let (out, saturated) = match options.format {
        Format::Bf16 => (pass_through(&copy, call), 0),
        _ => encode(&options, &copy, call, amax),
    };
    let stats = Stats {
        saturated,
        ..stats(source, &copy, &out)
    };
    Ok((out, stats))
}

/// The copy's elements in f32, after transposition, policy and transform.
struct Copy {
    rows: usize,
    cols: usize,
    source_cols: usize,
    data: Vec<f32>,
    signs: [u32; 4],
}

impl Copy {
    fn new(source: &Matrix, call: &Call) -> Copy {
        let (rows, source_cols) = if call.columnwise {
            (source.cols, source.rows)
        } else {
            (source.rows, source.cols)
        };
        let n = call.options.hadamard as usize;
        let cols = if n == 0 {
            source_cols
        } else {
            source_cols.next_multiple_of(n)
        };
        let signs = match n {
            0 => [0; 4],
            _ => hadamard::sign_words(call.options.signs, n, call.seed, call.offset),
        };
        let mut data = vec![0f32; rows * cols];
        for r in 0..rows {
            for c in 0..source_cols {
                let x = if call.columnwise {
                    source.at(c, r)
                } else {
                    source.at(r, c)
                };
                data[r * cols + c] = special::apply(call.nonfinite, source.dtype(), x);
            }
        }
        if n != 0 {
            for block in data.chunks_exact_mut(n) {
                transform(block, &signs, call, source.dtype());
            }
        }
        Copy {
            rows,
            cols,
            source_cols,
            data,
            signs,
        }
    }

    fn at(&self, row: usize, col: usize) -> f32 {
        self.data[row * self.cols + col]
    }
}

/// The transform of one block as a quantizer applies it: rounded to bf16 unless told otherwise, then the policy again.
fn transform(block: &mut [f32], signs: &[u32; 4], call: &Call, dtype: Dtype) {
    hadamard::forward(block, signs);
    for y in block {
        if !call.options.keep_f32 {
            *y = round_bf16(*y);
        }
        *y = special::apply(call.nonfinite, dtype, *y);
    }
}

fn domain_amax(o: &Options, copy: &Copy) -> Vec<f32> {
    let rows_each = if o.domain_rows == 0 {
        copy.rows
    } else {
        o.domain_rows
    };
    (0..amax_count(o, copy.rows))
        .map(|d| {
            let first = d * rows_each;
            let last = (first + rows_each).min(copy.rows);
            special::amax(
                copy.data[first * copy.cols..last * copy.cols]
                    .iter()
                    .copied(),
            )
        })
        .collect()
}

fn check_given_amax(given: &[f32], count: usize) -> Result<&[f32]> {
    if given.len() != count {
        return Err(Error::Shape(format!(
            "{} values of amax given for {count} scale domains",
            given.len()
        )));
    }
    match given.iter().position(|a| !(a.is_finite() && *a >= 0.0)) {
        Some(i) => Err(Error::InvalidArgument(format!(
            "amax[{i}] = {} is given; an amax must be finite and not negative",
            given[i]
        ))),
        None => Ok(given),
    }
}

/// Where the copy's element (row, col) takes its random bits: its global coordinates in the copy, or in the source
/// for tiles without a transform, so that both copies hold the same codes.
fn random_byte(call: &Call, row: usize, col: usize) -> u32 {
    let in_source_order = !call.columnwise || tiles_follow_source(&call.options);
    let draw = Draw {
        seed: call.seed,
        offset: call.offset,
        columnwise: !in_source_order,
    };
    let (origin_row, origin_col) = call.origin;
    let (row, col) = (row as u64, col as u64);
    match (call.columnwise, in_source_order) {
        (false, _) => draw.byte(origin_row + row, origin_col + col),
        (true, true) => draw.byte(origin_row + col, origin_col + row),
        (true, false) => draw.byte(origin_col + row, origin_row + col),
    }
}

/// Tiles that are the same set of elements in both copies are decided and drawn in the source's orientation.
fn tiles_follow_source(o: &Options) -> bool {
    o.block == Block::TwoD && o.hadamard == 0
}

/// Code of one element: `e` multiplies, `random` is its byte under stochastic rounding.
pub fn encode_element(o: &Options, x: f32, e: f32, random: impl FnOnce() -> u32) -> u8 {
    let v = scaled(o, x, e);
    match o.rounding {
        Rounding::Nearest => e2m1::encode(v),
        Rounding::Stochastic => stochastic(v, random()),
    }
}

/// The copy in an E2M1 format, and how many scaled magnitudes exceeded 6.
fn encode(o: &Options, copy: &Copy, call: &Call, amax: Vec<f32>) -> (Quantized, u64) {
    let side = o.format.block();
    let tile_rows = if o.block == Block::TwoD { side } else { 1 };
    let blocks = layout::scale_cols(o.format, copy.cols);
    let width = layout::code_row_bytes(o.format, copy.cols);
    let mut out = Quantized {
        rows: copy.rows,
        cols: copy.cols,
        source_cols: copy.source_cols,
        codes: vec![0; copy.rows * width],
        scales: vec![0; layout::scale_bytes(o.scale_layout, copy.rows, blocks)],
        amax,
        options: *o,
        signs: copy.signs,
        transposed: call.columnwise,
    };
    let mut saturated = 0;
    for row in (0..copy.rows).step_by(tile_rows) {
        let t = tensor_scale(o, out.row_amax(row));
        for block in 0..blocks {
            let rows = row..(row + tile_rows).min(copy.rows);
            let cols = block * side..((block + 1) * side).min(copy.cols);
            let byte = choose_scale(o, copy, &t, rows.clone(), cols.clone(), call.columnwise);
            let e = byte.map(|b| encode_multiplier(o, b, &t));
            for r in rows {
                out.scales[layout::scale_offset(o.scale_layout, r, block, blocks)] =
                    byte.unwrap_or(nan_byte(o));
                // A block that is not finite keeps the codes 0.
                let Some(e) = e else { continue };
                for c in cols.clone() {
                    let x = copy.at(r, c);
                    let code = encode_element(o, x, e, || random_byte(call, r, c));
                    e2m1::set(&mut out.codes[r * width..], c, code);
                    saturated += (scaled(o, x, e).abs() > e2m1::MAX) as u64;
                }
            }
        }
    }
    if o.select == Select::MsEden {
        correct_scales(copy, call, &mut out);
    }
    (out, saturated)
}

fn nan_byte(o: &Options) -> u8 {
    match o.format {
        Format::Mxfp4 => e8m0::NAN,
        _ => e4m3::NAN,
    }
}

/// Scale byte of the block or tile with these rows and columns; None if it holds a value that is not finite.
fn choose_scale(
    o: &Options,
    copy: &Copy,
    t: &TensorScale,
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
    columnwise: bool,
) -> Option<u8> {
    let mut elements = Vec::new();
    for r in rows.clone() {
        elements.extend(cols.clone().map(|c| copy.at(r, c)));
    }
    let b = special::block_amax(&elements)?;
    if !four_over_six::is_selected(o.select) {
        return Some(block_scale(o, b, t).0);
    }
    let swap = columnwise && tiles_follow_source(o);
    let mut tile = vec![[0f32; 16]; if o.block == Block::TwoD { 16 } else { 1 }];
    for r in rows.clone() {
        for c in cols.clone() {
            let (i, j) = (r - rows.start, c - cols.start);
            let (i, j) = if swap { (j, i) } else { (i, j) };
            tile[i][j] = copy.at(r, c);
        }
    }
    Some(four_over_six::block_scale(o, b, t, &tile))
}

/// MS-EDEN's second step: every scale byte of a transformed block times the block's correction.
fn correct_scales(copy: &Copy, call: &Call, out: &mut Quantized) {
    let n = ms_eden::TRANSFORM;
    let draw = Draw {
        seed: call.seed,
        offset: call.offset,
        columnwise: call.columnwise,
    };
    let (row0, col0) = if call.columnwise {
        (call.origin.1, call.origin.0)
    } else {
        call.origin
    };
    let blocks = layout::scale_cols(Format::Nvfp4, copy.cols);
    for r in 0..copy.rows {
        for first in (0..copy.cols).step_by(n) {
            let y = &copy.data[r * copy.cols + first..][..n];
            let decoded: Vec<f32> = (first..first + n).map(|c| out.value(r, c)).collect();
            let correction = ms_eden::correction(y, &decoded);
            for block in first / 16..(first + n) / 16 {
                let word = draw.words(row0 + r as u64, col0 / 16 + block as u64)[0];
                let byte = &mut out.scales
                    [layout::scale_offset(out.options.scale_layout, r, block, blocks)];
                *byte = ms_eden::correct_scale(*byte, correction, word);
            }
        }
    }
}

/// The BF16 format: the copy's elements as bfloat16, no scales. Under SATURATE the cast saturates too.
fn pass_through(copy: &Copy, call: &Call) -> Quantized {
    let cast = |v: f32| match call.nonfinite {
        Nonfinite::Propagate => bf16_bits(v),
        Nonfinite::Saturate => bf16_bits(v.clamp(-Dtype::Bf16.max(), Dtype::Bf16.max())),
    };
    Quantized {
        rows: copy.rows,
        cols: copy.cols,
        source_cols: copy.source_cols,
        codes: copy
            .data
            .iter()
            .flat_map(|v| cast(*v).to_le_bytes())
            .collect(),
        scales: Vec::new(),
        amax: Vec::new(),
        options: resolve(&call.options),
        signs: copy.signs,
        transposed: call.columnwise,
    }
}

/// Everything that can be counted after the fact.
fn stats(source: &Matrix, copy: &Copy, out: &Quantized) -> Stats {
    let mut s = Stats::default();
    for r in 0..source.rows {
        s.nonfinite += (0..source.cols)
            .filter(|c| !source.at(r, *c).is_finite())
            .count() as u64;
    }
    for r in 0..copy.rows {
        let (mut squares, mut errors) = (0f64, 0f64);
        for c in 0..copy.cols {
            let (x, v) = (copy.at(r, c), out.value(r, c));
            if x.is_finite() && v.is_finite() {
                s.underflowed += (x != 0.0 && v == 0.0) as u64;
                squares += x as f64 * x as f64;
                errors += (v as f64 - x as f64) * (v as f64 - x as f64);
            }
        }
        s.sum_squares += squares;
        s.sum_squared_error += errors;
    }
    s
}
