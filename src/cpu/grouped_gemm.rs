//! The grouped product: the groups' own products, their tiles spread over the threads together.

use super::groups::{copy_scales, linear};
use super::{gemm, Cpu};
use crate::plan::grouped_gemm::Ragged;
use crate::plan::groups::column_starts;
use crate::plan::{GemmPlan, GroupedGemmPlan};
use crate::Result;

/// What the CPU does not do of a legal plan.
pub fn supports(plan: &GroupedGemmPlan) -> Result<()> {
    gemm::supports_provider(plan.provider)
}

pub fn run(cpu: &Cpu, plan: &GroupedGemmPlan) {
    // SAFETY: a CPU context's offsets are in host memory, and the plan checked them.
    let ranges = unsafe { plan.groups.ranges() };
    let starts = column_starts(&ranges, plan.column_align);
    let mut work = *plan;
    let (a, a_scales) = linear(&plan.a);
    let mut memory = vec![a_scales];
    work.a = a;
    match plan.ragged {
        Ragged::M => {
            let (first, last) = (ranges[0].start, ranges[ranges.len() - 1].end);
            copy_scales(cpu, &plan.a, &work.a, first, last, a.scale_cols());
        }
        Ragged::K => {
            let (b, b_scales) = linear(&plan.b);
            memory.push(b_scales);
            work.b = b;
            let blocks = starts[ranges.len()] / a.format.block().max(b.format.block());
            copy_scales(cpu, &plan.a, &work.a, 0, a.rows, blocks.min(a.scale_cols()));
            copy_scales(cpu, &plan.b, &work.b, 0, b.rows, blocks.min(b.scale_cols()));
        }
    }
    let products: Vec<GemmPlan> = ranges
        .iter()
        .enumerate()
        .map(|(g, r)| work.group(g, r.start, r.len(), starts[g]))
        .collect();
    gemm::run_all(cpu, &products, None);
    drop(memory);
}
