//! Planning of the transpose of a matrix that was quantized in square tiles.

use super::view::{describe, Buffers, Quantized};
use crate::numerics::{Block, Format, ScaleLayout};
use crate::{Error, Result};

/// A checked call.
#[derive(Clone, Copy, Debug)]
pub struct TransposePlan {
    pub x: Quantized,
    pub out: Quantized,
}

pub fn plan(x: Quantized, layout: ScaleLayout, out: &Buffers) -> Result<TransposePlan> {
    if x.format != Format::Bf16 && x.block != Block::TwoD {
        return Err(Error::InvalidArgument(format!(
            "x is {} matrix with blocks along its rows; only square tiles (NVFP4_BLOCK_2D) can be transposed without \
             the source",
            describe(x.format)
        )));
    }
    if x.hadamard != 0 {
        return Err(Error::Mismatch(format!(
            "x went through a Hadamard transform of {} along its rows, its transpose would not",
            x.hadamard
        )));
    }
    if x.domain_rows != 0 {
        return Err(Error::Mismatch(format!(
            "x has an amax for each {} rows, its transpose cannot",
            x.domain_rows
        )));
    }
    let out = Quantized {
        rows: x.cols,
        cols: x.rows,
        source_cols: x.rows,
        transposed: !x.transposed,
        scale_layout: layout,
        ..x
    }
    .bind("out", out)?;
    Ok(TransposePlan { x, out })
}
