//! A few rows of a copy, in f32, ready to be quantized: loaded (transposed for a columnwise copy), policy applied,
//! transformed.

use super::{decode, Tile};
use crate::numerics::rounding::round_bf16;
use crate::numerics::{hadamard, special, Block, Dtype, Nonfinite};
use crate::plan::{CopyPlan, QuantizePlan};

/// Columns of a panel: a multiple of every block and transform length.
pub const WIDTH: usize = 128;
/// Most rows of a panel: the largest tile.
pub const HEIGHT: usize = 32;

/// Rows `row..row + rows` and columns `col..col + cols` of a copy; elements beyond them are 0.
pub struct Panel {
    pub row: usize,
    pub rows: usize,
    pub col: usize,
    /// With a transform's padding.
    pub cols: usize,
    pub values: [[f32; WIDTH]; HEIGHT],
}

/// Rows of a copy that are handled together: those of a tile; for a columnwise copy at least as many as lie together in
/// the source.
pub fn rows_together(copy: &CopyPlan) -> usize {
    match (copy.options.block, copy.columnwise) {
        (Block::TwoD, _) => copy.options.format.block(),
        (Block::OneD, true) => 16,
        (Block::OneD, false) => 1,
    }
}

/// Calls `each` with the panels of a copy that a tile of the source stands for.
pub fn for_each(plan: &QuantizePlan, copy: &CopyPlan, tile: &Tile, mut each: impl FnMut(&Panel)) {
    let (rows, cols) = if copy.columnwise {
        (&tile.cols, &tile.rows)
    } else {
        (&tile.rows, &tile.cols)
    };
    let mut panel = Panel::empty();
    for row in rows.clone().step_by(rows_together(copy)) {
        for col in cols.clone().step_by(WIDTH) {
            let height = rows_together(copy).min(rows.end - row);
            let width = WIDTH.min(cols.end - col);
            panel.begin(copy, row, height, col, width);
            panel.load(plan, copy, width);
            panel.finish(copy, plan.nonfinite, plan.x.dtype(), width);
            each(&panel);
        }
    }
}

impl Panel {
    pub fn empty() -> Panel {
        Panel {
            row: 0,
            rows: 0,
            col: 0,
            cols: 0,
            values: [[0.0; WIDTH]; HEIGHT],
        }
    }

    /// Starts a panel of `rows` rows and `width` columns of data; the rest of it is 0.
    pub fn begin(&mut self, copy: &CopyPlan, row: usize, rows: usize, col: usize, width: usize) {
        (self.row, self.rows, self.col) = (row, rows, col);
        self.cols = match copy.options.hadamard as usize {
            0 => width,
            n => width.next_multiple_of(n),
        };
        if width < WIDTH || rows < rows_together(copy) {
            let rows = rows.max(rows_together(copy));
            self.values[..rows].iter_mut().for_each(|r| r.fill(0.0));
        }
    }

    fn load(&mut self, plan: &QuantizePlan, copy: &CopyPlan, width: usize) {
        if copy.columnwise {
            let mut line = [0f32; HEIGHT];
            for j in 0..width {
                decode::load(&plan.x, self.col + j, self.row, &mut line[..self.rows]);
                for (values, v) in self.values.iter_mut().zip(&line[..self.rows]) {
                    values[j] = *v;
                }
            }
        } else {
            for (i, values) in self.values[..self.rows].iter_mut().enumerate() {
                decode::load(&plan.x, self.row + i, self.col, &mut values[..width]);
            }
        }
    }

    /// Policy, transform and its rounding, policy again, on `width` columns of data from elements of `dtype`.
    pub fn finish(&mut self, copy: &CopyPlan, nonfinite: Nonfinite, dtype: Dtype, width: usize) {
        let n = copy.options.hadamard as usize;
        for values in &mut self.values[..self.rows] {
            apply_policy(nonfinite, dtype, &mut values[..width]);
            if n == 0 {
                continue;
            }
            for block in values[..self.cols].chunks_exact_mut(n) {
                hadamard::forward(block, &copy.out.sign_words);
                if !copy.options.keep_f32 {
                    block.iter_mut().for_each(|y| *y = round_bf16(*y));
                }
                apply_policy(nonfinite, dtype, block);
            }
        }
    }
}

fn apply_policy(nonfinite: Nonfinite, dtype: Dtype, values: &mut [f32]) {
    if nonfinite == Nonfinite::Saturate {
        values
            .iter_mut()
            .for_each(|v| *v = special::apply(nonfinite, dtype, *v));
    }
}
