"""Recipe classes with TransformerEngine's names and arguments.

Where a class says no more, the numbers are those of the library's recipe of that name (docs/format.md). An option of
TransformerEngine's that this library does not have raises an error that names it; none is ignored.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, ClassVar

from .._errors import ArgumentError, Error
from . import _prepared


class Format(enum.Enum):
    """Element formats, for arguments that name one."""

    E2M1 = "e2m1"
    NV_FP4 = "nvfp4"
    MX_FP4 = "mxfp4"
    E4M3 = "e4m3"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How linear layers quantize; made by a subclass, or by `Custom`.

    Attributes:
        prepared: what layers and operators take.
        delayed: amax comes from earlier steps (`DelayedScaling`).
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", _prepared.prepared(self._text()))

    prepared: ClassVar[Any] = None  # set by __post_init__; no field, so that two recipes with the same arguments are equal
    delayed = False

    def _text(self) -> str:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))


def _refuse(recipe: object, **given: tuple[Any, Any]) -> None:
    """Raises for an option that is not at the only value there is."""
    for name, (value, only) in given.items():
        if value != only:
            raise Error(f"{type(recipe).__name__}({name}={value!r}) is not there yet; {name} is {only!r}", 7, "NVFP4_ERR_NOT_SUPPORTED")


def _one_of(name: str, value: str, legal: tuple[str, ...]) -> str:
    if value not in legal:
        raise ArgumentError(f"{name} is {value!r}; it is one of " + ", ".join(map(repr, legal)))
    return value


@dataclasses.dataclass(frozen=True)
class NVFP4BlockScaling(Recipe):
    """NVFP4 pretraining: 1x16 blocks for activations and gradients, 16x16 tiles for weights, a random Hadamard transform of
    16 on both operands of wgrad, stochastic rounding of gradients (recipe "nvfp4").

    Args:
        disable_rht: no transform.
        disable_stochastic_rounding: gradients are rounded to nearest even.
        disable_2d_quantization: weights in 1x16 blocks.
        row_scaled_activation: one amax a row of the activation in fprop, instead of one a tensor.
        nvfp4_4over6: operands whose blocks choose between the scales amax/6 and amax/4 by their error: "none", "weights",
            "activations", "all" (weights and activations). Tiles and transform stay as they are.
        nvfp4_4over6_e4m3_use_256: which of them use C = 256 * 6 instead of 448 * 6: "none", "weights", "activations", "all".
        nvfp4_4over6_err_mode: "MAE" or "MSE".
        fp4_format, fp8_format: E2M1 and E4M3.
        fp8_dpa, fp8_mha: attention in FP8: not there.
        forward_override: "high_precision": fprop is not quantized, dgrad and wgrad are. For the end of a training run.
        backward_override: "high_precision": dgrad and wgrad of the operands as they were; "dequantized": of the values that
            fprop contracted.
        accumulate: as in `nvfp4.gemm`.
    """

    disable_rht: bool = False
    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False
    row_scaled_activation: bool = False
    nvfp4_4over6: str = "none"
    nvfp4_4over6_e4m3_use_256: str = "all"
    nvfp4_4over6_err_mode: str = "MAE"
    fp4_format: Format = Format.E2M1
    fp8_format: Format = Format.E4M3
    fp8_dpa: bool = False
    fp8_mha: bool = False
    forward_override: str | None = None
    backward_override: str | None = None
    accumulate: str = "default"

    def _text(self) -> str:
        _refuse(self, fp8_dpa=(self.fp8_dpa, False), fp8_mha=(self.fp8_mha, False), fp8_format=(self.fp8_format, Format.E4M3))
        if self.fp4_format not in (Format.E2M1, Format.NV_FP4):
            _refuse(self, fp4_format=(self.fp4_format, Format.E2M1))
        scope = ("none", "weights", "activations", "all")
        chosen = _one_of("nvfp4_4over6", self.nvfp4_4over6, scope)
        narrow = _one_of("nvfp4_4over6_e4m3_use_256", self.nvfp4_4over6_e4m3_use_256, scope)
        select = "4over6_" + _one_of("nvfp4_4over6_err_mode", self.nvfp4_4over6_err_mode, ("MAE", "MSE")).lower()
        activation: dict[str, dict[str, Any]] = {"rowwise": {}, "columnwise": {}}
        weight: dict[str, Any] = {"block": "1x16"} if self.disable_2d_quantization else {}
        gradient: dict[str, Any] = {"rounding": "nearest"} if self.disable_stochastic_rounding else {}
        if self.row_scaled_activation:
            activation["rowwise"]["domain"] = 1
        if chosen in ("weights", "all"):
            weight.update(select=select, c=1536.0 if narrow in ("weights", "all") else 2688.0)
        if chosen in ("activations", "all"):
            for direction in activation.values():
                direction.update(select=select, c=1536.0 if narrow in ("activations", "all") else 2688.0)
        overrides: dict[str, Any] = {f"activation_{d}": options for d, options in activation.items() if options}
        overrides.update({name: options for name, options in (("weight", weight), ("gradient", gradient)) if options})
        if self.accumulate != "default":
            overrides["accumulate"] = self.accumulate
        name = "nvfp4_no_rht" if self.disable_rht else "nvfp4"
        return _prepared.text(name, overrides, self.forward_override or "quantized", self.backward_override or "quantized")


@dataclasses.dataclass(frozen=True)
class MXFP4BlockScaling(Recipe):
    """MXFP4: 1x32 blocks with power-of-two scales, 32x32 tiles for weights, stochastic rounding of gradients (recipe "mxfp4").

    Args:
        disable_stochastic_rounding: gradients are rounded to nearest even.
        disable_2d_quantization: weights in 1x32 blocks.
        scale_rule: exponent of activations and weights: "floor", "ceil", "even", "encode_centric".
        hadamard: length of the transform of both operands of wgrad; 0: none.
        forward_override, backward_override, accumulate: as in `NVFP4BlockScaling`.
    """

    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False
    scale_rule: str = "floor"
    hadamard: int = 0
    fp4_format: Format = Format.E2M1
    forward_override: str | None = None
    backward_override: str | None = None
    accumulate: str = "default"

    def _text(self) -> str:
        if self.fp4_format not in (Format.E2M1, Format.MX_FP4):
            _refuse(self, fp4_format=(self.fp4_format, Format.E2M1))
        overrides: dict[str, Any] = {}
        weight: dict[str, Any] = {"block": "1x32"} if self.disable_2d_quantization else {}
        if self.scale_rule != "floor":
            overrides["activation"] = {"scale_rule": self.scale_rule}
            weight["scale_rule"] = self.scale_rule
        if weight:
            overrides["weight"] = weight
        if self.disable_stochastic_rounding:
            overrides["gradient"] = {"rounding": "nearest"}
        if self.hadamard:
            for operand in ("activation", "gradient"):
                overrides[f"{operand}_columnwise"] = {**overrides.get(operand, {}), "hadamard": self.hadamard}
        if self.accumulate != "default":
            overrides["accumulate"] = self.accumulate
        return _prepared.text("mxfp4", overrides, self.forward_override or "quantized", self.backward_override or "quantized")


@dataclasses.dataclass(frozen=True)
class DelayedScaling(Recipe):
    """NVFP4 with the amax of earlier steps for activations and gradients, so that no pass over a tensor comes before its
    quantization. Values above a given amax are clipped to the largest code.

    Args:
        margin: the amax is multiplied by 2^margin.
        amax_history_len: forward passes (of a layer) that are looked back on.
        amax_compute_algo: "max" of the history, or its "most_recent".
        fp8_format: Format.NV_FP4, the only one here.
        reduce_amax: the history is reduced over `autocast`'s amax_reduction_group, if there is one.
        base: the recipe whose formats, transform and rounding are used.
    """

    margin: int = 0
    fp8_format: Format = Format.NV_FP4
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    reduce_amax: bool = True
    base: NVFP4BlockScaling = NVFP4BlockScaling()
    delayed = True

    def _text(self) -> str:
        if self.fp8_format not in (Format.NV_FP4, Format.E2M1):
            _refuse(self, fp8_format=(self.fp8_format, Format.NV_FP4))
        _one_of("amax_compute_algo", self.amax_compute_algo, ("max", "most_recent"))
        if self.amax_history_len < 1:
            raise ArgumentError(f"amax_history_len is {self.amax_history_len}; at least 1 step is needed")
        if self.base.row_scaled_activation:
            raise ArgumentError("DelayedScaling keeps one amax a tensor; row_scaled_activation has one a row")
        text: str = self.base.prepared.text
        return text


@dataclasses.dataclass(frozen=True)
class Custom(Recipe):
    """Any recipe of the library by name, any field changed: `Custom("nvfp4", (("gradient", {"rounding": "nearest"}),))`.

    Args:
        name: as in `nvfp4.recipe`.
        overrides: pairs of a name and a value, as `nvfp4.recipe` takes them.
    """

    name: str = "nvfp4"
    overrides: Any = ()
    forward_override: str | None = None
    backward_override: str | None = None

    def _text(self) -> str:
        return _prepared.text(self.name, dict(self.overrides), self.forward_override or "quantized", self.backward_override or "quantized")
