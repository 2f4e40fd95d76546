//! Planning of the grouped product: one product a group, of ragged M or ragged K.

use super::gemm::{check_operands, shaped, BatchStrides, Scalar};
use super::grouped_quantize::{columns, of_group, rows};
use super::groups::{column_align, Groups};
use super::view::{aligned, dimension, Matrix, Quantized};
use super::{Device, GemmOutput, GemmPlan};
use crate::numerics::{Accumulate, Activation, Dtype, Format};
use crate::{Error, Result};
use std::ptr::{null, null_mut};

/// The extent that differs from group to group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ragged {
    /// Rows of A and D.
    #[default]
    M,
    /// Columns of A and B.
    K,
}

/// A call as the caller wrote it; zero and NULL are defaults.
#[derive(Clone, Copy, Debug)]
pub struct GroupedGemmRequest {
    pub ragged: Ragged,
    pub accumulate: Accumulate,
    pub activation: Activation,
    pub groups: i64,
    pub offsets: *const i64,
    pub column_align: u32,
    pub alpha: *const f32,
    pub alpha_stride: i64,
    pub beta: *const f32,
    pub bias: *const u8,
    pub bias_stride: i64,
    pub bias_dtype: Dtype,
    pub provider: u32,
    pub b_codes_stride: i64,
    pub b_scales_stride: i64,
    pub b_amax_stride: i64,
    pub c_group_stride: i64,
    pub d_group_stride: i64,
    pub row_factors: *const f32,
    /// Nothing behind the pointers is there: sizes or a capability query.
    pub shape_only: bool,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

impl Default for GroupedGemmRequest {
    fn default() -> Self {
        GroupedGemmRequest {
            ragged: Ragged::M,
            accumulate: Accumulate::Default,
            activation: Activation::None,
            groups: 0,
            offsets: null(),
            column_align: 0,
            alpha: null(),
            alpha_stride: 0,
            beta: null(),
            bias: null(),
            bias_stride: 0,
            bias_dtype: Dtype::F32,
            provider: 0,
            b_codes_stride: 0,
            b_scales_stride: 0,
            b_amax_stride: 0,
            c_group_stride: 0,
            d_group_stride: 0,
            row_factors: null(),
            shape_only: false,
            workspace: null_mut(),
            workspace_bytes: 0,
        }
    }
}

/// A checked call.
#[derive(Clone, Copy, Debug)]
pub struct GroupedGemmPlan {
    pub ragged: Ragged,
    pub groups: Groups,
    /// Of ragged K; 1 for ragged M.
    pub column_align: usize,
    pub a: Quantized,
    /// Ragged M: that of the first group.
    pub b: Quantized,
    /// Ragged M: codes, scales and amax from one group's B to the next.
    pub b_strides: [usize; 3],
    /// Not read when there is no beta. Ragged K: that of the first group.
    pub c: Option<Matrix>,
    pub d: Matrix,
    /// Ragged K: elements from one group's C, D to the next.
    pub c_group: usize,
    pub d_group: usize,
    /// Rows of D (ragged M: a bound of the tokens), its columns, columns of the operands (ragged K: a bound).
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub accumulate: Accumulate,
    pub activation: Activation,
    pub alpha: *const f32,
    pub alpha_stride: usize,
    pub beta: Scalar,
    pub bias: *const u8,
    pub bias_stride: usize,
    pub bias_dtype: Dtype,
    pub row_factors: *const f32,
    pub provider: u32,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

// SAFETY: pointers into the caller's memory; who reads and writes it when is the caller's promise (ffi's law).
unsafe impl Send for GroupedGemmPlan {}
// SAFETY: as above.
unsafe impl Sync for GroupedGemmPlan {}

/// A field that the other kind of product reads.
fn unused(name: &str, value: i64, of: &str) -> Result<()> {
    if value != 0 {
        return Err(Error::InvalidArgument(format!(
            "desc.{name} is {value}: it is ragged {of}'s, want 0"
        )));
    }
    Ok(())
}

pub fn plan(
    request: &GroupedGemmRequest,
    device: Device,
    a: Quantized,
    b: Quantized,
    c: Option<Matrix>,
    d: Matrix,
) -> Result<GroupedGemmPlan> {
    let r = request;
    check_operands(&a, &b)?;
    let models_fp4 = matches!(r.accumulate, Accumulate::Hardware | Accumulate::HardwareK96);
    if models_fp4 && (a.format == Format::Bf16 || b.format == Format::Bf16) {
        return Err(Error::NotSupported(format!(
            "{:?} models products of two FP4 operands, one here is BF16",
            r.accumulate
        )));
    }
    for (p, name) in [
        (r.alpha, "alpha"),
        (r.beta, "beta"),
        (r.row_factors, "row_factors"),
    ] {
        aligned(p.cast(), name, 4)?;
    }
    aligned(r.bias, "bias", r.bias_dtype.size())?;
    aligned(r.workspace, "desc.workspace", 8)?;
    let (m, n) = (a.rows, b.rows);
    let d = shaped("d", d, m, n)?;
    if !r.beta.is_null() && c.is_none() {
        return Err(Error::NullPointer("c (desc.beta is given)"));
    }
    let c = c
        .filter(|_| !r.beta.is_null())
        .map(|c| shaped("c", c, m, n))
        .transpose()?;
    let stride = |name, value| dimension("desc", name, value);
    let mut plan = GroupedGemmPlan {
        ragged: r.ragged,
        groups: Groups {
            count: 0,
            offsets: r.offsets,
        },
        column_align: 1,
        a,
        b,
        b_strides: [0; 3],
        c,
        d,
        c_group: 0,
        d_group: 0,
        m,
        n,
        k: a.cols,
        accumulate: r.accumulate,
        activation: r.activation,
        alpha: r.alpha,
        alpha_stride: stride("alpha_stride", r.alpha_stride)?,
        beta: Scalar::or(r.beta, 0.0),
        bias: r.bias,
        bias_stride: stride("bias_stride", r.bias_stride)?,
        bias_dtype: r.bias_dtype,
        row_factors: r.row_factors,
        provider: r.provider,
        workspace: r.workspace,
        workspace_bytes: r.workspace_bytes,
    };
    let total = match r.ragged {
        Ragged::M => m,
        Ragged::K => a.cols,
    };
    plan.groups = Groups::new(device, r.groups, r.offsets, total, r.shape_only)?;
    for (q, name) in [(&a, "a"), (&b, "b")] {
        if q.groups != 0 && (q.groups != plan.groups.count || q.domain_rows != 0) {
            return Err(Error::Mismatch(format!(
                "{name} has an amax for each of {} groups and domain_rows = {}; desc.groups is {}",
                q.groups, q.domain_rows, plan.groups.count
            )));
        }
    }
    match r.ragged {
        Ragged::M => plan.ragged_m(r)?,
        Ragged::K => plan.ragged_k(r, device)?,
    }
    Ok(plan)
}

impl GroupedGemmPlan {
    fn ragged_m(&mut self, r: &GroupedGemmRequest) -> Result<()> {
        unused("column_align", r.column_align as i64, "K")?;
        unused("c_group_stride", r.c_group_stride, "K")?;
        unused("d_group_stride", r.d_group_stride, "K")?;
        let (a, b) = (&self.a, &self.b);
        if b.groups != 0 {
            return Err(Error::Mismatch(format!(
                "b.groups is {}: with ragged M, b is the matrix [N, K] of the first group; strides lead to the others",
                b.groups
            )));
        }
        if a.has_amax() && a.groups == 0 && a.domain_rows > 1 {
            return Err(Error::NotSupported(format!(
                "a.domain_rows is {} in a product with ragged M, want one amax, one a group or one a row",
                a.domain_rows
            )));
        }
        let fields = [
            ("codes", "codes_bytes", r.b_codes_stride),
            ("scales", "scales_bytes", r.b_scales_stride),
            ("amax", "amax_count", r.b_amax_stride),
        ];
        let used = [!b.is_empty(), b.format != Format::Bf16, b.has_amax()];
        for (i, (what, room, value)) in fields.into_iter().enumerate() {
            let stride = dimension("desc", &format!("b_{what}_stride"), value)?;
            let last = stride.saturating_mul(self.groups.count - 1);
            if used[i] && last > b.beyond[i] && !r.shape_only {
                return Err(Error::BufferSize(format!(
                    "b.{room} has {} to spare beyond one matrix, but desc.b_{what}_stride is {stride}: the last of {} \
                     starts {last} after the first",
                    b.beyond[i], self.groups.count
                )));
            }
            self.b_strides[i] = stride;
        }
        if b.format == Format::Bf16 && !self.b_strides[0].is_multiple_of(2) {
            return Err(Error::Alignment(format!(
                "desc.b_codes_stride is {}, not a multiple of bfloat16's 2 bytes",
                self.b_strides[0]
            )));
        }
        Ok(())
    }

