"""The C calls: descriptors are made once for a kind of call and kept; a call fills in pointers.

A call takes a descriptor off its plan's list and puts it back afterwards, so threads never share one.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from .. import _abi
from .._errors import ArgumentError
from .._options import sign_fields
from . import _raw
from ._raw import DTYPES, Copy, Layout, address, check, context, dtype_number, layout, matrix, pitched, stream

Tensor = torch.Tensor
_lib = _abi.lib
_ALIGN = 256  # of workspaces; PyTorch's own allocations are aligned to 64 on the CPU and 512 on a GPU


def scratch(need: int, like: Tensor) -> tuple[Tensor, int]:
    """Scratch memory and the aligned address in it."""
    room = like.new_empty(need + _ALIGN, dtype=torch.uint8)
    at = room.data_ptr()
    return room, at + -at % _ALIGN


def checked(t: Tensor, dtype: torch.dtype, count: int, like: Tensor, what: str) -> int:
    if t.dtype != dtype or t.numel() != count or t.device != like.device or not t.is_contiguous():
        raise ArgumentError(f"{what} is {t.dtype} {tuple(t.shape)} on {t.device}; {dtype} [{count}] on {like.device} is needed")
    return address(t, what)


class _QuantizeCall:
    """Descriptors of one call that is under way."""

    __slots__ = ("desc", "x", "row", "col")

    def __init__(self, plan: _QuantizePlan) -> None:
        self.desc = _abi.QuantizeDesc.from_buffer_copy(plan.desc)
        self.x = _abi.Matrix(dtype=plan.dtype, rows=plan.rows, cols=plan.cols, stride=plan.cols)
        self.row = None if plan.row is None else _abi.Quantized()
        self.col = None if plan.col is None else _abi.Quantized()
        for place, q in ((plan.row, self.row), (plan.col, self.col)):
            if place is not None:
                place.point(q, 0)


class _QuantizePlan:
    """One kind of quantize call: which copies of a matrix of which shape, dtype and place."""

    def __init__(self, row: Copy | None, col: Copy | None, rows: int, cols: int, dtype: int, device: torch.device, nonfinite: int) -> None:
        desc = _abi.QuantizeDesc(nonfinite=nonfinite)
        if row is not None:
            desc.rowwise = row.c
        if col is not None:
            desc.columnwise = col.c
        sizes = _abi.Sizes()
        copies = (1 if row is not None else 0) | (2 if col is not None else 0)
        made = context(device)
        check(_lib.nvfp4_quantize_sizes(made.handle, desc, rows, cols, dtype, copies, sizes))
        self.desc, self.dtype, self.rows, self.cols = bytes(desc), dtype, rows, cols
        self.workspace = int(sizes.workspace_bytes)
        self.stochastic = (row is not None and row.stochastic) or (col is not None and col.stochastic)
        self.row = None if row is None else layout(row, rows, cols, False)
        self.col = None if col is None else layout(col, rows, cols, True)
        for place, side in ((self.row, "rowwise"), (self.col, "columnwise")):
            if place is not None:
                told = tuple(getattr(sizes, f"{side}_{what}") for what in ("codes_bytes", "scales_bytes", "amax_count"))
                assert told == (place.codes_bytes, place.scales_bytes, place.amax_count), (told, side)
        self.free: list[_QuantizeCall] = []

    def take(
        self, x: Tensor, seed_offset: Tensor | None, row_amax: Tensor | None, col_amax: Tensor | None, origin: tuple[int, int], draws: bool = True,
    ) -> tuple[_QuantizeCall, Tensor | None]:  # fmt: skip
        """A call with everything but the outputs filled in, and its scratch memory."""
        try:
            call = self.free.pop()
        except IndexError:
            call = _QuantizeCall(self)
        desc = call.desc
        call.x.data = address(x, "x")
        call.x.stride = x.stride(0) if self.rows > 1 else self.cols
        if seed_offset is not None:
            desc.seed_offset = checked(seed_offset, torch.int64, 2, x, "seed_offset")
        elif self.stochastic and draws:
            raise ArgumentError("stochastic rounding needs seed_offset, an int64 tensor [seed, offset]")
        else:
            desc.seed_offset = None
        desc.rowwise_amax = self._amax(row_amax, self.row, x, "rowwise")
        desc.columnwise_amax = self._amax(col_amax, self.col, x, "columnwise")
        desc.origin_row, desc.origin_col = origin
        room = None
        if self.workspace:
            room, desc.workspace = scratch(self.workspace, x)
            desc.workspace_bytes = self.workspace
        return call, room

    @staticmethod
    def _amax(given: Tensor | None, place: Layout | None, x: Tensor, side: str) -> int | None:
        if given is None or place is None or not place.amax_count:
            return None
        return checked(given, torch.float32, place.amax_count, x, f"amax of the {side} copy")


_quantize_plans: dict[Any, _QuantizePlan] = {}


def _quantize_plan(x: Tensor, row: Copy | None, col: Copy | None, nonfinite: int) -> _QuantizePlan:
    if x.dim() != 2:
        raise ArgumentError(f"x has shape {tuple(x.shape)}; a matrix is needed")
    key = (row, col, x.shape, x.dtype, x.device, nonfinite)
    plan = _quantize_plans.get(key)
    if plan is None:
        rows, cols = x.shape
        plan = _quantize_plans[key] = _QuantizePlan(row, col, rows, cols, dtype_number(x.dtype, "x"), x.device, nonfinite)
    return plan


def quantize(
    x: Tensor, row: Copy | None, col: Copy | None, seed_offset: Tensor | None = None, row_amax: Tensor | None = None,
    col_amax: Tensor | None = None, origin: tuple[int, int] = (0, 0), nonfinite: int = 0,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """One read of x [rows, cols], one or both copies."""
    plan = _quantize_plan(x, row, col, nonfinite)
    x = pitched(x)
    call, room = plan.take(x, seed_offset, row_amax, col_amax, origin)
    row_data = col_data = None
    if plan.row is not None:
        row_data = plan.row.empty(x)
        plan.row.move(call.row, row_data.data_ptr())
    if plan.col is not None:
        col_data = plan.col.empty(x)
        plan.col.move(call.col, col_data.data_ptr())
    made = context(x.device)
    status = _lib.nvfp4_quantize(made.handle, call.desc, call.x, call.row, call.col, stream(x.device))
    if status:
        check(status)
    plan.free.append(call)
    del room
    return row_data, col_data


def amax(x: Tensor, row: Copy | None, col: Copy | None, nonfinite: int = 0) -> tuple[Tensor | None, Tensor | None]:
    """What quantize would compute as the amax of each copy; empty where a copy has none."""
    plan = _quantize_plan(x, row, col, nonfinite)
    x = pitched(x)
    call, room = plan.take(x, None, None, None, (0, 0), False)
    out = [None if p is None else x.new_empty(p.amax_count, dtype=torch.float32) for p in (plan.row, plan.col)]
    pointers = [None if t is None or t.numel() == 0 else t.data_ptr() for t in out]
    if any(pointers):
        made = context(x.device)
        check(_lib.nvfp4_amax(made.handle, call.desc, call.x, *pointers, stream(x.device)))
    plan.free.append(call)
    del room
    return out[0], out[1]


class Operand:
    """A copy of a [rows, cols] source as an operand: which copy, of what shape. One object a kind, found by identity."""

    __slots__ = ("place", "template")

    def __init__(self, copy: Copy, rows: int, cols: int, transposed: bool) -> None:
        self.place = layout(copy, rows, cols, transposed)
        q = copy.described(transposed)
        q.rows, q.cols, q.source_cols = self.place.rows, self.place.cols, self.place.source_cols
        self.template = bytes(q)

    def check(self, data: Tensor) -> int:
        """The address of a copy's tensor."""
        if data.numel() != self.place.bytes or data.dtype != torch.uint8 or not data.is_contiguous():
            raise ArgumentError(
                f"a quantized copy [{self.place.rows}, {self.place.source_cols}] has {self.place.bytes} bytes in one piece; this is "
                f"{data.dtype} of shape {tuple(data.shape)}"
            )
        return address(data, "a quantized copy")

    def view(self, data: Tensor) -> _abi.Quantized:
        """The C view of a copy's tensor."""
        q = _abi.Quantized.from_buffer_copy(self.template)
        self.place.point(q, self.check(data))
        return q


