"""NVFP4 and MXFP4 training numerics for NumPy arrays: quantize, transform, multiply, train a linear layer.

A thin layer over libnvfp4 (C ABI, ctypes); every byte is specified in docs/format.md.

    >>> import numpy as np, nvfp4
    >>> x = np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32)
    >>> q = nvfp4.quantize(x)
    >>> q.codes.shape, q.scales.shape, q.amax.dtype
    ((64, 128), (64, 16), dtype('float32'))
    >>> nvfp4.gemm(q, q, out_dtype="float32").shape  # x x^T of the quantized values
    (64, 64)
"""

from ._abi import library_path
from ._context import set_log, set_threads, version
from ._errors import ArgumentError, DtypeError, Error
from ._gemm import PackedWeight, gemm, pack_weight
from ._grouped import GroupedTensor, grouped_gemm, grouped_quantize
from ._hadamard import hadamard, swizzle_scales, unswizzle_scales
from ._linear import Recipe, linear, linear_backward, recipe
from ._options import Options
from ._quantize import amax, quantize, requantize, transpose
from ._supports import Support, supports
from ._tensor import QuantizedTensor, Stats

__version__ = version()

__all__ = [
    "ArgumentError",
    "DtypeError",
    "Error",
    "GroupedTensor",
    "Options",
    "PackedWeight",
    "QuantizedTensor",
    "Recipe",
    "Stats",
    "Support",
    "amax",
    "gemm",
    "grouped_gemm",
    "grouped_quantize",
    "hadamard",
    "library_path",
    "linear",
    "linear_backward",
    "pack_weight",
    "quantize",
    "recipe",
    "requantize",
    "set_log",
    "set_threads",
    "supports",
    "swizzle_scales",
    "transpose",
    "unswizzle_scales",
    "version",
]
