"""Modules with TransformerEngine's names and arguments: 4-bit inside `autocast`, plain PyTorch outside.

Parameters are ordinary: `weight` [out, in] and `bias` in `params_dtype`, named as in TransformerEngine, which for `Linear` is
as in `torch.nn`, so that checkpoints load and optimizers see plain numbers. Norms and activations are PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._errors import ArgumentError
from ._base import Base, compute_dtype, initialize, run
from .recipe import Recipe

Tensor = torch.Tensor


class Linear(Base):
    """y = x W^T + bias, its three products in 4 bits inside `autocast`.

    Args:
        in_features, out_features: sizes of the weight [out_features, in_features].
        bias: with a bias [out_features]. return_bias: return (y, bias) and do not add it.
        params_dtype: dtype of the parameters; None is PyTorch's default. device: where they are made.
        init_method: fills the weight; None is that of `torch.nn.Linear`.
        fuse_wgrad_accumulation: the backward pass adds dW to the f32 tensor `weight.main_grad`, which the trainer makes;
            `weight.grad` stays None.
        recipe: a recipe of this layer's own, used wherever autocast is enabled; None: autocast's.
        quantize: False leaves this layer in high precision always.
        name: for the reader.

    Shapes: x [..., in_features] in f32, bf16 or f16, any strides; y [..., out_features] in the type of x, or that of
    `torch.autocast`. The number of rows is arbitrary. Saved for the backward pass: one 4-bit copy of x.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, return_bias: bool = False,
        params_dtype: torch.dtype | None = None, device: Any = None, init_method: Callable[[Tensor], Any] | None = None,
        fuse_wgrad_accumulation: bool = False, recipe: Recipe | None = None, quantize: bool = True, name: str | None = None, **rest: Any,
    ) -> None:  # fmt: skip
        super().__init__(recipe, quantize, fuse_wgrad_accumulation, rest)
        self.in_features, self.out_features = in_features, out_features
        self.return_bias, self.name, self._init_method = return_bias, name, init_method
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=params_dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=params_dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the parameters as `torch.nn.Linear` does, or by init_method."""
        initialize(self.weight, self.bias, self._init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """y [..., out_features]; with return_bias (y, bias)."""
        y = run(self, "weight", inp, self.weight, None if self.return_bias else self.bias, is_first_microbatch)
        return (y, self.bias) if self.return_bias else y

    def extra_repr(self) -> str:
        own = "" if self.recipe is None else f", recipe={self.recipe}"
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}{own}"


NORMALIZATIONS = ("LayerNorm", "RMSNorm")


class _Normalized(Base):
    """A module that starts with a norm: parameters `layer_norm_weight` and, for LayerNorm, `layer_norm_bias`."""

    layer_norm_bias: nn.Parameter | None

    def _make_norm(self, features: int, eps: float, normalization: str, device: Any, dtype: torch.dtype | None) -> None:
        if normalization not in NORMALIZATIONS:
            raise ArgumentError(f"normalization is {normalization!r}; it is one of " + ", ".join(map(repr, NORMALIZATIONS)))
        self.eps, self.normalization = eps, normalization
        self.layer_norm_weight = nn.Parameter(torch.ones(features, device=device, dtype=dtype))
        with_bias = normalization == "LayerNorm"
        self.layer_norm_bias = nn.Parameter(torch.zeros(features, device=device, dtype=dtype)) if with_bias else None

    def norm(self, x: Tensor) -> Tensor:
        """The norm over the last dimension, in the type that the layer computes in."""
        shape = self.layer_norm_weight.shape
        weight = self.layer_norm_weight.to(x.dtype)
        if self.normalization == "RMSNorm":
            y = F.rms_norm(x, shape, weight, self.eps)
        else:
            assert self.layer_norm_bias is not None
            y = F.layer_norm(x, shape, weight, self.layer_norm_bias.to(x.dtype), self.eps)
        return y.to(compute_dtype(x))


class LayerNormLinear(_Normalized):
    """A norm, then a linear layer.

    Args:
        eps: of the norm. normalization: "LayerNorm" or "RMSNorm".
        return_layernorm_output: return (y, the norm's output) as well.
        The rest: as in `Linear`.
    """

    def __init__(
        self, in_features: int, out_features: int, eps: float = 1e-5, bias: bool = True, *, normalization: str = "LayerNorm",
        return_bias: bool = False, return_layernorm_output: bool = False, params_dtype: torch.dtype | None = None, device: Any = None,
        init_method: Callable[[Tensor], Any] | None = None, fuse_wgrad_accumulation: bool = False, recipe: Recipe | None = None,
        quantize: bool = True, name: str | None = None, **rest: Any,
    ) -> None:  # fmt: skip
        super().__init__(recipe, quantize, fuse_wgrad_accumulation, rest)
        self.in_features, self.out_features, self.name = in_features, out_features, name
        self.return_bias, self.return_layernorm_output, self._init_method = return_bias, return_layernorm_output, init_method
        self._make_norm(in_features, eps, normalization, device, params_dtype)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=params_dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=params_dtype)) if bias else None
        initialize(self.weight, self.bias, init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """y, followed by the bias (return_bias) and the norm's output (return_layernorm_output) where asked for."""
        x = self.norm(inp)
        y = run(self, "weight", x, self.weight, None if self.return_bias else self.bias, is_first_microbatch)
        out = [y, *([self.bias] if self.return_bias else []), *([x] if self.return_layernorm_output else [])]
        return y if len(out) == 1 else tuple(out)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, normalization={self.normalization!r}"


def _gated(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, -1)
        return function(gate) * up

    return apply


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _gelu, "relu": F.relu, "silu": F.silu, "srelu": lambda x: F.relu(x).square(),
    "geglu": _gated(_gelu), "reglu": _gated(F.relu), "swiglu": _gated(F.silu), "sreglu": _gated(lambda x: F.relu(x).square()),
}  # fmt: skip


