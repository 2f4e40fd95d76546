//! C's numbers and structs become the planner's values: unknown constants, stray bits and unused fields that are not
//! zero are errors.

use std::fmt::Display;
use std::mem::size_of;

use super::read::{nested, read};
use crate::abi::*;
use crate::numerics::{hadamard, ms_eden, scale};
use crate::numerics::{
    Accumulate, Activation, Block, Chain, Dtype, Format, Nonfinite, Options, Rounding, ScaleLayout,
    ScaleRule, Select, Signs,
};
use crate::plan::gemm::{BatchStrides, Scalar};
use crate::plan::view::{aligned, dimension, Field};
use crate::plan::{
    Buffers, Device, GemmRequest, HadamardRequest, Matrix, QuantizeRequest, Quantized, Seed,
};
use crate::{Error, Result};

macro_rules! constants {
    ($($function:ident -> $type:ident { $($constant:ident => $variant:ident),* $(,)? })*) => {$(
        pub(crate) fn $function(field: impl Display, value: u32) -> Result<$type> {
            match value {
                $($constant => Ok($type::$variant),)*
                _ => Err(Error::InvalidArgument(format!(
                    "{field} is {value}, want {}",
                    [$(format!("{} = {}", stringify!($constant), $constant)),*].join(", ")
                ))),
            }
        }
    )*};
}

constants! {
    dtype -> Dtype { NVFP4_F32 => F32, NVFP4_BF16 => Bf16, NVFP4_F16 => F16 }
    format -> Format { NVFP4_FORMAT_NVFP4 => Nvfp4, NVFP4_FORMAT_MXFP4 => Mxfp4, NVFP4_FORMAT_BF16 => Bf16 }
    block -> Block { NVFP4_BLOCK_1D => OneD, NVFP4_BLOCK_2D => TwoD }
    chain -> Chain { NVFP4_CHAIN_TE => Te, NVFP4_CHAIN_DIV6 => Div6, NVFP4_CHAIN_SINGLE => Single }
    scale_rule -> ScaleRule {
        NVFP4_RULE_FLOOR => Floor, NVFP4_RULE_CEIL => Ceil, NVFP4_RULE_EVEN => Even,
        NVFP4_RULE_ENCODE_CENTRIC => EncodeCentric,
    }
    rounding -> Rounding { NVFP4_ROUND_NEAREST => Nearest, NVFP4_ROUND_STOCHASTIC => Stochastic }
    scale_layout -> ScaleLayout { NVFP4_SCALES_LINEAR => Linear, NVFP4_SCALES_SWIZZLED => Swizzled }
    select -> Select {
        NVFP4_SELECT_SINGLE => Single, NVFP4_SELECT_4OVER6_MAE => FourOverSixMae,
        NVFP4_SELECT_4OVER6_MSE => FourOverSixMse, NVFP4_SELECT_4OVER6_ABSMAX => FourOverSixAbsMax,
        NVFP4_SELECT_MS_EDEN => MsEden,
    }
    nonfinite -> Nonfinite { NVFP4_NONFINITE_PROPAGATE => Propagate, NVFP4_NONFINITE_SATURATE => Saturate }
    accumulate -> Accumulate {
        NVFP4_ACCUMULATE_DEFAULT => Default, NVFP4_ACCUMULATE_FAST => Fast, NVFP4_ACCUMULATE_BLOCK => Block,
        NVFP4_ACCUMULATE_HARDWARE => Hardware, NVFP4_ACCUMULATE_HARDWARE_K96 => HardwareK96,
    }
    activation -> Activation {
        NVFP4_ACTIVATION_NONE => None, NVFP4_ACTIVATION_GELU => Gelu, NVFP4_ACTIVATION_SILU => Silu,
        NVFP4_ACTIVATION_RELU2 => Relu2,
    }
}

/// A field that is reserved, or a switch.
pub(crate) fn at_most(field: impl Display, value: u32, largest: u32) -> Result<u32> {
    if value > largest {
        return Err(Error::InvalidArgument(format!(
            "{field} is {value}, want at most {largest}"
        )));
    }
    Ok(value)
}

fn domain_rows(name: &str, value: i64) -> Result<usize> {
    dimension(name, "domain_rows", value).map_err(|e| Error::InvalidArgument(e.to_string()))
}

