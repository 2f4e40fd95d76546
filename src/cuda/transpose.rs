//! Transpose of a matrix that was quantized in square tiles.

use super::driver::Stream;
use super::{params, scales, Cuda};
use crate::plan::TransposePlan;
use crate::Result;

pub fn run(cuda: &Cuda, plan: &TransposePlan, stream: Stream) -> Result<()> {
    let (x, out) = (&plan.x, &plan.out);
    stream.copy(out.amax, x.amax, x.domains())?;
    scales::clear_padding(cuda, out, stream)?;
    let p = params::Transpose {
        x: params::Quantized::new(x),
        out: params::Quantized::new(out),
    };
    cuda.kernels.transpose_quantized.launch(
        stream,
        x.rows.div_ceil(64) * x.cols.div_ceil(64),
        4,
        &p,
    )
}
