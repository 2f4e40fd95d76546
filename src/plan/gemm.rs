//! Planning of the block-scaled matrix product.

use super::quantize::{described, CopyPlan, Seed};
use super::view::{aligned, describe, dimension, Buffers, Matrix, Quantized};
use super::{options, Device};
use crate::numerics::hadamard::sign_words;
use crate::numerics::{Accumulate, Activation, Dtype, Format, Options, ScaleLayout};
use crate::{Error, Result};

/// A factor: known here, or one f32 in memory of the context's device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Value(f32),
    Pointer(*const f32),
}

impl Scalar {
    /// What `p` points to, or `default` where it is NULL.
    pub fn or(p: *const f32, default: f32) -> Scalar {
        if p.is_null() {
            Scalar::Value(default)
        } else {
            Scalar::Pointer(p)
        }
    }

    /// The value, on the CPU.
    ///
    /// # Safety
    /// A pointer is to one f32 of host memory; the plan checked its alignment.
    pub unsafe fn read(self) -> f32 {
        match self {
            Scalar::Value(v) => v,
            // SAFETY: the caller's promise.
            Scalar::Pointer(p) => unsafe { p.read() },
        }
    }

    pub(super) fn address(self) -> *const f32 {
        match self {
            Scalar::Value(_) => std::ptr::null(),
            Scalar::Pointer(p) => p,
        }
    }
}

/// A call as the caller wrote it; zero and NULL are defaults.
#[derive(Clone, Copy, Debug)]
pub struct GemmRequest {
    pub accumulate: Accumulate,
    pub activation: Activation,
    pub alpha: Scalar,
    pub beta: Scalar,
    /// N values of `bias_dtype`, or NULL.
    pub bias: *const u8,
    pub bias_dtype: Dtype,
    pub provider: u32,
    pub batch: i64,
    pub strides: BatchStrides,
    /// M and N values, or NULL.
    pub row_factors: *const f32,
    pub col_factors: *const f32,
    /// NVFP4 or MXFP4 output: options, buffers, given amax.
    pub d_options: Options,
    pub d_quantized: Option<Buffers>,
    pub d_amax: *const f32,
    /// Nothing behind the pointers is there: a capability query.
    pub shape_only: bool,
    pub seed: u64,
    pub offset: u64,
    pub b_packed: *const u8,
    pub b_packed_bytes: usize,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

impl Default for GemmRequest {
    fn default() -> Self {
        GemmRequest {
            accumulate: Accumulate::Default,
            activation: Activation::None,
            alpha: Scalar::Value(1.0),
            beta: Scalar::Value(0.0),
            bias: std::ptr::null(),
            bias_dtype: Dtype::F32,
            provider: 0,
            batch: 0,
            strides: BatchStrides::default(),
            row_factors: std::ptr::null(),
            col_factors: std::ptr::null(),
            d_options: Options::default(),
            d_quantized: None,
            d_amax: std::ptr::null(),
            shape_only: false,
            seed: 0,
            offset: 0,
            b_packed: std::ptr::null(),
            b_packed_bytes: 0,
            workspace: std::ptr::null_mut(),
            workspace_bytes: 0,
        }
    }
}

/// From one product of a batch to the next: bytes of codes and scales, values of amax, elements of C and D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStrides {
    pub a_codes: i64,
    pub a_scales: i64,
    pub a_amax: i64,
    pub b_codes: i64,
    pub b_scales: i64,
    pub b_amax: i64,
    pub c: i64,
    pub d: i64,
}

/// Where the product goes.
#[derive(Clone, Copy, Debug)]
pub enum GemmOutput {
    Matrix(Matrix),
    /// Quantized with a given amax (`given_amax` is not NULL where the copy has scale domains).
    Quantized(CopyPlan),
}

