//! Planning of grouped quantize: each group of rows as a matrix of its own, with its own amax, in one call.

use super::groups::{column_align, padded_columns, Groups};
use super::quantize::copy;
use super::view::{aligned, dimension, Buffers, Matrix};
use super::{CopyPlan, Device, QuantizePlan, QuantizeRequest, Quantized, Seed, Source};
use crate::numerics::{Block, Format, Nonfinite, Options, Rounding};
use crate::{Error, Result};

/// A call as the caller wrote it; zero and NULL are defaults.
#[derive(Clone, Copy, Debug)]
pub struct GroupedQuantizeRequest {
    pub quantize: QuantizeRequest,
    pub groups: i64,
    pub offsets: *const i64,
    pub column_align: u32,
    /// Nothing behind the pointers is there: sizes or a capability query.
    pub shape_only: bool,
}

/// A checked call.
#[derive(Clone, Copy, Debug)]
pub struct GroupedQuantizePlan {
    pub x: Matrix,
    /// [rows, cols], one amax a group. Its origin is the first row's.
    pub rowwise: Option<CopyPlan>,
    /// [cols, padded columns], one amax a group: the columns of each group start at a multiple of `column_align`. Its
    /// origin is the first column's.
    pub columnwise: Option<CopyPlan>,
    pub groups: Groups,
    /// Of the columnwise copy; 1 if there is none.
    pub column_align: usize,
    pub nonfinite: Nonfinite,
    pub seed: Seed,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for GroupedQuantizePlan {}
// SAFETY: as above.
unsafe impl Sync for GroupedQuantizePlan {}

/// What groups cannot have.
fn check_options(name: &str, o: &Options) -> Result<()> {
    if o.domain_rows != 0 {
        return Err(Error::NotSupported(format!(
            "{name}: domain_rows is {} in a grouped quantize, where a group is one scale domain (want 0)",
            o.domain_rows
        )));
    }
    if o.block == Block::TwoD && o.rounding == Rounding::Stochastic {
        return Err(Error::NotSupported(format!(
            "{name}: stochastic rounding of square tiles in a grouped quantize; want blocks along the row, or nearest \
             rounding"
        )));
    }
    Ok(())
}

pub fn plan(
    request: &GroupedQuantizeRequest,
    device: Device,
    x: Matrix,
    rowwise: Option<&Buffers>,
    columnwise: Option<&Buffers>,
) -> Result<GroupedQuantizePlan> {
    if rowwise.is_none() && columnwise.is_none() {
        return Err(Error::NullPointer("rowwise and columnwise"));
    }
    let q = &request.quantize;
    if !q.stats.is_null() {
        return Err(Error::NotSupported(
            "statistics of a grouped quantize; desc.quantize->stats must be NULL".into(),
        ));
    }
    let seed = q.seed.check()?;
    let origin = (
        dimension("desc.quantize", "origin_row", q.origin_row)?,
        dimension("desc.quantize", "origin_col", q.origin_col)?,
    );
    let groups = Groups::new(
        device,
        request.groups,
        request.offsets,
        x.rows,
        request.shape_only,
    )?;
    aligned(q.workspace, "desc.quantize->workspace", 8)?;
    let rowwise = rowwise
        .map(|buffers| {
            check_options("rowwise", &q.rowwise)?;
            let shape = (x.rows, x.cols);
            copy(
                "rowwise",
                &q.rowwise,
                device,
                seed,
                shape,
                origin,
                groups.count,
                buffers,
                q.rowwise_amax,
                false,
            )
        })
        .transpose()?;
    let (mut align, mut column_copy) = (1, None);
    if let Some(buffers) = columnwise {
        let o = &q.columnwise;
        check_options("columnwise", o)?;
        align = column_align(request.column_align, o.format, o.hadamard, o.scale_layout)?;
        let shape = (padded_columns(x.rows, groups.count, align), x.cols);
        column_copy = Some(copy(
            "columnwise",
            o,
            device,
            seed,
            shape,
            origin,
            groups.count,
            buffers,
            q.columnwise_amax,
            true,
        )?);
    } else if request.column_align != 0 {
        return Err(Error::InvalidArgument(format!(
            "desc.column_align is {}, but there is no columnwise copy",
            request.column_align
        )));
    }
    Ok(GroupedQuantizePlan {
        x,
        rowwise,
        columnwise: column_copy,
        groups,
        column_align: align,
        nonfinite: q.nonfinite,
        seed,
        workspace: q.workspace,
        workspace_bytes: q.workspace_bytes,
    })
}

/// Columns `first..` of a copy: `cols` of them, `source_cols` before a transform's padding. `first` is a multiple of the
/// block.
pub fn columns(q: &Quantized, first: usize, source_cols: usize) -> Quantized {
    let (bytes, scales) = match q.format {
        Format::Bf16 => (2 * first, 0),
        _ => (first / 2, first / q.format.block()),
    };
    Quantized {
        codes: q.codes.wrapping_add(bytes),
        scales: q.scales.wrapping_add(scales),
        cols: match q.hadamard as usize {
            0 => source_cols,
            n => source_cols.next_multiple_of(n),
        },
        source_cols,
        ..*q
    }
}

/// Rows `first..first + rows` of a copy with linear scales.
pub fn rows(q: &Quantized, first: usize, rows: usize) -> Quantized {
    Quantized {
        codes: q.codes.wrapping_add(first * q.code_stride),
        scales: q.scales.wrapping_add(first * q.scale_stride),
        rows,
        ..*q
    }
}

/// The amax of group g alone.
pub fn of_group(q: &Quantized, g: usize) -> Quantized {
    Quantized {
        amax: q.amax.wrapping_add(g),
        groups: 0,
        ..*q
    }
}

impl GroupedQuantizePlan {
    pub fn copies(&self) -> impl Iterator<Item = &CopyPlan> {
        self.rowwise.iter().chain(self.columnwise.iter())
    }

    /// Group g as a call of its own: rows `first..first + count` of x, whose columns start at `column`. Scales are
    /// linear.
    pub fn group(&self, g: usize, first: usize, count: usize, column: usize) -> QuantizePlan {
        let given = |copy: &CopyPlan| match copy.given_amax.is_null() {
            true => copy.given_amax,
            false => copy.given_amax.wrapping_add(g),
        };
        let rowwise = self.rowwise.map(|copy| CopyPlan {
            out: of_group(&rows(&copy.out, first, count), g),
            given_amax: given(&copy),
            origin: (copy.origin.0 + first as u64, copy.origin.1),
            ..copy
        });
        let columnwise = self.columnwise.map(|copy| CopyPlan {
            out: of_group(&columns(&copy.out, column, count), g),
            given_amax: given(&copy),
            origin: (copy.origin.0, copy.origin.1 + column as u64),
            ..copy
        });
        QuantizePlan {
            x: Source::Matrix(Matrix {
                data: self
                    .x
                    .data
                    .wrapping_add(first * self.x.stride * self.x.dtype.size()),
                rows: count,
                ..self.x
            }),
            rowwise,
            columnwise,
            nonfinite: self.nonfinite,
            seed: self.seed,
            stats: std::ptr::null_mut(),
            workspace: std::ptr::null_mut(),
            workspace_bytes: 0,
        }
    }
}
