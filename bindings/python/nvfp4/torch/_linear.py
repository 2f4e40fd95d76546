"""`nvfp4::linear`: a linear layer as one operator with a derivative: fprop now, dgrad and wgrad later from the 4-bit copies
that it kept.

The weight comes quantized (`quantize_weight`), because a trainer quantizes it once a step and uses it for several
micro-batches. The seed comes as a tensor, drawn from PyTorch's generator (`draw`): a recomputed forward pass under
activation checkpointing, a replayed CUDA graph and a compiled graph all see the bits they should.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_reduce

from . import _calls, _ops
from ._ops import SAVE_COLUMNWISE, SAVE_NOTHING, SAVE_ROWWISE
from ._prepared import Prepared, prepared

Tensor = torch.Tensor
DIFFERENTIATE = 4  # a gradient of x or of the weight is wanted

_ops.define(
    "linear(Tensor x, Tensor weight, Tensor w_row, Tensor? w_col, Tensor? bias, Tensor? seed_offset, Tensor? x_amax, "
    "Tensor? g_amax, Tensor? g_seen, Tensor? main_grad, ScalarType dtype, str recipe, str group, int save) -> (Tensor, Tensor, Tensor)"
)


def _linear(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Tensor | None, bias: Tensor | None, seed_offset: Tensor | None,
    x_amax: Tensor | None, g_amax: Tensor | None, g_seen: Tensor | None, main_grad: Tensor | None, dtype: torch.dtype,
    recipe: str, group: str, save: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, x_row, x_col = _ops.forward_product(x, weight, w_row, bias, seed_offset, x_amax, dtype, recipe, save)
    return y, _ops.or_empty(x, x_row), _ops.or_empty(x, x_col)


def _linear_fake(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Any, bias: Any, seed_offset: Any, x_amax: Any, g_amax: Any,
    g_seen: Any, main_grad: Any, dtype: torch.dtype, recipe: str, group: str, save: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    r = prepared(recipe)
    row = _ops.bytes_of(x, r.x_row, False) if save & SAVE_ROWWISE else 0
    col = _ops.bytes_of(x, r.x_col, True) if save & SAVE_COLUMNWISE else 0
    y = x.new_empty((x.shape[0], weight.shape[0]), dtype=dtype)
    return y, x.new_empty(row, dtype=torch.uint8), x.new_empty(col, dtype=torch.uint8)


_ops.implement("linear", _linear, _linear_fake)


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, w_row, w_col, bias, seed_offset, _, g_amax, g_seen, main_grad, _, recipe, group, save = inputs
    _, x_row, x_col = output
    backward = prepared(recipe).backward
    ctx.set_materialize_grads(False)
    if backward == "quantized":
        kept = (x_col if save & SAVE_COLUMNWISE else None, w_col)
    elif backward == "high_precision":
        kept = (x, weight)
    else:
        kept = (x_row if save & SAVE_ROWWISE else None, w_row)
    ctx.save_for_backward(*kept, seed_offset, g_amax)
    # Written in the backward pass, so not saved as what must not change until then.
    ctx.main_grad, ctx.g_seen = main_grad, g_seen
    ctx.recipe, ctx.group, ctx.save = recipe, group, save
    ctx.shapes = (weight.shape[0], weight.shape[1], weight.dtype, x.dtype, None if bias is None else bias.dtype)


def _gradients(ctx: Any, dy: Tensor | None, wants_x: bool, wants_w: bool, wants_bias: bool) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """dx, dw, db."""
    if dy is None:
        return None, None, None
    r = prepared(ctx.recipe)
    saved_x, saved_w, seed_offset, g_amax = ctx.saved_tensors
    out_features, in_features, w_dtype, x_dtype, bias_dtype = ctx.shapes
    db = dy.sum(0, dtype=torch.float32).to(bias_dtype) if wants_bias else None
    if ctx.g_seen is not None:
        _ops.note_amax_(dy, r.g_row.text, r.g_col.text, ctx.g_seen)
        g_amax = torch.where(g_amax > 0, g_amax, ctx.g_seen)  # before there is a history: its own
    if r.backward != "quantized":
        return *_plain_backward(ctx, dy, saved_x, saved_w, wants_x, wants_w), db
    if ctx.group and (wants_x or wants_w):
        g_amax = reduced_amax(dy, r.g_row, r.g_col, r.nonfinite, ctx.group)
    w_col = saved_w if wants_x else None
    x_col = saved_x if wants_w else None
    if not wants_w or ctx.main_grad is None:
        product = _ops.linear_backward_now if eager(dy) else _ops.linear_backward
        dx, dw = product(dy, w_col, x_col, in_features, seed_offset, g_amax, x_dtype, w_dtype, ctx.recipe)
    else:
        add = _ops.linear_backward_add_now if eager(dy) else _ops.linear_backward_
        dx, dw = add(dy, w_col, x_col, in_features, seed_offset, g_amax, x_dtype, ctx.main_grad, ctx.recipe), None
    return dx if wants_x else None, dw if wants_w else None, db


def _backward(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    wants = ctx.needs_input_grad
    dx, dw, db = _gradients(ctx, dy, wants[0], wants[1], wants[4])
    return (dx, dw, None, None, db, None, None, None, None, None, None, None, None, None)


def _plain_backward(
    ctx: Any, dy: Tensor, saved_x: Tensor, saved_w: Tensor, wants_x: bool, wants_w: bool
) -> tuple[Tensor | None, Tensor | None]:
    """dgrad and wgrad by PyTorch, of the operands as they were (`high_precision`) or as fprop contracted them (`dequantized`)."""
    r = prepared(ctx.recipe)
    out_features, in_features, w_dtype, x_dtype, _ = ctx.shapes
    kind = torch.promote_types(dy.dtype, x_dtype)
    if r.backward == "dequantized":
        if wants_w:
            saved_x = _ops.dequantize(saved_x, r.x_row.text, dy.shape[0], in_features, False, kind)
        if wants_x:
            saved_w = _ops.dequantize(saved_w, r.w_row.text, out_features, in_features, False, kind)
    g = dy.to(kind)
    dx = (g @ saved_w.to(kind)).to(x_dtype) if wants_x else None
    dw = None
    if wants_w:
        if ctx.main_grad is not None:
            ctx.main_grad.add_(g.t() @ saved_x.to(kind))
        else:
            dw = (g.t() @ saved_x.to(kind)).to(w_dtype)
    return dx, dw


def reduced_amax(x: Tensor, row: Any, col: Any, nonfinite: int, group: str) -> Tensor:
    """f32 [2]: what both copies of the ranks' matrices of a group together have as amax."""
    parts = _ops.amax(x, row.text, col.text, nonfinite)
    return shared_max(torch.cat([p if p.numel() else p.new_zeros(1) for p in parts]), group)