class LayerNormMLP(_Normalized):
    """A norm, a linear layer (fc1), an activation, and a linear layer (fc2).

    Args:
        hidden_size: features in and out. ffn_hidden_size: features between; fc1 has twice as many where the activation is gated.
        activation: "gelu", "relu", "silu", "srelu" (squared relu), or gated "geglu", "reglu", "swiglu", "sreglu", whose first half
            is the gate.
        The rest: as in `LayerNormLinear`.

    Parameters: layer_norm_weight, layer_norm_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias.
    """

    weights = ("fc1_weight", "fc2_weight")

    def __init__(
        self, hidden_size: int, ffn_hidden_size: int, eps: float = 1e-5, bias: bool = True, *, normalization: str = "LayerNorm",
        activation: str = "gelu", return_bias: bool = False, return_layernorm_output: bool = False,
        params_dtype: torch.dtype | None = None, device: Any = None, init_method: Callable[[Tensor], Any] | None = None,
        output_layer_init_method: Callable[[Tensor], Any] | None = None, fuse_wgrad_accumulation: bool = False,
        recipe: Recipe | None = None, quantize: bool = True, name: str | None = None, **rest: Any,
    ) -> None:  # fmt: skip
        super().__init__(recipe, quantize, fuse_wgrad_accumulation, rest)
        if activation not in ACTIVATIONS:
            raise ArgumentError(f"activation is {activation!r}; it is one of " + ", ".join(map(repr, ACTIVATIONS)))
        self.hidden_size, self.ffn_hidden_size, self.activation, self.name = hidden_size, ffn_hidden_size, activation, name
        self.return_bias, self.return_layernorm_output = return_bias, return_layernorm_output
        self._make_norm(hidden_size, eps, normalization, device, params_dtype)
        first = ffn_hidden_size * (2 if activation.endswith("glu") else 1)
        place = {"device": device, "dtype": params_dtype}
        self.fc1_weight = nn.Parameter(torch.empty(first, hidden_size, **place))
        self.fc1_bias = nn.Parameter(torch.empty(first, **place)) if bias else None
        self.fc2_weight = nn.Parameter(torch.empty(hidden_size, ffn_hidden_size, **place))
        self.fc2_bias = nn.Parameter(torch.empty(hidden_size, **place)) if bias else None
        initialize(self.fc1_weight, self.fc1_bias, init_method)
        initialize(self.fc2_weight, self.fc2_bias, output_layer_init_method or init_method)

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """As `LayerNormLinear`; the bias returned is that of fc2."""
        x = self.norm(inp)
        h = ACTIVATIONS[self.activation](run(self, "fc1_weight", x, self.fc1_weight, self.fc1_bias, is_first_microbatch))
        y = run(self, "fc2_weight", h, self.fc2_weight, None if self.return_bias else self.fc2_bias, is_first_microbatch)
        out = [y, *([self.fc2_bias] if self.return_bias else []), *([x] if self.return_layernorm_output else [])]
        return y if len(out) == 1 else tuple(out)

    def extra_repr(self) -> str:
        sizes = f"hidden_size={self.hidden_size}, ffn_hidden_size={self.ffn_hidden_size}"
        return f"{sizes}, normalization={self.normalization!r}, activation={self.activation!r}"
