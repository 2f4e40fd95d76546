//! A recipe applied to one linear layer: fprop, dgrad and wgrad, each two quantizations into the workspace and a
//! product.

use crate::context::{Context, Stream};
use crate::numerics::hadamard::sign_words;
use crate::numerics::{Dtype, Options, Signs};
use crate::plan::gemm::Scalar;
use crate::plan::quantize::{described, Sizes};
use crate::plan::view::dimension;
use crate::plan::{
    options, Buffers, GemmRequest, Matrix, QuantizeRequest, Quantized, Seed, Source,
};
use crate::recipe::{Recipe, Role};
use crate::{Error, Result};

/// Buffers in the workspace start at multiples of this.
const ALIGN: usize = 256;

/// One call, as the caller wrote it.
#[derive(Clone, Copy, Debug)]
pub struct LinearRequest {
    pub recipe: Recipe,
    pub seed: Seed,
    /// wgrad adds to dw.
    pub accumulate_wgrad: bool,
    pub workspace: *mut u8,
    pub workspace_bytes: usize,
}

/// One operand of a product: [rows, cols] in its own orientation, quantized in that of the copy.
#[derive(Clone, Copy)]
struct Operand {
    name: &'static str,
    role: Role,
    columnwise: bool,
    x: Matrix,
}

/// y = x w^T + bias.
pub fn fprop(
    ctx: &Context,
    request: &LinearRequest,
    x: Matrix,
    w: Matrix,
    bias: Option<Matrix>,
    y: Matrix,
    stream: Stream,
) -> Result<()> {
    same("x", "columns", x.cols, "w", "columns (in_features)", w.cols)?;
    same("y", "rows", y.rows, "x", "rows (tokens)", x.rows)?;
    same("y", "columns", y.cols, "w", "rows (out_features)", w.rows)?;
    let mut gemm = GemmRequest::default();
    if let Some(bias) = bias {
        same("bias", "rows", bias.rows, "a row vector", "rows", 1)?;
        same(
            "bias",
            "columns",
            bias.cols,
            "w",
            "rows (out_features)",
            w.rows,
        )?;
        (gemm.bias, gemm.bias_dtype) = (bias.data, bias.dtype);
        if bias.cols == 0 {
            gemm.bias = std::ptr::null();
        }
    }
    let a = Operand {
        name: "x",
        role: Role::Activation,
        columnwise: false,
        x,
    };
    let b = Operand {
        name: "w",
        role: Role::Weight,
        columnwise: false,
        x: w,
    };
    product(ctx, request, a, b, gemm, None, y, stream)
}

/// dx = dy w.
pub fn dgrad(
    ctx: &Context,
    request: &LinearRequest,
    dy: Matrix,
    w: Matrix,
    dx: Matrix,
    stream: Stream,
) -> Result<()> {
    same("dy", "columns", dy.cols, "w", "rows (out_features)", w.rows)?;
    same("dx", "rows", dx.rows, "dy", "rows (tokens)", dy.rows)?;
    same(
        "dx",
        "columns",
        dx.cols,
        "w",
        "columns (in_features)",
        w.cols,
    )?;
    let a = Operand {
        name: "dy",
        role: Role::Gradient,
        columnwise: false,
        x: dy,
    };
    let b = Operand {
        name: "w",
        role: Role::Weight,
        columnwise: true,
        x: w,
    };
    product(ctx, request, a, b, GemmRequest::default(), None, dx, stream)
}

/// dw = dy^T x, or dw += dy^T x.
pub fn wgrad(
    ctx: &Context,
    request: &LinearRequest,
    dy: Matrix,
    x: Matrix,
    dw: Matrix,
    stream: Stream,
) -> Result<()> {
    same("dy", "rows", dy.rows, "x", "rows (tokens)", x.rows)?;
    same(
        "dw",
        "rows",
        dw.rows,
        "dy",
        "columns (out_features)",
        dy.cols,
    )?;
    same(
        "dw",
        "columns",
        dw.cols,
        "x",
        "columns (in_features)",
        x.cols,
    )?;
    let mut gemm = GemmRequest::default();
    let mut c = None;
    if request.accumulate_wgrad {
        if dw.dtype != Dtype::F32 {
            return Err(Error::NotSupported(format!(
                "accumulate_wgrad with dw in {:?}, want f32",
                dw.dtype
            )));
        }
        gemm.beta = Scalar::Value(1.0);
        c = Some(dw);
    }
    let a = Operand {
        name: "dy",
        role: Role::Gradient,
        columnwise: true,
        x: dy,
    };
    let b = Operand {
        name: "x",
        role: Role::Activation,
        columnwise: true,
        x,
    };
    product(ctx, request, a, b, gemm, c, dw, stream)
}

