//! Operations on owned tensors.

use super::tensor::{QuantizedTensor, Tensor};
use crate::context::Context;
use crate::numerics::{Accumulate, Activation, Dtype, Nonfinite, Options, ScaleLayout, Signs};
use crate::plan::gemm::Scalar;
use crate::plan::{Device, GemmRequest, HadamardRequest, QuantizeRequest, Seed, Source};
use crate::{Error, Result};

const NO_STREAM: *mut std::ffi::c_void = std::ptr::null_mut();

/// Tensors own host memory, which only a CPU context may touch.
pub(super) fn on_host(ctx: &Context) -> Result<()> {
    match ctx.device() {
        Device::Cpu => Ok(()),
        Device::Cuda => Err(Error::NotSupported(
            "tensors of the safe API are in host memory; use a CPU context, or the C ABI with device pointers".into(),
        )),
    }
}

/// A call of `quantize_with`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantize<'a> {
    /// Make the rowwise copy, [rows, cols].
    pub rowwise: Option<Options>,
    /// Make the columnwise copy, which is transposed: [cols, rows], blocks along the source's columns.
    pub columnwise: Option<Options>,
    pub nonfinite: Nonfinite,
    /// Key of stochastic rounding and of seeded signs; a call uses one offset, below 2^62.
    pub seed: u64,
    pub offset: u64,
    /// Global row and column of the first element, where x is a slice of a larger matrix.
    pub origin: (usize, usize),
    /// Given amax of each copy, one a scale domain; computed where None.
    pub rowwise_amax: Option<&'a [f32]>,
    pub columnwise_amax: Option<&'a [f32]>,
}

/// The rowwise copy of x.
///
/// ```
/// use nvfp4::{numerics::Rounding, Context, Options, Tensor};
/// let ctx = Context::cpu(1);
/// let x = Tensor::from_f32(1, 16, (0..16).map(|i| i as f32 / 2.0).collect())?;
/// let q = nvfp4::quantize(&ctx, &x, &Options::default())?;
/// assert_eq!(q.scales(), [0x7E]); // 448: this block holds the largest value
/// assert_eq!(nvfp4::dequantize(&ctx, &q, x.dtype())?.to_f32()[15], 7.5);
/// # Ok::<(), nvfp4::Error>(())
/// ```
pub fn quantize(ctx: &Context, x: &Tensor, options: &Options) -> Result<QuantizedTensor> {
    let call = Quantize {
        rowwise: Some(*options),
        ..Quantize::default()
    };
    let (rowwise, _) = quantize_with(ctx, x, &call)?;
    Ok(rowwise.expect("the rowwise copy was asked for"))
}

/// The rowwise and columnwise copies of x that the call names, from one read of it.
pub fn quantize_with(
    ctx: &Context,
    x: &Tensor,
    call: &Quantize,
) -> Result<(Option<QuantizedTensor>, Option<QuantizedTensor>)> {
    on_host(ctx)?;
    let request = request(call);
    let (rows, cols) = (x.rows(), x.cols());
    let room = |name, options: &Option<Options>, amax: Option<&[f32]>, rows, cols, columnwise| {
        let Some(options) = options else {
            return Ok(None);
        };
        let copy = QuantizedTensor::room(name, options, rows, cols, columnwise)?;
        match amax {
            Some(given) if given.len() != copy.amax().len() => Err(Error::BufferSize(format!(
                "{} values of amax are given for the {name} copy, which has {} scale domains",
                given.len(),
                copy.amax().len()
            ))),
            _ => Ok(Some(copy)),
        }
    };
    let mut rowwise = room(
        "rowwise",
        &call.rowwise,
        call.rowwise_amax,
        rows,
        cols,
        false,
    )?;
    let mut columnwise = room(
        "columnwise",
        &call.columnwise,
        call.columnwise_amax,
        cols,
        rows,
        true,
    )?;
    let (row_buffers, col_buffers) = (
        rowwise.as_mut().map(|c| c.buffers()),
        columnwise.as_mut().map(|c| c.buffers()),
    );
    let x = Source::Matrix(x.view("x")?);
    let plan = ctx.quantize(
        &request,
        x,
        row_buffers.as_ref(),
        col_buffers.as_ref(),
        NO_STREAM,
    )?;
    for (copy, made) in [
        (&mut rowwise, &plan.rowwise),
        (&mut columnwise, &plan.columnwise),
    ] {
        if let (Some(copy), Some(made)) = (copy, made) {
            copy.became(&made.out);
        }
    }
    Ok((rowwise, columnwise))
}

fn request(call: &Quantize) -> QuantizeRequest {
    let given = |amax: Option<&[f32]>| amax.map_or(std::ptr::null(), |a| a.as_ptr());
    // A coordinate beyond i64 is beyond every limit too, and refused as such.
    let coordinate = |c: usize| i64::try_from(c).unwrap_or(i64::MAX);
    QuantizeRequest {
        rowwise: call.rowwise.unwrap_or_default(),
        columnwise: call.columnwise.unwrap_or_default(),
        nonfinite: call.nonfinite,
        seed: Seed::Host(call.seed, call.offset),
        origin_row: coordinate(call.origin.0),
        origin_col: coordinate(call.origin.1),
        rowwise_amax: given(call.rowwise_amax),
        columnwise_amax: given(call.columnwise_amax),
        ..QuantizeRequest::default()
    }
}

/// Amax of each scale domain of the rowwise copy, after its transform: to be reduced over ranks and given back.
pub fn amax(ctx: &Context, x: &Tensor, options: &Options) -> Result<Vec<f32>> {
    on_host(ctx)?;
    let mut room = QuantizedTensor::room("rowwise", options, x.rows(), x.cols(), false)?;
    let request = QuantizeRequest {
        rowwise: *options,
        ..QuantizeRequest::default()
    };
    let buffers = room.buffers();
    ctx.amax(
        &request,
        x.view("x")?,
        buffers.amax,
        std::ptr::null_mut(),
        NO_STREAM,
    )?;
    Ok(room.amax().to_vec())
}

