//! What grouped quantize and the grouped product share on the CPU: operands whose groups start inside a tile of swizzled
//! scales are worked on with linear scales.

use super::Cpu;
use crate::numerics::ScaleLayout;
use crate::plan::Quantized;

/// Rows that one job copies.
const BAND: usize = 64;

/// Linear scales that stand in for an operand's swizzled ones; empty, and the operand itself, where they are linear.
pub fn linear(q: &Quantized) -> (Quantized, Vec<u8>) {
    if q.scale_layout == ScaleLayout::Linear || q.scale_cols() == 0 {
        return (*q, Vec::new());
    }
    let mut scales = vec![0u8; q.rows * q.scale_cols()];
    let linear = Quantized {
        scales: scales.as_mut_ptr(),
        scale_stride: q.scale_cols(),
        scale_layout: ScaleLayout::Linear,
        ..*q
    };
    (linear, scales)
}

/// Copies the scale bytes of blocks `0..blocks` of rows `first..last` between the operand and its stand-in.
pub fn copy_scales(
    cpu: &Cpu,
    from: &Quantized,
    to: &Quantized,
    first: usize,
    last: usize,
    blocks: usize,
) {
    if from.scale_layout == to.scale_layout {
        return;
    }
    cpu.pool.run((last - first).div_ceil(BAND), |i| {
        let row = first + i * BAND;
        for row in row..(row + BAND).min(last) {
            for block in 0..blocks {
                // SAFETY: rows and blocks of both, whose buffers hold them.
                unsafe {
                    let byte = from.scales.add(from.scale_offset(row, block)).read();
                    to.scales.add(to.scale_offset(row, block)).write(byte);
                }
            }
        }
    });
}
