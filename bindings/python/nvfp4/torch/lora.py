"""Base weights that exist in 4 bits only, and low-rank adapters over them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._errors import ArgumentError
from . import _linear, _ops
from ._base import compute_dtype, seeds
from .convert import Filter
from .module import Linear
from .recipe import NVFP4BlockScaling, Recipe

Tensor = torch.Tensor


class FrozenLinear(nn.Module):
    """y = x W^T + bias with a weight that is kept quantized and not trained: 1.13 bytes a weight for both copies.

    Its products are in 4 bits everywhere, inside and outside `autocast`; x gets its gradient.

    Buffers: `w_row`, `w_col` (the copies that fprop and dgrad contract), `bias`.
    """

    w_row: Tensor
    w_col: Tensor | None
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, recipe: Recipe | None = None) -> None:
        super().__init__()
        self.recipe = recipe if recipe is not None else NVFP4BlockScaling()
        r = self.recipe.prepared
        if self.recipe.delayed or r.backward != "quantized" or r.forward != "quantized":
            raise ArgumentError(f"{self.recipe}: a weight that exists in 4 bits only takes a recipe without overrides and without delay")
        self.out_features, self.in_features = weight.shape
        with torch.no_grad():
            row, col = _linear.quantize_weight(weight.detach(), r, True, seeds(r, weight, True))
        self.register_buffer("w_row", row)
        self.register_buffer("w_col", col)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.weight_dtype = weight.dtype

    def forward(self, inp: Tensor) -> Tensor:
        """y [..., out_features]."""
        dtype, r = compute_dtype(inp), self.recipe.prepared
        flat = inp.reshape(-1, inp.shape[-1]).to(dtype)
        if flat.shape[1] != self.in_features:
            raise ArgumentError(f"x has {flat.shape[1]} features; the weight has {self.in_features}")
        wants_x = torch.is_grad_enabled() and flat.requires_grad
        stand_in = flat.new_empty(()).expand(self.out_features, self.in_features)  # of the weight, only its shape is read
        save = _linear.saved(r, wants_x, False)
        y = _linear.linear(
            flat, stand_in, self.w_row, self.w_col, self.bias, seeds(r, flat, wants_x), None, None, None, None, dtype, r.text, "", save
        )
        return y.view(*inp.shape[:-1], self.out_features)

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight [out, in] that fprop contracts."""
        value: Tensor = _ops.dequantize(self.w_row, self.recipe.prepared.w_row.text, self.out_features, self.in_features, False, dtype)
        return value

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, recipe={self.recipe}"


class LoRALinear(nn.Module):
    """y = base(x) + (alpha / rank) (x A^T) B^T: a frozen base layer and a trained low-rank one in high precision.

    Args:
        base: any linear layer; its parameters are frozen.
        rank, alpha: of the adapter.

    Parameters: `lora_a` [rank, in] (as `torch.nn.Linear` starts), `lora_b` [out, rank] (zeros), in the type of the base's weight.
    """

    def __init__(self, base: Any, rank: int, alpha: float = 16.0) -> None:
        super().__init__()
        if rank < 1:
            raise ArgumentError(f"rank is {rank}; at least 1 is needed")
        self.base = base.requires_grad_(False)
        self.rank, self.scale = rank, alpha / rank
        like = base.w_row if isinstance(base, FrozenLinear) else base.weight
        dtype = base.weight_dtype if isinstance(base, FrozenLinear) else like.dtype
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, device=like.device, dtype=dtype))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank, device=like.device, dtype=dtype))
        nn.init.kaiming_uniform_(self.lora_a, a=5**0.5)

    def forward(self, inp: Tensor) -> Tensor:
        """y [..., out]."""
        dtype = compute_dtype(inp)
        low = F.linear(F.linear(inp.to(dtype), self.lora_a.to(dtype)), self.lora_b.to(dtype))
        y: Tensor = self.base(inp) + self.scale * low
        return y

    def extra_repr(self) -> str:
        return f"rank={self.rank}, scale={self.scale}"


def freeze_(model: nn.Module, filter: Filter | None = None, *, recipe: Recipe | None = None, lora_rank: int = 0, lora_alpha: float = 16.0) -> nn.Module:
    """Keep the weights of linear layers in 4 bits only, in place, and give them adapters if a rank is given.

    Args:
        model: returned. filter: (qualified name, layer) -> bool, for `torch.nn.Linear` and `nvfp4.torch.Linear`; None: all.
        recipe: of the frozen layers; None is a layer's own, or `NVFP4BlockScaling()`.
    """
    for name, module in list(model.named_modules()):
        if type(module) not in (nn.Linear, Linear) or not name or (filter is not None and not filter(name, module)):
            continue
        layer: nn.Module = FrozenLinear(module.weight, module.bias, recipe or getattr(module, "recipe", None))
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, LoRALinear(layer, lora_rank, lora_alpha) if lora_rank else layer)
    return model
