//! Statistics of a quantizer: a second look at its input and output. Each row is summed in order and the rows are added
//! in order, so the sums are the same at every thread count.

use super::panel::{self, Panel};
use super::{decode, Cpu, Tile};
use crate::abi::nvfp4_stats;
use crate::plan::{CopyPlan, QuantizePlan};

#[derive(Clone, Copy, Default)]
struct RowSums {
    nonfinite: u64,
    underflowed: u64,
    squares: f64,
    errors: f64,
}

/// Writes the statistics of the rowwise copy, or of the columnwise one if it is alone.
pub fn write(cpu: &Cpu, plan: &QuantizePlan, saturated: u64) {
    let copy = plan.copies().next().expect("a plan has a copy");
    // A matrix without elements may have any number of rows.
    let len = if copy.out.is_empty() {
        0
    } else {
        copy.out.rows
    };
    let mut rows = vec![RowSums::default(); len];
    let step = 32;
    let groups: Vec<std::sync::Mutex<&mut [RowSums]>> =
        rows.chunks_mut(step).map(std::sync::Mutex::new).collect();
    cpu.pool.run(groups.len(), |g| {
        let mut sums = groups[g].lock().unwrap_or_else(|p| p.into_inner());
        rows_of(plan, copy, g * step, &mut sums);
    });
    drop(groups);
    let mut total = nvfp4_stats {
        saturated,
        ..Default::default()
    };
    for row in &rows {
        total.nonfinite += row.nonfinite;
        total.underflowed += row.underflowed;
        total.sum_squares += row.squares;
        total.sum_squared_error += row.errors;
    }
    // SAFETY: not NULL, aligned (the plan checked), and the caller's to be written.
    unsafe { plan.stats.write(total) };
}

fn rows_of(plan: &QuantizePlan, copy: &CopyPlan, first: usize, sums: &mut [RowSums]) {
    let own = first..first + sums.len();
    let all = 0..copy.out.source_cols;
    let tile = if copy.columnwise {
        Tile {
            rows: all,
            cols: own,
        }
    } else {
        Tile {
            rows: own,
            cols: all,
        }
    };
    panel::for_each(plan, copy, &tile, |p: &Panel| {
        for r in 0..p.rows {
            let sum = &mut sums[p.row + r - first];
            let mut decoded = [0f32; panel::WIDTH];
            decode::load_quantized(&copy.out, p.row + r, p.col, &mut decoded[..p.cols]);
            for (x, v) in p.values[r][..p.cols].iter().zip(&decoded) {
                if x.is_finite() && v.is_finite() {
                    let (x, v) = (*x as f64, *v as f64);
                    sum.underflowed += (x != 0.0 && v == 0.0) as u64;
                    sum.squares += x * x;
                    sum.errors += (v - x) * (v - x);
                }
            }
        }
    });
    // The input itself, before policy and transform.
    for (r, sum) in sums.iter_mut().enumerate() {
        for c in 0..copy.out.source_cols {
            let (row, col) = if copy.columnwise {
                (c, first + r)
            } else {
                (first + r, c)
            };
            let mut x = [0f32];
            decode::load(&plan.x, row, col, &mut x);
            sum.nonfinite += !x[0].is_finite() as u64;
        }
    }
}
