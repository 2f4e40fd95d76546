//! Swizzle and unswizzle.

use super::Cpu;
use crate::numerics::layout::{scale_bytes, swizzled_offset, TILE_ROWS};
use crate::numerics::ScaleLayout;
use crate::plan::ScalesPlan;

/// Linear to swizzled; bytes of the tiles that stand for no row or block become 0.
pub fn swizzle(cpu: &Cpu, plan: &ScalesPlan) {
    let band = scale_bytes(ScaleLayout::Swizzled, 1, plan.scale_cols);
    if band == 0 {
        return;
    }
    cpu.pool.run(plan.rows.div_ceil(TILE_ROWS), |i| {
        // SAFETY: the plan checked that `swizzled` holds whole tiles and `linear` every row.
        unsafe {
            std::ptr::write_bytes(plan.swizzled.add(i * band), 0, band);
            for row in i * TILE_ROWS..((i + 1) * TILE_ROWS).min(plan.rows) {
                for block in 0..plan.scale_cols {
                    let byte = plan.linear.add(row * plan.stride + block).read();
                    plan.swizzled
                        .add(swizzled_offset(row, block, plan.scale_cols))
                        .write(byte);
                }
            }
        }
    });
}

/// Swizzled to linear; padding is not read.
pub fn unswizzle(cpu: &Cpu, plan: &ScalesPlan) {
    if plan.scale_cols == 0 {
        return;
    }
    cpu.pool.run(plan.rows.div_ceil(TILE_ROWS), |i| {
        for row in i * TILE_ROWS..((i + 1) * TILE_ROWS).min(plan.rows) {
            for block in 0..plan.scale_cols {
                // SAFETY: as above.
                unsafe {
                    let byte = plan
                        .swizzled
                        .add(swizzled_offset(row, block, plan.scale_cols))
                        .read();
                    plan.linear.add(row * plan.stride + block).write(byte);
                }
            }
        }
    });
}
