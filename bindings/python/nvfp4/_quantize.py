"""quantize, requantize, amax: one call, one read of the input, one or two copies."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Union, cast, overload

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _names, _tensor
from ._arrays import Array
from ._context import Context, cpu
from ._errors import ArgumentError
from ._options import Options, SignMask
from ._tensor import QuantizedTensor, Stats

Domain = Union[Literal["tensor"], int]
Copies = tuple[QuantizedTensor, QuantizedTensor]


class _Call:
    """The descriptor of one quantize, requantize or amax call and the arrays it points at."""

    def __init__(
        self, row: Options, column: Options, axis: str, seed: int, offset: int, amax: Any, nonfinite: str,
        origin: tuple[int, int], stats: bool,
    ) -> None:  # fmt: skip
        self.copies = _names.number(_names.AXIS, axis, "axis")
        self.options = (row, column)
        self.stats = _abi.Stats() if stats else None
        self.desc = _abi.QuantizeDesc(
            rowwise=row.to_c(),
            columnwise=column.to_c(),
            nonfinite=_names.number(_names.NONFINITE, nonfinite, "nonfinite"),
            seed=_arrays.unsigned(seed, 64, "seed"),
            offset=_arrays.unsigned(offset, 64, "offset"),
        )
        if len(origin) != 2:
            raise ArgumentError(f"origin is {origin!r}; it is (row, column)")
        self.desc.origin_row = _arrays.size_t(origin[0], "origin[0]")
        self.desc.origin_col = _arrays.size_t(origin[1], "origin[1]")
        if self.stats is not None:
            self.desc.stats = ctypes.pointer(self.stats)
        self.given = self._split(amax)
        self.sizes = _abi.Sizes()

    def _split(self, amax: Any) -> tuple[Any, Any]:
        """The given amax of each copy; with both copies two of them, or one number for both."""
        if self.copies != 3:
            return (amax, None) if self.copies == 1 else (None, amax)
        if isinstance(amax, (tuple, list)):
            if len(amax) != 2:
                raise ArgumentError(f"amax holds {len(amax)} entries; with axis='both' it is (rowwise, columnwise)")
            return amax[0], amax[1]
        return amax, amax

    def prepare(self, context: Context, rows: int, cols: int, dtype: int) -> None:
        """Ask for the sizes, give the workspace, convert the given amax."""
        _abi.call(
            "quantize_sizes", context.handle, ctypes.byref(self.desc), rows, cols, dtype, self.copies,
            ctypes.byref(self.sizes),
        )  # fmt: skip
        self.workspace = _arrays.workspace(self.sizes.workspace_bytes)
        if self.workspace.size:
            self.desc.workspace = self.workspace.ctypes.data
            self.desc.workspace_bytes = self.workspace.size
        pairs = ((self.given[0], "rowwise"), (self.given[1], "columnwise"))
        self.amax = [self._amax(value, side) for value, side in pairs]
        for values, (_, side) in zip(self.amax, pairs):
            if values is not None:
                setattr(self.desc, side + "_amax", values.ctypes.data)

    def _amax(self, value: Any, side: str) -> NDArray[np.float32] | None:
        if value is None:
            return None
        count = getattr(self.sizes, side + "_amax_count")
        if count == 0:
            raise ArgumentError(f"amax is {value!r}, but the {side} copy has none (its format or chain has no outer scale)")
        return _arrays.factors(value, count, f"amax of the {side} copy")

    def outputs(self) -> list[_Output | None]:
        """Buffers of the copies asked for."""
        return [_Output(self.sizes, side) if self.copies & bit else None for side, bit in _SIDES]

    def result(self, outputs: list[_Output | None]) -> list[QuantizedTensor]:
        """The tensors of a call that succeeded; statistics belong to the first."""
        stats = None
        if self.stats is not None:
            stats = Stats(*(getattr(self.stats, field.name) for field in dataclasses.fields(Stats)))
        tensors = []
        for output in outputs:
            if output is not None:
                tensors.append(output.tensor(stats))
                stats = None
        return tensors


_SIDES = (("rowwise", 1), ("columnwise", 2))


class _Output:
    """Buffers of one copy."""

    def __init__(self, sizes: _abi.Sizes, side: str) -> None:
        self.codes = _arrays.empty(getattr(sizes, side + "_codes_bytes"), np.uint8)
        self.scales = _arrays.empty(getattr(sizes, side + "_scales_bytes"), np.uint8)
        self.amax = _arrays.empty(getattr(sizes, side + "_amax_count"), np.float32)
        self.desc = _abi.Quantized(
            codes=self.codes.ctypes.data,
            codes_bytes=self.codes.nbytes,
            scales=self.scales.ctypes.data,
            scales_bytes=self.scales.nbytes,
            amax=self.amax.ctypes.data if self.amax.size else None,
            amax_count=self.amax.size,
        )

    def tensor(self, stats: Stats | None) -> QuantizedTensor:
        scales = None if self.desc.format == _names.FORMAT["bf16"] else self.scales
        return _tensor.from_c(self.desc, self.codes, scales, self.amax if self.amax.size else None, stats)


def reference(output: _Output | None) -> Any:
    """Argument for one output descriptor: NULL for a copy that is not wanted."""
    return None if output is None else ctypes.byref(output.desc)


@overload
def quantize(
    x: Array, format: str = ..., block: str | None = ..., rounding: str = ..., seed: int = ..., offset: int = ...,
    hadamard: int = ..., sign_mask: Any = ..., axis: Literal["row", "column"] = ..., chain: str = ...,
    amax: Any = ..., scale_layout: str = ..., nonfinite: str = ..., *, scale_rule: str = ..., domain: Domain = ...,
    c: float | None = ..., origin: tuple[int, int] = ..., stats: bool = ..., select: str = ...,
    range_16_17: bool = ..., keep_f32: bool = ..., half_scale: bool = ..., column: None = ...,
) -> QuantizedTensor: ...  # fmt: skip


@overload
def quantize(
    x: Array, format: str = ..., block: str | None = ..., rounding: str = ..., seed: int = ..., offset: int = ...,
    hadamard: int = ..., sign_mask: Any = ..., *, axis: Literal["both"], chain: str = ...,
    amax: Any = ..., scale_layout: str = ..., nonfinite: str = ..., scale_rule: str = ..., domain: Domain = ...,
    c: float | None = ..., origin: tuple[int, int] = ..., stats: bool = ..., select: str = ...,
    range_16_17: bool = ..., keep_f32: bool = ..., half_scale: bool = ...,
    column: Options | Mapping[str, Any] | None = ...,
) -> Copies: ...  # fmt: skip


def quantize(
    x: Array,
    format: str = "nvfp4",
    block: str | None = None,
    rounding: str = "nearest",
    seed: int = 0,
    offset: int = 0,
    hadamard: int = 0,
    sign_mask: SignMask = None,
    axis: str = "row",
    chain: str = "te",
    amax: Any = None,
    scale_layout: str = "linear",
    nonfinite: str = "propagate",
    *,
    scale_rule: str = "floor",
    domain: Domain = "tensor",
    c: float | None = None,
    origin: tuple[int, int] = (0, 0),
    stats: bool = False,
    select: str = "single",
    range_16_17: bool = False,
    keep_f32: bool = False,
    half_scale: bool = False,
    column: Options | Mapping[str, Any] | None = None,
) -> QuantizedTensor | Copies:
    """Quantize a matrix to 4 bits (docs/format.md, sections 2 to 9).

    Args:
        x: float32, float16 or bfloat16 [rows, cols], any shape (0 too) and any strides; only read.
        format: ``"nvfp4"``, ``"mxfp4"`` or ``"bf16"``.
        block: ``"1x16"``, ``"16x16"`` (NVFP4), ``"1x32"``, ``"32x32"`` (MXFP4); None is the one along the row.
        rounding: ``"nearest"`` (ties to the even code) or ``"stochastic"``, whose bits are a function of
            (seed, offset, row, column) only.
        seed, offset: key and number of the draw; below 2^64 and 2^62.
        hadamard: length of the transform along the rows of the copy: 0 (none), 16, 32, 64, 128.
        sign_mask: None (0xD7E8); an int below 2^16 is repeated every 16 elements, a larger one is all `hadamard` bits;
            booleans, True for the sign -1; ``"seeded"``, drawn from seed and offset.
        axis: ``"row"``: blocks along the rows of x. ``"column"``: the transposed copy, [cols, rows], with blocks along
            the columns of x. ``"both"``: the pair of them from one read.
        chain: ``"te"``, ``"div6"``, ``"single"``: how the block scale is computed. With `select` other than ``"single"`` the
            default ``"te"`` stands for ``"div6"``.
        amax: given amax (delayed scaling, all-reduced), float32 by value: one number, or one a row group; with
            axis="both" a pair, or one number for both. None computes it.
        scale_layout: ``"linear"`` or ``"swizzled"`` (128x4 tiles).
        nonfinite: ``"propagate"``: a block that holds a NaN or Inf decodes to NaN. ``"saturate"``: Inf becomes the
            largest finite value, NaN becomes 0.
        scale_rule: exponent rule of MXFP4.
        domain: ``"tensor"``, or the number of rows that share one amax.
        c: 2688.0 or 1536.0 (section 2); None is 2688, with four over six 1536.
        origin: (row, column) of x[0, 0] in the whole matrix, when x is a slice of it.
        stats: fill in `QuantizedTensor.stats` (with axis="both" of the rowwise copy).
        select, range_16_17, keep_f32, half_scale: see `Options`.
        column: with axis="both": options of the columnwise copy that differ, as a mapping or `Options`.

    Returns:
        A `QuantizedTensor`; with axis="both" the pair (rowwise, columnwise).

    Raises:
        ArgumentError: a value or combination that is not legal; the message holds it.
        DtypeError: x is no array of the three types.
    """
    row = Options(
        format=format, block=block, chain=chain, scale_rule=scale_rule, rounding=rounding, scale_layout=scale_layout,
        select=select, hadamard=hadamard, sign_mask=sign_mask, domain=domain, c=c, range_16_17=range_16_17,
        keep_f32=keep_f32, half_scale=half_scale,
    )  # fmt: skip
    if column is not None and axis != "both":
        raise ArgumentError(f"column is given, but axis is {axis!r}; it is for axis='both'")
    call = _Call(row, Options.of(column, row), axis, seed, offset, amax, nonfinite, origin, stats)
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    context = cpu()
    call.prepare(context, x.shape[0], x.shape[1], _arrays.dtype_number(x.dtype))
    outputs = call.outputs()
    _abi.call(
        "quantize", context.handle, ctypes.byref(call.desc), ctypes.byref(_arrays.matrix(x)),
        reference(outputs[0]), reference(outputs[1]), None,
    )  # fmt: skip
    tensors = call.result(outputs)
    return (tensors[0], tensors[1]) if axis == "both" else tensors[0]


def requantize(
    x: QuantizedTensor,
    options: Options | Mapping[str, Any] | None = None,
    *,
    axis: str = "row",
    column: Options | Mapping[str, Any] | None = None,
    seed: int = 0,
    offset: int = 0,
    amax: Any = None,
    nonfinite: str = "propagate",
    origin: tuple[int, int] = (0, 0),
    stats: bool = False,
) -> QuantizedTensor | Copies:
    """Quantize the decoded values of `x` [rows, cols] again, as `quantize(x.dequantize(), ...)` would.

    Args:
        options: options of the new copy, as a mapping or `Options`.
        axis, column, seed, offset, amax, nonfinite, origin, stats: as in `quantize`.
    """
    row = Options.of(options)
    call = _Call(row, Options.of(column, row), axis, seed, offset, amax, nonfinite, origin, stats)
    context = cpu()
    call.prepare(context, x.rows, x.cols, _arrays.DTYPE["float32"])
    outputs = call.outputs()
    _abi.call(
        "requantize", context.handle, ctypes.byref(call.desc), ctypes.byref(x.to_c()),
        reference(outputs[0]), reference(outputs[1]), None,
    )  # fmt: skip
    tensors = call.result(outputs)
    return (tensors[0], tensors[1]) if axis == "both" else tensors[0]


def amax(
    x: Array,
    options: Options | Mapping[str, Any] | None = None,
    *,
    axis: str = "row",
    seed: int = 0,
    offset: int = 0,
    nonfinite: str = "propagate",
) -> np.float32 | NDArray[np.float32]:
    """Largest finite magnitude of each scale domain after the copy's transform: what `quantize` would compute.

    Args:
        x: float32, float16 or bfloat16 [rows, cols].
        options: options of the copy (format, hadamard, sign_mask, domain, ...), as a mapping or `Options`.
        axis: ``"row"`` or ``"column"``.

    Returns:
        A float32 scalar, or float32 [ceil(rows/domain)].
    """
    if axis not in ("row", "column"):
        raise ArgumentError(f"axis is {axis!r}; it is 'row' or 'column'")
    row = Options.of(options)
    call = _Call(row, row, axis, seed, offset, None, nonfinite, (0, 0), False)
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    context = cpu()
    call.prepare(context, x.shape[0], x.shape[1], _arrays.dtype_number(x.dtype))
    side = "rowwise" if axis == "row" else "columnwise"
    count = getattr(call.sizes, side + "_amax_count")
    if count == 0:
        raise ArgumentError(f"format {row.format!r} with chain {row.chain!r} has no amax")
    out = _arrays.empty(count, np.float32)
    pointers = (out.ctypes.data, None) if axis == "row" else (None, out.ctypes.data)
    _abi.call(
        "amax", context.handle, ctypes.byref(call.desc), ctypes.byref(_arrays.matrix(x)), *pointers, None
    )  # fmt: skip
    return cast(np.float32, out[0]) if row.domain == "tensor" else out


def transpose(x: QuantizedTensor) -> QuantizedTensor:
    """The transpose of a matrix quantized in square tiles, without its source: codes and scales are moved only.

    Args:
        x: block ``"16x16"`` or ``"32x32"``, [rows, cols].

    Returns:
        [cols, rows], equal to what quantizing the transposed source gives (docs/format.md, section 2).
    """
    context = cpu()
    options = Options(
        format=x.format, block=x.block, chain=x.chain or "te", scale_rule=x.scale_rule, scale_layout=x.scale_layout, c=x.c
    )
    call = _Call(options, options, "row", 0, 0, None, "propagate", (0, 0), False)
    call.prepare(context, x.cols, x.rows, _arrays.DTYPE["float32"])
    output = _Output(call.sizes, "rowwise")
    output.desc.scale_layout = _names.number(_names.SCALE_LAYOUT, x.scale_layout, "scale_layout")
    _abi.call("transpose", context.handle, ctypes.byref(x.to_c()), ctypes.byref(output.desc), None)
    return output.tensor(None)
