"""NumPy arrays at the boundary: what is accepted, when it is copied, and the descriptors that point at it.

An element type is never reinterpreted: an array either has the type that is named or is refused by name. Views keep
their meaning: a row stride is passed on, anything else (transposed, reversed, broadcast, unaligned or byte-swapped)
is copied to a contiguous array of the same values.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _abi
from ._errors import ArgumentError, DtypeError

Array = NDArray[Any]
DTYPE = {"float32": 0, "bfloat16": 1, "float16": 2}


def bfloat16() -> np.dtype[Any]:
    """ml_dtypes.bfloat16, imported where it is first needed."""
    try:
        import ml_dtypes
    except ImportError:
        raise DtypeError("bfloat16 arrays need the package ml_dtypes: `pip install ml_dtypes`") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def output_dtype(dtype: Any, what: str = "dtype") -> np.dtype[Any]:
    """float32, float16 or bfloat16 from a name or a dtype."""
    name = dtype if isinstance(dtype, str) else _dtype_name(dtype)
    if name == "bfloat16":
        return bfloat16()
    if name in ("float32", "float16"):
        return np.dtype(name)
    raise DtypeError(f"{what} is {dtype!r}; it is one of 'float32', 'bfloat16', 'float16'")


def _dtype_name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return repr(dtype)


def dtype_number(dtype: np.dtype[Any]) -> int:
    """NVFP4_F32, NVFP4_BF16 or NVFP4_F16."""
    return DTYPE[dtype.name]


def empty(shape: Any, dtype: Any) -> Array:
    """Memory for an output: every byte of it is written by the library. The only place that makes any."""
    return np.empty(shape, dtype)


def workspace(size: int) -> NDArray[np.uint8]:
    """`size` bytes of scratch memory, aligned to 64."""
    memory = empty(size + 63 if size else 0, np.uint8)
    start = -memory.ctypes.data % 64 if size else 0
    return memory[start : start + size]


def _native(x: Array) -> Array:
    """The same values in this machine's byte order."""
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def checked(x: Any, what: str, ndim: int) -> Array:
    """`x` if it is an array of `ndim` dimensions in one of the three input types."""
    if not isinstance(x, np.ndarray):
        raise DtypeError(f"{what} is a {type(x).__name__}; a numpy array of float32, float16 or bfloat16 is needed")
    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError(f"{what} is a MaskedArray, whose masked elements have no value; fill it first ({what}.filled(...))")
    if x.dtype.name not in DTYPE:
        raise DtypeError(f"{what} has dtype {x.dtype.name}; float32, float16 or bfloat16 is needed (convert it by value)")
    if x.ndim != ndim:
        raise ArgumentError(f"{what} has shape {x.shape}; {ndim} dimensions are needed")
    return _native(x)


def pitched(x: Array) -> Array:
    """`x`, or a contiguous copy unless its rows are contiguous, aligned, ascending and do not overlap."""
    rows, cols = x.shape
    item = x.itemsize
    fits = x.flags.aligned and x.size > 0
    fits = fits and (cols == 1 or x.strides[1] == item)
    fits = fits and (rows == 1 or (x.strides[0] >= cols * item and x.strides[0] % item == 0))
    return x if fits else np.array(x, order="C", copy=True)


def matrix(x: Array) -> _abi.Matrix:
    """The descriptor of a 2-D array from pitched(). It does not keep the array alive."""
    rows, cols = x.shape
    stride = x.strides[0] // x.itemsize if rows > 1 and cols > 0 else cols
    return _abi.Matrix(data=x.ctypes.data, dtype=dtype_number(x.dtype), rows=rows, cols=cols, stride=max(stride, cols))


def factors(values: Any, count: int | None, what: str) -> NDArray[np.float32]:
    """Float32 values, one-dimensional, converted by value from any real type of any shape that holds `count`."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise DtypeError(f"{what} has dtype {array.dtype.name}; real numbers are needed")
    array = np.ascontiguousarray(array.astype(np.float32)).reshape(-1)
    if count is not None and array.size != count:
        raise ArgumentError(f"{what} holds {array.size} value(s); {count} needed")
    return array


def scalar(value: Any, what: str) -> ctypes.c_float:
    """One float32 from a number or an array that holds one."""
    return ctypes.c_float(float(factors(value, 1, what)[0]))


def byte_array(x: Any, what: str) -> NDArray[np.uint8]:
    """`x` if it is an array of single bytes (uint8, or a one-byte float type seen as bytes)."""
    if not isinstance(x, np.ndarray):
        raise DtypeError(f"{what} is a {type(x).__name__}; a numpy array of uint8 is needed")
    if x.dtype == np.uint8:
        return x
    if x.dtype.name in ("float8_e4m3fn", "float8_e8m0fnu"):  # the same bytes under the name of what they mean
        return x.view(np.uint8)
    raise DtypeError(f"{what} has dtype {x.dtype.name}; uint8 is needed")


def unsigned(value: Any, bits: int, what: str) -> int:
    """An int (or integer scalar) in 0..2^bits."""
    result = integer(value, what)
    if not 0 <= result < 1 << bits:
        raise ArgumentError(f"{what} is {value}; it must be in 0..2^{bits}")
    return result


def integer(value: Any, what: str) -> int:
    """An int from an int or a NumPy integer scalar; bool and float are refused."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise DtypeError(f"{what} is {value!r}; an integer is needed")
    return int(value.__index__())


def size_t(value: Any, what: str) -> int:
    """A count that fits int64 and is not negative."""
    result = integer(value, what)
    if not 0 <= result <= sys.maxsize:
        raise ArgumentError(f"{what} is {result}; it must be in 0..2^63-1")
    return result
