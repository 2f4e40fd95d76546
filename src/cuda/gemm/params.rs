//! Parameters of the GEMM kernels, field for field those of the structs in kernels/gemm_*; sizes are asserted on both
//! sides.

use std::ptr::{null, null_mut};

use crate::cuda::params::dtype;
use crate::cuda::tensor_map::TensorMap;
use crate::numerics::{Activation, Chain, Format, ScaleLayout, ScaleRule};
use crate::plan::gemm::Scalar;
use crate::plan::{GemmPlan, Matrix, Quantized};

/// A packed operand whose rows are aligned (kernels/gemm_operand.cuh).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Operand {
    pub codes: *const u8,
    pub scales: *const u8,
    pub stride: i64,
    pub scale_stride: i64,
    pub scale_step: i32,
    pub scale_second: i32,
    pub swizzled: i32,
}

impl Operand {
    pub fn new(q: &Quantized) -> Operand {
        let swizzled = q.scale_layout == ScaleLayout::Swizzled;
        Operand {
            codes: q.codes,
            scales: q.scales,
            stride: q.code_stride as i64,
            scale_stride: q.scale_stride as i64,
            scale_step: if swizzled { 1024 } else { 8 },
            scale_second: if swizzled { 512 } else { 4 },
            swizzled: swizzled as i32,
        }
    }
}

/// Any operand (kernels/gemm_portable.cuh).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyOperand {
    pub codes: *const u8,
    pub scales: *const u8,
    pub stride: i64,
    pub scale_stride: i64,
    pub codes_batch: i64,
    pub scales_batch: i64,
    pub amax_batch: i64,
    pub format: i32,
    pub swizzled: i32,
    pub vector: i32,
    pub rescale: i32,
}

impl AnyOperand {
    pub fn new(q: &Quantized, batch: [i64; 3]) -> AnyOperand {
        let swizzled = q.scale_layout == ScaleLayout::Swizzled;
        AnyOperand {
            codes: q.codes,
            scales: q.scales,
            stride: q.code_stride as i64,
            scale_stride: match swizzled {
                true => q.scale_cols().next_multiple_of(4),
                false => q.scale_stride,
            } as i64,
            codes_batch: batch[0],
            scales_batch: batch[1],
            amax_batch: batch[2],
            format: match q.format {
                Format::Nvfp4 => 0,
                Format::Mxfp4 => 1,
                Format::Bf16 => 2,
            },
            swizzled: swizzled as i32,
            vector: (rows_are_aligned(q) && batch[0] % 16 == 0) as i32,
            rescale: 0,
        }
    }
}

