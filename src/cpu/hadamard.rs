//! The public Hadamard transform.

use super::{decode, Cpu, Tile};
use crate::numerics::hadamard::{forward, inverse};
use crate::plan::HadamardPlan;

/// Elements across the transform that are handled together along columns.
const LANES: usize = 16;

pub fn run(cpu: &Cpu, plan: &HadamardPlan) {
    // x and y have the same length across the transform; along it, blocks of n stay together.
    let (rows, cols) = (plan.x.rows, plan.x.cols);
    if rows == 0 || cols == 0 {
        return;
    }
    let height = (65536 / cols).max(1).next_multiple_of(128);
    let height = if plan.columns {
        height
    } else {
        (65536 / cols).max(1)
    };
    cpu.pool.run(rows.div_ceil(height), |i| {
        let tile = Tile {
            rows: i * height..((i + 1) * height).min(rows),
            cols: 0..cols,
        };
        (cpu.kernels.hadamard_tile)(plan, &tile);
    });
}

/// Transforms the blocks that start in x's tile.
pub fn hadamard_tile(plan: &HadamardPlan, tile: &Tile) {
    let n = plan.n;
    let transform = |block: &mut [f32]| {
        if plan.inverse {
            inverse(block, &plan.sign_words);
        } else {
            forward(block, &plan.sign_words);
        }
    };
    if plan.columns {
        let mut blocks = [[0f32; 128]; LANES];
        let mut line = [0f32; LANES];
        for row in tile.rows.clone().step_by(n) {
            let (from, to) = (n.min(plan.x.rows - row), n.min(plan.y.rows - row));
            for col in tile.cols.clone().step_by(LANES) {
                let lanes = LANES.min(tile.cols.end - col);
                blocks.iter_mut().for_each(|b| b.fill(0.0));
                for i in 0..from {
                    decode::load_matrix(&plan.x, row + i, col, &mut line[..lanes]);
                    for (b, v) in blocks.iter_mut().zip(&line[..lanes]) {
                        b[i] = *v;
                    }
                }
                blocks[..lanes]
                    .iter_mut()
                    .for_each(|b| transform(&mut b[..n]));
                for i in 0..to {
                    for (v, b) in line[..lanes].iter_mut().zip(&blocks) {
                        *v = b[i];
                    }
                    decode::store_matrix(&plan.y, row + i, col, &line[..lanes]);
                }
            }
        }
    } else {
        let mut block = [0f32; 128];
        for row in tile.rows.clone() {
            for col in tile.cols.clone().step_by(n) {
                let (from, to) = (n.min(plan.x.cols - col), n.min(plan.y.cols - col));
                block.fill(0.0);
                decode::load_matrix(&plan.x, row, col, &mut block[..from]);
                transform(&mut block[..n]);
                decode::store_matrix(&plan.y, row, col, &block[..to]);
            }
        }
    }
}