_operands: dict[Any, Operand] = {}


def operand(copy: Copy, rows: int, cols: int, transposed: bool) -> Operand:
    """The kind of operand that a copy of a [rows, cols] source is."""
    key = (copy, rows, cols, transposed)
    known = _operands.get(key)
    if known is None:
        known = _operands[key] = Operand(copy, rows, cols, transposed)
    return known


def dequantize(data: Tensor, copy: Copy, rows: int, cols: int, transposed: bool, dtype: torch.dtype) -> Tensor:
    """The values of a copy in its own orientation: [rows, cols], a transposed one [cols, rows], cols rounded up to its transform."""
    q = operand(copy, rows, cols, transposed).view(data)
    out = torch.empty((q.rows, q.cols), dtype=dtype, device=data.device)
    made = context(data.device)
    check(_lib.nvfp4_dequantize(made.handle, q, 0, matrix(out), stream(data.device)))
    return out


def transpose(data: Tensor, copy: Copy, rows: int, cols: int) -> Tensor:
    """The columnwise copy of a [rows, cols] source, from its rowwise copy in square tiles: by moving bytes."""
    source, place = operand(copy, rows, cols, False).view(data), layout(copy, rows, cols, True)
    out = place.empty(data)
    q = _abi.Quantized(scale_layout=source.scale_layout)
    place.point(q, out.data_ptr())
    made = context(data.device)
    check(_lib.nvfp4_transpose(made.handle, source, q, stream(data.device)))
    return out


