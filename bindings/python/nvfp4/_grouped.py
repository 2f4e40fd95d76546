"""Groups of tokens, as a layer of experts has them: quantize each group of rows, one product a group."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _gemm, _hadamard, _names, _quantize
from ._arrays import Array
from ._context import cpu
from ._errors import ArgumentError, DtypeError
from ._options import Options
from ._tensor import QuantizedTensor


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GroupedTensor:
    """One copy of groups of rows, made by `grouped_quantize` (docs/abi.md, "Groups").

    Attributes:
        whole: all groups as one matrix; its `amax` has one value a group.
        offsets: int64 [G + 1]; group g is the rows offsets[g] to offsets[g + 1] of the source.
        starts: columnwise copies: int64 [G + 1], the column where each group starts; None for rowwise ones.
        column_align: what they are multiples of; 1 for rowwise copies.
    """

    whole: QuantizedTensor
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64] | None
    column_align: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"GroupedTensor({len(self)} groups in {self.whole!r})"

    def group(self, g: int) -> QuantizedTensor:
        """Group g as a matrix of its own, linear scales: views of this tensor's memory where the scales are linear."""
        count = int(self.offsets[g + 1] - self.offsets[g])
        w = self.whole
        amax = None if w.amax is None else np.float32(np.asarray(w.amax)[g])
        if w.scales is None:
            scales = None
        elif w.scale_layout == "linear":
            scales = w.scales
        else:
            scales = _hadamard.unswizzle_scales(w.scales, w.rows, _names.scale_cols(w.format, w.cols))
        if self.starts is None:
            first = int(self.offsets[g])
            rows, cols, source = count, w.cols, w.source_cols
            codes = w.codes[first : first + count]
            scales = None if scales is None else scales[first : first + count]
        else:
            first, source, rows = int(self.starts[g]), count, w.rows
            cols = -(-count // w.hadamard) * w.hadamard if w.hadamard else count
            at = _names.code_bytes(w.format, first)
            codes = w.codes[:, at : at + _names.code_bytes(w.format, cols)]
            at = _names.scale_cols(w.format, first)
            scales = None if scales is None else scales[:, at : at + _names.scale_cols(w.format, cols)]
        return dataclasses.replace(
            w, codes=codes, scales=scales, amax=amax, rows=rows, cols=cols, source_cols=source, scale_layout="linear",
        )  # fmt: skip

    def to_c(self) -> _abi.Quantized:
        """The C descriptor of this tensor's memory, which must outlive it."""
        q = self.whole.to_c()
        q.groups = len(self)
        return q


Weights = Union[QuantizedTensor, Sequence[QuantizedTensor]]


def _offsets(offsets: Any) -> NDArray[np.int64]:
    array = np.asarray(offsets)
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size < 2:
        raise ArgumentError(f"offsets has dtype {array.dtype} and shape {array.shape}; G + 1 integers are needed, G >= 1")
    return np.ascontiguousarray(array, dtype=np.int64)


def grouped_quantize(
    x: Array,
    offsets: Any,
    options: Options | Mapping[str, Any] | None = None,
    *,
    axis: str = "row",
    column: Options | Mapping[str, Any] | None = None,
    column_align: int = 0,
    seed: int = 0,
    offset: int = 0,
    amax: Any = None,
    nonfinite: str = "propagate",
    origin: tuple[int, int] = (0, 0),
) -> GroupedTensor | tuple[GroupedTensor, GroupedTensor]:
    """Quantize groups of rows of `x`, each as `quantize` would alone, with an amax of its own.

    Args:
        x: float32, float16 or bfloat16 [tokens, features].
        offsets: G + 1 ascending integers; group g is the rows offsets[g] to offsets[g + 1] of x, any number of them.
        options: options of the copy, as a mapping or `Options` (``domain`` must be ``"tensor"``).
        axis: ``"row"``, ``"column"`` or ``"both"``, as in `quantize`.
        column: with axis="both": options of the columnwise copy that differ.
        column_align: columnwise copies: each group starts at a multiple of this; 0 is the least that is legal.
        seed, offset, amax, nonfinite, origin: as in `quantize`; a given amax has one value a group.

    Returns:
        A `GroupedTensor`; with axis="both" the pair (rowwise, columnwise). What belongs to no group is 0.

    Raises:
        ArgumentError: offsets that descend or leave x, options that groups cannot have; the message holds the values.
    """
    where = _offsets(offsets)
    row = Options.of(options)
    if column is not None and axis != "both":
        raise ArgumentError(f"column is given, but axis is {axis!r}; it is for axis='both'")
    call = _quantize._Call(row, Options.of(column, row), axis, seed, offset, None, nonfinite, origin, False)
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    context = cpu()
    desc = _abi.GroupedQuantizeDesc(
        quantize=ctypes.pointer(call.desc),
        groups=len(where) - 1,
        offsets=where.ctypes.data,
        column_align=_arrays.unsigned(column_align, 32, "column_align"),
    )
    _abi.call(
        "grouped_quantize_sizes", context.handle, ctypes.byref(desc), x.shape[0], x.shape[1],
        _arrays.dtype_number(x.dtype), call.copies, ctypes.byref(call.sizes),
    )  # fmt: skip
    call.given = call._split(amax)
    for value, side in zip(call.given, ("rowwise", "columnwise")):
        if value is not None:
            values = call._amax(value, side)
            assert values is not None
            setattr(call.desc, side + "_amax", values.ctypes.data)
            call.desc.keep_alive = (call.desc.keep_alive, values)
    outputs = call.outputs()
    for output in outputs:
        if output is not None:
            output.codes[:] = output.scales[:] = 0
    _abi.call(
        "grouped_quantize", context.handle, ctypes.byref(desc), ctypes.byref(_arrays.matrix(x)),
        _quantize.reference(outputs[0]), _quantize.reference(outputs[1]), None,
    )  # fmt: skip
    tensors = [_tensor(o, where, desc.column_align) for o in outputs if o is not None]
    return (tensors[0], tensors[1]) if axis == "both" else tensors[0]


def _tensor(output: _quantize._Output, offsets: NDArray[np.int64], asked: int) -> GroupedTensor:
    whole = output.tensor(None)
    if output.amax.size:
        whole = dataclasses.replace(whole, amax=output.amax)
    if not whole.transposed:
        return GroupedTensor(whole, offsets, None, 1)
    block = 32 if whole.format == "mxfp4" else 16
    tiles = whole.scale_layout == "swizzled" and whole.format != "bf16"
    align = asked or max(block, whole.hadamard, 4 * block if tiles else 0)
    padded = -(-np.diff(offsets) // align) * align
    return GroupedTensor(whole, offsets, np.concatenate([[0], np.cumsum(padded)]).astype(np.int64), align)


def grouped_gemm(
    a: GroupedTensor | QuantizedTensor,
    b: GroupedTensor | Weights,
    offsets: Any = None,
    bias: Array | None = None,
    c: Array | None = None,
    alpha: Any = None,
    beta: Any = 0.0,
    activation: str | None = None,
    out_dtype: Any = "bfloat16",
    accumulate: str = "block",
    *,
    row_factors: Any = None,
) -> Array:
    """One product a group, each as `gemm` would compute it (docs/abi.md, "Groups").

    Args:
        a: ragged M (fprop, dgrad): a rowwise `GroupedTensor` [tokens, K], or a `QuantizedTensor` whose groups `offsets`
            names. Ragged K (wgrad): a columnwise `GroupedTensor` [M, tokens].
        b: ragged M: G matrices [N, K], or one that serves every group. Ragged K: a columnwise `GroupedTensor` [N, tokens]
            with the offsets of `a`.
        offsets: needed where `a` is a `QuantizedTensor`.
        bias: [N], or [G, N] for one a group.
        c: [tokens, N], or [G, M, N]; not read where beta is 0.
        alpha: one real number, or one a group.
        beta, activation, out_dtype, accumulate: as in `gemm`.
        row_factors: ragged M: a real number a row of D, multiplied into alpha.

    Returns:
        Ragged M: [tokens, N], 0 in rows of no group. Ragged K: [G, M, N].

    Raises:
        ArgumentError: operands that do not belong together, with their shapes, formats or signs in the message.
        DtypeError: an operand or array of another type.
    """
    ragged_k = isinstance(b, GroupedTensor)
    if isinstance(a, GroupedTensor):
        where = a.offsets
        if offsets is not None and not np.array_equal(_offsets(offsets), where):
            raise ArgumentError("offsets differ from those that a was quantized with")
        whole = a.whole
    elif isinstance(a, QuantizedTensor) and offsets is not None and not ragged_k:
        where, whole = _offsets(offsets), a
    else:
        raise ArgumentError("a is no GroupedTensor: give offsets (and, for ragged K, two GroupedTensors)")
    groups = len(where) - 1
    if ragged_k != whole.transposed and isinstance(a, GroupedTensor):
        raise ArgumentError("ragged M takes a rowwise GroupedTensor and weights, ragged K two columnwise GroupedTensors")
    desc = _abi.GroupedGemmDesc(
        ragged=int(ragged_k),
        accumulate=_names.number(_names.ACCUMULATE, accumulate, "accumulate"),
        activation=_names.number(_names.ACTIVATION, activation or "none", "activation"),
        groups=groups,
        offsets=where.ctypes.data,
    )
    keep: list[Any] = [where]
    if isinstance(b, GroupedTensor):
        assert isinstance(a, GroupedTensor)
        if not np.array_equal(a.offsets, b.offsets) or a.column_align != b.column_align:
            raise ArgumentError(
                f"a and b differ in offsets or column_align ({a.column_align} and {b.column_align}): quantize both alike"
            )
        desc.column_align = a.column_align
        b_desc, n = b.to_c(), b.whole.rows
    else:
        stack = _gemm._Stack(b, "b")
        if stack.count not in (0, groups):
            raise ArgumentError(f"b holds {stack.count} matrices for {groups} groups")
        if stack.count:
            desc.b_codes_stride = stack.codes[0].nbytes
            desc.b_scales_stride = 0 if stack.scales is None else stack.scales[0].nbytes
            desc.b_amax_stride = 0 if stack.amax is None else stack.amax[0].size
        keep.append(stack)
        b_desc, n = stack.desc, stack.tensor.rows
    if alpha is not None:
        per_group = np.ndim(alpha) > 0 and np.size(alpha) == groups
        keep.append(_arrays.factors(alpha, groups if per_group else 1, "alpha"))
        desc.alpha, desc.alpha_stride = keep[-1].ctypes.data, int(per_group)
    if bias is not None:
        if not isinstance(bias, np.ndarray) or bias.ndim not in (1, 2):
            raise DtypeError("bias is no array of 1 or 2 dimensions")
        values = np.ascontiguousarray(_arrays.checked(bias, "bias", bias.ndim))
        if values.shape not in ((n,), (groups, n)):
            raise ArgumentError(f"bias has shape {values.shape}; [{n}] or [{groups}, {n}] is needed")
        keep.append(values)
        desc.bias, desc.bias_dtype = values.ctypes.data, _arrays.dtype_number(values.dtype)
        desc.bias_stride = n if values.ndim == 2 else 0
    if row_factors is not None:
        keep.append(_arrays.factors(row_factors, whole.rows, "row_factors"))
        desc.row_factors = keep[-1].ctypes.data
    shape = (groups, whole.rows, n) if ragged_k else (whole.rows, n)
    scalar = _arrays.scalar(beta, "beta")
    c_matrix = None
    if c is not None:
        c = np.ascontiguousarray(_arrays.checked(c, "c", len(shape)))
        if c.shape != shape:
            raise ArgumentError(f"c has shape {c.shape}; the product has shape {shape}")
        keep += [c, scalar]
        desc.beta = ctypes.addressof(scalar)
        c_matrix = _first(c, whole.rows, n)
    elif scalar.value != 0:
        raise ArgumentError(f"beta is {beta}, but c is missing")
    d = _arrays.empty(shape, _arrays.output_dtype(out_dtype, "out_dtype"))
    if not ragged_k:
        d[: where[0]] = d[where[-1] :] = 0
    d_matrix = _first(d, whole.rows, n)
    context = cpu()
    a_desc = a.to_c()
    need = ctypes.c_size_t()
    _abi.call(
        "grouped_gemm_workspace", context.handle, ctypes.byref(desc), ctypes.byref(a_desc), ctypes.byref(b_desc),
        ctypes.byref(d_matrix), ctypes.byref(need),
    )  # fmt: skip
    workspace = _arrays.workspace(need.value)
    if need.value:
        desc.workspace, desc.workspace_bytes = workspace.ctypes.data, workspace.nbytes
    _abi.call(
        "grouped_gemm", context.handle, ctypes.byref(desc), ctypes.byref(a_desc), ctypes.byref(b_desc),
        c_matrix and ctypes.byref(c_matrix), ctypes.byref(d_matrix), None,
    )  # fmt: skip
    del keep, workspace
    return d


def _first(x: Array, rows: int, cols: int) -> _abi.Matrix:
    """The first matrix of a contiguous array."""
    return _abi.Matrix(data=x.ctypes.data, dtype=_arrays.dtype_number(x.dtype), rows=rows, cols=cols, stride=cols)