/// The values of q in `dtype`, in q's own orientation, without a transform's padding; transformed values stay so.
pub fn dequantize(ctx: &Context, q: &QuantizedTensor, dtype: Dtype) -> Result<Tensor> {
    on_host(ctx)?;
    let mut out = Tensor::zeros(dtype, q.rows(), q.source_cols())?;
    let view = out.view_mut("out")?;
    ctx.dequantize(q.view(), false, view, NO_STREAM)?;
    Ok(out)
}

/// The transpose of `dequantize`: for a columnwise copy the source's own orientation.
pub fn dequantize_transposed(ctx: &Context, q: &QuantizedTensor, dtype: Dtype) -> Result<Tensor> {
    on_host(ctx)?;
    let mut out = Tensor::zeros(dtype, q.source_cols(), q.rows())?;
    let view = out.view_mut("out")?;
    ctx.dequantize(q.view(), true, view, NO_STREAM)?;
    Ok(out)
}

/// The transpose of a matrix that was quantized in square tiles, without its source.
pub fn transpose(
    ctx: &Context,
    q: &QuantizedTensor,
    layout: ScaleLayout,
) -> Result<QuantizedTensor> {
    on_host(ctx)?;
    let options = Options {
        scale_layout: layout,
        ..*q.options()
    };
    let mut out = QuantizedTensor::room("out", &unresolved(&options), q.cols(), q.rows(), true)?;
    let buffers = out.buffers();
    let became = ctx.transpose(q.view(), layout, &buffers, NO_STREAM)?;
    out.became(&became);
    Ok(out)
}

/// Resolved options as a caller would have written them: MS-EDEN's C and a format without amax take none.
fn unresolved(o: &Options) -> Options {
    let own =
        o.select == crate::numerics::Select::MsEden || o.format != crate::numerics::Format::Nvfp4;
    Options {
        c: if own { 0.0 } else { o.c },
        ..*o
    }
}

/// What follows the product in `gemm`.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a> {
    pub accumulate: Accumulate,
    pub alpha: f32,
    /// beta and C, [M, N].
    pub c: Option<(f32, &'a Tensor)>,
    /// [1, N].
    pub bias: Option<&'a Tensor>,
    pub activation: Activation,
    /// Type of D.
    pub dtype: Dtype,
}

impl Default for Gemm<'_> {
    fn default() -> Self {
        Gemm {
            accumulate: Accumulate::Default,
            alpha: 1.0,
            c: None,
            bias: None,
            activation: Activation::None,
            dtype: Dtype::F32,
        }
    }
}

/// D = act(alpha A B^T + beta C + bias): a is [M, K], b is [N, K], both with blocks along K; D is [M, N].
pub fn gemm(
    ctx: &Context,
    a: &QuantizedTensor,
    b: &QuantizedTensor,
    call: &Gemm,
) -> Result<Tensor> {
    on_host(ctx)?;
    let mut d = Tensor::zeros(call.dtype, a.rows(), b.rows())?;
    let mut request = GemmRequest {
        accumulate: call.accumulate,
        activation: call.activation,
        alpha: Scalar::Value(call.alpha),
        ..GemmRequest::default()
    };
    if let Some(bias) = call.bias {
        if (bias.rows(), bias.cols()) != (1, b.rows()) {
            return Err(Error::Shape(format!(
                "bias is [{}, {}], want [1, {}]",
                bias.rows(),
                bias.cols(),
                b.rows()
            )));
        }
        request.bias = bias.view("bias")?.data;
        request.bias_dtype = bias.dtype();
    }
    let c = match call.c {
        Some((beta, c)) => {
            request.beta = Scalar::Value(beta);
            Some(c.view("c")?)
        }
        None => None,
    };
    let view = d.view_mut("d")?;
    ctx.gemm(&request, a.view(), b.view(), c, Some(view), NO_STREAM)?;
    Ok(d)
}

/// A transform of `hadamard`.
#[derive(Clone, Copy, Debug)]
pub struct Hadamard {
    /// 16, 32, 64 or 128.
    pub n: u32,
    /// Along each column instead of each row.
    pub columns: bool,
    pub inverse: bool,
    pub signs: Signs,
    pub seed: u64,
    pub offset: u64,
}

impl Default for Hadamard {
    fn default() -> Self {
        Hadamard {
            n: 16,
            columns: false,
            inverse: false,
            signs: Signs::Default,
            seed: 0,
            offset: 0,
        }
    }
}

/// y = (x .* sign) H / sqrt(n) on blocks of n, or its inverse; in x's type. The transformed axis is padded with zeros to
/// a multiple of n.
pub fn hadamard(ctx: &Context, x: &Tensor, call: &Hadamard) -> Result<Tensor> {
    on_host(ctx)?;
    let request = HadamardRequest {
        n: call.n,
        columns: call.columns,
        inverse: call.inverse,
        signs: call.signs,
        seed: call.seed,
        offset: call.offset,
    };
    let padded = |side: usize| side.next_multiple_of((call.n as usize).max(1));
    let (rows, cols) = if call.columns {
        (padded(x.rows()), x.cols())
    } else {
        (x.rows(), padded(x.cols()))
    };
    let mut y = Tensor::zeros(x.dtype(), rows, cols)?;
    let view = y.view_mut("y")?;
    ctx.hadamard(&request, x.view("x")?, view, NO_STREAM)?;
    Ok(y)
}