def shared_max(values: Tensor, group: Any) -> Tensor:
    """The largest of each value over a group's ranks; the group by name."""
    out = all_reduce(values, "max", group)
    return out.wait() if isinstance(out, AsyncCollectiveTensor) else out


torch.library.register_autograd("nvfp4::linear", _backward, setup_context=_setup_context, lib=_ops.library)


def _no_second_derivative(ctx: Any, *_: Any) -> Any:
    raise NotImplementedError("nvfp4 has no second derivative: quantized products are differentiated once")


torch.library.register_autograd("nvfp4::linear_backward", _no_second_derivative, lib=_ops.library)

_traced = torch.ops.nvfp4.linear.default


class _Eager(torch.autograd.Function):
    """The same without the dispatcher, whose derivative of a Python operator costs more than the rest of a small call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, inputs: Any) -> Any:
        _, _, w_row, _, _, seed_offset, x_amax, _, _, _, dtype, recipe, _, save = inputs
        output = _ops.forward_product(x, weight, w_row, bias, seed_offset, x_amax, dtype, recipe, save)
        _setup_context(ctx, inputs, output)
        return output[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None) -> Any:
        return *_gradients(ctx, dy, *ctx.needs_input_grad[:3]), None


_PLAIN = (Tensor, torch.nn.Parameter)


def eager(x: Tensor) -> bool:
    """Whether a call is neither traced nor watched, so that it need not pass through the dispatcher."""
    return (
        type(x) in _PLAIN
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def linear(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Tensor | None, bias: Tensor | None, seed_offset: Tensor | None,
    x_amax: Tensor | None, g_amax: Tensor | None, g_seen: Tensor | None, main_grad: Tensor | None, dtype: torch.dtype,
    recipe: str, group: str, save: int,
) -> Tensor:  # fmt: skip
    """y [tokens, out] = x W^T + bias.

    Args:
        x: [tokens, in]. weight: [out, in], for its gradient. w_row, w_col: its copies (`quantize_weight`).
        seed_offset: int64 [3, 2], of activation, weight, gradient (`draw`); None where the recipe draws nothing.
        x_amax, g_amax: f32 [2], given amax of the rowwise and columnwise copy of x and dy; None: their own.
        g_seen: f32 [2], set to the amax of dy in the backward pass.
        main_grad: f32 [out, in], to which the backward pass adds dW; the weight's gradient is None then.
        recipe: text of a recipe. group: name of the ranks over which dy's amax is reduced, or "".
        save: see `saved`.
    """
    args = (x, weight, w_row, w_col, bias, seed_offset, x_amax, g_amax, g_seen, main_grad, dtype, recipe, group, save)
    if not eager(x):
        traced: Tensor = _traced(*args)[0]
        return traced
    if save or (bias is not None and bias.requires_grad and torch.is_grad_enabled()):
        y: Tensor = _Eager.apply(x, weight, bias, args)  # few arguments: autograd looks at each
        return y
    return _ops.forward_product(x, weight, w_row, bias, seed_offset, x_amax, dtype, recipe, 0)[0]




def saved(r: Prepared, wants_x: bool, wants_w: bool) -> int:
    """What the forward pass has to keep."""
    save = SAVE_NOTHING
    if wants_w and r.backward != "high_precision":
        save |= SAVE_COLUMNWISE if r.backward == "quantized" else SAVE_ROWWISE
    return save | (DIFFERENTIATE if wants_x or wants_w else 0)


def quantize_weight(
    weight: Tensor, r: Prepared, columnwise: bool, seed_offset: Tensor | None = None, origin_row: int = 0
) -> tuple[Tensor, Tensor | None]:
    """Both copies of a weight [out, in], or the rowwise one alone; its first row draws the bits of row `origin_row`."""
    wanted = columnwise and r.backward == "quantized"
    seed = seed_offset[1] if seed_offset is not None and r.draws_weight else None
    if eager(weight):
        return _calls.quantize(weight, r.w_row, r.w_col if wanted else None, seed, None, None, (origin_row, 0), r.nonfinite)  # type: ignore[return-value]
    row, col = _ops.quantize(weight, r.w_row.text, r.w_col.text if wanted else None, seed, None, None, origin_row, 0, r.nonfinite)
    return row, col if wanted else None
