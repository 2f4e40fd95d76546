//! Grouped quantize on a GPU: a table of the groups, then the tiles of all of them (kernels/grouped_quantize.cu).

use std::ptr::null_mut;

use super::driver::Stream;
use super::groups::{self, Cut};
use super::kernels::Kernel;
use super::{params, quantize, scales, Cuda};
use crate::plan::{CopyPlan, GroupedQuantizePlan, QuantizePlan, Source};
use crate::Result;

/// Rows and columns of a tile.
const ROWS: usize = 32;
const COLS: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    quantize: params::Quantize,
    table: *const u8,
    count: i64,
}

const _: () = assert!(size_of::<Params>() == 384);

pub fn workspace(plan: &GroupedQuantizePlan) -> usize {
    groups::bytes(&plan.groups)
}

pub fn run(cuda: &Cuda, plan: &GroupedQuantizePlan, stream: Stream) -> Result<()> {
    groups::check(
        plan.workspace,
        plan.workspace_bytes,
        workspace(plan),
        "desc.quantize->workspace",
    )?;
    let cut = Cut {
        total: plan.x.rows,
        capacity: plan.columnwise.map_or(0, |c| c.out.cols),
        align: plan.column_align,
        row_step: ROWS,
        column_step: COLS,
    };
    groups::table(cuda, &plan.groups, cut, plan.workspace, stream)?;
    let k = &cuda.kernels;
    for copy in plan.copies() {
        let domains = copy.out.domains();
        if domains > 0 && !copy.given_amax.is_null() {
            stream.copy(copy.out.amax, copy.given_amax, domains)?;
        } else if domains > 0 {
            stream.fill32(copy.out.amax, 0, domains)?;
            launch(plan, copy, &k.amax_grouped, stream)?;
        }
        scales::clear_padding(cuda, &copy.out, stream)?;
        launch(plan, copy, &k.quantize_grouped, stream)?;
    }
    Ok(())
}

/// The tiles of one copy of all groups.
fn launch(
    plan: &GroupedQuantizePlan,
    copy: &CopyPlan,
    kernel: &Kernel,
    stream: Stream,
) -> Result<()> {
    let whole = QuantizePlan {
        x: Source::Matrix(plan.x),
        rowwise: plan.rowwise,
        columnwise: plan.columnwise,
        nonfinite: plan.nonfinite,
        seed: plan.seed,
        stats: null_mut(),
        workspace: null_mut(),
        workspace_bytes: 0,
    };
    let p = Params {
        quantize: quantize::general_params(&whole, copy, null_mut()),
        table: plan.workspace,
        count: plan.groups.count as i64,
    };
    let (q, groups) = (&copy.out, plan.groups.count);
    // Each group may begin a tile.
    let most = match copy.columnwise {
        true => (q.cols.div_ceil(COLS) + groups) * q.rows.div_ceil(ROWS),
        false => (q.rows.div_ceil(ROWS) + groups) * q.cols.div_ceil(COLS),
    };
    kernel.launch(stream, if q.is_empty() { 0 } else { most }, 4, &p)
}
