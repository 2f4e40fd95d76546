"""Functions on tensors: the library's operations, differentiable where they have a derivative.

Each is an operator of `torch.ops.nvfp4` with a shape rule, so it traces. Random bits come from `seed_offset`, an int64
tensor [2] (seed, offset) on the device of x, or, where it is None, from PyTorch's generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import _names
from .._errors import ArgumentError
from .._options import Options
from . import _grouped, _linear, _ops, _raw
from ._base import compute_dtype, seeds
from .recipe import NVFP4BlockScaling, Recipe

Tensor = torch.Tensor
AnyOptions = Options | Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized matrix.

    Attributes:
        data: uint8, codes, block scales and amax one after the other.
        options: text of its options.
        rows, cols: shape of the source; a transposed copy is of [cols, rows].
        transposed: a columnwise copy.
    """

    data: Tensor
    options: str
    rows: int
    cols: int
    transposed: bool

    @property
    def shape(self) -> tuple[int, int]:
        """As it is contracted: along its second dimension."""
        return (self.cols, self.rows) if self.transposed else (self.rows, self.cols)

    def _views(self) -> tuple[_raw.Layout, tuple[Tensor, Tensor, Tensor]]:
        place = _raw.layout(_raw.copy_of(self.options), self.rows, self.cols, self.transposed)
        return place, place.views(self.data)

    @property
    def codes(self) -> Tensor:
        """uint8 [rows, bytes a row], two codes a byte, the first in the low nibble."""
        place, views = self._views()
        return views[0].view(place.rows, -1)

    @property
    def scales(self) -> Tensor:
        """uint8: linear scales [rows, blocks], swizzled ones flat."""
        place, views = self._views()
        linear = _raw.copy_of(self.options).options.scale_layout == "linear"
        return views[1].view(place.rows, -1) if linear else views[1]

    @property
    def amax(self) -> Tensor:
        """f32, one a scale domain; empty where the format has none."""
        return self._views()[1][2]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The values that it stands for, in its own orientation (`shape`); with a transform, whole blocks of it."""
        value: Tensor = _ops.dequantize(self.data, self.options, self.rows, self.cols, self.transposed, dtype)
        return value



def _seed(x: Tensor, seed_offset: Tensor | None, *copies: _raw.Copy | None) -> Tensor | None:
    if seed_offset is not None or not any(copy is not None and copy.stochastic for copy in copies):
        return seed_offset
    drawn: Tensor = _ops.draw(x)[0]
    return drawn


def _chosen(options: AnyOptions, column: AnyOptions, axis: str) -> tuple[_raw.Copy | None, _raw.Copy | None]:
    """The copies that are asked for."""
    if axis not in ("row", "column", "both"):
        raise ArgumentError(f"axis is {axis!r}; it is 'row', 'column' or 'both'")
    base = Options.of(options)
    row = _raw.copy_of(_raw.text_of(base)) if axis != "column" else None
    col = _raw.copy_of(_raw.text_of(Options.of(column, base) if axis == "both" else base)) if axis != "row" else None
    return row, col


def quantize(
    x: Tensor, options: AnyOptions = None, *, axis: str = "row", column: AnyOptions = None, seed_offset: Tensor | None = None,
    amax: Tensor | tuple[Tensor, Tensor] | None = None, origin: tuple[int, int] = (0, 0), nonfinite: str = "propagate",
) -> Any:  # fmt: skip
    """Quantize a matrix.

    Args:
        x: f32, bf16 or f16 [rows, cols], any strides.
        options: of the copy (`nvfp4.Options`). axis: "row", "column" (transposed copy) or "both" (one read of x).
        column: with axis="both": options of the columnwise copy that differ.
        seed_offset: int64 [2] on x's device, for stochastic rounding.
        amax: f32, given instead of computed; with axis="both" a pair.
        origin: row and column of x[0, 0] in the whole matrix, of which the random bits are.
        nonfinite: "propagate" or "saturate".

    Returns:
        A `Quantized`, or with axis="both" the pair (rowwise, columnwise).
    """
    if x.dim() != 2:
        raise ArgumentError(f"x has shape {tuple(x.shape)}; a matrix is needed")
    row, col = _chosen(options, column, axis)
    given = amax if isinstance(amax, tuple) else (amax, None) if axis == "row" else (None, amax)
    number = _names.number(_names.NONFINITE, nonfinite, "nonfinite")
    texts = tuple(None if copy is None else copy.text for copy in (row, col))
    data = _ops.quantize(x.detach(), *texts, _seed(x, seed_offset, row, col), *given, *origin, number)
    made = [
        None if text is None else Quantized(one, text, x.shape[0], x.shape[1], transposed)
        for text, one, transposed in zip(texts, data, (False, True))
    ]
    return (made[0], made[1]) if axis == "both" else made[0] or made[1]


def dequantize(q: Quantized, dtype: torch.dtype = torch.float32) -> Tensor:
    """`Quantized.dequantize`."""
    return q.dequantize(dtype)


class _FakeQuantize(torch.autograd.Function):
    """Straight through: the derivative is that of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, text: str, seed_offset: Tensor | None) -> Tensor:
        rows, cols = x.shape
        data, _ = _ops.quantize(x, text, None, seed_offset)
        value: Tensor = _ops.dequantize(data, text, rows, cols, False, x.dtype)
        return value

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return dy, None, None