class _GemmCall:
    __slots__ = ("desc", "a", "b", "d")

    def __init__(self, plan: _GemmPlan) -> None:
        self.desc = _abi.GemmDesc(accumulate=plan.accumulate, activation=plan.activation)
        if plan.bias is not None:
            self.desc.bias_dtype = DTYPES[plan.bias]
        if plan.one is not None:
            self.desc.beta = plan.one.data_ptr()
        self.a = _abi.Quantized.from_buffer_copy(plan.a.template)
        self.b = _abi.Quantized.from_buffer_copy(plan.b.template)
        plan.a.place.point(self.a, 0)
        plan.b.place.point(self.b, 0)
        self.d = _abi.Matrix(dtype=plan.dtype, rows=plan.a.place.rows, cols=plan.b.place.rows, stride=plan.b.place.rows)


class _GemmPlan:
    """One kind of product."""

    def __init__(
        self, a: Operand, b: Operand, out: Tensor, accumulate: int, activation: int, bias: torch.dtype | None, alpha: bool, add: bool
    ) -> None:
        self.a, self.b, self.accumulate, self.activation, self.bias = a, b, accumulate, activation, bias
        self.dtype = dtype_number(out.dtype, "out")
        self.one = torch.ones(1, dtype=torch.float32, device=out.device) if add else None
        self.workspaces: dict[tuple[int, int], int] = {}  # by what alignment the pointers have
        self.free: list[_GemmCall] = []


_gemm_plans: dict[Any, _GemmPlan] = {}


def gemm(
    a: Operand, a_data: Tensor, b: Operand, b_data: Tensor, out: Tensor, accumulate: int = 0, bias: Tensor | None = None,
    add: bool = False, alpha: Tensor | None = None, activation: int = 0,
) -> None:  # fmt: skip
    """out = act(alpha A B^T + bias), or out += A B^T. out [a.rows, b.rows] is contiguous."""
    device = out.device
    key = (a, b, out.dtype, device, accumulate, activation, None if bias is None else bias.dtype, alpha is None, add)
    plan = _gemm_plans.get(key)
    if plan is None:
        plan = _gemm_plans[key] = _GemmPlan(a, b, out, accumulate, activation, None if bias is None else bias.dtype, alpha is not None, add)
    if a_data.device != device or b_data.device != device:
        _raw.same_device(a_data, b_data, out)
    try:
        call = plan.free.pop()
    except IndexError:
        call = _GemmCall(plan)
    desc, d = call.desc, out.data_ptr()
    at, bt = a.check(a_data), b.check(b_data)
    a.place.move(call.a, at)
    b.place.move(call.b, bt)
    call.d.data = d
    if bias is not None:
        if bias.numel() != b.place.rows or not bias.is_contiguous() or bias.device != device:
            raise ArgumentError(f"bias has shape {tuple(bias.shape)} on {bias.device}; [{b.place.rows}] on {device} is needed")
        desc.bias = address(bias, "bias")
    if alpha is not None:
        desc.alpha = checked(alpha, torch.float32, 1, out, "alpha")
    aligned = ((at | bt | d) & 255, 0 if bias is None else desc.bias & 15)
    made = context(device)
    need = plan.workspaces.get(aligned)
    if need is None:
        size = ctypes.c_size_t()
        check(_lib.nvfp4_gemm_workspace(made.handle, desc, call.a, call.b, call.d, size))
        need = plan.workspaces[aligned] = size.value
    room = None
    if need:
        room, desc.workspace = scratch(need, out)
        desc.workspace_bytes = need
    else:
        desc.workspace, desc.workspace_bytes = None, 0
    status = _lib.nvfp4_gemm(made.handle, desc, call.a, call.b, call.d if add else None, call.d, stream(device))
    if status:
        check(status)
    plan.free.append(call)
    del room


def hadamard(x: Tensor, n: int, axis: int, inverse: bool, sign_mask: int | None) -> Tensor:
    """The transform of blocks of n along the rows (axis 0) or the columns (1) of x; that extent is rounded up to n."""
    if x.dim() != 2:
        raise ArgumentError(f"x has shape {tuple(x.shape)}; a matrix is needed")
    x = pitched(x)
    out = x.new_empty(transformed(x.shape, n, axis))
    signs, words = sign_fields(sign_mask, n)
    desc = _abi.HadamardDesc(n=n, axis=axis, inverse=int(inverse), signs=signs, sign_mask=words)
    made = context(x.device)
    check(_lib.nvfp4_hadamard(made.handle, desc, matrix(x), matrix(out), stream(x.device)))
    return out


def transformed(shape: Any, n: int, axis: int) -> tuple[int, int]:
    """Shape of a transform of blocks of n."""
    rows, cols = shape
    return (rows, -(-cols // n) * n) if axis == 0 else (-(-rows // n) * n, cols)
