"""What the C calls on PyTorch tensors share: contexts, streams, dtypes, and where a quantized copy lies in its tensor.

A quantized copy is one uint8 tensor: codes, block scales and amax one after the other, each at a multiple of 16 bytes
(`Layout`). What it means - its options and the shape of its source - travels beside it.
"""

from __future__ import annotations

import ctypes
import functools
import json
from typing import Any

import torch

from .. import _abi, _context, _names
from .._errors import ArgumentError, DtypeError
from .._options import Options

Tensor = torch.Tensor

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_lib = _abi.lib


def dtype_number(dtype: torch.dtype, what: str) -> int:
    """NVFP4_F32, _BF16, _F16."""
    number = DTYPES.get(dtype)
    if number is None:
        raise DtypeError(f"{what} is {dtype}; torch.float32, torch.bfloat16 or torch.float16 is needed")
    return number


@functools.cache
def _cuda_context(index: int) -> _context.Context:
    return _context.Context(device=1, ordinal=index)


def context(device: torch.device) -> _context.Context:
    """The device's context. A caller keeps the object while it uses the handle: `set_threads` makes another one."""
    if device.type == "cpu":
        return _context.cpu()
    if device.type == "cuda":
        return _cuda_context(device.index or 0)
    raise ArgumentError(f"a tensor is on {device}; cpu and cuda are what there is")


def stream(device: torch.device) -> int | None:
    """PyTorch's current stream there."""
    if device.type == "cuda":
        current: int = torch._C._cuda_getCurrentRawStream(device.index or 0)
        return current
    return None


def check(status: int) -> None:
    """Raise the library's sentence."""
    if status:
        raise _abi.error_of(status)


class Copy:
    """Options of one copy, prepared. There is one object for each text, so that plans are found by identity."""

    def __init__(self, options: Options) -> None:
        if options.sign_mask == "seeded":
            raise ArgumentError("sign_mask 'seeded' is not offered on PyTorch tensors: the signs would have to be read back")
        self.options = options
        self.text = text_of(options)
        self.c = options.to_c()
        self.format = options.format
        self.has_amax = options.format == "nvfp4" and options.chain != "single"
        self.stochastic = options.rounding == "stochastic" or options.select == "ms_eden"
        self._described: dict[bool, bytes] = {}

    def described(self, transposed: bool) -> _abi.Quantized:
        """What quantize says of such a copy, without shape and pointers: asked of the library once."""
        known = self._described.get(transposed)
        if known is None:
            known = self._described[transposed] = self._ask(transposed)
        return _abi.Quantized.from_buffer_copy(known)

    def _ask(self, transposed: bool) -> bytes:
        x = torch.zeros(128, 128)
        layout = Layout(self, 128, 128, transposed, self.c.domain_rows)
        out = torch.empty(layout.bytes, dtype=torch.uint8)
        q = _abi.Quantized()
        layout.point(q, out.data_ptr())
        given = torch.ones(max(layout.amax_count, 1))
        desc = _abi.QuantizeDesc()
        setattr(desc, "columnwise" if transposed else "rowwise", self.c)
        if layout.amax_count:
            setattr(desc, "columnwise_amax" if transposed else "rowwise_amax", given.data_ptr())
        pair = (None, ctypes.byref(q)) if transposed else (ctypes.byref(q), None)
        sizes = _abi.Sizes()
        made = context(x.device)
        handle = made.handle
        check(_lib.nvfp4_quantize_sizes(handle, desc, 128, 128, 0, 2 if transposed else 1, sizes))
        room = torch.empty(sizes.workspace_bytes + 256, dtype=torch.uint8)
        desc.workspace, desc.workspace_bytes = room.data_ptr() + -room.data_ptr() % 256, sizes.workspace_bytes
        check(_lib.nvfp4_quantize(handle, desc, matrix(x), *pair, None))
        q.code_stride = q.scale_stride = 0
        return bytes(q)


@functools.lru_cache(maxsize=4096)
def copy_of(text: str) -> Copy:
    """The copy that a text of options names (JSON, see `text_of`)."""
    return Copy(Options.of(json.loads(text)))


@functools.lru_cache(maxsize=4096)
def text_of(options: Options) -> str:
    """Options as a text that an operator of PyTorch can take."""
    default = Options()
    fields = {n: getattr(options, n) for n in default.__dataclass_fields__}
    return json.dumps({n: v for n, v in fields.items() if v != getattr(default, n)}, sort_keys=True)


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