/// A checked call.
#[derive(Clone, Copy, Debug)]
pub struct GemmPlan {
    pub a: Quantized,
    pub b: Quantized,
    /// Not read when beta is 0.
    pub c: Option<Matrix>,
    pub d: GemmOutput,
    pub m: usize,
    pub n: usize,
    /// Contracted length; with a transform the padded one.
    pub k: usize,
    /// As asked; `Default` is the backend's own.
    pub accumulate: Accumulate,
    pub activation: Activation,
    pub alpha: Scalar,
    pub beta: Scalar,
    pub bias: *const u8,
    pub bias_dtype: Dtype,
    pub row_factors: *const f32,
    pub col_factors: *const f32,
    pub provider: u32,
    /// At least 1.
    pub batch: usize,
    pub strides: BatchStrides,
    /// Of a quantized D's random bits.
    pub seed: (u64, u64),
    pub b_packed: *const u8,
    pub b_packed_bytes: usize,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for GemmPlan {}
// SAFETY: as above.
unsafe impl Sync for GemmPlan {}

/// Plans D = act(alpha' A B^T + beta C + bias). Exactly one of `d` and the request's `d_quantized` is there.
pub fn plan(
    request: &GemmRequest,
    device: Device,
    a: Quantized,
    b: Quantized,
    c: Option<Matrix>,
    d: Option<Matrix>,
) -> Result<GemmPlan> {
    check_operands(&a, &b)?;
    let models_fp4 = matches!(
        request.accumulate,
        Accumulate::Hardware | Accumulate::HardwareK96
    );
    if models_fp4 && (a.format == Format::Bf16 || b.format == Format::Bf16) {
        return Err(Error::NotSupported(format!(
            "{:?} models products of two FP4 operands; a is {} matrix and b {} one",
            request.accumulate,
            describe(a.format),
            describe(b.format)
        )));
    }
    let (m, n) = (a.rows, b.rows);
    let batch = match dimension("desc", "batch", request.batch)? {
        0 => 1,
        batch => batch,
    };
    for (p, name) in [
        (request.alpha.address(), "alpha"),
        (request.beta.address(), "beta"),
        (request.row_factors, "row_factors"),
        (request.col_factors, "col_factors"),
    ] {
        aligned(p.cast(), name, 4)?;
    }
    aligned(request.bias, "bias", request.bias_dtype.size())?;
    let d = match (d, &request.d_quantized) {
        (None, None) => return Err(Error::NullPointer("d")),
        (Some(_), Some(_)) => {
            return Err(Error::InvalidArgument(
                "d and desc.d_quantized are both given, want one".into(),
            ))
        }
        (Some(d), None) => GemmOutput::Matrix(shaped("d", d, m, n)?),
        (None, Some(buffers)) => {
            GemmOutput::Quantized(output_copy(request, device, m, n, batch, buffers)?)
        }
    };
    let reads_c = request.beta != Scalar::Value(0.0);
    if reads_c && c.is_none() {
        return Err(Error::NullPointer("c (desc.beta is given)"));
    }
    let c = c
        .filter(|_| reads_c)
        .map(|c| shaped("c", c, m, n))
        .transpose()?;
    let s = request.strides;
    if batch > 1 {
        check_strides(&a, &b, &d, batch, &s)?;
    }
    Ok(GemmPlan {
        a,
        b,
        c,
        d,
        m,
        n,
        k: a.cols,
        accumulate: request.accumulate,
        activation: request.activation,
        alpha: request.alpha,
        beta: request.beta,
        bias: request.bias,
        bias_dtype: request.bias_dtype,
        row_factors: request.row_factors,
        col_factors: request.col_factors,
        provider: request.provider,
        batch,
        strides: s,
        seed: (request.seed, request.offset),
        b_packed: request.b_packed,
        b_packed_bytes: request.b_packed_bytes,
        workspace: request.workspace,
        workspace_bytes: request.workspace_bytes,
    })
}

/// Operands that may meet: the same contraction, through the same transform, in formats that have a product.
pub(super) fn check_operands(a: &Quantized, b: &Quantized) -> Result<()> {
    if a.format != b.format && a.format != Format::Bf16 && b.format != Format::Bf16 {
        return Err(Error::Mismatch(format!(
            "a is {} matrix and b is {} one, which have no common product",
            describe(a.format),
            describe(b.format)
        )));
    }
    if a.hadamard != b.hadamard || a.sign_words != b.sign_words {
        return Err(Error::Mismatch(format!(
            "a went through a Hadamard transform of {} with signs {:08x?} and b through one of {} with signs {:08x?}: \
             their product would be that of other matrices",
            a.hadamard, a.sign_words, b.hadamard, b.sign_words
        )));
    }
    if a.cols != b.cols {
        return Err(Error::Shape(format!(
            "a is {} and b is {}: both must have the same columns (K)",
            a.shape(),
            b.shape()
        )));
    }
    if a.source_cols != b.source_cols {
        return Err(Error::Shape(format!(
            "a had {} columns and b had {} before the transform padded both to {}",
            a.source_cols, b.source_cols, a.cols
        )));
    }
    Ok(())
}

pub(super) fn shaped(name: &str, x: Matrix, m: usize, n: usize) -> Result<Matrix> {
    if (x.rows, x.cols) != (m, n) {
        return Err(Error::Shape(format!(
            "{name} is {}, the product is [{m}, {n}]",
            x.shape()
        )));
    }
    Ok(x)
}

/// A quantized D: its amax cannot be found before it is written, so it must be given.
fn output_copy(
    request: &GemmRequest,
    device: Device,
    m: usize,
    n: usize,
    batch: usize,
    buffers: &Buffers,
) -> Result<CopyPlan> {
    let o = options::check("d_options", &request.d_options)?;
    if batch > 1 {
        return Err(Error::NotSupported(format!(
            "batch is {batch} with a quantized D, want 1"
        )));
    }
    Seed::Host(request.seed, request.offset).check()?;
    let sign_words = match o.hadamard {
        0 => [0; 4],
        h => sign_words(o.signs, h as usize, request.seed, request.offset),
    };
    let out = Quantized {
        sign_words,
        ..described(&o, m, n, false)
    }
    .bind("d_quantized", buffers)?;
    aligned(request.d_amax.cast(), "d_quantized_amax", 4)?;
    if out.domains() > 0 && !request.shape_only {
        if request.d_amax.is_null() {
            return Err(Error::NullPointer("d_quantized_amax"));
        }
        if device == Device::Cpu {
            // SAFETY: the caller vouches for one f32 a scale domain; alignment was checked.
            let given = unsafe { std::slice::from_raw_parts(request.d_amax, out.domains()) };
            if let Some(i) = given.iter().position(|a| !(a.is_finite() && *a >= 0.0)) {
                return Err(Error::InvalidArgument(format!(
                    "d_quantized_amax[{i}] is {}, want finite and not negative",
                    given[i]
                )));
            }
        }
    }
    Ok(CopyPlan {
        options: o,
        out,
        given_amax: request.d_amax,
        columnwise: false,
        origin: (0, 0),
    })
}

/// Strides between products: inside the address space, and D's far enough apart that products do not overwrite each
/// other.
fn check_strides(
    a: &Quantized,
    b: &Quantized,
    d: &GemmOutput,
    batch: usize,
    s: &BatchStrides,
) -> Result<()> {
    let named = [
        ("a_codes_batch_stride", s.a_codes),
        ("a_scales_batch_stride", s.a_scales),
        ("a_amax_batch_stride", s.a_amax),
        ("b_codes_batch_stride", s.b_codes),
        ("b_scales_batch_stride", s.b_scales),
        ("b_amax_batch_stride", s.b_amax),
        ("c_batch_stride", s.c),
        ("d_batch_stride", s.d),
    ];
    for (name, stride) in named {
        let stride = dimension("desc", name, stride)?;
        if stride
            .checked_mul(batch)
            .is_none_or(|n| n > isize::MAX as usize / 4)
        {
            return Err(Error::Shape(format!(
                "desc.{name} is {stride}, times a batch of {batch} is larger than the address space"
            )));
        }
    }
    for (q, strides, name) in [
        (a, [s.a_codes, s.a_scales, s.a_amax], "a"),
        (b, [s.b_codes, s.b_scales, s.b_amax], "b"),
    ] {
        let used = [!q.is_empty(), q.format != Format::Bf16, q.has_amax()];
        let words = [
            ("codes", "codes_bytes"),
            ("scales", "scales_bytes"),
            ("amax", "amax_count"),
        ];
        for (i, (what, room)) in words.into_iter().enumerate() {
            let last = strides[i] as usize * (batch - 1);
            if used[i] && last > q.beyond[i] {
                return Err(Error::BufferSize(format!(
                    "{name}.{room} has {} to spare beyond one matrix, but desc.{name}_{what}_batch_stride is {}: the \
                     last of {batch} starts {last} after the first",
                    q.beyond[i], strides[i]
                )));
            }
        }
        let codes = strides[0];
        if q.format == Format::Bf16 && codes % 2 != 0 {
            return Err(Error::Alignment(format!(
                "desc.{name}_codes_batch_stride is {codes}, not a multiple of bfloat16's 2 bytes"
            )));
        }
    }
    if let GemmOutput::Matrix(d) = d {
        let span = if d.is_empty() {
            0
        } else {
            (d.rows - 1) * d.stride + d.cols
        };
        if (s.d as usize) < span {
            return Err(Error::Shape(format!(
                "desc.d_batch_stride is {}, one D of {} with stride {} takes {span} elements",
                s.d,
                d.shape(),
                d.stride
            )));
        }
    }
    Ok(())
}

impl GemmPlan {
    /// The operands and outputs of product `i` of the batch.
    pub fn product(&self, i: usize) -> (Quantized, Quantized, Option<Matrix>, GemmOutput) {
        let s = &self.strides;
        let shift = |q: &Quantized, codes: i64, scales: i64, amax: i64| Quantized {
            codes: q.codes.wrapping_add(i * codes as usize),
            scales: q.scales.wrapping_add(i * scales as usize),
            amax: q.amax.wrapping_add(i * amax as usize),
            ..*q
        };
        let matrix = |m: &Matrix, stride: i64| Matrix {
            data: m.data.wrapping_add(i * stride as usize * m.dtype.size()),
            ..*m
        };
        (
            shift(&self.a, s.a_codes, s.a_scales, s.a_amax),
            shift(&self.b, s.b_codes, s.b_scales, s.b_amax),
            self.c.as_ref().map(|c| matrix(c, s.c)),
            match &self.d {
                GemmOutput::Matrix(d) => GemmOutput::Matrix(matrix(d, s.d)),
                quantized => *quantized,
            },
        )
    }

    /// Are both operands' scales in the layout that tensor cores read?
    pub fn scales_are_swizzled(&self) -> bool {
        self.a.scale_layout == ScaleLayout::Swizzled && self.b.scale_layout == ScaleLayout::Swizzled
    }
}