fn signs(name: &str, kind: u32, mask: &[u32; 4]) -> Result<Signs> {
    let unused = |used: [u32; 4]| {
        let stray: [u32; 4] = std::array::from_fn(|i| mask[i] & !used[i]);
        if stray != [0; 4] {
            return Err(Error::InvalidArgument(format!(
                "{name}.sign_mask is {mask:08x?}, but {name}.signs = {kind} does not read all of its bits"
            )));
        }
        Ok(())
    };
    match kind {
        NVFP4_SIGNS_DEFAULT => unused([0; 4]).map(|()| Signs::Default),
        NVFP4_SIGNS_MASK16 => unused([0xFFFF, 0, 0, 0]).map(|()| Signs::Mask16(mask[0] as u16)),
        NVFP4_SIGNS_MASK => Ok(Signs::Mask(*mask)),
        NVFP4_SIGNS_SEEDED => unused([0; 4]).map(|()| Signs::Seeded),
        _ => Err(Error::InvalidArgument(format!(
            "{name}.signs is {kind}, want NVFP4_SIGNS_DEFAULT = 0 to NVFP4_SIGNS_SEEDED = 3"
        ))),
    }
}

pub(crate) fn options(name: &str, o: &nvfp4_options) -> Result<Options> {
    let o = nested(o, name)?;
    let field = |f| Field(name, f);
    let known = NVFP4_KEEP_F32 | NVFP4_RANGE_16_17 | NVFP4_MX_HALF_SCALE;
    if o.flags & !known != 0 {
        return Err(Error::InvalidArgument(format!(
            "{name}.flags is {:#x}, known bits are {known:#x}",
            o.flags
        )));
    }
    at_most(field("reserved"), o.reserved, 0)?;
    Ok(Options {
        format: format(field("format"), o.format)?,
        block: block(field("block"), o.block)?,
        chain: chain(field("chain"), o.chain)?,
        scale_rule: scale_rule(field("scale_rule"), o.scale_rule)?,
        rounding: rounding(field("rounding"), o.rounding)?,
        scale_layout: scale_layout(field("scale_layout"), o.scale_layout)?,
        select: select(field("select"), o.select)?,
        hadamard: o.hadamard,
        signs: signs(name, o.signs, &o.sign_mask)?,
        keep_f32: o.flags & NVFP4_KEEP_F32 != 0,
        range_16_17: o.flags & NVFP4_RANGE_16_17 != 0,
        half_scale: o.flags & NVFP4_MX_HALF_SCALE != 0,
        domain_rows: domain_rows(name, o.domain_rows)?,
        c: o.c,
    })
}

/// The other way, for recipes.
pub(crate) fn options_to_c(o: &Options) -> nvfp4_options {
    let (signs, sign_mask) = match o.signs {
        Signs::Default => (NVFP4_SIGNS_DEFAULT, [0; 4]),
        Signs::Mask16(mask) => (NVFP4_SIGNS_MASK16, [mask as u32, 0, 0, 0]),
        Signs::Mask(mask) => (NVFP4_SIGNS_MASK, mask),
        Signs::Seeded => (NVFP4_SIGNS_SEEDED, [0; 4]),
    };
    // The enums are declared in the order of the constants (a test reads every one back).
    nvfp4_options {
        struct_size: size_of::<nvfp4_options>(),
        format: o.format as u32,
        block: o.block as u32,
        chain: o.chain as u32,
        scale_rule: o.scale_rule as u32,
        rounding: o.rounding as u32,
        scale_layout: o.scale_layout as u32,
        select: o.select as u32,
        hadamard: o.hadamard,
        signs,
        flags: (o.keep_f32 as u32 * NVFP4_KEEP_F32)
            | (o.range_16_17 as u32 * NVFP4_RANGE_16_17)
            | (o.half_scale as u32 * NVFP4_MX_HALF_SCALE),
        sign_mask,
        domain_rows: o.domain_rows as i64,
        c: o.c,
        reserved: 0,
    }
}

/// SAFETY (this and the functions below): the module's law for pointers from C.
pub(crate) unsafe fn matrix(name: &'static str, p: *const nvfp4_matrix) -> Result<Matrix> {
    // SAFETY: the caller's promise.
    let m = unsafe { read(p, name)? };
    at_most(Field(name, "reserved"), m.reserved, 0)?;
    let dtype = dtype(Field(name, "dtype"), m.dtype)?;
    Matrix::new(name, m.data.cast(), dtype, m.rows, m.cols, m.stride)
}

pub(crate) unsafe fn optional_matrix(
    name: &'static str,
    p: *const nvfp4_matrix,
) -> Result<Option<Matrix>> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { matrix(name, p) }.map(Some)
}

fn buffers_of(q: &nvfp4_quantized) -> Buffers {
    Buffers {
        codes: q.codes.cast(),
        codes_bytes: q.codes_bytes,
        scales: q.scales.cast(),
        scales_bytes: q.scales_bytes,
        amax: q.amax,
        amax_count: q.amax_count,
        code_stride: q.code_stride,
        scale_stride: q.scale_stride,
    }
}

