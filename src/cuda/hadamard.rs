//! The public Hadamard transform.

use super::driver::Stream;
use super::{params, Cuda};
use crate::plan::HadamardPlan;
use crate::Result;

pub fn run(cuda: &Cuda, plan: &HadamardPlan, stream: Stream) -> Result<()> {
    let (x, y) = (&plan.x, &plan.y);
    if x.is_empty() || y.is_empty() {
        return Ok(());
    }
    let (lines, length) = match plan.columns {
        false => (x.rows, x.cols.max(y.cols)),
        true => (x.cols, x.rows.max(y.rows)),
    };
    let p = params::Hadamard {
        x: params::Matrix::new(x),
        y: params::Matrix::new(y),
        n: plan.n as u32,
        columns: plan.columns as u32,
        inverse: plan.inverse as u32,
        sign_mask: plan.sign_words,
        pad: 0,
    };
    cuda.kernels
        .hadamard
        .launch(stream, lines.div_ceil(32) * length.div_ceil(128), 4, &p)
}
