//! A copy that kernels may know, with what they need to know of it.

use super::decode::row_amax;
use super::encode::host_seed;
use super::rule::{Draw, Rule, Transform};
use crate::numerics::rounding::Draw as Key;
use crate::numerics::scale::tensor_scale;
use crate::numerics::{Block, Format, Nonfinite, Rounding};
use crate::plan::{CopyPlan, Matrix, QuantizePlan, Source};

/// What the tile functions need of a copy that the kernels know.
pub struct Known<'a> {
    pub x: &'a Matrix,
    pub copy: &'a CopyPlan,
    pub transform: Option<Transform>,
    pub nonfinite: Nonfinite,
    key: Key,
    draws: bool,
}

impl<'a> Known<'a> {
    /// None where the scalar code must do this copy.
    pub fn new(plan: &'a QuantizePlan, copy: &'a CopyPlan) -> Option<Known<'a>> {
        let Source::Matrix(x) = &plan.x else {
            return None;
        };
        let o = &copy.options;
        let (seed, offset) = host_seed(plan.seed);
        let transform = Transform::new(o, seed, offset);
        Some(Known {
            x,
            copy,
            transform,
            nonfinite: plan.nonfinite,
            key: Key {
                seed,
                offset,
                columnwise: copy.columnwise,
            },
            draws: o.rounding == Rounding::Stochastic,
        })
    }

    /// Can kernels that take `columns` columns of a columnwise copy at once quantize it?
    pub fn quantizes(&self, columns: usize) -> bool {
        let o = &self.copy.options;
        if o.format == Format::Bf16 {
            return self.transform.is_none();
        }
        if Rule::new(o, &tensor_scale(o, 1.0)).is_none() {
            return false;
        }
        let (out, square) = (&self.copy.out, o.block == Block::TwoD);
        if !self.copy.columnwise {
            // Rows of a tile share a scale domain.
            return !square || out.domain_rows % o.format.block() == 0;
        }
        let one_domain = out.domain_rows % columns == 0;
        let rows = self.copy.origin.0 + out.rows as u64;
        let one_counter = self.copy.origin.0 >> 32 == rows >> 32;
        // Tiles without a transform draw in the source's orientation; tiles of 32 columns are wider than a vector.
        let square_known = o.format == Format::Nvfp4 && (self.transform.is_some() || !self.draws);
        one_domain && one_counter && (!square || square_known)
    }

    /// How the scale domain of a row is quantized.
    pub fn rule(&self, row: usize) -> Rule {
        let o = &self.copy.options;
        Rule::new(o, &tensor_scale(o, row_amax(&self.copy.out, row))).expect("asked for before")
    }

    /// Random bits of a row of the copy from a column on, if it is rounded so.
    pub fn draw(&self, row: usize, col: usize) -> Option<Draw> {
        let (r, c) = self.copy.origin;
        self.draws
            .then(|| Draw::new(&self.key, r + row as u64, c + col as u64))
    }

    /// An element of the source.
    pub fn at(&self, row: usize, col: usize) -> *const u8 {
        self.x
            .data
            .wrapping_add((row * self.x.stride + col) * self.x.dtype.size())
    }
}
