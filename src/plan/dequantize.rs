//! Planning of dequantize.

use super::view::{Matrix, Quantized};
use crate::{Error, Result};

/// A checked call: `out` = x, or its transpose. `out` has x's rows, and `cols` of its columns.
#[derive(Clone, Copy, Debug)]
pub struct DequantizePlan {
    pub x: Quantized,
    pub out: Matrix,
    pub transpose: bool,
    /// Columns of x that are wanted: all, or without a transform's padding.
    pub cols: usize,
}

pub fn plan(x: Quantized, transpose: bool, out: Matrix) -> Result<DequantizePlan> {
    let (rows, cols) = if transpose {
        (out.cols, out.rows)
    } else {
        (out.rows, out.cols)
    };
    if rows != x.rows || cols > x.cols || cols < x.source_cols {
        return Err(Error::Shape(format!(
            "out is {}, x{} is {}",
            out.shape(),
            if transpose { " (to be transposed)" } else { "" },
            if x.source_cols == x.cols {
                x.shape()
            } else {
                format!("[{}, {} to {}]", x.rows, x.source_cols, x.cols)
            }
        )));
    }
    Ok(DequantizePlan {
        x,
        out,
        transpose,
        cols,
    })
}
