"""A layer of experts: one linear layer a group of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .._errors import ArgumentError
from . import _grouped
from ._base import Base, compute_dtype, initialize, seeds, state_of
from ._history import QuantizedWeight
from .recipe import Recipe

Tensor = torch.Tensor


class GroupedLinear(Base):
    """y[rows of group g] = x[rows of group g] W_g^T + bias_g, in 4 bits inside `autocast`: every group with an amax of its own.

    Args:
        num_gemms: number of groups. in_features, out_features: sizes of each weight.
        The rest: as in `Linear`.

    Parameters: `weight` [num_gemms, out_features, in_features], `bias` [num_gemms, out_features]. A checkpoint with
    TransformerEngine's names (weight0, weight1, ..., bias0, ...) loads.
    """

    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, bias: bool = True, *, params_dtype: torch.dtype | None = None,
        device: Any = None, init_method: Callable[[Tensor], Any] | None = None, recipe: Recipe | None = None, quantize: bool = True,
        name: str | None = None, **rest: Any,
    ) -> None:  # fmt: skip
        super().__init__(recipe, quantize, False, rest)
        if num_gemms < 1:
            raise ArgumentError(f"num_gemms is {num_gemms}; at least 1 is needed")
        self.num_gemms, self.in_features, self.out_features, self.name = num_gemms, in_features, out_features, name
        place = {"device": device, "dtype": params_dtype}
        self.weight = nn.Parameter(torch.empty(num_gemms, out_features, in_features, **place))
        self.bias = nn.Parameter(torch.empty(num_gemms, out_features, **place)) if bias else None
        with torch.no_grad():
            for g in range(num_gemms):
                initialize(self.weight[g], None if self.bias is None else self.bias[g], init_method)

    def forward(self, inp: Tensor, m_splits: Sequence[int] | Tensor, is_first_microbatch: bool | None = None) -> Tensor:
        """y [tokens, out_features].

        Args:
            inp: [tokens, in_features], the groups one after the other.
            m_splits: tokens of each group, any number of them: a sequence, whose sum must be the tokens; or an int64 tensor on
                the device of x, which nobody reads on the host (rows past its sum give 0).
        """
        if inp.dim() != 2 or inp.shape[1] != self.in_features:
            raise ArgumentError(f"inp has shape {tuple(inp.shape)}; [tokens, {self.in_features}] is needed")
        offsets = self._offsets(inp, m_splits)
        state, dtype = state_of(self), compute_dtype(inp)
        x = inp.to(dtype)
        if not (state.enabled and self.quantize):
            return self._plain(x, m_splits, offsets, dtype)
        recipe = self.recipe or state.recipe
        assert recipe is not None
        r = recipe.prepared
        if recipe.delayed or state.group or r.backward != "quantized" or r.forward != "quantized":
            raise ArgumentError(f"{recipe}: GroupedLinear takes recipes without overrides, delay and amax_reduction_group")
        grad = torch.is_grad_enabled()
        wants_x, wants_w = grad and x.requires_grad, grad and self.weight.requires_grad
        seed_offset = seeds(r, x, wants_x or wants_w)
        first = is_first_microbatch if is_first_microbatch is not None else state.is_first_microbatch
        slot = self.slots["weight"]
        kept = slot.kept
        usable = first is False and kept is not None and kept.recipe == r.text and (kept.col is not None or not wants_x)
        if usable and kept is not None and (torch.compiler.is_compiling() or kept.version == self.weight._version):
            w_row, w_col = kept.row, kept.col
        else:
            w_row, w_col = _grouped.quantize_weights(self.weight.detach(), r, wants_x or (first is not None and grad), seed_offset)
            if first is not None:
                slot.kept = QuantizedWeight(r.text, -1 if torch.compiler.is_compiling() else self.weight._version, w_row, w_col)
        return _grouped.grouped_linear(x, self.weight, w_row, w_col if wants_x else None, self.bias, offsets, seed_offset, dtype, r, wants_x, wants_w)

    def _offsets(self, x: Tensor, m_splits: Sequence[int] | Tensor) -> Tensor:
        if isinstance(m_splits, Tensor):
            if m_splits.shape != (self.num_gemms,) or m_splits.dtype != torch.int64 or m_splits.device != x.device:
                raise ArgumentError(f"m_splits is {m_splits.dtype} {tuple(m_splits.shape)} on {m_splits.device}; int64 [{self.num_gemms}] on {x.device} is needed")
            return torch.cat([m_splits.new_zeros(1), m_splits.cumsum(0)])
        if len(m_splits) != self.num_gemms or min(m_splits) < 0 or sum(m_splits) != x.shape[0]:
            raise ArgumentError(f"m_splits is {list(m_splits)}; {self.num_gemms} numbers of tokens with the sum {x.shape[0]} are needed")
        ends = [0]
        for count in m_splits:
            ends.append(ends[-1] + count)
        return torch.tensor(ends, dtype=torch.int64).to(x.device, non_blocking=True)

    def _plain(self, x: Tensor, m_splits: Sequence[int] | Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        if isinstance(m_splits, Tensor):  # every token's group, without reading it on the host
            group = torch.searchsorted(offsets, torch.arange(x.shape[0], device=x.device), right=True) - 1
            y = x.new_zeros(x.shape[0], self.out_features)
            for g in range(self.num_gemms):
                bias = None if self.bias is None else self.bias[g].to(dtype)
                y = torch.where((group == g).unsqueeze(1), nn.functional.linear(x, self.weight[g].to(dtype), bias), y)
            return y
        parts = x.split(list(m_splits))
        return torch.cat([
            nn.functional.linear(part, self.weight[g].to(dtype), None if self.bias is None else self.bias[g].to(dtype))
            for g, part in enumerate(parts)
        ])  # fmt: skip

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("weight", "bias"):
            parts = [state_dict.pop(f"{prefix}{name}{g}", None) for g in range(self.num_gemms)]
            if all(part is not None for part in parts):
                state_dict[prefix + name] = torch.stack(parts)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return f"num_gemms={self.num_gemms}, in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
