//! Planning of quantize, requantize and amax.

use super::options;
use super::view::{aligned, dimension, Buffers, Matrix, Quantized};
use super::Device;
use crate::abi::nvfp4_stats;
use crate::numerics::hadamard::sign_words;
use crate::numerics::{Block, Dtype, Nonfinite, Options, Signs};
use crate::{Error, Result};

/// Where random bits come from.
#[derive(Clone, Copy, Debug)]
pub enum Seed {
    /// Seed and offset.
    Host(u64, u64),
    /// Two u64 in device memory (never with a CPU context: its two are read before planning), and bits to set in the
    /// offset read there (a linear layer's operands draw apart by them).
    Device(*const u64, u64),
}

impl Default for Seed {
    fn default() -> Self {
        Seed::Host(0, 0)
    }
}

impl Seed {
    /// Offsets end below 2^62: the counter's top bits say which copy draws.
    pub fn check(self) -> Result<Seed> {
        match self {
            Seed::Host(_, offset) if offset >> 62 != 0 => Err(Error::InvalidArgument(format!(
                "offset is {offset}, want less than 2^62"
            ))),
            Seed::Device(p, _) => aligned(p.cast(), "seed_offset", 8).map(|()| self),
            _ => Ok(self),
        }
    }
}

/// One call of quantize, requantize or amax, as the caller wrote it.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeRequest {
    pub rowwise: Options,
    pub columnwise: Options,
    pub nonfinite: Nonfinite,
    pub seed: Seed,
    pub origin_row: i64,
    pub origin_col: i64,
    /// Given amax of each copy, or NULL.
    pub rowwise_amax: *const f32,
    pub columnwise_amax: *const f32,
    pub stats: *mut nvfp4_stats,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

impl Default for QuantizeRequest {
    fn default() -> Self {
        QuantizeRequest {
            rowwise: Options::default(),
            columnwise: Options::default(),
            nonfinite: Nonfinite::default(),
            seed: Seed::default(),
            origin_row: 0,
            origin_col: 0,
            rowwise_amax: std::ptr::null(),
            columnwise_amax: std::ptr::null(),
            stats: std::ptr::null_mut(),
            workspace: std::ptr::null_mut(),
            workspace_bytes: 0,
        }
    }
}

/// What is quantized.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Matrix(Matrix),
    /// The values that a quantized matrix stands for, in f32.
    Quantized(Quantized),
}

impl Source {
    pub fn rows(&self) -> usize {
        match self {
            Source::Matrix(x) => x.rows,
            Source::Quantized(x) => x.rows,
        }
    }
    pub fn cols(&self) -> usize {
        match self {
            Source::Matrix(x) => x.cols,
            Source::Quantized(x) => x.cols,
        }
    }
    /// Type of the values, for the SATURATE policy.
    pub fn dtype(&self) -> Dtype {
        match self {
            Source::Matrix(x) => x.dtype,
            Source::Quantized(_) => Dtype::F32,
        }
    }
}

