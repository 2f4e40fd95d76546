"""Groups of tokens (docs/abi.md, "Groups"): quantize, one product a group, and a layer of experts as operators."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from .. import _abi, _names
from .._errors import ArgumentError
from . import _calls, _linear, _ops, _raw
from ._linear import DIFFERENTIATE, eager
from ._ops import SAVE_COLUMNWISE
from ._prepared import Prepared, prepared
from ._raw import Copy, Layout, check, context, dtype_number, matrix, pitched, stream

Tensor = torch.Tensor
_lib = _abi.lib


class _Place(Layout):
    """Where a copy of groups lies: as one of a matrix, but for the padding between the groups of a columnwise copy."""

    __slots__ = ()

    def __init__(self, copy: Copy, rows: Any, cols: Any, transposed: bool, groups: int) -> None:
        super().__init__(copy, rows if not transposed else columns(copy, rows, groups), cols, transposed)
        self.amax_count = groups if copy.has_amax else 0
        self.bytes = self.amax_at + 4 * self.amax_count


def align(copy: Copy) -> int:
    """What groups start at multiples of in a columnwise copy."""
    o = copy.options
    block = 32 if o.format == "mxfp4" else 16
    return max(block, o.hadamard, 4 * block if o.scale_layout == "swizzled" and o.format != "bf16" else 0)


def columns(copy: Copy, tokens: Any, groups: int) -> Any:
    """Columns that hold any groups of so many tokens."""
    step = align(copy)
    full = tokens + torch.sym_min(groups, tokens) * (step - 1)
    return full // step * step


@functools.lru_cache(maxsize=4096)
def _place(copy: Copy, rows: int, cols: int, transposed: bool, groups: int) -> _Place:
    return _Place(copy, rows, cols, transposed, groups)


def _offsets(offsets: Tensor, like: Tensor) -> tuple[int, int]:
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or offsets.numel() < 2 or offsets.device != like.device or not offsets.is_contiguous():
        raise ArgumentError(f"offsets is {offsets.dtype} {tuple(offsets.shape)} on {offsets.device}; int64 [groups + 1] on {like.device} is needed")
    return offsets.numel() - 1, offsets.data_ptr()


def grouped_quantize(
    x: Tensor, offsets: Tensor, row: Copy | None, col: Copy | None, seed_offset: Tensor | None, nonfinite: int
) -> tuple[Tensor | None, Tensor | None]:
    """Either copy or both of groups of rows of x [tokens, cols]; what belongs to no group is 0."""
    x = pitched(x)
    groups, where = _offsets(offsets, x)
    inner = _abi.QuantizeDesc(nonfinite=nonfinite)
    if seed_offset is not None:
        inner.seed_offset = _calls.checked(seed_offset, torch.int64, 2, x, "seed_offset")
    elif (row is not None and row.stochastic) or (col is not None and col.stochastic):
        raise ArgumentError("stochastic rounding needs seed_offset, an int64 tensor [seed, offset]")
    out: list[Tensor | None] = []
    views: list[Any] = []
    for side, copy in (("rowwise", row), ("columnwise", col)):
        if copy is None:
            out.append(None)
            views.append(None)
            continue
        setattr(inner, side, copy.c)
        place = _place(copy, x.shape[0], x.shape[1], side == "columnwise", groups)
        data = x.new_zeros(place.bytes, dtype=torch.uint8)
        q = _abi.Quantized()
        place.point(q, data.data_ptr())
        out.append(data)
        views.append(q)
    desc = _abi.GroupedQuantizeDesc(quantize=ctypes.pointer(inner), groups=groups, offsets=where)
    made = context(x.device)
    sizes = _abi.Sizes()
    number = dtype_number(x.dtype, "x")
    check(_lib.nvfp4_grouped_quantize_sizes(made.handle, desc, x.shape[0], x.shape[1], number, (row is not None) + 2 * (col is not None), sizes))
    room = None
    if sizes.workspace_bytes:
        room, inner.workspace = _calls.scratch(sizes.workspace_bytes, x)
        inner.workspace_bytes = sizes.workspace_bytes
    check(_lib.nvfp4_grouped_quantize(made.handle, desc, matrix(x), *views, stream(x.device)))
    del room
    return out[0], out[1]


def _operand(data: Tensor, copy: Copy, rows: int, cols: int, transposed: bool, groups: int) -> Any:
    place = _place(copy, rows, cols, transposed, groups)
    q = copy.described(transposed)
    q.rows, q.cols, q.groups = place.rows, place.cols, groups
    q.source_cols = place.source_cols
    place.point(q, data.data_ptr())
    return q


def grouped_gemm(a: Any, b: Any, offsets: Tensor, out: Tensor, *, ragged_k: bool, accumulate: int, column_align: int = 0,
                 b_stride: int = 0, bias: Tensor | None = None) -> None:  # fmt: skip
    """One product a group into out: ragged M [tokens, N], ragged K [groups, M, N]."""
    groups, where = _offsets(offsets, out)
    desc = _abi.GroupedGemmDesc(ragged=int(ragged_k), accumulate=accumulate, groups=groups, offsets=where, column_align=column_align)
    if b_stride:
        rest = (groups - 1) * b_stride
        b.codes_bytes, b.scales_bytes = b.codes_bytes + rest, b.scales_bytes + rest
        desc.b_codes_stride = desc.b_scales_stride = b_stride
        if b.amax_count:
            b.amax_count, desc.b_amax_stride = 1 + rest // 4, b_stride // 4
    if bias is not None:
        desc.bias, desc.bias_dtype, desc.bias_stride = bias.data_ptr(), dtype_number(bias.dtype, "bias"), bias.shape[1]
    d = matrix(out[0] if ragged_k else out)
    made = context(out.device)
    need = ctypes.c_size_t()
    check(_lib.nvfp4_grouped_gemm_workspace(made.handle, desc, a, b, d, need))
    room = None
    if need.value:
        room, desc.workspace = _calls.scratch(need.value, out)
        desc.workspace_bytes = need.value
    check(_lib.nvfp4_grouped_gemm(made.handle, desc, a, b, None, d, stream(out.device)))
    del room


def quantize_weights(weight: Tensor, r: Prepared, columnwise: bool, seed_offset: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Copies of weights [groups, out, in], each as `quantize_weight` makes it, at the same distance: uint8 [groups, bytes]."""
    apart = -(-weight.shape[1] // 128) * 128 if r.draws_weight else 0  # rows of their own, so that no two draw the same bits
    pairs = [_linear.quantize_weight(one, r, columnwise, seed_offset, g * apart) for g, one in enumerate(weight.unbind(0))]
    row = stacked([row for row, _ in pairs])
    return row, None if pairs[0][1] is None else stacked([col for _, col in pairs if col is not None])


def stacked(copies: list[Tensor]) -> Tensor:
    """Copies of one kind as [groups, bytes]."""
    pad = -copies[0].numel() % 128  # so that each begins as well aligned as the first
    return torch.stack([torch.nn.functional.pad(copy, (0, pad)) for copy in copies])


_ops.define(
    "grouped_quantize(Tensor x, Tensor offsets, str? row, str? col, Tensor? seed_offset=None, int nonfinite=0) -> (Tensor, Tensor)"
)


def _quantize(
    x: Tensor, offsets: Tensor, row: str | None, col: str | None, seed_offset: Tensor | None = None, nonfinite: int = 0
) -> tuple[Tensor, Tensor]:
    out = grouped_quantize(x, offsets, *_ops.copies(row, col), seed_offset, nonfinite)
    return _ops.or_empty(x, out[0]), _ops.or_empty(x, out[1])


def _quantize_fake(x: Tensor, offsets: Tensor, row: str | None, col: str | None, *_: Any) -> tuple[Tensor, Tensor]:
    groups = offsets.shape[0] - 1
    sizes = [
        0 if copy is None else _Place(copy, x.shape[0], x.shape[1], transposed, groups).bytes
        for copy, transposed in zip(_ops.copies(row, col), (False, True))
    ]
    return x.new_empty(sizes[0], dtype=torch.uint8), x.new_empty(sizes[1], dtype=torch.uint8)


_ops.implement("grouped_quantize", _quantize, _quantize_fake)
_ops.define(
    "grouped_gemm(Tensor a, str a_options, SymInt a_rows, SymInt a_cols, Tensor b, str b_options, SymInt b_rows, SymInt b_cols, "
    "bool b_transposed, Tensor offsets, bool ragged_k, ScalarType dtype, str accumulate, Tensor? bias=None) -> Tensor"
)


def _gemm(
    a: Tensor, a_options: str, a_rows: int, a_cols: int, b: Tensor, b_options: str, b_rows: int, b_cols: int,
    b_transposed: bool, offsets: Tensor, ragged_k: bool, dtype: torch.dtype, accumulate: str, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    groups = offsets.shape[0] - 1
    mode = _names.number(_names.ACCUMULATE, accumulate, "accumulate")
    left, right = _raw.copy_of(a_options), _raw.copy_of(b_options)
    first = _operand(a, left, a_rows, a_cols, ragged_k, groups)
    if ragged_k:
        out = a.new_empty((groups, a_cols, b_cols), dtype=dtype)
        second = _operand(b, right, b_rows, b_cols, True, groups)
        grouped_gemm(first, second, offsets, out, ragged_k=True, accumulate=mode, column_align=align(left))
        return out
    kind = _calls.operand(right, b_rows, b_cols, b_transposed)
    out = a.new_zeros((a_rows, kind.place.rows), dtype=dtype)
    if bias is not None:
        bias = bias.contiguous()
    second = kind.view(b[0, : kind.place.bytes])
    grouped_gemm(first, second, offsets, out, ragged_k=False, accumulate=mode, b_stride=b.stride(0) if groups > 1 else b.shape[1], bias=bias)
    return out


def _gemm_fake(
    a: Tensor, a_options: str, a_rows: Any, a_cols: Any, b: Tensor, b_options: str, b_rows: Any, b_cols: Any,
    b_transposed: bool, offsets: Tensor, ragged_k: bool, dtype: torch.dtype, *_: Any,
) -> Tensor:  # fmt: skip
    if ragged_k:
        return a.new_empty((offsets.shape[0] - 1, a_cols, b_cols), dtype=dtype)
    return a.new_empty((a_rows, b_cols if b_transposed else b_rows), dtype=dtype)


_ops.implement("grouped_gemm", _gemm, _gemm_fake)
_ops.define(
    "grouped_linear(Tensor x, Tensor weight, Tensor w_row, Tensor? w_col, Tensor? bias, Tensor offsets, Tensor? seed_offset, "
    "ScalarType dtype, str recipe, int save) -> (Tensor, Tensor)"
)


def _forward(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Tensor | None, bias: Tensor | None, offsets: Tensor,
    seed_offset: Tensor | None, dtype: torch.dtype, recipe: str, save: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r = prepared(recipe)
    groups, out_features, in_features = weight.shape
    col = r.x_col if save & SAVE_COLUMNWISE else None
    seed = seed_offset[0] if seed_offset is not None and r.draws_forward else None
    row_data, col_data = grouped_quantize(x, offsets, r.x_row, col, seed, r.nonfinite)
    assert row_data is not None
    y = x.new_zeros((x.shape[0], out_features), dtype=dtype)
    a = _operand(row_data, r.x_row, x.shape[0], in_features, False, groups)
    b = _calls.operand(r.w_row, out_features, in_features, False).view(w_row[0, : _raw.layout(r.w_row, out_features, in_features, False).bytes])
    grouped_gemm(a, b, offsets, y, ragged_k=False, accumulate=r.accumulate, b_stride=w_row.shape[1], bias=bias)
    return y, _ops.or_empty(x, col_data)


def _forward_fake(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Any, bias: Any, offsets: Tensor, seed_offset: Any, dtype: torch.dtype,
    recipe: str, save: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r = prepared(recipe)
    col = _Place(r.x_col, x.shape[0], x.shape[1], True, weight.shape[0]).bytes if save & SAVE_COLUMNWISE else 0
    return x.new_empty((x.shape[0], weight.shape[1]), dtype=dtype), x.new_empty(col, dtype=torch.uint8)


_ops.implement("grouped_linear", _forward, _forward_fake)
_ops.define(
    "grouped_linear_backward(Tensor dy, Tensor? w_col, Tensor? x_col, Tensor offsets, int groups, SymInt in_features, "
    "Tensor? seed_offset, ScalarType dx_dtype, ScalarType dw_dtype, str recipe) -> (Tensor, Tensor)"
)


def _backward_products(
    dy: Tensor, w_col: Tensor | None, x_col: Tensor | None, offsets: Tensor, groups: int, in_features: int,
    seed_offset: Tensor | None, dx_dtype: torch.dtype, dw_dtype: torch.dtype, recipe: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r = prepared(recipe)
    tokens, out_features = dy.shape
    dx = dy.new_zeros((tokens, in_features) if w_col is not None else 0, dtype=dx_dtype)
    dw = dy.new_empty((groups, out_features, in_features) if x_col is not None else 0, dtype=dw_dtype)
    if w_col is None and x_col is None:
        return dx, dw
    seed = seed_offset[2] if seed_offset is not None and r.draws_backward else None
    row, col = (r.g_row if w_col is not None else None), (r.g_col if x_col is not None else None)
    row_data, col_data = grouped_quantize(dy, offsets, row, col, seed, r.nonfinite)
    if row_data is not None and w_col is not None:
        a = _operand(row_data, r.g_row, tokens, out_features, False, groups)
        b = _calls.operand(r.w_col, out_features, in_features, True)
        grouped_gemm(a, b.view(w_col[0, : b.place.bytes]), offsets, dx, ragged_k=False, accumulate=r.accumulate, b_stride=w_col.shape[1])
    if col_data is not None and x_col is not None:
        a = _operand(col_data, r.g_col, tokens, out_features, True, groups)
        b = _operand(x_col, r.x_col, tokens, in_features, True, groups)
        grouped_gemm(a, b, offsets, dw, ragged_k=True, accumulate=r.accumulate, column_align=align(r.g_col))
    return dx, dw


_ops.implement(
    "grouped_linear_backward",
    _backward_products,
    lambda dy, w_col, x_col, offsets, groups, in_features, seed_offset, dx_dtype, dw_dtype, recipe: (
        dy.new_empty((dy.shape[0], in_features) if w_col is not None else 0, dtype=dx_dtype),
        dy.new_empty((groups, dy.shape[1], in_features) if x_col is not None else 0, dtype=dw_dtype),
    ),
)
_products = torch.ops.nvfp4.grouped_linear_backward.default


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _, w_col, bias, offsets, seed_offset, _, recipe, save = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1] if save & SAVE_COLUMNWISE else None, w_col, offsets, seed_offset)
    ctx.recipe = recipe
    ctx.shapes = (weight.shape[0], weight.shape[2], weight.dtype, x.dtype, None if bias is None else bias.dtype)


def _backward(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 10
    x_col, w_col, offsets, seed_offset = ctx.saved_tensors
    groups, in_features, w_dtype, x_dtype, bias_dtype = ctx.shapes
    wants_x, wants_w, wants_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[4]
    dx, dw = _products(
        dy, w_col if wants_x else None, x_col if wants_w else None, offsets, groups, in_features, seed_offset, x_dtype, w_dtype, ctx.recipe
    )
    db = None
    if wants_bias:
        # Tokens before the first group and after the last have rows of their own, which are dropped.
        group = torch.searchsorted(offsets, torch.arange(dy.shape[0], device=dy.device), right=True)
        db = dy.new_zeros(groups + 2, dy.shape[1], dtype=torch.float32).index_add(0, group, dy.float())[1:-1].to(bias_dtype)
    return (dx if wants_x else None, dw if wants_w else None, None, None, db, None, None, None, None, None)


torch.library.register_autograd("nvfp4::grouped_linear", _backward, setup_context=_setup_context, lib=_ops.library)
_traced = torch.ops.nvfp4.grouped_linear.default


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = _forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output[0]

    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))  # type: ignore[assignment]


def grouped_linear(
    x: Tensor, weight: Tensor, w_row: Tensor, w_col: Tensor | None, bias: Tensor | None, offsets: Tensor,
    seed_offset: Tensor | None, dtype: torch.dtype, r: Prepared, wants_x: bool, wants_w: bool,
) -> Tensor:  # fmt: skip
    """y [tokens, out]: rows of group g times its weight; 0 in rows of no group."""
    save = (SAVE_COLUMNWISE if wants_w else 0) | (DIFFERENTIATE if wants_x or wants_w else 0)
    args = (x, weight, w_row, w_col, bias, offsets, seed_offset, dtype, r.text, save)
    y: Tensor = _Eager.apply(*args) if eager(x) else _traced(*args)[0]
    return y
