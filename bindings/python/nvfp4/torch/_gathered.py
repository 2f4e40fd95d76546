"""Weights that FSDP2 gathers in 4 bits (`prepare_fsdp`).

Each rank keeps its rows of the weight as they are (the optimizer sees plain numbers). For a forward or backward pass it
quantizes its rows in 16x16 tiles, under the amax of the whole weight, and the codes and one scale byte a tile are gathered:
0.504 byte a weight, about a quarter of bf16's. What a rank ends up with are the bytes that quantizing the whole weight
gives, so the layer computes what it would compute unsharded, to the last bit.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import nn

from .._errors import ArgumentError
from .._options import Options
from . import _calls, _linear, _ops, _raw
from ._prepared import Prepared

Tensor = torch.Tensor
TILE = 16
_TILES = _raw.copy_of(_raw.text_of(Options(block="16x16")))  # how a weight must be quantized to be gathered so
aten = torch.ops.aten

# FSDP2 slices, pads and moves a parameter before it keeps its share; what comes out of these is a weight still.
_STAYS_A_WEIGHT = {
    aten.alias.default, aten.detach.default, aten.empty_like.default, aten.new_zeros.default, aten.slice.Tensor,
    aten.copy_.default, aten.view.default, aten.as_strided.default, aten._to_copy.default, aten._pin_memory.default,
    aten.split.Tensor, aten.clone.default, aten.narrow.default,
}  # fmt: skip


class ShardedWeight(torch.Tensor):
    """A rank's rows of a weight [out, in], which FSDP2 gathers in 4 bits. Computes, prints and saves as the plain tensor.

    A checkpoint holds plain tensors: it can be loaded with another world size, without FSDP and without this package.
    """

    _plain: Tensor
    _reduced: tuple[int, Tensor] | None

    @staticmethod
    def __new__(cls, plain: Tensor) -> ShardedWeight:
        weight = torch.Tensor._make_wrapper_subclass(
            cls, plain.size(), strides=plain.stride(), storage_offset=plain.storage_offset(), dtype=plain.dtype,
            layout=plain.layout, device=plain.device, requires_grad=plain.requires_grad,
        )  # fmt: skip
        weight._plain = plain
        weight._reduced = None
        return weight

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"ShardedWeight({self._plain!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain.__reduce_ex__(protocol)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_plain"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> ShardedWeight:
        return ShardedWeight(inner["_plain"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        plain_args, plain_kwargs = pytree.tree_map_only(ShardedWeight, lambda w: w._plain, (args, kwargs or {}))
        out = func(*plain_args, **plain_kwargs)
        if isinstance(args[0] if args else None, ShardedWeight) and out is args[0]._plain:
            return args[0]  # an operation in place
        if func not in _STAYS_A_WEIGHT:
            return out
        return pytree.tree_map_only(torch.Tensor, ShardedWeight, out)

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: torch.Size, outer_stride: tuple[int, ...], module: nn.Module, mp_policy: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        """This rank's bytes, a row for each row of tiles: 16 rows of codes, then one scale a tile; and the amax of the whole.
        One tensor, because without other ranks FSDP2 hands back the first one only."""
        rows, cols = self._plain.shape
        if rows % TILE or rows * mesh.size() != outer_size[0]:
            raise ArgumentError(
                f"a weight of {outer_size[0]} rows over {mesh.size()} ranks leaves {rows} rows to one; each needs the same "
                f"multiple of {TILE}: leave this layer out of prepare_fsdp"
            )
        plain = self._plain if mp_policy.param_dtype is None else self._plain.to(mp_policy.param_dtype)
        amax = self._reduced_amax(mesh, plain)
        data, _ = _calls.quantize(plain, _TILES, None, None, amax)
        assert data is not None
        codes, scales, _ = _raw.layout(_TILES, rows, cols, False).views(data)
        return (torch.cat([codes.view(rows // TILE, -1), scales.view(rows, -1)[::TILE]], 1),), (amax, cols)

    def fsdp_post_all_gather(
        self, outputs: tuple[Tensor, ...], metadata: tuple[Any, ...], param_dtype: torch.dtype, *, out: Tensor | None = None
    ) -> Any:
        """The whole weight over the gathered bytes."""
        (tiles,) = outputs
        amax, cols = metadata
        if out is not None:  # the bytes were gathered into the memory that `out` is made of
            inner = getattr(out, "_local_tensor", out)
            if not isinstance(inner, GatheredWeight):
                raise ArgumentError(f"FSDP handed back a {type(inner).__name__} where it was given a GatheredWeight")
            inner._amax = amax
            return None
        return GatheredWeight(tiles, amax, cols, param_dtype), (tiles,)

    def _reduced_amax(self, mesh: Any, plain: Tensor) -> Tensor:
        """f32 [1], of the whole weight: as `reduce_amax` left it, unless the weight changed since."""
        if self._reduced is not None and self._reduced[0] == self._plain._version:
            return self._reduced[1]
        amax = local_amax(plain)
        dist.all_reduce(amax, dist.ReduceOp.MAX, group=mesh.get_group())
        return amax


class GatheredWeight(torch.Tensor):
    """A whole weight [out, in] that exists as codes and one scale byte a tile only (see `fsdp_pre_all_gather`). `Linear` computes with it; its gradient
    is a plain tensor."""

    _tiles: Tensor
    _amax: Tensor

    @staticmethod
    def __new__(cls, tiles: Tensor, amax: Tensor, cols: int, dtype: torch.dtype) -> GatheredWeight:
        weight = torch.Tensor._make_wrapper_subclass(cls, (TILE * tiles.shape[0], cols), dtype=dtype, device=tiles.device)
        weight._tiles, weight._amax = tiles, amax
        return weight

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"GatheredWeight({self.shape[0]}x{self.shape[1]}, {self.dtype}, {self.device})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in (aten.alias.default, aten.detach.default, aten.as_strided.default):
            weight = args[0]  # FSDP2 strides it as it is already
            return GatheredWeight(weight._tiles, weight._amax, weight.shape[1], weight.dtype)
        raise ArgumentError(f"{func} of a weight that was gathered in 4 bits; only nvfp4.torch.Linear inside autocast can use it")

    def rowwise(self) -> Tensor:
        """The copy that fprop contracts."""
        rows, cols = self.shape
        place = _raw.layout(_TILES, rows, cols, False)
        data = place.empty(self._tiles)
        codes, scales, amax = place.views(data)
        width = place.codes_bytes // (rows // TILE)
        codes.view(rows // TILE, width).copy_(self._tiles[:, :width])
        scales.view(rows // TILE, TILE, -1).copy_(self._tiles[:, width:].unsqueeze(1))
        amax.copy_(self._amax)
        return data

    def columnwise(self) -> Tensor:
        """The copy that dgrad contracts: the transpose of the other, by moving bytes."""
        return _calls.transpose(self.rowwise(), _TILES, self.shape[0], self.shape[1])


class _Linear(torch.autograd.Function):
    """A linear layer of a gathered weight. The gathered bytes are not saved: FSDP2 gathers them again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Any, seed_offset: Any, dtype: torch.dtype, text: str, save: int) -> Tensor:
        ctx.weight, ctx.text, ctx.types = weight, text, (x.dtype, None if bias is None else bias.dtype)
        y, _, x_col = _ops.forward_product(x, weight, weight.rowwise(), bias, seed_offset, None, dtype, text, save)
        ctx.save_for_backward(x_col, seed_offset)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x_col, seed_offset = ctx.saved_tensors
        x_type, bias_type = ctx.types
        wants_x, wants_w, wants_bias = ctx.needs_input_grad[:3]
        w_col = ctx.weight.columnwise() if wants_x else None
        x_col = x_col if wants_w else None
        dx, dw = _ops.linear_backward_now(dy, w_col, x_col, ctx.weight.shape[1], seed_offset, None, x_type, ctx.weight.dtype, ctx.text)
        db = dy.sum(0, dtype=torch.float32).to(bias_type) if wants_bias else None
        return dx if wants_x else None, dw if wants_w else None, db, None, None, None, None


def linear(x: Tensor, weight: Any, bias: Tensor | None, r: Prepared, dtype: torch.dtype, seed_offset: Tensor | None) -> Tensor:
    """y = x W^T + bias of a gathered weight."""
    for name in ("w_row", "w_col"):
        if getattr(r, name) is not _TILES:
            raise ArgumentError(f"{name} of {r.text} is {getattr(r, name).options}; a weight gathered in 4 bits is {_TILES.options}")
    if r.backward != "quantized" or r.forward != "quantized":
        raise ArgumentError(f"{r.text}: a weight gathered in 4 bits has no high-precision form")
    grad = torch.is_grad_enabled()
    save = _linear.saved(r, grad and x.requires_grad, grad and weight.requires_grad)
    y: Tensor = _Linear.apply(x, weight, bias, seed_offset, dtype, r.text, save)
    return y


def local_amax(plain: Tensor) -> Tensor:
    """f32 [1], as the quantizer counts it."""
    found, _ = _calls.amax(plain.detach(), _TILES, None)
    assert found is not None
    return found
