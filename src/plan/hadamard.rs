//! Planning of the public Hadamard transform.

use super::view::Matrix;
use crate::numerics::hadamard::sign_words;
use crate::numerics::Signs;
use crate::{Error, Result};

/// A call as the caller wrote it.
#[derive(Clone, Copy, Debug)]
pub struct HadamardRequest {
    /// 16, 32, 64 or 128.
    pub n: u32,
    /// Along each column instead of each row.
    pub columns: bool,
    pub inverse: bool,
    pub signs: Signs,
    pub seed: u64,
    pub offset: u64,
}

impl Default for HadamardRequest {
    fn default() -> Self {
        HadamardRequest {
            n: 16,
            columns: false,
            inverse: false,
            signs: Signs::Default,
            seed: 0,
            offset: 0,
        }
    }
}

/// A checked call.
#[derive(Clone, Copy, Debug)]
pub struct HadamardPlan {
    pub x: Matrix,
    pub y: Matrix,
    pub n: usize,
    pub columns: bool,
    pub inverse: bool,
    pub sign_words: [u32; 4],
}

pub fn plan(request: &HadamardRequest, x: Matrix, y: Matrix) -> Result<HadamardPlan> {
    let n = request.n as usize;
    if ![16, 32, 64, 128].contains(&n) {
        return Err(Error::InvalidArgument(format!(
            "n is {n}, want 16, 32, 64 or 128"
        )));
    }
    super::Seed::Host(request.seed, request.offset).check()?;
    // (length along the transform, length across it)
    let lengths = |m: &Matrix| {
        if request.columns {
            (m.rows, m.cols)
        } else {
            (m.cols, m.rows)
        }
    };
    let ((x_along, x_across), (y_along, y_across)) = (lengths(&x), lengths(&y));
    let fits = if request.inverse {
        x_along.is_multiple_of(n) && y_along.next_multiple_of(n) == x_along
    } else {
        y_along == x_along.next_multiple_of(n)
    };
    if !fits || x_across != y_across {
        return Err(Error::Shape(format!(
            "x is {}, y is {}: {} along {} by {n}, {} must be padded to a multiple of it",
            x.shape(),
            y.shape(),
            if request.inverse {
                "inverse transform"
            } else {
                "transform"
            },
            if request.columns { "columns" } else { "rows" },
            if request.inverse { "x" } else { "y" }
        )));
    }
    if x.data == y.data
        && !x.is_empty()
        && (x.dtype != y.dtype || x.stride != y.stride || x_along != y_along)
    {
        return Err(Error::Mismatch(format!(
            "y is x itself, but {} {:?} with stride {} against {} {:?} with stride {}",
            y.shape(),
            y.dtype,
            y.stride,
            x.shape(),
            x.dtype,
            x.stride
        )));
    }
    Ok(HadamardPlan {
        x,
        y,
        n,
        columns: request.columns,
        inverse: request.inverse,
        sign_words: sign_words(request.signs, n, request.seed, request.offset),
    })
}
