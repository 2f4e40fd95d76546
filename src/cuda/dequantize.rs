//! Dequantize.

use super::driver::Stream;
use super::{params, Cuda};
use crate::numerics::Format;
use crate::plan::DequantizePlan;
use crate::Result;

pub fn run(cuda: &Cuda, plan: &DequantizePlan, stream: Stream) -> Result<()> {
    if plan.out.is_empty() {
        return Ok(());
    }
    let (x, out) = (&plan.x, &plan.out);
    let row_bytes = out.stride * out.dtype.size();
    let vector = (x.codes as usize).is_multiple_of(8)
        && x.code_stride.is_multiple_of(8)
        && (out.data as usize).is_multiple_of(16)
        && row_bytes.is_multiple_of(16);
    let mut p = params::Dequantize {
        x: params::Quantized::new(x),
        out: params::Matrix::new(out),
        vector: vector as u32,
        pad: 0,
    };
    // Without a transform's padding, if that is not wanted.
    p.x.cols = plan.cols as i64;
    let k = &cuda.kernels;
    if plan.transpose {
        let tiles = x.rows.div_ceil(64) * plan.cols.div_ceil(64);
        k.dequantize_transposed.launch(stream, tiles, 4, &p)
    } else if x.format == Format::Bf16 {
        k.dequantize_bf16_format
            .launch(stream, (x.rows * plan.cols).div_ceil(256), 4, &p)
    } else if vector
        && x.format == Format::Nvfp4
        && x.domain_rows == 0
        && plan.cols.is_multiple_of(8)
    {
        // A block has eight warps, each with strips of 1024 elements.
        let strips = x.rows * plan.cols.div_ceil(1024);
        k.dequantize_fast.launch(stream, strips.div_ceil(8), 2, &p)
    } else {
        let groups = x.rows * plan.cols.div_ceil(16);
        k.dequantize_blocks
            .launch(stream, groups.div_ceil(256), 4, &p)
    }
}
