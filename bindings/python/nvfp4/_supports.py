"""Asking the planner whether it would accept a call, without making it."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from typing import Any

from . import _abi, _arrays, _names
from ._context import cpu
from ._errors import ArgumentError
from ._options import Options


@dataclasses.dataclass(frozen=True)
class Support:
    """Whether a call would be accepted; true in a condition iff so.

    Attributes:
        ok: the call would be accepted.
        reason: if not, the sentence that the call would raise.
    """

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


def supports(
    operation: str,
    *shape: int,
    dtype: str = "bfloat16",
    axis: str = "row",
    out_dtype: str = "bfloat16",
    accumulate: str = "block",
    activation: str | None = None,
    b: Options | Mapping[str, Any] | None = None,
    **options: Any,
) -> Support:
    """Whether the library does an operation for a shape: the planner itself answers, so the answer is the call's.

    Args:
        operation: ``"quantize"`` with shape (rows, cols), or ``"gemm"`` with shape (m, n, k).
        dtype, axis: of quantize's input.
        out_dtype, accumulate, activation: of gemm.
        b: gemm: options of operand B where they differ from those of A.
        options: options of the copy (quantize) or of operand A (gemm), as in `Options`.

    Example:
        >>> nvfp4.supports("gemm", 128, 256, 1000, format="mxfp4", accumulate="hardware")
        Support(ok=True, reason='')

    Raises:
        ArgumentError: the question itself has no meaning (an unknown word or a shape of another length).
    """
    first = Options.of(options)
    extent = [_arrays.integer(s, "shape") for s in shape]
    context = cpu()
    if operation == "quantize" and len(extent) == 2:
        desc = _abi.QuantizeDesc(rowwise=first.to_c(), columnwise=first.to_c())
        status = _abi.lib.nvfp4_supports_quantize(
            context.handle, ctypes.byref(desc), *extent, _number(dtype, "dtype"), _names.number(_names.AXIS, axis, "axis")
        )
    elif operation == "gemm" and len(extent) == 3:
        gemm = _abi.GemmDesc(
            accumulate=_names.number(_names.ACCUMULATE, accumulate, "accumulate"),
            activation=_names.number(_names.ACTIVATION, activation or "none", "activation"),
        )
        second = Options.of(b, first)
        m, n, k = extent
        status = _abi.lib.nvfp4_supports_gemm(
            context.handle, ctypes.byref(gemm), m, n, k, ctypes.byref(_like(first, m, k)), ctypes.byref(_like(second, n, k)),
            _number(out_dtype, "out_dtype"),
        )  # fmt: skip
    else:
        raise ArgumentError(f"supports({operation!r}, {extent}): it is ('quantize', rows, cols) or ('gemm', m, n, k)")
    return Support(True) if status == 0 else Support(False, str(_abi.error_of(status)))


def _number(dtype: str, what: str) -> int:
    return _names.number(_arrays.DTYPE, dtype, what)


def _like(options: Options, rows: int, cols: int) -> _abi.Quantized:
    """A quantized matrix of these options without memory."""
    o = options.to_c()
    return _abi.Quantized(
        rows=rows, cols=cols, format=o.format, block=o.block, chain=o.chain, scale_rule=o.scale_rule,
        scale_layout=o.scale_layout, flags=o.flags & _names.RANGE_16_17, hadamard=o.hadamard, sign_mask=o.sign_mask,
        domain_rows=o.domain_rows, c=o.c,
    )  # fmt: skip
