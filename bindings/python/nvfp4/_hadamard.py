"""The random Hadamard transform, and the two orders of scale bytes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _abi, _arrays, _options, _tensor
from ._arrays import Array
from ._context import cpu
from ._errors import ArgumentError


def hadamard(
    x: Array,
    n: int = 16,
    sign_mask: _options.SignMask = 0xD7E8,
    axis: str = "row",
    inverse: bool = False,
    *,
    seed: int = 0,
    offset: int = 0,
) -> Array:
    """``y = (x .* sign) H / sqrt(n)`` on blocks of `n` (docs/format.md, section 6), in the type of `x`.

    Args:
        x: float32, float16 or bfloat16 [rows, cols].
        n: 16, 32, 64 or 128.
        sign_mask: bit i set means sign -1: an int below 2^16 is repeated every 16 elements, a larger one is all n bits;
            0 is the plain transform; n booleans; ``"seeded"``: drawn from seed and offset; None is 0xD7E8.
        axis: ``"row"``: along each row. ``"column"``: along each column.
        inverse: undo the transform: ``(x H / sqrt(n)) .* sign``.
        seed, offset: of seeded signs.

    Returns:
        An array of the type of `x` whose transformed extent is rounded up to a multiple of `n`: the tail is transformed
        as if padded with zeros. (The inverse of a padded transform is the source followed by zeros.)

    Raises:
        ArgumentError: another n or axis, or a mask with too many bits.
        DtypeError: x is no array of the three types.
    """
    if axis not in ("row", "column"):
        raise ArgumentError(f"axis is {axis!r}; it is 'row' or 'column'")
    length = _arrays.unsigned(n, 32, "n")
    if length not in (16, 32, 64, 128):
        raise ArgumentError(f"n is {n}; it is 16, 32, 64 or 128")
    mask = _options.Options(hadamard=length, sign_mask=sign_mask).sign_mask
    signs, words = _options.sign_fields(mask, length)
    x = _arrays.pitched(_arrays.checked(x, "x", 2))
    shape = list(x.shape)
    along = 1 if axis == "row" else 0
    shape[along] = -(-shape[along] // length) * length
    y = _arrays.empty(shape, x.dtype)
    desc = _abi.HadamardDesc(
        n=length, axis=1 - along, inverse=int(bool(inverse)), signs=signs, sign_mask=words,
        seed=_arrays.unsigned(seed, 64, "seed"), offset=_arrays.unsigned(offset, 64, "offset"),
    )  # fmt: skip
    context = cpu()
    _abi.call(
        "hadamard", context.handle, ctypes.byref(desc), ctypes.byref(_arrays.matrix(x)),
        ctypes.byref(_arrays.matrix(y)), None,
    )  # fmt: skip
    return y


def swizzle_scales(scales: Array) -> NDArray[np.uint8]:
    """Scale bytes [rows, cols] in the 128x4 tile order (docs/format.md, "Layouts"), one-dimensional.

    The result has 128*ceil(rows/128) * 4*ceil(cols/4) bytes; those that stand for no scale are 0.
    """
    source = _arrays.byte_array(scales, "scales")
    if source.ndim != 2:
        raise ArgumentError(f"scales has shape {source.shape}; 2 dimensions are needed")
    source = np.ascontiguousarray(source)
    rows, cols = source.shape
    out = _arrays.empty(_tensor.swizzled_bytes(rows, cols), np.uint8)
    context = cpu()
    _abi.call(
        "swizzle_scales", context.handle, rows, cols, source.ctypes.data, cols, out.ctypes.data, out.nbytes, None
    )  # fmt: skip
    return out


def unswizzle_scales(swizzled: Array, rows: int, cols: int) -> NDArray[np.uint8]:
    """The scale bytes [rows, cols] out of the 128x4 tile order; what stands for no scale is not read.

    Args:
        swizzled: uint8 of any shape with 128*ceil(rows/128) * 4*ceil(cols/4) bytes.
    """
    source: NDArray[Any] = np.ascontiguousarray(_arrays.byte_array(swizzled, "swizzled"))
    out = _arrays.empty((_arrays.size_t(rows, "rows"), _arrays.size_t(cols, "cols")), np.uint8)
    context = cpu()
    _abi.call(
        "unswizzle_scales", context.handle, rows, cols, source.ctypes.data, source.nbytes, out.ctypes.data, cols, None
    )  # fmt: skip
    return out