def fake_quantize(x: Tensor, options: AnyOptions = None, *, seed_offset: Tensor | None = None) -> Tensor:
    """What the quantized x [..., cols] stands for, in its dtype, with the derivative of the identity."""
    copy = _raw.copy_of(_raw.text_of(Options.of(options)))
    if copy.options.hadamard:
        raise ArgumentError(f"fake_quantize gives values of x; with hadamard={copy.options.hadamard} they would be of its transform")
    flat = x.reshape(-1, x.shape[-1])
    y: Tensor = _FakeQuantize.apply(flat, copy.text, _seed(flat, seed_offset, copy))
    return y.view(x.shape)


def hadamard(x: Tensor, n: int = 16, *, axis: str = "row", inverse: bool = False, sign_mask: int | None = None) -> Tensor:
    """The random Hadamard transform of blocks of n along an axis of a matrix; its derivative is its inverse.

    Args:
        x: f32, bf16 or f16 [rows, cols]. n: 16, 32, 64 or 128. axis: "row" (along each row) or "column"; the result's extent
            there is rounded up to n, as if x was followed by zeros.
        sign_mask: as in `nvfp4.Options`.
    """
    if n not in (16, 32, 64, 128):
        raise ArgumentError(f"n is {n}; it is 16, 32, 64 or 128")
    value: Tensor = _ops.hadamard(x, n, _names.number({"row": 0, "column": 1}, axis, "axis"), inverse, sign_mask)
    return value


def gemm(
    a: Quantized, b: Quantized, *, out_dtype: torch.dtype = torch.bfloat16, bias: Tensor | None = None, alpha: Tensor | None = None,
    activation: str = "none", accumulate: str = "default",
) -> Tensor:  # fmt: skip
    """act(alpha a b^T + bias), [a.shape[0], b.shape[0]].

    Args:
        a, b: both are contracted along their second dimension (`Quantized.shape`), with the same transform.
        bias: [N]. alpha: f32 [1] on the device. activation, accumulate: as in `nvfp4.gemm`.
    """
    if a.shape[1] != b.shape[1]:
        raise ArgumentError(f"a is {a.shape} and b is {b.shape}; they are contracted along their second dimension, which differs")
    value: Tensor = _ops.gemm(
        a.data, a.options, a.rows, a.cols, a.transposed, b.data, b.options, b.rows, b.cols, b.transposed, out_dtype, accumulate,
        bias, alpha, activation,
    )  # fmt: skip
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class GroupedQuantized:
    """One copy of groups of rows (docs/abi.md, "Groups"), made by `grouped_quantize`.

    Attributes:
        data, options, rows, cols, transposed: as in `Quantized`; rows counts the tokens of all groups.
        offsets: int64 [groups + 1]; group g is the rows offsets[g] to offsets[g + 1] of the source.
    """

    data: Tensor
    options: str
    rows: int
    cols: int
    transposed: bool
    offsets: Tensor


def grouped_quantize(
    x: Tensor, offsets: Tensor, options: AnyOptions = None, *, axis: str = "row", column: AnyOptions = None,
    seed_offset: Tensor | None = None, nonfinite: str = "propagate",
) -> Any:  # fmt: skip
    """Quantize groups of rows of x [tokens, cols], each as `quantize` would alone, with an amax of its own.

    Args:
        offsets: int64 [groups + 1] on the device of x, ascending; never read on the host of a GPU.
        The rest: as in `quantize`.

    Returns:
        A `GroupedQuantized`, or with axis="both" the pair (rowwise, columnwise). What belongs to no group is 0.
    """
    row, col = _chosen(options, column, axis)
    texts = tuple(None if copy is None else copy.text for copy in (row, col))
    number = _names.number(_names.NONFINITE, nonfinite, "nonfinite")
    data = torch.ops.nvfp4.grouped_quantize.default(x.detach(), offsets, *texts, _seed(x, seed_offset, row, col), number)
    made = [
        None if text is None else GroupedQuantized(one, text, x.shape[0], x.shape[1], transposed, offsets)
        for text, one, transposed in zip(texts, data, (False, True))
    ]
    return (made[0], made[1]) if axis == "both" else made[0] or made[1]


