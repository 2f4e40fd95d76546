//! Dequantize, either orientation.

use super::{decode, Cpu, Tile};
use crate::numerics::{Dtype, Format};
use crate::plan::DequantizePlan;

const ROWS: usize = 32;

pub fn run(cpu: &Cpu, plan: &DequantizePlan) {
    let (rows, cols) = (plan.x.rows, plan.cols);
    if rows == 0 || cols == 0 {
        return;
    }
    // One row of tiles a job: whole rows, or 32 rows at a time.
    let height = (ROWS * 2048 / cols.max(1)).max(1).next_multiple_of(ROWS);
    cpu.pool.run(rows.div_ceil(height), |i| {
        let tile = Tile {
            rows: i * height..((i + 1) * height).min(rows),
            cols: 0..cols,
        };
        (cpu.kernels.dequantize_tile)(plan, &tile);
    });
}

/// Writes the values of x's tile; bf16 outputs are clamped to the largest finite bf16, fp16 overflows to Inf.
pub fn dequantize_tile(plan: &DequantizePlan, tile: &Tile) {
    const WIDTH: usize = 128;
    let clamp = plan.out.dtype == Dtype::Bf16 && plan.x.format != Format::Bf16;
    let largest = Dtype::Bf16.max();
    let mut values = [[0f32; WIDTH]; ROWS];
    for row in tile.rows.clone().step_by(ROWS) {
        let rows = ROWS.min(tile.rows.end - row);
        for col in tile.cols.clone().step_by(WIDTH) {
            let cols = WIDTH.min(tile.cols.end - col);
            for (r, values) in values[..rows].iter_mut().enumerate() {
                decode::load_quantized(&plan.x, row + r, col, &mut values[..cols]);
                if clamp {
                    values[..cols]
                        .iter_mut()
                        .for_each(|v| *v = v.clamp(-largest, largest));
                }
                if !plan.transpose {
                    decode::store_matrix(&plan.out, row + r, col, &values[..cols]);
                }
            }
            if plan.transpose {
                let mut line = [0f32; ROWS];
                for c in 0..cols {
                    for (o, values) in line[..rows].iter_mut().zip(&values) {
                        *o = values[c];
                    }
                    decode::store_matrix(&plan.out, col + c, row, &line[..rows]);
                }
            }
        }
    }
}