    fn ragged_k(&mut self, r: &GroupedGemmRequest, device: Device) -> Result<()> {
        unused("b_codes_stride", r.b_codes_stride, "M")?;
        unused("b_scales_stride", r.b_scales_stride, "M")?;
        unused("b_amax_stride", r.b_amax_stride, "M")?;
        if !r.row_factors.is_null() {
            return Err(Error::InvalidArgument(
                "desc.row_factors is given: it is ragged M's, want NULL".into(),
            ));
        }
        let align =
            |q: &Quantized| column_align(r.column_align, q.format, q.hadamard, q.scale_layout);
        let (a, b) = (align(&self.a)?, align(&self.b)?);
        if a != b {
            return Err(Error::Mismatch(format!(
                "groups start at multiples of {a} columns in a and of {b} in b (their formats or scale layouts differ): \
                 quantize both with the same column_align, and give it here"
            )));
        }
        self.column_align = a;
        let span = |name: &str, asked: i64, x: &Matrix| {
            let whole = x.rows * x.stride;
            let least = if x.is_empty() {
                0
            } else {
                whole - x.stride + x.cols
            };
            match dimension("desc", name, asked)? {
                0 => Ok(whole),
                stride if stride < least => Err(Error::Shape(format!(
                    "desc.{name} is {stride}, one matrix of {} with stride {} takes {least} elements",
                    x.shape(),
                    x.stride
                ))),
                stride => Ok(stride),
            }
        };
        self.d_group = span("d_group_stride", r.d_group_stride, &self.d)?;
        if let Some(c) = &self.c {
            self.c_group = span("c_group_stride", r.c_group_stride, c)?;
        } else {
            unused("c_group_stride", r.c_group_stride, "K with beta")?;
        }
        for (name, stride) in [("c", self.c_group), ("d", self.d_group)] {
            if stride.saturating_mul(self.groups.count) > isize::MAX as usize / 4 {
                return Err(Error::Shape(format!(
                    "{} groups of {name}, {stride} elements apart, are larger than the address space",
                    self.groups.count
                )));
            }
        }
        if device == Device::Cpu && !r.shape_only {
            // SAFETY: checked by `Groups::new`.
            let ranges = unsafe { self.groups.ranges() };
            let end = super::groups::column_starts(&ranges, self.column_align)[ranges.len()];
            if end > self.k {
                return Err(Error::Shape(format!(
                    "the groups of desc.offsets, padded to multiples of {}, end at column {end}; the operands have {}",
                    self.column_align, self.k
                )));
            }
        }
        Ok(())
    }

