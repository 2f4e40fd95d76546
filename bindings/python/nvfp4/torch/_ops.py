"""Operators `torch.ops.nvfp4.*`: each is the library's C call, a shape rule for tracing, and a derivative where there is one.

Registered with `torch.library.Library` directly: its dispatch costs a quarter of a `custom_op`'s. Nothing here reads a
value back from a device.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _names
from .._errors import DtypeError
from . import _calls, _raw
from ._prepared import prepared

Tensor = torch.Tensor
library = torch.library.Library("nvfp4", "DEF")
_PT2 = torch.Tag.pt2_compliant_tag
_RANDOM = (torch.Tag.nondeterministic_seeded, _PT2)


def define(schema: str, tags: Any = (_PT2,)) -> None:
    library.define(schema, tags=tags)


def implement(name: str, function: Any, fake: Any) -> None:
    library.impl(name, function, "CPU")
    library.impl(name, function, "CUDA")
    torch.library.register_fake(f"nvfp4::{name}", fake, lib=library)


def copies(row: str | None, col: str | None) -> tuple[_raw.Copy | None, _raw.Copy | None]:
    return (None if row is None else _raw.copy_of(row)), (None if col is None else _raw.copy_of(col))


def or_empty(x: Tensor, like: Tensor | None, dtype: torch.dtype = torch.uint8) -> Tensor:
    return x.new_empty(0, dtype=dtype) if like is None else like


# ------------------------------------------------------------------------------------------------- one operation each

define(
    "quantize(Tensor x, str? row, str? col, Tensor? seed_offset=None, Tensor? row_amax=None, Tensor? col_amax=None, "
    "int origin_row=0, int origin_col=0, int nonfinite=0) -> (Tensor, Tensor)"
)


def _quantize(
    x: Tensor, row: str | None, col: str | None, seed_offset: Tensor | None = None, row_amax: Tensor | None = None,
    col_amax: Tensor | None = None, origin_row: int = 0, origin_col: int = 0, nonfinite: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    out = _calls.quantize(x, *copies(row, col), seed_offset, row_amax, col_amax, (origin_row, origin_col), nonfinite)
    return or_empty(x, out[0]), or_empty(x, out[1])


def bytes_of(x: Tensor, copy: _raw.Copy | None, transposed: bool) -> Any:
    return 0 if copy is None else _raw.layout(copy, x.shape[0], x.shape[1], transposed).bytes


def _quantize_fake(x: Tensor, row: str | None, col: str | None, *_: Any) -> tuple[Tensor, Tensor]:
    r, c = copies(row, col)
    return x.new_empty(bytes_of(x, r, False), dtype=torch.uint8), x.new_empty(bytes_of(x, c, True), dtype=torch.uint8)


implement("quantize", _quantize, _quantize_fake)

define("amax(Tensor x, str? row, str? col, int nonfinite=0) -> (Tensor, Tensor)")


def _amax(x: Tensor, row: str | None, col: str | None, nonfinite: int = 0) -> tuple[Tensor, Tensor]:
    out = _calls.amax(x, *copies(row, col), nonfinite)
    return or_empty(x, out[0], torch.float32), or_empty(x, out[1], torch.float32)


def _amax_fake(x: Tensor, row: str | None, col: str | None, *_: Any) -> tuple[Tensor, Tensor]:
    counts = [
        0 if copy is None else _raw.layout(copy, x.shape[0], x.shape[1], t).amax_count
        for copy, t in zip(copies(row, col), (False, True))
    ]
    return x.new_empty(counts[0], dtype=torch.float32), x.new_empty(counts[1], dtype=torch.float32)


implement("amax", _amax, _amax_fake)

define("dequantize(Tensor data, str options, SymInt rows, SymInt cols, bool transposed, ScalarType dtype) -> Tensor")


def _dequantize(data: Tensor, options: str, rows: int, cols: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    return _calls.dequantize(data, _raw.copy_of(options), rows, cols, transposed, dtype)


def _dequantize_fake(data: Tensor, options: str, rows: Any, cols: Any, transposed: bool, dtype: torch.dtype) -> Tensor:
    place = _raw.layout(_raw.copy_of(options), rows, cols, transposed)
    return data.new_empty((place.rows, place.cols), dtype=dtype)


implement("dequantize", _dequantize, _dequantize_fake)

define("hadamard(Tensor x, int n, int axis, bool inverse, int? sign_mask) -> Tensor")
implement("hadamard", _calls.hadamard, lambda x, n, axis, inverse, sign_mask: x.new_empty(_calls.transformed(x.shape, n, axis)))



def _hadamard_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.how, ctx.shape = inputs[1:], inputs[0].shape


def _hadamard_backward(ctx: Any, dy: Tensor) -> Any:
    n, axis, inverse, sign_mask = ctx.how
    dx = torch.ops.nvfp4.hadamard.default(dy, n, axis, not inverse, sign_mask)
    return dx[: ctx.shape[0], : ctx.shape[1]], None, None, None, None


torch.library.register_autograd("nvfp4::hadamard", _hadamard_backward, setup_context=_hadamard_setup, lib=library)

define(
    "gemm(Tensor a, str a_options, SymInt a_rows, SymInt a_cols, bool a_transposed, Tensor b, str b_options, SymInt b_rows, "
    "SymInt b_cols, bool b_transposed, ScalarType dtype, str accumulate, Tensor? bias=None, Tensor? alpha=None, "
    "str activation='none') -> Tensor"
)


def _gemm(
    a: Tensor, a_options: str, a_rows: int, a_cols: int, a_transposed: bool, b: Tensor, b_options: str, b_rows: int,
    b_cols: int, b_transposed: bool, dtype: torch.dtype, accumulate: str, bias: Tensor | None = None,
    alpha: Tensor | None = None, activation: str = "none",
) -> Tensor:  # fmt: skip
    x = _calls.operand(_raw.copy_of(a_options), a_rows, a_cols, a_transposed)
    y = _calls.operand(_raw.copy_of(b_options), b_rows, b_cols, b_transposed)
    out = torch.empty((x.place.rows, y.place.rows), dtype=dtype, device=a.device)
    modes = _names.number(_names.ACCUMULATE, accumulate, "accumulate"), _names.number(_names.ACTIVATION, activation, "activation")
    _calls.gemm(x, a, y, b, out, modes[0], None if bias is None else bias.contiguous(), False, alpha, modes[1])
    return out


def _gemm_fake(
    a: Tensor, a_options: str, a_rows: Any, a_cols: Any, a_transposed: bool, b: Tensor, b_options: str, b_rows: Any,
    b_cols: Any, b_transposed: bool, dtype: torch.dtype, *_: Any, **__: Any,
) -> Tensor:  # fmt: skip
    return a.new_empty((a_cols if a_transposed else a_rows, b_cols if b_transposed else b_rows), dtype=dtype)


implement("gemm", _gemm, _gemm_fake)

define("draw(Tensor like) -> Tensor", _RANDOM)


def draw_now(like: Tensor) -> Tensor:
    """Key and number of the random bits of a layer's activation, weight and gradient, from PyTorch's generator of that device."""
    return torch.randint(0, 1 << 60, (3, 2), dtype=torch.int64, device=like.device)


implement("draw", draw_now, lambda like: like.new_empty((3, 2), dtype=torch.int64))

# ------------------------------------------------------------------------------------------------- a linear layer

# What the forward pass keeps for the backward one.
SAVE_NOTHING, SAVE_COLUMNWISE, SAVE_ROWWISE = 0, 1, 2


def _pair(amax: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if amax is None else (amax[:1], amax[1:])


def forward_product(
    x: Tensor, weight: Tensor, w_row: Tensor, bias: Tensor | None, seed_offset: Tensor | None, amax: Tensor | None,
    dtype: torch.dtype, recipe: str, save: int,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """y = x W^T + bias, and the copies of x that the backward pass reads."""
    r = prepared(recipe)
    plain = r.forward == "high_precision"
    row = None if plain else r.x_row
    col = r.x_col if save & SAVE_COLUMNWISE else None
    row_data = col_data = None
    if row is not None or col is not None:
        seed = seed_offset[0] if seed_offset is not None and r.draws_forward else None
        row_data, col_data = _calls.quantize(x, row, col, seed, *_pair(amax), (0, 0), r.nonfinite)
    if row_data is None:
        bias = None if bias is None else bias.to(dtype)
        return torch.nn.functional.linear(x.to(dtype), weight.to(dtype), bias), None, col_data
    rows, cols = x.shape
    out_features = weight.shape[0]
    y = x.new_empty((rows, out_features), dtype=dtype)
    a, b = _calls.operand(r.x_row, rows, cols, False), _calls.operand(r.w_row, out_features, cols, False)
    _calls.gemm(a, row_data, b, w_row, y, r.accumulate, bias)
    return y, row_data if save & SAVE_ROWWISE else None, col_data


_BACKWARD = "(Tensor dy, Tensor? w_col, Tensor? x_col, SymInt in_features, Tensor? seed_offset, Tensor? amax, ScalarType dx_dtype, %s, str recipe) -> %s"
define("linear_backward" + _BACKWARD % ("ScalarType dw_dtype", "(Tensor, Tensor)"))
define("linear_backward_" + _BACKWARD % ("Tensor(a!) main_grad", "Tensor"))


def backward_products(
    dy: Tensor, w_col: Tensor | None, x_col: Tensor | None, in_features: int, seed_offset: Tensor | None,
    amax: Tensor | None, dx_dtype: torch.dtype, dw: Tensor | None, add: bool, recipe: str,
) -> Tensor:  # fmt: skip
    """dx, and dw written or added to."""
    r = prepared(recipe)
    row = r.g_row if w_col is not None else None
    col = r.g_col if x_col is not None else None
    rows, out_features = dy.shape
    dx = dy.new_empty((rows, in_features) if row is not None else 0, dtype=dx_dtype)
    if row is None and col is None:
        return dx
    seed = seed_offset[2] if seed_offset is not None and r.draws_backward else None
    row_data, col_data = _calls.quantize(dy, row, col, seed, *_pair(amax), (0, 0), r.nonfinite)
    if row_data is not None and w_col is not None:
        a, b = _calls.operand(r.g_row, rows, out_features, False), _calls.operand(r.w_col, out_features, in_features, True)
        _calls.gemm(a, row_data, b, w_col, dx, r.accumulate)
    if col_data is not None and x_col is not None:
        assert dw is not None
        a, b = _calls.operand(r.g_col, rows, out_features, True), _calls.operand(r.x_col, rows, in_features, True)
        _calls.gemm(a, col_data, b, x_col, dw, r.accumulate, None, add)
    return dx


def linear_backward_now(
    dy: Tensor, w_col: Tensor | None, x_col: Tensor | None, in_features: int, seed_offset: Tensor | None,
    amax: Tensor | None, dx_dtype: torch.dtype, dw_dtype: torch.dtype, recipe: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dw = dy.new_empty((dy.shape[1], in_features) if x_col is not None else 0, dtype=dw_dtype)
    return backward_products(dy, w_col, x_col, in_features, seed_offset, amax, dx_dtype, dw, False, recipe), dw


def _linear_backward_fake(
    dy: Tensor, w_col: Any, x_col: Any, in_features: Any, seed_offset: Any, amax: Any, dx_dtype: torch.dtype,
    dw_dtype: torch.dtype, recipe: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dx = dy.new_empty((dy.shape[0], in_features) if w_col is not None else 0, dtype=dx_dtype)
    return dx, dy.new_empty((dy.shape[1], in_features) if x_col is not None else 0, dtype=dw_dtype)


def linear_backward_add_now(
    dy: Tensor, w_col: Tensor | None, x_col: Tensor | None, in_features: int, seed_offset: Tensor | None,
    amax: Tensor | None, dx_dtype: torch.dtype, main_grad: Tensor, recipe: str,
) -> Tensor:  # fmt: skip
    if main_grad.dtype != torch.float32:
        raise DtypeError(f"main_grad is {main_grad.dtype}; wgrad is accumulated in torch.float32")
    return backward_products(dy, w_col, x_col, in_features, seed_offset, amax, dx_dtype, main_grad, True, recipe)


implement("linear_backward", linear_backward_now, _linear_backward_fake)
implement(
    "linear_backward_",
    linear_backward_add_now,
    lambda dy, w_col, x_col, in_features, seed, amax, dx_dtype, main_grad, recipe: dy.new_empty(
        (dy.shape[0], in_features) if w_col is not None else 0, dtype=dx_dtype
    ),
)

define("note_amax_(Tensor x, str row, str col, Tensor(a!) seen) -> ()")


def _note_amax(x: Tensor, row: str, col: str, seen: Tensor) -> None:
    """seen [2] = the amax of each copy."""
    for place, found in zip(_pair(seen), _calls.amax(x, *copies(row, col))):
        if found is not None and found.numel() and place is not None:
            place.copy_(found)


implement("note_amax_", _note_amax, lambda x, row, col, seen: None)

quantize = torch.ops.nvfp4.quantize.default
amax = torch.ops.nvfp4.amax.default
dequantize = torch.ops.nvfp4.dequantize.default
hadamard = torch.ops.nvfp4.hadamard.default
gemm = torch.ops.nvfp4.gemm.default
draw = torch.ops.nvfp4.draw.default
linear_backward = torch.ops.nvfp4.linear_backward.default
linear_backward_ = torch.ops.nvfp4.linear_backward_.default
note_amax_ = torch.ops.nvfp4.note_amax_.default