class Layout:
    """Where codes, scales and amax of a copy of a [rows, cols] source lie in its tensor."""

    __slots__ = ("rows", "cols", "source_cols", "codes_bytes", "scales_at", "scales_bytes", "amax_at", "amax_count", "bytes", "gaps")

    def __init__(self, copy: Copy, rows: int, cols: int, transposed: bool, domain_rows: int = -1) -> None:
        o = copy.options
        if transposed:
            rows, cols = cols, rows
        self.rows, self.source_cols = rows, cols
        self.cols = _up(cols, o.hadamard) if o.hadamard else cols
        self.codes_bytes = rows * _names.code_bytes(o.format, self.cols)
        blocks = _names.scale_cols(o.format, self.cols)
        if o.scale_layout == "swizzled" and o.format != "bf16":
            self.scales_bytes = _up(rows, 128) * _up(blocks, 4)
        else:
            self.scales_bytes = rows * blocks
        domain = int(copy.c.domain_rows)
        self.amax_count = 0 if not copy.has_amax else (-(-rows // domain) if domain else 1)
        self.scales_at = _up(self.codes_bytes, 16)
        self.amax_at = _up(self.scales_at + self.scales_bytes, 16)
        self.bytes = self.amax_at + 4 * self.amax_count
        self._note_gaps()

    def _note_gaps(self) -> None:
        """Where nothing is written; most shapes have no such place."""
        parts = (slice(self.codes_bytes, self.scales_at), slice(self.scales_at + self.scales_bytes, self.amax_at))
        self.gaps = () if not isinstance(self.bytes, int) else tuple(part for part in parts if part.start < part.stop)

    def empty(self, like: Tensor) -> Tensor:
        """Memory for a copy; all that quantize leaves alone is 0, so that equal copies are equal tensors."""
        data = like.new_empty(self.bytes, dtype=torch.uint8)
        for gap in self.gaps:
            data[gap].zero_()
        return data

    def point(self, q: Any, at: int) -> None:
        """Pointers into the tensor that starts at an address."""
        q.codes, q.codes_bytes = at, self.codes_bytes
        q.scales, q.scales_bytes = at + self.scales_at, self.scales_bytes
        if self.amax_count:
            q.amax, q.amax_count = at + self.amax_at, self.amax_count

    def move(self, q: Any, at: int) -> None:
        """Pointers into another tensor, of what `point` was called with."""
        q.codes, q.scales = at, at + self.scales_at
        if self.amax_count:
            q.amax = at + self.amax_at

    def views(self, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, scales and amax, flat."""
        amax = data[self.amax_at : self.bytes].view(torch.float32) if self.amax_count else data.new_empty(0, dtype=torch.float32)
        return data[: self.codes_bytes], data[self.scales_at : self.scales_at + self.scales_bytes], amax


_layouts: dict[Any, Layout] = {}


def layout(copy: Copy, rows: int, cols: int, transposed: bool) -> Layout:
    """The layout of a copy of a [rows, cols] source."""
    if type(rows) is not int or type(cols) is not int:  # a symbol of a traced shape
        return Layout(copy, rows, cols, transposed)
    key = (copy, rows, cols, transposed)
    known = _layouts.get(key)
    if known is None:
        known = _layouts[key] = Layout(copy, rows, cols, transposed)
    return known


def matrix(x: Tensor) -> _abi.Matrix:
    """The C view of a two-dimensional tensor with unit stride along its rows."""
    rows, cols = x.shape
    return _abi.Matrix(
        data=address(x, "a tensor"), dtype=dtype_number(x.dtype, "a tensor"), rows=rows, cols=cols, stride=x.stride(0) if rows > 1 else cols
    )


def pitched(x: Tensor) -> Tensor:
    """x, or a copy of it whose rows are contiguous."""
    if x.is_contiguous():
        return x
    if x.dim() == 2 and x.stride(1) == 1 and x.stride(0) >= x.shape[1]:
        return x
    return x.contiguous()


def address(t: Tensor, what: str) -> int:
    """Where a tensor's values are; a subclass that keeps them elsewhere is refused."""
    at: int = t.data_ptr()
    if at == 0 and t.numel():
        raise ArgumentError(f"{what} is a {type(t).__name__} of shape {tuple(t.shape)} without memory of its own; a plain tensor is needed")
    return at


def same_device(*tensors: Tensor | None) -> torch.device:
    """The device of all of them."""
    devices = {t.device for t in tensors if t is not None}
    if len(devices) != 1:
        raise ArgumentError("tensors are on " + " and ".join(sorted(map(str, devices))) + "; one device is needed")
    return devices.pop()
