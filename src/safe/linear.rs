//! A linear layer by recipe, on owned tensors.

use super::ops::on_host;
use super::tensor::Tensor;
use crate::context::Context;
use crate::linear::{self, LinearRequest};
use crate::numerics::Dtype;
use crate::plan::Seed;
use crate::recipe::Recipe;
use crate::Result;

/// How a layer is computed: its recipe, and the key of its random bits (offset below 2^60, another one for each call
/// that must draw other bits).
#[derive(Clone, Copy, Debug, Default)]
pub struct Layer {
    pub recipe: Recipe,
    pub seed: u64,
    pub offset: u64,
}

impl Layer {
    /// Calls `run` with a request whose workspace is large enough.
    fn with_workspace<R>(
        &self,
        ctx: &Context,
        tokens: usize,
        inputs: usize,
        outputs: usize,
        run: impl FnOnce(&LinearRequest) -> Result<R>,
    ) -> Result<R> {
        on_host(ctx)?;
        let (t, i, o) = (tokens as i64, inputs as i64, outputs as i64);
        let bytes = linear::workspace_bytes(ctx, &self.recipe, t, i, o, Dtype::F32)?;
        let mut workspace = vec![0u128; bytes.div_ceil(16)];
        run(&LinearRequest {
            recipe: self.recipe,
            seed: Seed::Host(self.seed, self.offset),
            accumulate_wgrad: false,
            workspace: workspace.as_mut_ptr().cast(),
            workspace_bytes: bytes,
        })
    }
}

/// y = x w^T + bias in x's type: x is [tokens, in], w is [out, in], bias is [1, out].
///
/// ```
/// use nvfp4::{recipe::Recipe, Context, Layer, Tensor};
/// let ctx = Context::cpu(1);
/// let layer = Layer { recipe: Recipe::named("nvfp4")?, seed: 1, offset: 0 };
/// let x = Tensor::from_f32(4, 32, vec![1.0; 128])?;
/// let w = Tensor::from_f32(8, 32, vec![0.5; 256])?;
/// let y = nvfp4::linear_fprop(&ctx, &layer, &x, &w, None)?;
/// assert!((y.to_f32()[0] - 16.0).abs() < 1e-4);
/// # Ok::<(), nvfp4::Error>(())
/// ```
pub fn linear_fprop(
    ctx: &Context,
    layer: &Layer,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let mut y = Tensor::zeros(x.dtype(), x.rows(), w.rows())?;
    let view = y.view_mut("y")?;
    let bias = bias.map(|b| b.view("bias")).transpose()?;
    layer.with_workspace(ctx, x.rows(), w.cols(), w.rows(), |request| {
        linear::fprop(
            ctx,
            request,
            x.view("x")?,
            w.view("w")?,
            bias,
            view,
            std::ptr::null_mut(),
        )
    })?;
    Ok(y)
}

/// dx = dy w in dy's type: dy is [tokens, out].
pub fn linear_dgrad(ctx: &Context, layer: &Layer, dy: &Tensor, w: &Tensor) -> Result<Tensor> {
    let mut dx = Tensor::zeros(dy.dtype(), dy.rows(), w.cols())?;
    let view = dx.view_mut("dx")?;
    layer.with_workspace(ctx, dy.rows(), w.cols(), w.rows(), |request| {
        linear::dgrad(
            ctx,
            request,
            dy.view("dy")?,
            w.view("w")?,
            view,
            std::ptr::null_mut(),
        )
    })?;
    Ok(dx)
}

/// dw = dy^T x in f32: dy is [tokens, out], x is [tokens, in], dw is [out, in].
pub fn linear_wgrad(ctx: &Context, layer: &Layer, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let mut dw = Tensor::zeros(Dtype::F32, dy.cols(), x.cols())?;
    let view = dw.view_mut("dw")?;
    layer.with_workspace(ctx, dy.rows(), x.cols(), dy.cols(), |request| {
        linear::wgrad(
            ctx,
            request,
            dy.view("dy")?,
            x.view("x")?,
            view,
            std::ptr::null_mut(),
        )
    })?;
    Ok(dw)
}
