"""Recipes, and one linear layer trained by one: fprop, dgrad, wgrad."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, Union, overload

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _names
from ._arrays import Array
from ._context import cpu
from ._errors import ArgumentError
from ._options import Options

OPERANDS = ("activation", "weight", "gradient")
DIRECTIONS = ("rowwise", "columnwise")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of each operand and direction of a linear layer. fprop contracts the rowwise copies of activation and
    weight, dgrad the rowwise gradient with the columnwise weight, wgrad the columnwise gradient and activation.

    Attributes:
        name: the recipe it was made from.
        activation_rowwise, ..., gradient_columnwise: `Options` of each copy.
        accumulate: ``"default"`` (block on the CPU), ``"block"``, ``"fast"``, ``"hardware"``, ``"hardware_k96"``.
        nonfinite: ``"propagate"`` or ``"saturate"``, of all quantizers.
    """

    name: str
    activation_rowwise: Options
    activation_columnwise: Options
    weight_rowwise: Options
    weight_columnwise: Options
    gradient_rowwise: Options
    gradient_columnwise: Options
    accumulate: str = "default"
    nonfinite: str = "propagate"

    def to_c(self) -> _abi.Recipe:
        """The C descriptor."""
        return _abi.Recipe(
            **{f"{o}_{d}": getattr(self, f"{o}_{d}").to_c() for o in OPERANDS for d in DIRECTIONS},
            accumulate=_names.number(_names.ACCUMULATE, self.accumulate, "accumulate"),
            nonfinite=_names.number(_names.NONFINITE, self.nonfinite, "nonfinite"),
        )


AnyRecipe = Union[str, Recipe]


def recipe(name: str = "nvfp4", **overrides: Any) -> Recipe:
    """A recipe by name, with any field changed.

    Args:
        name: ``"nvfp4"`` (= ``"te_nvfp4"``: transform of 16 on both wgrad operands, stochastic rounding of gradients, 16x16
            tiles for weights), ``"nvfp4_no_rht"`` (= ``"te_nvfp4_no_rht"``), ``"mxfp4"``, ``"bf16"`` (pass-through).
        overrides: mappings of option names (see `Options`) for one copy (``gradient_columnwise={...}``), for both copies
            of an operand (``weight={...}``) or for all copies of a direction (``columnwise={...}``); and ``accumulate``,
            ``nonfinite``. The more specific one wins.

    Example:
        >>> r = nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"}, accumulate="hardware")
        >>> r.gradient_columnwise.rounding, r.gradient_columnwise.hadamard
        ('nearest', 16)

    Raises:
        ArgumentError: unknown recipe, override, option or word.
    """
    desc = _abi.Recipe()
    if not isinstance(name, str):
        raise ArgumentError(f"recipe name is {name!r}; a string is needed")
    _abi.call("recipe_init", name.encode(), ctypes.byref(desc))
    copies = [f"{o}_{d}" for o in OPERANDS for d in DIRECTIONS]
    options = {copy: Options.from_c(getattr(desc, copy)) for copy in copies}
    rest = dict(overrides)
    for names in (DIRECTIONS, OPERANDS, copies):  # the most specific last
        for key in names:
            value: Options | Mapping[str, Any] | None = rest.pop(key, None)
            for copy in copies:
                if value is not None and (copy == key or key in copy.split("_")):
                    options[copy] = Options.of(value, options[copy])
    accumulate = rest.pop("accumulate", _names.word(_names.ACCUMULATE, desc.accumulate, "accumulate"))
    nonfinite = rest.pop("nonfinite", _names.word(_names.NONFINITE, desc.nonfinite, "nonfinite"))
    if rest:
        legal = [*copies, *OPERANDS, *DIRECTIONS, "accumulate", "nonfinite"]
        raise ArgumentError(f"{', '.join(map(repr, rest))}: no field of a recipe; fields are " + ", ".join(legal))
    result = Recipe(name=name, accumulate=accumulate, nonfinite=nonfinite, **options)
    result.to_c()
    return result


@functools.cache
def _named(name: str) -> Recipe:
    """A recipe as it stands; an unknown name is not remembered."""
    return recipe(name)


class _Step:
    """The descriptor of one product of a linear layer."""

    def __init__(self, recipe_: AnyRecipe, seed: int, offset: int) -> None:
        if not isinstance(recipe_, Recipe):
            recipe_ = _named(recipe_) if isinstance(recipe_, str) else recipe(recipe_)
        self.recipe = recipe_.to_c()
        self.desc = _abi.LinearDesc(
            recipe=ctypes.pointer(self.recipe),
            seed=_arrays.unsigned(seed, 64, "seed"),
            offset=_arrays.unsigned(offset, 64, "offset"),
        )
        self.context = cpu()
        self.workspace = _arrays.workspace(0)

    def reserve(self, tokens: int, in_features: int, out_features: int, dtype: np.dtype[Any]) -> None:
        """Give the workspace that each of the three products needs."""
        need = ctypes.c_size_t()
        _abi.call(
            "linear_workspace", self.context.handle, ctypes.byref(self.desc), tokens, in_features, out_features,
            _arrays.dtype_number(dtype), ctypes.byref(need),
        )  # fmt: skip
        self.workspace = _arrays.workspace(need.value)
        if need.value:
            self.desc.workspace, self.desc.workspace_bytes = self.workspace.ctypes.data, need.value

    def run(self, product: str, *matrices: Array | None) -> None:
        """Call fprop, dgrad or wgrad; an absent matrix is NULL."""
        pointers = [None if m is None else ctypes.byref(_arrays.matrix(m)) for m in matrices]
        _abi.call("linear_" + product, self.context.handle, ctypes.byref(self.desc), *pointers, None)


