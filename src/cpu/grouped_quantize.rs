//! Grouped quantize: the groups' own calls, their tiles spread over the threads together.

use super::groups::{copy_scales, linear};
use super::{quantize, Cpu};
use crate::numerics::Format;
use crate::plan::groups::column_starts;
use crate::plan::{CopyPlan, GroupedQuantizePlan, QuantizePlan, Quantized};
use std::ops::Range;

pub fn run(cpu: &Cpu, plan: &GroupedQuantizePlan) {
    // SAFETY: a CPU context's offsets are in host memory, and the plan checked them.
    let ranges = unsafe { plan.groups.ranges() };
    let starts = column_starts(&ranges, plan.column_align);
    let mut work = *plan;
    let mut memory = Vec::new();
    for copy in [&mut work.rowwise, &mut work.columnwise]
        .into_iter()
        .flatten()
    {
        let (out, scales) = linear(&copy.out);
        copy.out = out;
        memory.push(scales);
    }
    let calls: Vec<QuantizePlan> = ranges
        .iter()
        .enumerate()
        .map(|(g, r)| work.group(g, r.start, r.len(), starts[g]))
        .collect();
    quantize::run_all(cpu, &calls);
    if let Some(copy) = &work.columnwise {
        clear_column_padding(cpu, copy, &ranges, &starts);
    }
    for (copy, worked) in plan.copies().zip(work.copies()) {
        let end = starts[ranges.len()];
        let (rows, blocks) = match copy.columnwise {
            false => (
                ranges[0].start..ranges[ranges.len() - 1].end,
                copy.out.scale_cols(),
            ),
            true => (0..copy.out.rows, end / copy.options.format.block()),
        };
        copy_scales(cpu, &worked.out, &copy.out, rows.start, rows.end, blocks);
        quantize::clear_scale_padding(&copy.out);
    }
}

/// Zeros codes and scales between the end of a group's columns and the start of the next one's.
fn clear_column_padding(cpu: &Cpu, copy: &CopyPlan, ranges: &[Range<usize>], starts: &[usize]) {
    let q: &Quantized = &copy.out;
    let block = copy.options.format.block();
    cpu.pool.run(q.rows.div_ceil(64), |i| {
        for row in i * 64..((i + 1) * 64).min(q.rows) {
            for (g, range) in ranges.iter().enumerate() {
                let cols = match q.hadamard as usize {
                    0 => range.len(),
                    n => range.len().next_multiple_of(n),
                };
                let (from, to) = (starts[g] + cols, starts[g + 1]);
                let (bytes, scales) = match q.format {
                    Format::Bf16 => (2 * from..2 * to, 0..0),
                    _ => (from.div_ceil(2)..to / 2, from.div_ceil(block)..to / block),
                };
                // SAFETY: columns of the copy, whose buffers the plan checked; its scales are linear here.
                unsafe {
                    let codes = q.codes.add(row * q.code_stride + bytes.start);
                    std::ptr::write_bytes(codes, 0, bytes.len());
                    if !scales.is_empty() {
                        let p = q.scales.add(row * q.scale_stride + scales.start);
                        std::ptr::write_bytes(p, 0, scales.len());
                    }
                }
            }
        }
    });
}