fn same(a: &str, a_side: &str, have: usize, b: &str, b_side: &str, want: usize) -> Result<()> {
    if have != want {
        return Err(Error::Shape(format!(
            "{a} has {have} {a_side}, {b} has {want} {b_side}"
        )));
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn product(
    ctx: &Context,
    request: &LinearRequest,
    a: Operand,
    b: Operand,
    gemm: GemmRequest,
    c: Option<Matrix>,
    d: Matrix,
    stream: Stream,
) -> Result<()> {
    let gemm = GemmRequest {
        accumulate: request.recipe.accumulate,
        ..gemm
    };
    let (a_options, b_options) = (operand_options(request, &a)?, operand_options(request, &b)?);
    let (a_shape, b_shape) = (shape(&a, &a_options)?, shape(&b, &b_options)?);
    // All that can be wrong is found before anything is written.
    let mut arena = Arena::new(request.workspace);
    let (a_buffers, b_buffers) = (arena.buffers(&a_shape), arena.buffers(&b_shape));
    let plan = ctx.plan_gemm(
        &gemm,
        bound(a_shape, &a_options)?,
        bound(b_shape, &b_options)?,
        c,
        Some(d),
    )?;
    // More than it must have, if the caller gave more.
    let spare = request.workspace_bytes.saturating_sub(arena.used);
    let bytes = ctx
        .gemm_workspace(&plan, true)
        .min(spare / ALIGN * ALIGN)
        .max(ctx.gemm_workspace(&plan, false));
    let gemm = GemmRequest {
        workspace_bytes: bytes,
        workspace: match bytes {
            0 => std::ptr::null_mut(),
            _ => arena.take(bytes),
        },
        ..gemm
    };
    check_workspace(ctx, request, arena.used)?;
    let a = quantize(ctx, request, &a, &a_options, &a_buffers, stream)?;
    let b = quantize(ctx, request, &b, &b_options, &b_buffers, stream)?;
    ctx.gemm(&gemm, a, b, c, Some(d), stream).map(|_| ())
}

/// Options of an operand, its seeded signs drawn: from (seed, offset) of the layer for all of them, since two operands
/// that meet must share them.
fn operand_options(request: &LinearRequest, operand: &Operand) -> Result<Options> {
    let mut o = *request.recipe.options(operand.role, operand.columnwise);
    if o.hadamard != 0 && o.signs == Signs::Seeded {
        let Seed::Host(seed, offset) = request.seed else {
            return Err(Error::NotSupported(format!(
                "{}: seeded signs with seed_offset in device memory; give seed and offset, or the signs, by value",
                operand.name
            )));
        };
        o.signs = Signs::Mask(sign_words(Signs::Seeded, o.hadamard as usize, seed, offset));
    }
    Ok(o)
}

/// The copy of an operand, without memory.
fn shape(operand: &Operand, o: &Options) -> Result<Quantized> {
    let resolved = options::check(operand.name, o)?;
    let (rows, cols) = (operand.x.rows, operand.x.cols);
    let (rows, cols) = if operand.columnwise {
        (cols, rows)
    } else {
        (rows, cols)
    };
    Ok(described(&resolved, rows, cols, operand.columnwise))
}

/// A copy as the product will see it, for planning.
fn bound(copy: Quantized, o: &Options) -> Result<Quantized> {
    let sign_words = match o.hadamard {
        0 => [0; 4],
        n => sign_words(o.signs, n as usize, 0, 0),
    };
    Quantized { sign_words, ..copy }.bind("operand", &Buffers::shape_only())
}

fn quantize(
    ctx: &Context,
    request: &LinearRequest,
    operand: &Operand,
    o: &Options,
    buffers: &Buffers,
    stream: Stream,
) -> Result<Quantized> {
    // Operands draw apart, or the roundings of two that meet in a product would be correlated.
    let bits = (operand.role as u64) << 60;
    let seed = match request.seed {
        Seed::Host(_, offset) if offset >> 60 != 0 => {
            return Err(Error::InvalidArgument(format!(
                "desc.offset is {offset}, want less than 2^60 for a linear layer"
            )))
        }
        Seed::Host(seed, offset) => Seed::Host(seed, offset | bits),
        Seed::Device(p, other) => Seed::Device(p, other | bits),
    };
    let call = QuantizeRequest {
        rowwise: *o,
        columnwise: *o,
        nonfinite: request.recipe.nonfinite,
        seed,
        ..QuantizeRequest::default()
    };
    let (rowwise, columnwise) = if operand.columnwise {
        (None, Some(buffers))
    } else {
        (Some(buffers), None)
    };
    let plan = ctx.quantize(
        &call,
        Source::Matrix(operand.x),
        rowwise,
        columnwise,
        stream,
    )?;
    let copy = plan.copies().next().expect("one copy was asked for");
    Ok(copy.out)
}

/// Scratch bytes that are enough for each of the three.
pub fn workspace_bytes(
    ctx: &Context,
    recipe: &Recipe,
    tokens: i64,
    in_features: i64,
    out_features: i64,
    dtype: Dtype,
) -> Result<usize> {
    let tokens = dimension("the layer", "tokens", tokens)? as i64;
    let x = Matrix::shape_only("x", dtype, tokens, in_features)?;
    let w = Matrix::shape_only("w", dtype, out_features, in_features)?;
    let dy = Matrix::shape_only("dy", dtype, tokens, out_features)?;
    let operand = |role, columnwise, x| Operand {
        name: "operand",
        role,
        columnwise,
        x,
    };
    let pairs = [
        [
            operand(Role::Activation, false, x),
            operand(Role::Weight, false, w),
        ],
        [
            operand(Role::Gradient, false, dy),
            operand(Role::Weight, true, w),
        ],
        [
            operand(Role::Gradient, true, dy),
            operand(Role::Activation, true, x),
        ],
    ];
    let mut most = 0;
    for pair in pairs {
        let mut arena = Arena::new(std::ptr::null_mut());
        let mut copies = Vec::with_capacity(2);
        for operand in pair {
            let o = recipe.options(operand.role, operand.columnwise);
            let copy = bound(shape(&operand, o)?, o)?;
            arena.buffers(&copy);
            copies.push(copy);
        }
        let [a, b] = [copies[0], copies[1]];
        let gemm = GemmRequest {
            accumulate: recipe.accumulate,
            ..GemmRequest::default()
        };
        let d = Matrix::shape_only("d", Dtype::F32, a.rows as i64, b.rows as i64)?;
        // A pair without a product is refused by the call that wants it.
        if let Ok(plan) = ctx.plan_gemm(&gemm, a, b, None, Some(d)) {
            arena.take(ctx.gemm_workspace(&plan, true));
        }
        most = most.max(arena.used);
    }
    Ok(most)
}

fn check_workspace(ctx: &Context, request: &LinearRequest, need: usize) -> Result<()> {
    if request.workspace_bytes < need {
        return Err(Error::BufferSize(format!(
            "desc.workspace_bytes is {}, this call needs {need} bytes",
            request.workspace_bytes
        )));
    }
    if need > 0 && request.workspace.is_null() {
        return Err(Error::NullPointer("desc.workspace"));
    }
    let align = ctx.workspace_alignment();
    if !(request.workspace as usize).is_multiple_of(align) {
        return Err(Error::Alignment(format!(
            "desc.workspace is at {:p}, want a multiple of {align}",
            request.workspace
        )));
    }
    Ok(())
}

/// Hands out pieces of the workspace.
struct Arena {
    base: *mut u8,
    used: usize,
}

impl Arena {
    fn new(base: *mut u8) -> Arena {
        Arena { base, used: 0 }
    }

    fn take(&mut self, bytes: usize) -> *mut u8 {
        // Sizes come from checked shapes: three of them do not overflow.
        let at = self.used;
        self.used += bytes.next_multiple_of(ALIGN);
        self.base.wrapping_add(at)
    }

    fn buffers(&mut self, copy: &Quantized) -> Buffers {
        let sizes = Sizes::of(copy);
        Buffers {
            codes: self.take(sizes.codes_bytes),
            codes_bytes: sizes.codes_bytes,
            scales: self.take(sizes.scales_bytes),
            scales_bytes: sizes.scales_bytes,
            amax: self.take(4 * sizes.amax_count).cast(),
            amax_count: sizes.amax_count,
            code_stride: 0,
            scale_stride: 0,
        }
    }
}
