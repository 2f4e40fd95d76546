"""Tensor-parallel linear layers: the weight split by rows (column parallel) or columns (row parallel) over a group.

Every quantized byte is one of the unsharded layer's: an operand that is split shares one amax, reduced over the group, and
each rank draws the random bits of its place in the whole matrix. So the outputs that no sum over ranks goes into (fprop of
a column-parallel layer, dgrad of a row-parallel one, every wgrad) equal the unsharded layer's slices to the last bit in
mode BLOCK; the others are a sum over ranks of f32 products. With sequence parallelism the activations between layers are
split by tokens, and travel in 4 bits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._errors import ArgumentError
from . import _calls, _slices
from ._base import Base, compute_dtype, initialize, seeds, state_of
from ._history import QuantizedWeight
from ._prepared import Prepared
from ._raw import Copy
from .recipe import Recipe

Tensor = torch.Tensor


class _Call:
    """One call of a layer: recipe (None: in high precision), group, this rank's place, whether tokens are split."""

    def __init__(self, r: Prepared | None, group: Any, sequence: bool, dtype: torch.dtype) -> None:
        self.r, self.group, self.sequence, self.dtype = r, group, sequence, dtype
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def quantize(self, x: Tensor, row: Copy | None, col: Copy | None, seed: Tensor | None, split: str) -> tuple[Tensor | None, Tensor | None]:
        """Copies of a slice; `split` names the axis that is divided over the group: rows, columns or none."""
        assert self.r is not None
        origin = {"rows": (self.rank * x.shape[0], 0), "columns": (0, self.rank * x.shape[1]), "none": (0, 0)}[split]
        draws = (row is not None and row.stochastic) or (col is not None and col.stochastic)
        group = None if split == "none" else self.group
        return _slices.quantize(x, row, col, seed if draws else None, origin, group, self.r.nonfinite)

    def product(self, a: Any, a_data: Tensor, b: Any, b_data: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
        """a b^T + bias of two copies."""
        assert self.r is not None
        out = torch.empty((a.place.rows, b.place.rows), dtype=dtype, device=a_data.device)
        _calls.gemm(a, a_data, b, b_data, out, self.r.accumulate, bias)
        return out

    def gathered(self, x: Tensor) -> Tensor:
        """All tokens of plain values that are split by tokens."""
        if not self.sequence:
            return x
        out = x.new_empty(self.size * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def summed(self, partial: Tensor, dtype: torch.dtype) -> Tensor:
        """The sum over the ranks of an f32 product, this rank's tokens of it under sequence parallelism."""
        if self.sequence:
            out = partial.new_empty(partial.shape[0] // self.size, partial.shape[1])
            dist.reduce_scatter_tensor(out, partial, group=self.group)
            return out.to(dtype)
        dist.all_reduce(partial, group=self.group)
        return partial.to(dtype)


class _Column(torch.autograd.Function):
    """x [tokens (a slice under sequence parallelism), in], w [out/n, in] -> [tokens, out/n]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, w_row: Any, w_col: Any, seed_offset: Any, call: _Call) -> Tensor:
        ctx.call, ctx.shapes, ctx.types = call, (x.shape[0], *w.shape), (x.dtype, w.dtype, None if bias is None else bias.dtype)
        r = call.r
        if r is None:
            ctx.save_for_backward(x, w, seed_offset)
            return nn.functional.linear(call.gathered(x), w.to(call.dtype), None if bias is None else bias.to(call.dtype))
        seed = None if seed_offset is None else seed_offset[0]
        x_row, x_col = call.quantize(x, r.x_row, r.x_col, seed, "rows" if call.sequence else "none")
        ctx.save_for_backward(x_col, w_col, seed_offset)
        assert x_row is not None
        tokens, inner = x.shape
        if call.sequence:
            x_row = _slices.gather(x_row, r.x_row, tokens, inner, False, 0, call.group)
            tokens *= call.size
        a = _calls.operand(r.x_row, tokens, inner, False)
        return call.product(a, x_row, _calls.operand(r.w_row, w.shape[0], inner, False), w_row, call.dtype, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        call, (tokens, outer, inner), (x_type, w_type, b_type) = ctx.call, ctx.shapes, ctx.types
        saved_x, saved_w, seed_offset = ctx.saved_tensors
        r = call.r
        db = None if b_type is None else dy.sum(0, dtype=torch.float32).to(b_type)
        if r is None:
            dx = call.summed(dy.float() @ saved_w.float(), x_type)
            return dx, (dy.t() @ call.gathered(saved_x)).to(w_type), db, None, None, None, None
        seed = None if seed_offset is None else seed_offset[2]
        dy_row, dy_col = call.quantize(dy, r.g_row, r.g_col, seed, "columns")
        every = dy.shape[0]
        if call.sequence:
            saved_x = _slices.gather(saved_x, r.x_col, tokens, inner, True, 0, call.group)
        a, b = _calls.operand(r.g_row, every, outer, False), _calls.operand(r.w_col, outer, inner, True)
        dx = call.summed(call.product(a, dy_row, b, saved_w, torch.float32), x_type)
        a, b = _calls.operand(r.g_col, every, outer, True), _calls.operand(r.x_col, every, inner, True)
        return dx, call.product(a, dy_col, b, saved_x, w_type), db, None, None, None, None


class _Row(torch.autograd.Function):
    """x [tokens, in/n], w [out, in/n] -> [tokens (a slice under sequence parallelism), out]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, w_row: Any, w_col: Any, seed_offset: Any, call: _Call) -> Tensor:
        ctx.call, ctx.shapes, ctx.types = call, (x.shape[0], *w.shape), (x.dtype, w.dtype, None if bias is None else bias.dtype)
        r = call.r
        if r is None:
            ctx.save_for_backward(x, w, seed_offset)
            y = call.summed(x.float() @ w.float().t(), torch.float32)
        else:
            seed = None if seed_offset is None else seed_offset[0]
            x_row, x_col = call.quantize(x, r.x_row, r.x_col, seed, "columns")
            ctx.save_for_backward(x_col, w_col, seed_offset)
            assert x_row is not None
            a, b = _calls.operand(r.x_row, x.shape[0], x.shape[1], False), _calls.operand(r.w_row, w.shape[0], w.shape[1], False)
            y = call.summed(call.product(a, x_row, b, w_row, torch.float32), torch.float32)
        return (y if bias is None else y + bias.float()).to(call.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        call, (tokens, outer, inner), (x_type, w_type, b_type) = ctx.call, ctx.shapes, ctx.types
        saved_x, saved_w, seed_offset = ctx.saved_tensors
        r = call.r
        db = None
        if b_type is not None:
            db = dy.sum(0, dtype=torch.float32)
            if call.sequence:  # every rank has the whole bias and its own tokens' part of the gradient
                dist.all_reduce(db, group=call.group)
            db = db.to(b_type)
        if r is None:
            g = call.gathered(dy)
            return (g @ saved_w.to(g.dtype)).to(x_type), (g.t() @ saved_x.to(g.dtype)).to(w_type), db, None, None, None, None
        seed = None if seed_offset is None else seed_offset[2]
        dy_row, dy_col = call.quantize(dy, r.g_row, r.g_col, seed, "rows" if call.sequence else "none")
        if call.sequence:
            dy_row = _slices.gather(dy_row, r.g_row, dy.shape[0], outer, False, 0, call.group)
            dy_col = _slices.gather(dy_col, r.g_col, dy.shape[0], outer, True, 0, call.group)
        a, b = _calls.operand(r.g_row, tokens, outer, False), _calls.operand(r.w_col, outer, inner, True)
        dx = call.product(a, dy_row, b, saved_w, x_type)
        a, b = _calls.operand(r.g_col, tokens, outer, True), _calls.operand(r.x_col, tokens, inner, True)
        return dx, call.product(a, dy_col, b, saved_x, w_type), db, None, None, None, None


class _ParallelLinear(Base):
    """What the two layers share; see `ColumnParallelLinear`."""

    split_axis: int  # of the weight
    function: Any

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, tp_group: Any, sequence_parallel: bool = False,
        same_generator: bool = False, params_dtype: torch.dtype | None = None, device: Any = None, init_method: Any = None,
        recipe: Recipe | None = None, quantize: bool = True, name: str | None = None, **rest: Any,
    ) -> None:  # fmt: skip
        super().__init__(recipe, quantize, False, rest)
        self.tp_group, self.sequence_parallel, self.same_generator, self.name = tp_group, sequence_parallel, same_generator, name
        self.size = dist.get_world_size(tp_group)
        whole = (out_features, in_features)[self.split_axis]
        if whole % self.size:
            what = ("out_features", "in_features")[self.split_axis]
            raise ArgumentError(f"{what} is {whole}; over {self.size} ranks it must be a multiple of {self.size}")
        shape = [out_features, in_features]
        shape[self.split_axis] //= self.size
        self.in_features, self.out_features = in_features, out_features
        place = {"device": device, "dtype": params_dtype}
        self.weight = nn.Parameter(torch.empty(*shape, **place))
        self.bias = nn.Parameter(torch.empty(shape[0], **place)) if bias else None
        initialize(self.weight, self.bias, init_method)

    @classmethod
    def from_linear(cls, linear: Any, tp_group: Any, **options: Any) -> Any:
        """This rank's part of a layer that every rank has whole. options: those of the class."""
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, tp_group=tp_group,
                    device=linear.weight.device, params_dtype=linear.weight.dtype, **options)  # fmt: skip
        rank = dist.get_rank(tp_group)
        with torch.no_grad():
            layer.weight.copy_(linear.weight.chunk(layer.size, cls.split_axis)[rank])
            if layer.bias is not None:
                layer.bias.copy_(linear.bias.chunk(layer.size)[rank] if cls.split_axis == 0 else linear.bias)
        return layer

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Tensor:
        """y; under sequence parallelism tokens are the first of two dimensions."""
        if inp.shape[-1] != self.weight.shape[1]:
            raise ArgumentError(f"inp has {inp.shape[-1]} features; this rank's weight has {self.weight.shape[1]} columns")
        state, dtype = state_of(self), compute_dtype(inp)
        x = inp.reshape(-1, inp.shape[-1]).to(dtype)
        recipe = (self.recipe or state.recipe) if state.enabled and self.quantize else None
        r = None if recipe is None else recipe.prepared
        call = _Call(r, self.tp_group, self.sequence_parallel, dtype)
        w_row = w_col = seed_offset = None
        if r is not None:
            assert recipe is not None
            self._check(recipe, r, x)
            seed_offset = seeds(r, x, torch.is_grad_enabled())
            if seed_offset is not None and not self.same_generator:
                dist.broadcast(seed_offset, dist.get_global_rank(self.tp_group, 0), group=self.tp_group)
            first = is_first_microbatch if is_first_microbatch is not None else state.is_first_microbatch
            w_row, w_col = self._copies(call, r, seed_offset, first)
        elif self.sequence_parallel and self.split_axis == 1 and x.shape[0] % self.size:
            raise ArgumentError(f"inp has {x.shape[0]} tokens; split over {self.size} ranks they must be a multiple of {self.size}")
        y: Tensor = self.function.apply(x, self.weight, self.bias, w_row, w_col, seed_offset, call)
        return y.view(*inp.shape[:-1], -1) if y.shape[0] == x.shape[0] else y

    def _check(self, recipe: Recipe, r: Prepared, x: Tensor) -> None:
        if recipe.delayed or r.backward != "quantized" or r.forward != "quantized":
            raise ArgumentError(f"{recipe}: layers split over ranks take recipes without overrides and without delay")
        copies = {n: getattr(r, n) for n in ("x_row", "x_col", "w_row", "w_col", "g_row", "g_col")}
        for name, copy in copies.items():
            _slices.check(copy, name)
        # No block and no transform may be cut.
        block = max(max(32 if c.format == "mxfp4" else 16, c.options.hadamard) for c in copies.values())
        mine = self.weight.shape[self.split_axis]
        if mine % block:
            what = ("out_features", "in_features")[self.split_axis]
            raise ArgumentError(f"{what} leaves {mine} to each of {self.size} ranks; a multiple of {block} is needed by {recipe}")
        tokens = block * (self.size if self.split_axis == 1 else 1)
        if self.sequence_parallel and x.shape[0] % tokens:
            raise ArgumentError(f"inp has {x.shape[0]} tokens; split over {self.size} ranks they must be a multiple of {tokens} here")

    def _copies(self, call: _Call, r: Prepared, seed_offset: Tensor | None, first: bool | None) -> tuple[Tensor, Tensor]:
        slot = self.slots["weight"]
        kept = slot.kept
        if first is False and kept is not None and kept.recipe == r.text and kept.version == self.weight._version and kept.col is not None:
            return kept.row, kept.col
        seed = None if seed_offset is None else seed_offset[1]
        row, col = call.quantize(self.weight.detach(), r.w_row, r.w_col, seed, ("rows", "columns")[self.split_axis])
        assert row is not None and col is not None
        if first is not None:
            slot.kept = QuantizedWeight(r.text, self.weight._version, row, col)
        return row, col

    def extra_repr(self) -> str:
        return f"{self.in_features} -> {self.out_features}, weight {tuple(self.weight.shape)} on one of {self.size} ranks"


class ColumnParallelLinear(_ParallelLinear):
    """y = x W^T + bias with W's rows, and so y's columns, split over a group; 4-bit inside `autocast`.

    Args:
        in_features, out_features: of the whole layer. In 4 bits, out_features is a multiple of 16 (MXFP4: 32) a rank.
        tp_group: the ranks that hold the parts.
        sequence_parallel: x comes split by tokens, a like multiple of them a rank, and is gathered in 4 bits.
        same_generator: the ranks' generators are in step, so that their draws need not be broadcast.
        The rest: as in `Linear`.

    Raises:
        ArgumentError: sizes that the group does not divide so.
    """

    split_axis, function = 0, _Column


class RowParallelLinear(_ParallelLinear):
    """y = x W^T + bias with W's columns, and so x's, split over a group. Arguments as of `ColumnParallelLinear`;
    in_features is the multiple, and with sequence_parallel y is returned split by tokens."""

    split_axis, function = 1, _Row