def grouped_gemm(
    a: GroupedQuantized, b: GroupedQuantized | Sequence[Quantized], *, out_dtype: torch.dtype = torch.bfloat16, bias: Tensor | None = None,
    accumulate: str = "default",
) -> Tensor:  # fmt: skip
    """One product a group.

    Args:
        a: a rowwise copy of groups (ragged M: fprop, dgrad), or a columnwise one (ragged K: wgrad).
        b: ragged M: a matrix a group, all of one kind, contracted along its second dimension. Ragged K: the other columnwise copy,
            with the same offsets.
        bias: ragged M: [groups, N].

    Returns:
        Ragged M: [tokens, N], 0 in rows of no group. Ragged K: [groups, a.cols, b.cols].
    """
    run = torch.ops.nvfp4.grouped_gemm.default
    if isinstance(b, GroupedQuantized):
        if not (a.transposed and b.transposed) or bias is not None or a.offsets.shape != b.offsets.shape or a.rows != b.rows:
            raise ArgumentError(f"ragged K takes two columnwise copies of the same groups and no bias; these have {a.rows} and {b.rows} tokens")
        ragged: Tensor = run(a.data, a.options, a.rows, a.cols, b.data, b.options, b.rows, b.cols, True, a.offsets, True, out_dtype, accumulate)
        return ragged
    groups = a.offsets.shape[0] - 1
    kinds = {(q.options, q.rows, q.cols, q.transposed) for q in b}
    if a.transposed or len(b) != groups or len(kinds) != 1:
        raise ArgumentError(f"ragged M takes a rowwise copy of groups and a matrix of one kind for each; {len(b)} of {len(kinds)} kinds for {groups} groups")
    q = b[0]
    if q.shape[1] != a.cols:
        raise ArgumentError(f"a is [{a.rows}, {a.cols}] and b[0] is {q.shape}; they are contracted along their second dimension, which differs")
    if bias is not None and bias.shape != (groups, q.shape[0]):
        raise ArgumentError(f"bias has shape {tuple(bias.shape)}; [{groups}, {q.shape[0]}] is needed")
    data = _grouped.stacked([q.data for q in b])
    y: Tensor = run(a.data, a.options, a.rows, a.cols, data, q.options, q.rows, q.cols, q.transposed, a.offsets, False, out_dtype, accumulate, bias)
    return y


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, recipe: Recipe | None = None, *, seed_offset: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """y = x W^T + bias with its three products quantized by a recipe; differentiable.

    Args:
        x: [..., in]. weight: [out, in]. bias: [out].
        recipe: None is `NVFP4BlockScaling()`. Delayed recipes need a module that keeps their history.
        seed_offset: int64 [3, 2]: seed and offset of activation, weight and gradient; None draws them from PyTorch's generator.
        out_dtype: of y; None is that of x, or of `torch.autocast`.
    """
    recipe = recipe if recipe is not None else _DEFAULT
    if recipe.delayed:
        raise ArgumentError("DelayedScaling needs a module, which keeps the amax of earlier calls")
    if weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise ArgumentError(f"x is {tuple(x.shape)} and weight is {tuple(weight.shape)}; [..., in] and [out, in] are needed")
    dtype = compute_dtype(x)
    flat = x.reshape(-1, x.shape[-1]).to(dtype)
    r = recipe.prepared
    grad = torch.is_grad_enabled()
    wants_x, wants_w = grad and flat.requires_grad, grad and weight.requires_grad
    if seed_offset is None:
        seed_offset = seeds(r, flat, wants_x or wants_w)
    w_row, w_col = _linear.quantize_weight(weight.detach(), r, wants_x, seed_offset)
    save = _linear.saved(r, wants_x, wants_w)
    y = _linear.linear(flat, weight, w_row, w_col, bias, seed_offset, None, None, None, None, out_dtype or dtype, r.text, "", save)
    return y.view(*x.shape[:-1], weight.shape[0])


_DEFAULT = NVFP4BlockScaling()