def linear(
    x: Array,
    w: Array,
    recipe: AnyRecipe = "nvfp4",
    seed: int = 0,
    offset: int = 0,
    *,
    bias: Array | None = None,
    out_dtype: Any = None,
) -> Array:
    """fprop of a linear layer: ``y = x W^T + bias`` with both operands quantized by the recipe.

    Args:
        x: float32, float16 or bfloat16 [tokens, in].
        w: likewise [out, in].
        recipe: a name or a `Recipe`.
        seed, offset: key and number of the draw, below 2^64 and 2^60. Use another offset for each layer and step.
        bias: float32, float16 or bfloat16 [out].
        out_dtype: type of y; None is that of x.

    Returns:
        y [tokens, out].

    Raises:
        ArgumentError: shapes that do not belong together, an unknown recipe.
        DtypeError: arrays of another type.
    """
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    w = _arrays.pitched(_arrays.checked(w, "w", 2))
    _same("in", x.shape[1], "x", w.shape[1], "w")
    if bias is not None:
        bias = _arrays.pitched(_arrays.checked(bias, "bias", 1).reshape(1, -1))
        _same("out", bias.shape[1], "bias", w.shape[0], "w")
    step = _Step(recipe, seed, offset)
    step.reserve(x.shape[0], x.shape[1], w.shape[0], x.dtype)
    y = _arrays.empty((x.shape[0], w.shape[0]), x.dtype if out_dtype is None else _arrays.output_dtype(out_dtype, "out_dtype"))
    step.run("fprop", x, w, bias, y)
    return y


@overload
def linear_backward(
    dy: Array, x: Array, w: Array, recipe: AnyRecipe = ..., seed: int = ..., offset: int = ...,
    *, bias: Literal[False] = ..., dw: NDArray[np.float32] | None = ..., dw_dtype: Any = ...,
) -> tuple[Array, Array]: ...  # fmt: skip


@overload
def linear_backward(
    dy: Array, x: Array, w: Array, recipe: AnyRecipe = ..., seed: int = ..., offset: int = ...,
    *, bias: Literal[True], dw: NDArray[np.float32] | None = ..., dw_dtype: Any = ...,
) -> tuple[Array, Array, NDArray[np.float32]]: ...  # fmt: skip


def linear_backward(
    dy: Array,
    x: Array,
    w: Array,
    recipe: AnyRecipe = "nvfp4",
    seed: int = 0,
    offset: int = 0,
    *,
    bias: bool = False,
    dw: NDArray[np.float32] | None = None,
    dw_dtype: Any = "float32",
) -> tuple[Array, Array] | tuple[Array, Array, NDArray[np.float32]]:
    """dgrad and wgrad of a linear layer: ``dx = dy W`` and ``dW = dy^T x``, operands quantized by the recipe.

    Args:
        dy: float32, float16 or bfloat16 [tokens, out].
        x: likewise [tokens, in].
        w: likewise [out, in].
        recipe, seed, offset: as in `linear`.
        bias: also return the gradient of the bias, the column sums of dy (not quantized).
        dw: a float32 C-contiguous array [out, in] to add dW to; it is what is returned then.
        dw_dtype: type of a new dW.

    Returns:
        (dx, dW) or (dx, dW, db): dx [tokens, in] in the type of dy, dW [out, in], db float32 [out].

    Raises:
        ArgumentError: shapes that do not belong together, an unknown recipe.
        DtypeError: arrays of another type.
    """
    dy = _arrays.pitched(_arrays.checked(dy, "dy", 2))
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    w = _arrays.pitched(_arrays.checked(w, "w", 2))
    _same("tokens", dy.shape[0], "dy", x.shape[0], "x")
    _same("out", dy.shape[1], "dy", w.shape[0], "w")
    _same("in", x.shape[1], "x", w.shape[1], "w")
    step = _Step(recipe, seed, offset)
    step.reserve(x.shape[0], x.shape[1], w.shape[0], x.dtype)
    dx = _arrays.empty(x.shape, dy.dtype)
    if dw is None:
        out: Array = _arrays.empty(w.shape, _arrays.output_dtype(dw_dtype, "dw_dtype"))
    else:
        usable = isinstance(dw, np.ndarray) and dw.dtype == np.float32 and dw.dtype.isnative
        if not (usable and dw.shape == w.shape and dw.flags.c_contiguous and dw.flags.writeable and dw.flags.aligned):
            raise ArgumentError(
                f"dw must be a writable C-contiguous float32 array of shape {w.shape}, not "
                f"{getattr(dw, 'dtype', type(dw).__name__)} of shape {getattr(dw, 'shape', ())}"
            )
        if any(np.may_share_memory(dw, operand) for operand in (dy, x, w)):
            raise ArgumentError("dw shares memory with dy, x or w")
        out = dw
    step.run("dgrad", dy, w, dx)
    step.desc.accumulate_wgrad = int(dw is not None)
    step.run("wgrad", dy, x, out)
    if not bias:
        return dx, out
    return dx, out, dy.astype(np.float64).sum(axis=0).astype(np.float32)


def _same(what: str, first: int, first_name: str, second: int, second_name: str) -> None:
    if first != second:
        raise ArgumentError(f"{what} is {first} in {first_name} and {second} in {second_name}")
