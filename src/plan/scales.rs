//! Planning of swizzle and unswizzle.

use super::view::{dimension, span_bytes};
use crate::numerics::{layout, ScaleLayout};
use crate::{Error, Result};

/// A checked call: one of the two is read, the other written.
#[derive(Clone, Copy, Debug)]
pub struct ScalesPlan {
    pub rows: usize,
    pub scale_cols: usize,
    pub linear: *mut u8,
    /// Bytes from row to row of `linear`.
    pub stride: usize,
    pub swizzled: *mut u8,
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for ScalesPlan {}
// SAFETY: as above.
unsafe impl Sync for ScalesPlan {}

/// Bytes of the scales of `rows` rows with `scale_cols` blocks each.
pub fn bytes(rows: i64, scale_cols: i64, layout: ScaleLayout) -> Result<usize> {
    let rows = dimension("scales", "rows", rows)?;
    let cols = dimension("scales", "scale_cols", scale_cols)?;
    // The rounded-up product, so that the layout's own arithmetic cannot overflow.
    let (rows_up, cols_up) = (rows.next_multiple_of(128), cols.next_multiple_of(4));
    span_bytes("scales", rows_up, cols_up, cols_up)?;
    Ok(layout::scale_bytes(layout, rows, cols))
}

pub fn plan(
    rows: i64,
    scale_cols: i64,
    linear: *mut u8,
    stride: i64,
    swizzled: *mut u8,
    swizzled_bytes: usize,
) -> Result<ScalesPlan> {
    let need = bytes(rows, scale_cols, ScaleLayout::Swizzled)?;
    let (rows, scale_cols) = (rows as usize, scale_cols as usize);
    let stride = match dimension("linear", "stride", stride)? {
        0 => scale_cols,
        stride => stride,
    };
    if stride < scale_cols {
        return Err(Error::Shape(format!(
            "stride is {stride}, less than scale_cols = {scale_cols}"
        )));
    }
    let linear_bytes = span_bytes("linear", rows, stride, scale_cols)?;
    if swizzled_bytes < need {
        return Err(Error::BufferSize(format!(
            "swizzled_bytes is {swizzled_bytes}, {rows} rows of {scale_cols} scales need {need} bytes"
        )));
    }
    if linear_bytes > 0 && linear.is_null() {
        return Err(Error::NullPointer("linear"));
    }
    if need > 0 && swizzled.is_null() {
        return Err(Error::NullPointer("swizzled"));
    }
    Ok(ScalesPlan {
        rows,
        scale_cols,
        linear,
        stride,
        swizzled,
    })
}