/// Rows of codes that 16-byte loads can read.
pub fn rows_are_aligned(q: &Quantized) -> bool {
    (q.codes as usize).is_multiple_of(16) && q.code_stride.is_multiple_of(16)
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct OuterScale {
    pub amax: *const f32,
    pub domain_rows: i32,
    pub c: f32,
    pub factor: f32,
    pub range_decode: f32,
}

impl OuterScale {
    fn new(q: &Quantized) -> OuterScale {
        let has_amax = q.format == Format::Nvfp4 && q.chain != Chain::Single;
        let encode_centric = q.format == Format::Mxfp4 && q.scale_rule == ScaleRule::EncodeCentric;
        OuterScale {
            amax: if has_amax { q.amax } else { null() },
            domain_rows: if has_amax {
                q.domain_rows.min(i32::MAX as usize) as i32
            } else {
                0
            },
            c: q.c,
            factor: if encode_centric {
                crate::numerics::scale::ONE_SIXTH
            } else {
                1.0
            },
            range_decode: if q.range_16_17 {
                crate::numerics::scale::RANGE_DECODE
            } else {
                1.0
            },
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Epilogue {
    pub alpha: *const f32,
    pub beta: *const f32,
    pub a: OuterScale,
    pub b: OuterScale,
    pub bias: *const u8,
    pub c: *const u8,
    pub d: *mut u8,
    pub c_stride: i64,
    pub d_stride: i64,
    pub bias_dtype: i32,
    pub c_dtype: i32,
    pub d_dtype: i32,
    pub activation: i32,
    pub row_factors: *const f32,
    pub col_factors: *const f32,
    pub operand_factor: f32,
    pub alpha_value: f32,
    pub beta_value: f32,
}

impl Epilogue {
    /// Of one product: D is `d`.
    pub fn new(
        plan: &GemmPlan,
        a: &Quantized,
        b: &Quantized,
        c: Option<&Matrix>,
        d: &Matrix,
        operand_factor: f32,
    ) -> Epilogue {
        let scalar = |s: Scalar| match s {
            Scalar::Value(v) => (null(), v),
            Scalar::Pointer(p) => (p, 0.0),
        };
        let (alpha, alpha_value) = scalar(plan.alpha);
        let (beta, beta_value) = match c {
            Some(_) => scalar(plan.beta),
            None => (null(), 0.0),
        };
        Epilogue {
            alpha,
            beta,
            a: OuterScale::new(a),
            b: OuterScale::new(b),
            bias: plan.bias,
            c: c.map_or(null_mut(), |c| c.data),
            d: d.data,
            c_stride: c.map_or(0, |c| c.stride) as i64,
            d_stride: d.stride as i64,
            bias_dtype: dtype(plan.bias_dtype) as i32,
            c_dtype: c.map_or(0, |c| dtype(c.dtype)) as i32,
            d_dtype: dtype(d.dtype) as i32,
            activation: match plan.activation {
                Activation::None => 0,
                Activation::Gelu => 1,
                Activation::Silu => 2,
                Activation::Relu2 => 3,
            },
            row_factors: plan.row_factors,
            col_factors: plan.col_factors,
            operand_factor,
            alpha_value,
            beta_value,
        }
    }
}

/// kernels/gemm_portable.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Portable {
    pub a: AnyOperand,
    pub b: AnyOperand,
    pub c_batch: i64,
    pub d_batch: i64,
    pub m: i32,
    pub n: i32,
    pub k: i32,
    pub batch: i32,
    pub m_tiles: i32,
    pub n_tiles: i32,
    pub epilogue: Epilogue,
}

/// kernels/gemm_grouped.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Grouped {
    pub product: Portable,
    pub table: *const u8,
    pub bias_stride: i64,
    pub alpha_stride: i64,
    pub ragged_k: i32,
    pub transform: i32,
}

/// kernels/gemm_sm100a.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tensor {
    pub a: TensorMap,
    pub b: TensorMap,
    pub a_scales: TensorMap,
    pub b_scales: TensorMap,
    pub product: Portable,
    pub a_items: i32,
    pub b_items: i32,
    pub band: i32,
    pub steps: i32,
    pub quantized: crate::cuda::params::Quantized,
    pub pad: [i32; 6],
}

/// kernels/gemm_pack_sm100a.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pack {
    pub x: AnyOperand,
    pub codes: *mut u8,
    pub scales: *mut u8,
    pub rows: i32,
    pub k: i32,
    pub items: i32,
    pub chunks: i32,
}

/// kernels/gemm_sm90a.cu: the product of a stripe of B.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Hopper {
    pub a: Operand,
    pub b_tiles: *const u8,
    pub m: i32,
    pub n0: i32,
    pub n: i32,
    pub k_groups: i32,
    pub m_pairs: i32,
    pub n_tiles: i32,
    pub epilogue: Epilogue,
}

/// kernels/gemm_sm90a.cu: a stripe of B as bf16 tiles.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Expand {
    pub b: Operand,
    pub tiles: *mut u8,
    pub n0: i32,
    pub n: i32,
    pub n_pad: i32,
    pub k_groups: i32,
}

/// kernels/gemm_sm90a.cu: an aligned copy of an operand.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Align {
    pub codes: *const u8,
    pub scales: *const u8,
    pub stride: i64,
    pub scale_stride: i64,
    pub out_codes: *mut u8,
    pub out_scales: *mut u8,
    pub rows: i32,
    pub k: i32,
    pub k_groups: i32,
    pub swizzled: i32,
}

/// kernels/gemm_decode.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Decode {
    pub a: Operand,
    pub b: Operand,
    pub m: i32,
    pub n: i32,
    pub k_groups: i32,
    pub pad: i32,
    pub epilogue: Epilogue,
}

/// kernels/gemm_expand.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExpandRows {
    pub x: Operand,
    pub out: *mut u8,
    pub rows: i32,
    pub k_groups: i32,
}

/// kernels/gemm_expand.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Scalars {
    pub out: *mut f32,
    pub epilogue: Epilogue,
}

const _: () = {
    assert!(size_of::<ExpandRows>() == 64);
    assert!(size_of::<Scalars>() == 160);
    assert!(size_of::<Decode>() == 264);
    assert!(size_of::<Operand>() == 48);
    assert!(size_of::<AnyOperand>() == 72);
    assert!(size_of::<Epilogue>() == 152);
    assert!(size_of::<Portable>() == 336);
    assert!(size_of::<Tensor>() == 1024);
    assert!(size_of::<Pack>() == 104);
    assert!(size_of::<Grouped>() == 368);
    assert!(size_of::<Hopper>() == 232);
    assert!(size_of::<Expand>() == 72);
    assert!(size_of::<Align>() == 64);
};
