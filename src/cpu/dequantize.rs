//! Dequantize, either orientation.

use super::decode::{self, load_quantized, row_amax, store_matrix};
use super::factors::Factors;
use super::operand::Operand;
use super::{Cpu, Tile, SCALAR};
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

/// Elements that `decode` leaves to its caller at a time.
pub const STRETCH: usize = 128;

/// How an instruction set decodes.
///
/// # Safety
/// Implementations read and write what is said here, no more. Callers give memory that holds it, on a processor that
/// can run it.
pub unsafe trait Decode {
    /// Decodes elements `0..n` of a row, but calls `rare(col, len)` for stretches with a factor that is NaN or near
    /// overflow. `stream`: past the caches (`out` is then a multiple of 32).
    unsafe fn decode(
        dtype: Dtype,
        q: &Operand,
        f: &Factors,
        row: usize,
        n: usize,
        out: *mut u8,
        stream: bool,
        rare: &mut dyn FnMut(usize, usize),
    );
}

/// Output bytes from which on dequantize writes past the caches: it will not be read back from them.
const STREAM: usize = 32 << 20;

/// As `dequantize_tile`, by an instruction set's kernels.
pub fn dequantize_rows<D: Decode>(plan: &DequantizePlan, tile: &Tile) {
    let (q, out) = (&plan.x, &plan.out);
    let bf16 = out.dtype == Dtype::Bf16;
    let largest = if bf16 { Dtype::Bf16.max() } else { f32::MAX };
    let factors = |row| Factors::new(&q.decode_scale(row_amax(q, row)), largest);
    if plan.transpose || tile.rows.is_empty() || factors(tile.rows.start).is_none() {
        return (SCALAR.dequantize_tile)(plan, tile);
    }
    let x = Operand::of(q);
    let row_bytes = out.stride * out.dtype.size();
    let aligned = (out.data as usize).is_multiple_of(32) && row_bytes % 32 == 0;
    let stream = aligned && plan.cols * x.rows * out.dtype.size() >= STREAM;
    for row in tile.rows.clone() {
        let Some(f) = factors(row) else { return };
        let mut rare = |col, len| {
            let mut values = [0f32; STRETCH];
            let values = &mut values[..len];
            load_quantized(q, row, col, values);
            if bf16 {
                for v in values.iter_mut() {
                    *v = v.clamp(-largest, largest);
                }
            }
            store_matrix(out, row, col, values);
        };
        // SAFETY: a table is only handed out where the processor can run it; the plan checked operand and output.
        unsafe {
            let o = out.at(row, 0);
            D::decode(out.dtype, &x, &f, row, plan.cols, o, stream, &mut rare);
        }
    }
}
