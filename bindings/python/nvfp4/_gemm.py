"""Block-scaled matrix products of quantized operands."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, overload

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _names, _quantize
from ._arrays import Array
from ._context import cpu
from ._errors import ArgumentError, DtypeError
from ._options import Options
from ._tensor import QuantizedTensor

Operand = Union[QuantizedTensor, Sequence[QuantizedTensor]]


class PackedWeight:
    """A weight in the order that products on this machine read fastest: `pack_weight` makes it, `gemm` takes it as
    ``b_packed`` beside the tensor that it was made of. Not to be stored: the bytes are this version's and this
    processor's.

    Attributes:
        data: the packed bytes.
    """

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"PackedWeight({self.data.nbytes} bytes)"


def pack_weight(b: QuantizedTensor) -> PackedWeight:
    """Packs a weight once for many products.

    Args:
        b: [N, K], quantized with blocks along K. It stays in use beside the packed bytes; pack again when it changes (a
            product compares both at some places, and raises `ArgumentError` where they differ).

    Returns:
        What `gemm` takes as ``b_packed``.
    """
    if not isinstance(b, QuantizedTensor):
        raise DtypeError(f"b is a {type(b).__name__}; a QuantizedTensor is needed")
    context, desc, need = cpu(), b.to_c(), ctypes.c_size_t()
    _abi.call("pack_weight_bytes", context.handle, ctypes.byref(desc), ctypes.byref(need))
    data = np.empty(need.value, np.uint8)
    _abi.call("pack_weight", context.handle, ctypes.byref(desc), data.ctypes.data, data.nbytes, None)
    return PackedWeight(data)


@overload
def gemm(
    a: Operand, b: Operand, bias: Array | None = ..., c: Array | None = ..., alpha: Any = ..., beta: Any = ...,
    activation: str | None = ..., *, out_dtype: Literal["nvfp4", "mxfp4"], accumulate: str = ...,
    row_factors: Any = ..., col_factors: Any = ..., out_options: Options | Mapping[str, Any] | None = ...,
    out_amax: Any = ..., seed: int = ..., offset: int = ..., b_packed: PackedWeight | None = ...,
) -> QuantizedTensor: ...  # fmt: skip


@overload
def gemm(
    a: Operand, b: Operand, bias: Array | None = ..., c: Array | None = ..., alpha: Any = ..., beta: Any = ...,
    activation: str | None = ..., out_dtype: Any = ..., accumulate: str = ..., *,
    row_factors: Any = ..., col_factors: Any = ..., out_options: None = ..., out_amax: None = ..., seed: int = ...,
    offset: int = ..., b_packed: PackedWeight | None = ...,
) -> Array: ...  # fmt: skip


def gemm(
    a: Operand,
    b: Operand,
    bias: Array | None = None,
    c: Array | None = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    activation: str | None = None,
    out_dtype: Any = "bfloat16",
    accumulate: str = "block",
    *,
    row_factors: Any = None,
    col_factors: Any = None,
    out_options: Options | Mapping[str, Any] | None = None,
    out_amax: Any = None,
    seed: int = 0,
    offset: int = 0,
    b_packed: PackedWeight | None = None,
) -> Array | QuantizedTensor:
    """``D = act(alpha' * A B^T + beta * C + bias)``, then one cast (docs/format.md, section 10).

    Args:
        a: A, [M, K], quantized with blocks along K. A sequence of equally quantized matrices makes a batch.
        b: B, [N, K], likewise; one matrix may serve a whole batch of `a`, and the other way round. Both operands must
            have gone through the same transform (length and signs), or none.
        bias: float32, bfloat16 or float16 [N].
        c: float32, bfloat16 or float16 [M, N] (a batch: [batch, M, N], or [M, N] for all); not read where beta is 0.
        alpha, beta: real numbers, used as float32. The outer scales of A and B are multiplied into alpha.
        activation: None, ``"gelu"`` (tanh form), ``"silu"``, ``"relu2"``.
        out_dtype: ``"float32"``, ``"bfloat16"``, ``"float16"``; ``"nvfp4"`` or ``"mxfp4"`` quantizes D.
        accumulate: ``"block"`` (exact blocks, added in f32 in ascending k), ``"fast"``, ``"hardware"``,
            ``"hardware_k96"``.
        row_factors, col_factors: M and N real numbers, multiplied into alpha by row and column of D.
        out_options, out_amax, seed, offset: of a quantized D: its options (as in `quantize`), its given amax, which NVFP4
            needs unless the chain is "single", and the key of stochastic rounding.
        b_packed: what `pack_weight` made of b: the same values, faster.

    Returns:
        An array [M, N] ([batch, M, N] where an operand is a sequence), or a `QuantizedTensor` [M, N].

    Raises:
        ArgumentError: operands that do not belong together, with their shapes, formats or signs in the message.
        DtypeError: an operand or array of another type.
    """
    batch = _batch(a, b)
    a_stack, b_stack = _Stack(a, "a"), _Stack(b, "b")
    m, n = a_stack.tensor.rows, b_stack.tensor.rows
    shape = (m, n) if batch is None else (batch, m, n)
    desc = _abi.GemmDesc(
        accumulate=_names.number(_names.ACCUMULATE, accumulate, "accumulate"),
        activation=_names.number(_names.ACTIVATION, activation or "none", "activation"),
        batch=1 if batch is None else batch,
    )
    keep: list[Any] = [_arrays.scalar(alpha, "alpha"), _arrays.scalar(beta, "beta")]
    desc.alpha = ctypes.addressof(keep[0])
    if c is not None:
        desc.beta = ctypes.addressof(keep[1])
    elif keep[1].value != 0:
        raise ArgumentError(f"beta is {beta}, but c is missing")
    a_stack.strides(desc, "a")
    b_stack.strides(desc, "b")
    if bias is not None:
        bias = _arrays.pitched(_arrays.checked(bias, "bias", 1).reshape(1, -1))
        if bias.size != n:
            raise ArgumentError(f"bias has {bias.size} values; the product has {n} columns")
        desc.bias, desc.bias_dtype = bias.ctypes.data, _arrays.dtype_number(bias.dtype)
    for name, values, count in (("row_factors", row_factors, m), ("col_factors", col_factors, n)):
        if values is not None:
            keep.append(_arrays.factors(values, count, name))
            setattr(desc, name, keep[-1].ctypes.data)
    c_matrix = None if c is None else _c_matrix(c, shape, desc, keep)
    if b_packed is not None:
        if not isinstance(b_packed, PackedWeight):
            raise DtypeError(f"b_packed is a {type(b_packed).__name__}; what pack_weight returns is needed")
        desc.b_packed, desc.b_packed_bytes = b_packed.data.ctypes.data, b_packed.data.nbytes
        keep.append(b_packed)
    context = cpu()
    if isinstance(out_dtype, str) and out_dtype in ("nvfp4", "mxfp4"):
        if batch is not None:
            raise ArgumentError(f"out_dtype is {out_dtype!r} for a batch; a quantized D is one matrix")
        return _quantized_d(context, desc, a_stack, b_stack, c_matrix, out_dtype, out_options, out_amax, seed, offset)
    if out_options is not None or out_amax is not None:
        raise ArgumentError(f"out_options and out_amax are for out_dtype 'nvfp4' or 'mxfp4', not {out_dtype!r}")
    d = _arrays.empty(shape, _arrays.output_dtype(out_dtype, "out_dtype"))
    desc.d_batch_stride = m * n
    d_matrix = _arrays.matrix(d.reshape(-1, n)[:m] if d.size else _arrays.empty((m, n), d.dtype))
    workspace = _workspace(context, desc, a_stack, b_stack, d_matrix)
    _abi.call(
        "gemm", context.handle, ctypes.byref(desc), ctypes.byref(a_stack.desc), ctypes.byref(b_stack.desc),
        c_matrix and ctypes.byref(c_matrix), ctypes.byref(d_matrix), None,
    )  # fmt: skip
    del workspace, keep, bias
    return d


class _Stack:
    """One operand, or a sequence of them copied one after the other so that the C batch strides reach them."""

    def __init__(self, operand: Operand, what: str) -> None:
        tensors = [operand] if isinstance(operand, QuantizedTensor) else list(operand)
        first = tensors[0]
        self.count = 0 if isinstance(operand, QuantizedTensor) else len(tensors)
        self.tensor = first
        if self.count:
            for i, tensor in enumerate(tensors):
                if _kind(tensor) != _kind(first):
                    raise ArgumentError(f"{what}[{i}] is {tensor!r}, {what}[0] is {first!r}; a batch is of one kind")
            self.codes = np.stack([np.ascontiguousarray(t.codes) for t in tensors])
            self.scales = None if first.scales is None else np.stack([np.ascontiguousarray(_scales(t)) for t in tensors])
            self.amax = None if first.amax is None else np.stack([np.asarray(t.amax).reshape(-1) for t in tensors])
            self.desc = first.to_c()
            self.desc.code_stride = self.desc.scale_stride = 0
            for name, array in (("codes", self.codes), ("scales", self.scales), ("amax", self.amax)):
                if array is not None:
                    setattr(self.desc, name, array.ctypes.data)
            self.desc.codes_bytes = self.codes.nbytes
            self.desc.scales_bytes = 0 if self.scales is None else self.scales.nbytes
            self.desc.amax_count = 0 if self.amax is None else self.amax.size
        else:
            self.desc = first.to_c()

    def strides(self, desc: _abi.GemmDesc, name: str) -> None:
        """The batch strides of this operand; a single one is the same every time."""
        if self.count:
            setattr(desc, name + "_codes_batch_stride", self.codes[0].nbytes)
            setattr(desc, name + "_scales_batch_stride", 0 if self.scales is None else self.scales[0].nbytes)
            setattr(desc, name + "_amax_batch_stride", 0 if self.amax is None else self.amax[0].size)


def _scales(tensor: QuantizedTensor) -> NDArray[np.uint8]:
    assert tensor.scales is not None
    return tensor.scales


def _kind(t: QuantizedTensor) -> tuple[Any, ...]:
    """What must be equal in a batch."""
    return (
        t.rows, t.cols, t.format, t.block, t.chain, t.scale_rule, t.scale_layout, t.domain, t.c, t.range_16_17,
        t.hadamard, t.sign_mask,
    )  # fmt: skip


def _batch(a: Operand, b: Operand) -> int | None:
    """Number of products, None for a single one without a batch dimension."""
    counts = []
    for operand, what in ((a, "a"), (b, "b")):
        if isinstance(operand, QuantizedTensor):
            continue
        if not isinstance(operand, (list, tuple)) or not all(isinstance(t, QuantizedTensor) for t in operand):
            raise DtypeError(f"{what} is a {type(operand).__name__}; a QuantizedTensor or a list of them is needed")
        counts.append(len(operand))
    if not counts:
        return None
    if len(set(counts)) > 1 or counts[0] == 0:
        raise ArgumentError(f"batches of {' and '.join(map(str, counts))} matrices; equal numbers of at least 1 are needed")
    return counts[0]


def _c_matrix(c: Array, shape: tuple[int, ...], desc: _abi.GemmDesc, keep: list[Any]) -> _abi.Matrix:
    c = _arrays.checked(c, "c", c.ndim if isinstance(c, np.ndarray) and c.ndim == len(shape) else 2)
    if c.shape not in (shape, shape[-2:]):
        raise ArgumentError(f"c has shape {c.shape}; the product has shape {shape}")
    if c.ndim == 3:
        c = np.array(c, order="C", copy=True)
        desc.c_batch_stride = shape[1] * shape[2]
        keep.append(c)
        first = c[0]
    else:
        first = _arrays.pitched(c)
        keep.append(first)
    return _arrays.matrix(first)


def _workspace(
    context: Any, desc: _abi.GemmDesc, a: _Stack, b: _Stack, d: _abi.Matrix | None
) -> NDArray[np.uint8]:  # fmt: skip
    need = ctypes.c_size_t()
    _abi.call(
        "gemm_workspace", context.handle, ctypes.byref(desc), ctypes.byref(a.desc), ctypes.byref(b.desc),
        d and ctypes.byref(d), ctypes.byref(need),
    )  # fmt: skip
    workspace = _arrays.workspace(need.value)
    if need.value:
        desc.workspace, desc.workspace_bytes = workspace.ctypes.data, workspace.nbytes
    return workspace


def _quantized_d(
    context: Any, desc: _abi.GemmDesc, a: _Stack, b: _Stack, c: _abi.Matrix | None, fmt: str,
    out_options: Options | Mapping[str, Any] | None, out_amax: Any, seed: int, offset: int,
) -> QuantizedTensor:  # fmt: skip
    options = Options.of(out_options, Options(format=fmt))
    if options.format != fmt:
        raise ArgumentError(f"out_dtype is {fmt!r}, out_options say {options.format!r}")
    call = _quantize._Call(options, options, "row", seed, offset, out_amax, "propagate", (0, 0), False)
    call.prepare(context, a.tensor.rows, b.tensor.rows, _arrays.DTYPE["float32"])
    output = call.outputs()[0]
    assert output is not None
    desc.d_quantized = ctypes.pointer(output.desc)
    desc.d_options = options.to_c()
    desc.seed, desc.offset = call.desc.seed, call.desc.offset
    if call.amax[0] is not None:
        desc.d_quantized_amax = call.amax[0].ctypes.data
    workspace = _workspace(context, desc, a, b, None)
    _abi.call(
        "gemm", context.handle, ctypes.byref(desc), ctypes.byref(a.desc), ctypes.byref(b.desc),
        c and ctypes.byref(c), None, None,
    )  # fmt: skip
    del workspace
    return output.tensor(None)