/// One copy to make.
#[derive(Clone, Copy, Debug)]
pub struct CopyPlan {
    /// Resolved: `chain` and `c` are what is used.
    pub options: Options,
    /// Where it goes; shape and signs are those of the copy.
    pub out: Quantized,
    /// One f32 a scale domain, or NULL: computed.
    pub given_amax: *const f32,
    /// This is the transposed copy.
    pub columnwise: bool,
    /// Global row and column, in the copy's orientation, of its first element.
    pub origin: (u64, u64),
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for CopyPlan {}
// SAFETY: as above.
unsafe impl Sync for CopyPlan {}

/// A checked call: what `cpu::quantize` and `cuda::quantize` run.
#[derive(Clone, Copy, Debug)]
pub struct QuantizePlan {
    pub x: Source,
    pub rowwise: Option<CopyPlan>,
    pub columnwise: Option<CopyPlan>,
    pub nonfinite: Nonfinite,
    pub seed: Seed,
    /// NULL, or where statistics of the rowwise copy (of the columnwise one if it is alone) go.
    pub stats: *mut nvfp4_stats,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for QuantizePlan {}
// SAFETY: as above.
unsafe impl Sync for QuantizePlan {}

impl QuantizePlan {
    pub fn copies(&self) -> impl Iterator<Item = &CopyPlan> {
        self.rowwise.iter().chain(self.columnwise.iter())
    }
}

/// Plans quantize (x a matrix) or requantize (x quantized).
pub fn plan(
    request: &QuantizeRequest,
    device: Device,
    x: Source,
    rowwise: Option<&Buffers>,
    columnwise: Option<&Buffers>,
) -> Result<QuantizePlan> {
    if rowwise.is_none() && columnwise.is_none() {
        return Err(Error::NullPointer("rowwise and columnwise"));
    }
    if let Source::Quantized(x) = &x {
        if x.hadamard != 0 {
            return Err(Error::Mismatch(format!(
                "x went through a Hadamard transform of {}; requantize wants values of the matrix itself",
                x.hadamard
            )));
        }
    }
    let seed = request.seed.check()?;
    aligned(request.stats.cast(), "stats", 8)?;
    let origin = (
        dimension("desc", "origin_row", request.origin_row)?,
        dimension("desc", "origin_col", request.origin_col)?,
    );
    let shape = (x.rows(), x.cols());
    let make = |name, o, buffers: Option<&Buffers>, amax, columnwise: bool| {
        buffers
            .map(|b| copy(name, o, device, seed, shape, origin, 0, b, amax, columnwise))
            .transpose()
    };
    Ok(QuantizePlan {
        x,
        rowwise: make(
            "rowwise",
            &request.rowwise,
            rowwise,
            request.rowwise_amax,
            false,
        )?,
        columnwise: make(
            "columnwise",
            &request.columnwise,
            columnwise,
            request.columnwise_amax,
            true,
        )?,
        nonfinite: request.nonfinite,
        seed,
        stats: request.stats,
        workspace: request.workspace,
        workspace_bytes: request.workspace_bytes,
    })
}

/// One copy of a matrix of that shape (of `groups` groups, if not 0).
#[allow(clippy::too_many_arguments)]
pub(super) fn copy(
    name: &'static str,
    options: &Options,
    device: Device,
    seed: Seed,
    shape: (usize, usize),
    origin: (usize, usize),
    groups: usize,
    buffers: &Buffers,
    given_amax: *const f32,
    columnwise: bool,
) -> Result<CopyPlan> {
    let o = options::check(name, options)?;
    let ((rows, source_cols), origin) = if columnwise {
        ((shape.1, shape.0), (origin.1, origin.0))
    } else {
        (shape, origin)
    };
    let shape = described(&o, rows, source_cols, columnwise);
    check_origin(name, &o, rows, &shape, origin)?;
    let sign_words = match (seed, o.signs) {
        (_, _) if o.hadamard == 0 => [0; 4],
        (Seed::Host(seed, offset), signs) => sign_words(signs, o.hadamard as usize, seed, offset),
        (Seed::Device(..), Signs::Seeded) => {
            return Err(Error::NotSupported(format!(
                "{name}: seeded signs with seed_offset in device memory; give seed and offset, or the signs, by value"
            )))
        }
        (Seed::Device(..), signs) => sign_words(signs, o.hadamard as usize, 0, 0),
    };
    let out = Quantized {
        sign_words,
        groups,
        ..shape
    }
    .bind(name, buffers)?;
    aligned(
        given_amax.cast(),
        if columnwise {
            "columnwise_amax"
        } else {
            "rowwise_amax"
        },
        4,
    )?;
    // On a GPU a given amax cannot be read without a stall: a bad one gives NaN scales there (docs/format.md, 3).
    if device == Device::Cpu && !given_amax.is_null() {
        // SAFETY: the caller vouches for one f32 a scale domain; alignment was checked.
        let given = unsafe { std::slice::from_raw_parts(given_amax, out.domains()) };
        if let Some(i) = given.iter().position(|a| !(a.is_finite() && *a >= 0.0)) {
            return Err(Error::InvalidArgument(format!(
                "the given amax [{i}] of the {name} copy is {}, want finite and not negative",
                given[i]
            )));
        }
    }
    Ok(CopyPlan {
        options: o,
        out,
        given_amax,
        columnwise,
        origin: (origin.0 as u64, origin.1 as u64),
    })
}

/// The copy of a [rows, source_cols] matrix (in the copy's orientation) under resolved options, without its memory.
pub fn described(o: &Options, rows: usize, source_cols: usize, columnwise: bool) -> Quantized {
    Quantized {
        codes: std::ptr::null_mut(),
        scales: std::ptr::null_mut(),
        amax: std::ptr::null_mut(),
        rows,
        cols: match o.hadamard as usize {
            0 => source_cols,
            n => source_cols.next_multiple_of(n),
        },
        code_stride: 0,
        scale_stride: 0,
        format: o.format,
        block: o.block,
        chain: o.chain,
        scale_rule: o.scale_rule,
        scale_layout: o.scale_layout,
        range_16_17: o.range_16_17,
        hadamard: o.hadamard,
        sign_words: [0; 4],
        transposed: columnwise,
        domain_rows: o.domain_rows,
        c: o.c,
        source_cols,
        groups: 0,
        beyond: [0; 3],
    }
}

/// A slice must start where blocks, transforms and scale domains of the whole matrix start, and random bits must have
/// numbers for its columns.
fn check_origin(
    name: &str,
    o: &Options,
    rows: usize,
    shape: &Quantized,
    origin: (usize, usize),
) -> Result<()> {
    let block = o.format.block();
    let along = block.max(o.hadamard as usize);
    let across = if o.block == Block::TwoD { block } else { 1 }.max(o.domain_rows);
    for (what, value, step) in [("rows", origin.0, across), ("columns", origin.1, along)] {
        if !value.is_multiple_of(step) {
            return Err(Error::Shape(format!(
                "the {name} copy starts at {value} of its {what}, want a multiple of {step} (blocks, transforms and \
                 amax domains must not be cut)"
            )));
        }
    }
    // The draw's counter holds the column's group of 16 in 32 bits and the row in 62.
    if options::draws(o) && (origin.1 + shape.cols > 1 << 36 || origin.0 + rows > 1 << 60) {
        return Err(Error::Shape(format!(
            "the {name} copy ends at column {}, random bits are numbered to column 2^36",
            origin.1 + shape.cols
        )));
    }
    Ok(())
}

/// Buffer sizes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub codes_bytes: usize,
    pub scales_bytes: usize,
    pub amax_count: usize,
}

impl Sizes {
    /// Of a copy with packed rows.
    pub fn of(q: &Quantized) -> Sizes {
        Sizes {
            codes_bytes: q.rows * q.code_row_bytes(),
            scales_bytes: crate::numerics::layout::scale_bytes(
                q.scale_layout,
                q.rows,
                q.scale_cols(),
            ),
            amax_count: q.domains(),
        }
    }
}
