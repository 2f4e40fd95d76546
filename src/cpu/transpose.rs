//! Transpose of a matrix that was quantized in square tiles: codes move, each tile's scale byte is repeated on the rows
//! that exist on the other side.

use super::{decode, quantize, Cpu};
use crate::numerics::{e2m1, Format};
use crate::plan::TransposePlan;

/// Rows of the result that one job writes; a multiple of every tile.
const ROWS: usize = 128;

pub fn run(cpu: &Cpu, plan: &TransposePlan) {
    let (x, out) = (&plan.x, &plan.out);
    // SAFETY: the plan checked both for `domains()` values (1 or none); they may be the same memory.
    unsafe { std::ptr::copy(x.amax, out.amax, x.domains()) };
    quantize::clear_scale_padding(out);
    if out.is_empty() {
        return;
    }
    cpu.pool.run(out.rows.div_ceil(ROWS), |i| {
        for row in i * ROWS..((i + 1) * ROWS).min(out.rows) {
            if x.format == Format::Bf16 {
                bf16_row(plan, row);
            } else {
                code_row(plan, row);
            }
        }
    });
}

fn code_row(plan: &TransposePlan, row: usize) {
    let (x, out) = (&plan.x, &plan.out);
    let code = |r: usize| {
        if r < x.rows {
            e2m1::get(decode::code_row(x, r), row)
        } else {
            0
        }
    };
    for i in 0..out.code_row_bytes() {
        let byte = code(2 * i) | code(2 * i + 1) << 4;
        // SAFETY: the plan checked that the codes hold every row.
        unsafe { out.codes.add(row * out.code_stride + i).write(byte) };
    }
    let side = x.format.block();
    for block in 0..out.scale_cols() {
        let byte = decode::scale_byte(x, block * side, row / side);
        // SAFETY: the plan checked that the scales hold every block.
        unsafe { out.scales.add(out.scale_offset(row, block)).write(byte) };
    }
}

fn bf16_row(plan: &TransposePlan, row: usize) {
    for r in 0..plan.x.rows {
        let from = decode::code_row(&plan.x, r);
        let value = u16::from_le_bytes([from[2 * row], from[2 * row + 1]]);
        // SAFETY: the plan checked that the codes (2-byte aligned) hold every row.
        unsafe {
            plan.out
                .codes
                .add(row * plan.out.code_stride + 2 * r)
                .cast::<u16>()
                .write(value)
        };
    }
}