    /// Group g as a product of its own: its tokens are rows (ragged M) `first..first + count`, or (ragged K) columns
    /// `column..` of operands with linear scales. `b` of ragged M may have either layout.
    pub fn group(&self, g: usize, first: usize, count: usize, column: usize) -> GemmPlan {
        let own = |q: &Quantized| match q.groups {
            0 => *q,
            _ => of_group(q, g),
        };
        let shifted = |x: &Matrix, elements: usize, rows: usize| Matrix {
            data: x.data.wrapping_add(elements * x.dtype.size()),
            rows,
            ..*x
        };
        let (a, b, c, d);
        match self.ragged {
            Ragged::M => {
                let whole = own(&self.a);
                a = Quantized {
                    amax: whole
                        .amax
                        .wrapping_add(if whole.domain_rows == 1 { first } else { 0 }),
                    ..rows(&whole, first, count)
                };
                let [codes, scales, amax] = self.b_strides.map(|s| s * g);
                b = Quantized {
                    codes: self.b.codes.wrapping_add(codes),
                    scales: self.b.scales.wrapping_add(scales),
                    amax: self.b.amax.wrapping_add(amax),
                    ..self.b
                };
                c = self.c.map(|c| shifted(&c, first * c.stride, count));
                d = shifted(&self.d, first * self.d.stride, count);
            }
            Ragged::K => {
                a = columns(&own(&self.a), column, count);
                b = columns(&own(&self.b), column, count);
                c = self.c.map(|c| shifted(&c, g * self.c_group, self.m));
                d = shifted(&self.d, g * self.d_group, self.m);
            }
        }
        GemmPlan {
            m: d.rows,
            n: self.n,
            k: a.cols,
            a,
            b,
            c,
            d: GemmOutput::Matrix(d),
            accumulate: self.accumulate,
            activation: self.activation,
            alpha: match self.alpha.is_null() {
                true => Scalar::Value(1.0),
                false => Scalar::Pointer(self.alpha.wrapping_add(g * self.alpha_stride)),
            },
            beta: self.beta,
            bias: match self.bias.is_null() {
                true => self.bias,
                false => self
                    .bias
                    .wrapping_add(g * self.bias_stride * self.bias_dtype.size()),
            },
            bias_dtype: self.bias_dtype,
            row_factors: match self.row_factors.is_null() {
                true => self.row_factors,
                false => self.row_factors.wrapping_add(first),
            },
            col_factors: null(),
            provider: self.provider,
            batch: 1,
            strides: BatchStrides::default(),
            seed: (0, 0),
            b_packed: null(),
            b_packed_bytes: 0,
            workspace: null_mut(),
            workspace_bytes: 0,
        }
    }
}