/// The buffers of an output; NULL is None.
pub(crate) unsafe fn buffers(
    name: &'static str,
    p: *mut nvfp4_quantized,
) -> Result<Option<Buffers>> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { read(p.cast_const(), name) }.map(|q| Some(buffers_of(&q)))
}

/// Everything about a quantized operand but its memory.
pub(crate) fn described(name: &'static str, q: &nvfp4_quantized) -> Result<Quantized> {
    let field = |f| Field(name, f);
    let n = q.hadamard as usize;
    if ![0, 16, 32, 64, 128].contains(&n) {
        return Err(Error::InvalidArgument(format!(
            "{name}.hadamard is {n}, want 0, 16, 32, 64 or 128"
        )));
    }
    if q.flags & !NVFP4_RANGE_16_17 != 0 {
        return Err(Error::InvalidArgument(format!(
            "{name}.flags is {:#x}, want NVFP4_RANGE_16_17 = {NVFP4_RANGE_16_17} or 0",
            q.flags
        )));
    }
    let c = if q.c == 0.0 { scale::C_448 } else { q.c };
    if ![scale::C_448, scale::C_256, ms_eden::C].contains(&c) {
        return Err(Error::InvalidArgument(format!(
            "{name}.c is {c}, want 2688, 1536, {} (MS-EDEN) or 0",
            ms_eden::C
        )));
    }
    let cols = dimension(name, "cols", q.cols)?;
    let source_cols = match dimension(name, "source_cols", q.source_cols)? {
        0 => cols,
        source => source,
    };
    let padded = if n == 0 {
        source_cols
    } else {
        source_cols.next_multiple_of(n)
    };
    if padded != cols {
        return Err(Error::Shape(format!(
            "{name}.cols is {cols}, but source_cols = {source_cols} with a transform of {n} makes {padded}"
        )));
    }
    Ok(Quantized {
        codes: std::ptr::null_mut(),
        scales: std::ptr::null_mut(),
        amax: std::ptr::null_mut(),
        rows: dimension(name, "rows", q.rows)?,
        cols,
        code_stride: 0,
        scale_stride: 0,
        format: format(field("format"), q.format)?,
        block: block(field("block"), q.block)?,
        chain: chain(field("chain"), q.chain)?,
        scale_rule: scale_rule(field("scale_rule"), q.scale_rule)?,
        scale_layout: scale_layout(field("scale_layout"), q.scale_layout)?,
        range_16_17: q.flags & NVFP4_RANGE_16_17 != 0,
        hadamard: q.hadamard,
        sign_words: if n == 0 {
            [0; 4]
        } else {
            hadamard::sign_words(Signs::Mask(q.sign_mask), n, 0, 0)
        },
        transposed: at_most(field("transposed"), q.transposed, 1)? == 1,
        domain_rows: domain_rows(name, q.domain_rows)?,
        c,
        source_cols,
        groups: dimension(name, "groups", q.groups)?,
        beyond: [0; 3],
    })
}

/// A quantized operand, to be read.
pub(crate) unsafe fn quantized(name: &'static str, p: *const nvfp4_quantized) -> Result<Quantized> {
    // SAFETY: the caller's promise.
    let q = unsafe { grouped_operand(name, p)? };
    if q.groups != 0 {
        return Err(Error::Mismatch(format!(
            "{name}.groups is {}: a copy of nvfp4_grouped_quantize, which only nvfp4_grouped_gemm reads",
            q.groups
        )));
    }
    Ok(q)
}

/// The same, of one matrix or of groups.
pub(crate) unsafe fn grouped_operand(
    name: &'static str,
    p: *const nvfp4_quantized,
) -> Result<Quantized> {
    // SAFETY: the caller's promise.
    let q = unsafe { read(p, name)? };
    described(name, &q)?.bind(name, &buffers_of(&q))
}

/// Tells the caller what its buffers now hold; pointers, sizes and strides stay as the caller set them.
pub(crate) unsafe fn tell(
    p: *mut nvfp4_quantized,
    name: &'static str,
    q: &Quantized,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let old = read(p.cast_const(), name)?;
        let new = nvfp4_quantized {
            rows: q.rows as i64,
            cols: q.cols as i64,
            format: q.format as u32,
            block: q.block as u32,
            chain: q.chain as u32,
            scale_rule: q.scale_rule as u32,
            scale_layout: q.scale_layout as u32,
            flags: q.range_16_17 as u32 * NVFP4_RANGE_16_17,
            hadamard: q.hadamard,
            transposed: q.transposed as u32,
            sign_mask: q.sign_words,
            domain_rows: q.domain_rows as i64,
            c: if q.format == Format::Nvfp4 { q.c } else { 0.0 },
            source_cols: q.source_cols as i64,
            groups: q.groups as i64,
            ..old
        };
        super::read::write_back(p, &new);
    }
    Ok(())
}

