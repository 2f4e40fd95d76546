"""A quantized matrix: codes, scale bytes, amax, and everything needed to decode them."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _names, _options
from ._arrays import Array
from ._context import cpu
from ._errors import ArgumentError, DtypeError

Amax = Union[np.float32, NDArray[np.float32], None]


@dataclasses.dataclass(frozen=True)
class Stats:
    """What a quantizer did to its input.

    Attributes:
        nonfinite: input elements that are NaN or Inf.
        saturated: finite elements whose scaled magnitude exceeded 6, the largest code.
        underflowed: non-zero finite elements that decode to 0.
        sum_squares, sum_squared_error: sums of x^2 and (decoded - x)^2 over elements that decode to finite values.
    """

    nonfinite: int
    saturated: int
    underflowed: int
    sum_squares: float
    sum_squared_error: float

    @property
    def relative_error(self) -> float:
        """sum_squared_error / sum_squares (relMSE); 0 for an all-zero input."""
        return self.sum_squared_error / self.sum_squares if self.sum_squares else 0.0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class QuantizedTensor:
    """A quantized matrix. Made by `quantize` or `from_parts`; can be pickled and copied.

    Attributes:
        codes: uint8 [rows, ceil(cols/2)], element 2i in the low nibble (bf16: [rows, 2*cols], little endian).
        scales: uint8 [rows, ceil(cols/block)] in the linear layout, else the swizzled bytes, one-dimensional; None for
            bf16. E4M3 bytes (NVFP4) or E8M0 bytes (MXFP4).
        amax: float32 scalar, or float32 [ceil(rows/domain)]; None where the format has none.
        rows, cols: logical shape of this copy. A columnwise copy of an [R, C] matrix has rows = C and cols = R; after a
            transform of n, cols is rounded up to n.
        format, block, chain, scale_rule, scale_layout, domain, c, range_16_17: as in `Options`.
        hadamard, sign_mask: the transform that the data went through, its signs as applied (bit i: sign -1).
        transposed: this is the columnwise copy of its source.
        source_cols: columns before the transform's padding.
        stats: `Stats` if they were asked for.
    """

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint8] | None
    amax: Amax
    rows: int
    cols: int
    format: str = "nvfp4"
    block: str | None = "1x16"
    chain: str | None = "te"
    scale_rule: str = "floor"
    scale_layout: str = "linear"
    domain: Union[str, int] = "tensor"
    c: float | None = None
    range_16_17: bool = False
    hadamard: int = 0
    sign_mask: int = 0
    transposed: bool = False
    source_cols: int = 0
    stats: Stats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols)"""
        return self.rows, self.cols

    def __repr__(self) -> str:
        what = [self.format, str(self.block)]
        what += [f"chain={self.chain}"] if self.chain else [f"rule={self.scale_rule}"]
        what += [f"hadamard={self.hadamard}"] if self.hadamard else []
        what += ["transposed"] if self.transposed else []
        return f"QuantizedTensor({self.rows}x{self.cols}, {', '.join(what)}, scales {self.scale_layout})"

    @staticmethod
    def from_parts(
        codes: Array,
        scales: Array | None,
        amax: Any = None,
        cols: int | None = None,
        format: str = "nvfp4",
        block: str | None = None,
        chain: str = "te",
        scale_layout: str = "linear",
        *,
        rows: int | None = None,
        scale_rule: str = "floor",
        domain: Union[str, int] = "tensor",
        c: float | None = None,
        range_16_17: bool = False,
        hadamard: int = 0,
        sign_mask: _options.SignMask = None,
        transposed: bool = False,
        source_cols: int | None = None,
    ) -> QuantizedTensor:
        """A quantized matrix from bytes that were made elsewhere (docs/format.md, sections 1 to 5).

        Args:
            codes: uint8 [rows, ceil(cols/2)], element 2i in the low nibble (bf16: [rows, 2*cols]). Not copied unless
                its rows are not contiguous.
            scales: uint8 [rows, ceil(cols/block)] (E4M3 or E8M0 bytes), or the swizzled bytes in any shape of the right
                size; None for bf16.
            amax: largest magnitude of the scale domain: one real number, or one a row group; converted to float32 by
                value from any real type. It is neither the divisor 2688/amax nor the multiplier amax/2688 that some
                checkpoints hold. There is no default where the format needs it.
            cols: logical columns; None is all that `codes` has room for.
            rows: logical rows; None is those of `codes`.
            chain, scale_rule, domain, c, range_16_17, hadamard, sign_mask, transposed, source_cols: how the bytes were
                made; see `Options` and `QuantizedTensor`.

        Raises:
            ArgumentError: shapes that do not belong together (the message says what was expected), a missing,
                non-finite or negative amax, an unknown word.
            DtypeError: arrays of another type.
        """
        fmt_number = _names.number(_names.FORMAT, format, "format")
        block_number = _names.block_number(format, block)
        _names.number(_names.CHAIN, chain, "chain")
        if format != "nvfp4" and chain != "te":
            raise ArgumentError(f"chain is {chain!r}, but format {format!r} has no scale chain")
        code_array = _arrays.byte_array(codes, "codes")
        if code_array.ndim != 2:
            raise ArgumentError(f"codes has shape {code_array.shape}; 2 dimensions [rows, ceil(cols/2)] are needed")
        rows = code_array.shape[0] if rows is None else _arrays.size_t(rows, "rows")
        per_row = code_array.shape[1]
        cols = (per_row // 2 if format == "bf16" else 2 * per_row) if cols is None else _arrays.size_t(cols, "cols")
        if code_array.shape != (rows, _names.code_bytes(format, cols)):
            raise ArgumentError(
                f"codes has shape {list(code_array.shape)}; a {format} matrix of {rows} rows and {cols} columns has codes "
                f"of shape {[rows, _names.code_bytes(format, cols)]}"
            )
        tensor = QuantizedTensor(
            codes=_pitched_bytes(code_array),
            scales=_scales(scales, format, scale_layout, rows, cols),
            amax=_amax(amax, format, chain, rows, domain),
            rows=rows,
            cols=cols,
            format=format,
            block=_names.block_word(format, block_number),
            chain=chain if format == "nvfp4" else None,
            scale_rule=_names.word(_names.SCALE_RULE, _names.number(_names.SCALE_RULE, scale_rule, "scale_rule"), ""),
            scale_layout=scale_layout,
            domain=domain,
            c=_options.c_value(c) or None,
            range_16_17=bool(range_16_17),
            hadamard=_arrays.unsigned(hadamard, 32, "hadamard"),
            sign_mask=_options.applied_mask(_options.Options(hadamard=hadamard, sign_mask=sign_mask).sign_mask, hadamard),
            transposed=bool(transposed),
            source_cols=cols if source_cols is None else _arrays.size_t(source_cols, "source_cols"),
        )
        assert tensor.to_c().format == fmt_number
        return tensor

    def dequantize(self, dtype: Any = "float32", *, transpose: bool = False) -> Array:
        """Decode to an array [rows, cols] of float32, bfloat16 or float16, or to its transpose.

        A columnwise copy decodes to the transposed source, a transformed one to the transformed values. Blocks with a
        NaN scale decode to NaN. docs/format.md, section 2 (decode), rounded once to `dtype`.

        Raises:
            DtypeError: another `dtype`, or bfloat16 without the package ml_dtypes.
        """
        shape = (self.cols, self.rows) if transpose else (self.rows, self.cols)
        out = _arrays.empty(shape, _arrays.output_dtype(dtype))
        context = cpu()
        _abi.call(
            "dequantize", context.handle, ctypes.byref(self.to_c()), int(transpose),
            ctypes.byref(_arrays.matrix(out)), None,
        )  # fmt: skip
        return out

    def to_c(self) -> _abi.Quantized:
        """The C descriptor of this tensor's memory, which must outlive it."""
        scales = self.scales
        amax = None if self.amax is None else np.asarray(self.amax)
        q = _abi.Quantized(
            codes=self.codes.ctypes.data,
            codes_bytes=_extent(self.codes),
            scales=None if scales is None else scales.ctypes.data,
            scales_bytes=0 if scales is None else _extent(scales),
            amax=None if amax is None else amax.ctypes.data,
            amax_count=0 if amax is None else amax.size,
            rows=self.rows,
            cols=self.cols,
            code_stride=_row_stride(self.codes),
            scale_stride=0 if scales is None or scales.ndim == 1 else _row_stride(scales),
            format=_names.FORMAT[self.format],
            block=_names.block_number(self.format, self.block),
            chain=_names.number(_names.CHAIN, self.chain, "chain") if self.chain else 0,
            scale_rule=_names.number(_names.SCALE_RULE, self.scale_rule, "scale_rule"),
            scale_layout=_names.number(_names.SCALE_LAYOUT, self.scale_layout, "scale_layout"),
            flags=_names.RANGE_16_17 * self.range_16_17,
            hadamard=self.hadamard,
            transposed=int(self.transposed),
            sign_mask=_options.words_of(self.sign_mask),
            domain_rows=_options.domain_rows(self.domain),
            c=_options.c_value(self.c),
            source_cols=self.source_cols,
        )
        q.keep_alive = (self, amax)  # an amax scalar was copied into an array of its own
        return q


def from_c(
    q: _abi.Quantized, codes: NDArray[np.uint8], scales: NDArray[np.uint8] | None, amax: NDArray[np.float32] | None,
    stats: Stats | None = None,
) -> QuantizedTensor:  # fmt: skip
    """The tensor that the library described in `q`, over the buffers that were handed to it."""
    fmt = _names.word(_names.FORMAT, q.format, "format")
    rows, cols = int(q.rows), int(q.cols)
    layout = _names.word(_names.SCALE_LAYOUT, q.scale_layout, "scale_layout")
    if scales is not None and layout == "linear":
        scales = scales.reshape(rows, _names.scale_cols(fmt, cols))
    domain = int(q.domain_rows) or "tensor"
    value: Amax = amax
    if amax is not None and domain == "tensor":
        value = np.float32(amax[0])
    return QuantizedTensor(
        codes=codes.reshape(rows, _names.code_bytes(fmt, cols)),
        scales=scales,
        amax=value,
        rows=rows,
        cols=cols,
        format=fmt,
        block=_names.block_word(fmt, q.block),
        chain=_names.word(_names.CHAIN, q.chain, "chain") if fmt == "nvfp4" else None,
        scale_rule=_names.word(_names.SCALE_RULE, q.scale_rule, "scale_rule"),
        scale_layout=layout,
        domain=domain,
        c=float(q.c) or None,
        range_16_17=bool(q.flags & _names.RANGE_16_17),
        hadamard=int(q.hadamard),
        sign_mask=_options.mask_int(q.sign_mask),
        transposed=bool(q.transposed),
        source_cols=int(q.source_cols) or cols,
        stats=stats,
    )


def _pitched_bytes(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`x` (2-D), or a contiguous copy unless its rows are contiguous, ascending and do not overlap."""
    fits = x.size > 0 and (x.shape[1] == 1 or x.strides[1] == 1) and (x.shape[0] == 1 or x.strides[0] >= x.shape[1])
    return x if fits else np.ascontiguousarray(x)


def _row_stride(x: NDArray[np.uint8]) -> int:
    return int(x.strides[0]) if x.shape[0] > 1 and x.size else 0


def _extent(x: NDArray[np.uint8]) -> int:
    """Bytes from the first element to the end of the last row."""
    if x.size == 0 or x.ndim == 1:
        return int(x.size)
    return int((x.shape[0] - 1) * (x.strides[0] if x.shape[0] > 1 else 0) + x.shape[1])


def swizzled_bytes(rows: int, cols: int, layout: int = 1) -> int:
    """Bytes of the scale bytes of `rows` x `cols` scales in NVFP4_SCALES_*."""
    size = ctypes.c_size_t()
    _abi.call("scales_bytes", rows, cols, layout, ctypes.byref(size))
    return size.value


def _scales(scales: Array | None, fmt: str, layout: str, rows: int, cols: int) -> NDArray[np.uint8] | None:
    number = _names.number(_names.SCALE_LAYOUT, layout, "scale_layout")
    if fmt == "bf16":
        if scales is not None:
            raise ArgumentError("scales are given, but format 'bf16' has none")
        return None
    array = _arrays.byte_array(scales, "scales")
    expected = [rows, _names.scale_cols(fmt, cols)]
    if number == 1:
        need = swizzled_bytes(*expected)
        if array.size != need:
            raise ArgumentError(
                f"scales holds {array.size} bytes; {expected[0]}x{expected[1]} scales take {need} in the swizzled layout"
            )
        return np.ascontiguousarray(array).reshape(-1)
    if list(array.shape) != expected:
        raise ArgumentError(
            f"scales has shape {list(array.shape)}; a {fmt} matrix of {rows} rows and {cols} columns has scales of "
            f"shape {expected}"
        )
    return _pitched_bytes(array)


def _amax(amax: Any, fmt: str, chain: str, rows: int, domain: str | int) -> Amax:
    if fmt != "nvfp4" or chain == "single":
        if amax is not None:
            what = "chain 'single'" if fmt == "nvfp4" else f"format {fmt!r}"
            raise ArgumentError(f"amax is {amax!r}, but {what} has none")
        return None
    if amax is None:
        raise ArgumentError("amax is missing: format 'nvfp4' needs it unless the chain is 'single'")
    if isinstance(amax, (str, bytes)):
        raise DtypeError(f"amax is {amax!r}; a real number is needed")
    group = _options.domain_rows(domain)
    values = _arrays.factors(amax, -(-rows // group) if group else 1, "amax")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise ArgumentError(f"amax[{at}] is {values[at]}; it must be finite and not negative")
    return values if group else np.float32(values[0])
