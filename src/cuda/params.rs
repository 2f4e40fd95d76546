//! Kernel parameters, field for field those of kernels/params.cuh and of the structs at the head of kernels/*.cu; sizes
//! are asserted on both sides.

use std::ptr::null_mut;

use crate::abi::*;
use crate::numerics::*;
use crate::plan::{self, CopyPlan};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Matrix {
    pub data: *mut u8,
    pub rows: i64,
    pub cols: i64,
    pub stride: i64,
    pub dtype: u32,
    pub pad: u32,
}

/// `Matrix.dtype` of a source that is quantized.
pub const DTYPE_QUANTIZED: u32 = 3;

impl Matrix {
    pub fn new(x: &plan::Matrix) -> Matrix {
        Matrix {
            data: x.data,
            rows: x.rows as i64,
            cols: x.cols as i64,
            stride: x.stride as i64,
            dtype: dtype(x.dtype),
            pad: 0,
        }
    }

    /// Stands for a quantized source of this shape.
    pub fn quantized(x: &plan::Quantized) -> Matrix {
        Matrix {
            data: null_mut(),
            rows: x.rows as i64,
            cols: x.cols as i64,
            stride: 0,
            dtype: DTYPE_QUANTIZED,
            pad: 0,
        }
    }
}

pub fn dtype(d: Dtype) -> u32 {
    match d {
        Dtype::F32 => NVFP4_F32,
        Dtype::Bf16 => NVFP4_BF16,
        Dtype::F16 => NVFP4_F16,
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Quantized {
    pub codes: *mut u8,
    pub scales: *mut u8,
    pub amax: *mut f32,
    pub rows: i64,
    pub cols: i64,
    pub source_cols: i64,
    pub code_stride: i64,
    pub scale_stride: i64,
    pub domain_rows: i64,
    pub format: u32,
    pub block2d: u32,
    pub chain: u32,
    pub rule: u32,
    pub stochastic: u32,
    pub layout: u32,
    pub select: u32,
    pub hadamard: u32,
    pub flags: u32,
    pub transposed: u32,
    pub c: f32,
    pub sign_mask: [u32; 4],
    pub pad: u32,
}

impl Quantized {
    /// No copy wanted.
    pub const NONE: Quantized = Quantized {
        codes: null_mut(),
        scales: null_mut(),
        amax: null_mut(),
        rows: 0,
        cols: 0,
        source_cols: 0,
        code_stride: 0,
        scale_stride: 0,
        domain_rows: 0,
        format: 0,
        block2d: 0,
        chain: 0,
        rule: 0,
        stochastic: 0,
        layout: 0,
        select: 0,
        hadamard: 0,
        flags: 0,
        transposed: 0,
        c: 0.0,
        sign_mask: [0; 4],
        pad: 0,
    };

    /// A matrix to read.
    pub fn new(q: &plan::Quantized) -> Quantized {
        Quantized {
            codes: q.codes,
            scales: q.scales,
            amax: if q.domains() > 0 { q.amax } else { null_mut() },
            rows: q.rows as i64,
            cols: q.cols as i64,
            source_cols: q.source_cols as i64,
            code_stride: q.code_stride as i64,
            scale_stride: match q.scale_layout {
                ScaleLayout::Linear => q.scale_stride,
                ScaleLayout::Swizzled => q.scale_cols().next_multiple_of(4),
            } as i64,
            domain_rows: q.domain_rows as i64,
            format: match q.format {
                Format::Nvfp4 => NVFP4_FORMAT_NVFP4,
                Format::Mxfp4 => NVFP4_FORMAT_MXFP4,
                Format::Bf16 => NVFP4_FORMAT_BF16,
            },
            block2d: (q.block == Block::TwoD) as u32,
            chain: match q.chain {
                Chain::Te => NVFP4_CHAIN_TE,
                Chain::Div6 => NVFP4_CHAIN_DIV6,
                Chain::Single => NVFP4_CHAIN_SINGLE,
            },
            rule: match q.scale_rule {
                ScaleRule::Floor => NVFP4_RULE_FLOOR,
                ScaleRule::Ceil => NVFP4_RULE_CEIL,
                ScaleRule::Even => NVFP4_RULE_EVEN,
                ScaleRule::EncodeCentric => NVFP4_RULE_ENCODE_CENTRIC,
            },
            layout: match q.scale_layout {
                ScaleLayout::Linear => NVFP4_SCALES_LINEAR,
                ScaleLayout::Swizzled => NVFP4_SCALES_SWIZZLED,
            },
            hadamard: q.hadamard,
            flags: if q.range_16_17 { NVFP4_RANGE_16_17 } else { 0 },
            transposed: q.transposed as u32,
            c: q.c,
            sign_mask: q.sign_words,
            ..Quantized::NONE
        }
    }

    /// A copy to make.
    pub fn of(copy: &CopyPlan) -> Quantized {
        let o = &copy.options;
        let flag = |on: bool, bit| if on { bit } else { 0 };
        Quantized {
            stochastic: (o.rounding == Rounding::Stochastic) as u32,
            select: match o.select {
                Select::Single => NVFP4_SELECT_SINGLE,
                Select::FourOverSixMae => NVFP4_SELECT_4OVER6_MAE,
                Select::FourOverSixMse => NVFP4_SELECT_4OVER6_MSE,
                Select::FourOverSixAbsMax => NVFP4_SELECT_4OVER6_ABSMAX,
                Select::MsEden => NVFP4_SELECT_MS_EDEN,
            },
            flags: flag(o.keep_f32, NVFP4_KEEP_F32)
                | flag(o.range_16_17, NVFP4_RANGE_16_17)
                | flag(o.half_scale, NVFP4_MX_HALF_SCALE),
            transposed: copy.columnwise as u32,
            ..Quantized::new(&copy.out)
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Quantize {
    pub x: Matrix,
    pub row: Quantized,
    pub col: Quantized,
    pub seed_offset: *const u64,
    pub seed: u64,
    pub offset: u64,
    pub origin_row: i64,
    pub origin_col: i64,
    pub saturated: *mut u64,
    pub saturate: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Stats {
    pub quantize: Quantize,
    pub rows: *mut u8,
    pub out: *mut nvfp4_stats,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dequantize {
    pub x: Quantized,
    pub out: Matrix,
    pub vector: u32,
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Hadamard {
    pub x: Matrix,
    pub y: Matrix,
    pub n: u32,
    pub columns: u32,
    pub inverse: u32,
    pub sign_mask: [u32; 4],
    pub pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Transpose {
    pub x: Quantized,
    pub out: Quantized,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Scales {
    pub linear: *mut u8,
    pub swizzled: *mut u8,
    pub rows: i64,
    pub scale_cols: i64,
    pub stride: i64,
    pub blocks4: i64,
}

const _: () = {
    assert!(size_of::<Matrix>() == 40);
    assert!(size_of::<Quantized>() == 136);
    assert!(size_of::<Quantize>() == 368);
    assert!(size_of::<Stats>() == 384);
    assert!(size_of::<Dequantize>() == 184);
    assert!(size_of::<Hadamard>() == 112);
    assert!(size_of::<Transpose>() == 272);
    assert!(size_of::<Scales>() == 48);
    assert!(size_of::<nvfp4_stats>() == 40);
};