/// Two integers behind a pointer on the CPU; the pointer itself on a GPU.
pub(crate) unsafe fn seed(device: Device, seed: u64, offset: u64, p: *const u64) -> Result<Seed> {
    if p.is_null() {
        return Ok(Seed::Host(seed, offset));
    }
    aligned(p.cast(), "seed_offset", 8)?;
    match device {
        // SAFETY: aligned, and the caller vouches for two u64.
        Device::Cpu => Ok(unsafe { Seed::Host(p.read(), p.add(1).read()) }),
        Device::Cuda => Ok(Seed::Device(p, 0)),
    }
}

/// A quantize descriptor; NULL is all default.
pub(crate) unsafe fn quantize_request(
    device: Device,
    p: *const nvfp4_quantize_desc,
) -> Result<QuantizeRequest> {
    if p.is_null() {
        return Ok(QuantizeRequest::default());
    }
    // SAFETY: the caller's promise.
    let d = unsafe { read(p, "desc")? };
    at_most("desc.reserved", d.reserved, 0)?;
    Ok(QuantizeRequest {
        rowwise: options("desc.rowwise", &d.rowwise)?,
        columnwise: options("desc.columnwise", &d.columnwise)?,
        nonfinite: nonfinite("desc.nonfinite", d.nonfinite)?,
        // SAFETY: the caller's promise.
        seed: unsafe { seed(device, d.seed, d.offset, d.seed_offset)? },
        origin_row: d.origin_row,
        origin_col: d.origin_col,
        rowwise_amax: d.rowwise_amax,
        columnwise_amax: d.columnwise_amax,
        stats: d.stats,
        workspace: d.workspace.cast(),
        workspace_bytes: d.workspace_bytes,
    })
}

/// A gemm descriptor, and where to tell what a quantized D became; NULL is all default.
pub(crate) unsafe fn gemm_request(
    p: *const nvfp4_gemm_desc,
) -> Result<(GemmRequest, *mut nvfp4_quantized)> {
    if p.is_null() {
        return Ok((GemmRequest::default(), std::ptr::null_mut()));
    }
    // SAFETY: the caller's promise.
    let d = unsafe { read(p, "desc")? };
    let request = GemmRequest {
        accumulate: accumulate("desc.accumulate", d.accumulate)?,
        activation: activation("desc.activation", d.activation)?,
        alpha: Scalar::or(d.alpha, 1.0),
        beta: Scalar::or(d.beta, 0.0),
        bias: d.bias.cast(),
        bias_dtype: dtype("desc.bias_dtype", d.bias_dtype)?,
        provider: d.provider,
        batch: d.batch,
        strides: BatchStrides {
            a_codes: d.a_codes_batch_stride,
            a_scales: d.a_scales_batch_stride,
            a_amax: d.a_amax_batch_stride,
            b_codes: d.b_codes_batch_stride,
            b_scales: d.b_scales_batch_stride,
            b_amax: d.b_amax_batch_stride,
            c: d.c_batch_stride,
            d: d.d_batch_stride,
        },
        row_factors: d.row_factors,
        col_factors: d.col_factors,
        d_options: options("desc.d_options", &d.d_options)?,
        // SAFETY: the caller's promise.
        d_quantized: unsafe { buffers("desc.d_quantized", d.d_quantized)? },
        d_amax: d.d_quantized_amax,
        shape_only: false,
        seed: d.seed,
        offset: d.offset,
        b_packed: d.b_packed.cast(),
        b_packed_bytes: d.b_packed_bytes,
        workspace: d.workspace.cast(),
        workspace_bytes: d.workspace_bytes,
    };
    Ok((request, d.d_quantized))
}

/// A Hadamard descriptor; NULL is all default.
pub(crate) unsafe fn hadamard_request(p: *const nvfp4_hadamard_desc) -> Result<HadamardRequest> {
    if p.is_null() {
        return Ok(HadamardRequest::default());
    }
    // SAFETY: the caller's promise.
    let d = unsafe { read(p, "desc")? };
    Ok(HadamardRequest {
        n: if d.n == 0 { 16 } else { d.n },
        columns: at_most("desc.axis", d.axis, 1)? == 1,
        inverse: at_most("desc.inverse", d.inverse, 1)? == 1,
        signs: signs("desc", d.signs, &d.sign_mask)?,
        seed: d.seed,
        offset: d.offset,
    })
}
