//! Swizzle and unswizzle of scale bytes, and the padding of the swizzled layout.

use std::ptr::null_mut;

use super::driver::Stream;
use super::{params, Cuda};
use crate::numerics::ScaleLayout;
use crate::plan::{Quantized, ScalesPlan};
use crate::Result;

pub fn swizzle(cuda: &Cuda, plan: &ScalesPlan, stream: Stream) -> Result<()> {
    let p = of(plan);
    let words = plan.rows.next_multiple_of(128) * plan.scale_cols.div_ceil(4);
    cuda.kernels
        .swizzle_scales
        .launch(stream, words.div_ceil(256), 4, &p)
}

pub fn unswizzle(cuda: &Cuda, plan: &ScalesPlan, stream: Stream) -> Result<()> {
    let p = of(plan);
    let words = plan.rows * plan.scale_cols.div_ceil(4);
    cuda.kernels
        .unswizzle_scales
        .launch(stream, words.div_ceil(256), 4, &p)
}

fn of(plan: &ScalesPlan) -> params::Scales {
    params::Scales {
        linear: plan.linear,
        swizzled: plan.swizzled,
        rows: plan.rows as i64,
        scale_cols: plan.scale_cols as i64,
        stride: plan.stride as i64,
        blocks4: plan.scale_cols.next_multiple_of(4) as i64,
    }
}

/// Zeros the bytes of swizzled scales that stand for no row or block; the quantizers write all others.
pub fn clear_padding(cuda: &Cuda, out: &Quantized, stream: Stream) -> Result<()> {
    let blocks = out.scale_cols();
    let whole = out.rows.is_multiple_of(128) && blocks.is_multiple_of(4);
    if out.scale_layout == ScaleLayout::Linear || blocks == 0 || whole {
        return Ok(());
    }
    let p = params::Scales {
        linear: null_mut(),
        swizzled: out.scales,
        rows: out.rows as i64,
        scale_cols: blocks as i64,
        stride: 0,
        blocks4: blocks.next_multiple_of(4) as i64,
    };
    let words = out.rows.next_multiple_of(128) * blocks.div_ceil(4);
    cuda.kernels
        .clear_scale_padding
        .launch(stream, words.div_ceil(256), 4, &p)
}
