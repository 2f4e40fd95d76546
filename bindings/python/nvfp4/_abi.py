"""The C ABI in ctypes: the descriptors of include/nvfp4.h field by field, its functions, and finding the library.

Nothing here decides anything. Names are the C names without their prefix; tests/python/test_abi.py compares sizes,
offsets, constants and the function list with the header.
"""

from __future__ import annotations

import ctypes as c
import os
import pathlib
from typing import Any

from ._errors import ArgumentError, Error

u32, u64, i64, f32, f64, size, ptr = c.c_uint32, c.c_uint64, c.c_int64, c.c_float, c.c_double, c.c_size_t, c.c_void_p

# Statuses that mean "your arguments": they become ArgumentError.
ARGUMENT_STATUSES = frozenset({1, 2, 3, 4, 5, 6, 8})


class Struct(c.Structure):
    """A descriptor. Where the first field is ``struct_size`` it is filled in."""

    # Arrays that the pointers in this descriptor point into.
    keep_alive: Any = None

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = c.sizeof(self)


class ContextDesc(Struct):
    _fields_ = [("struct_size", size), ("device", u32), ("ordinal", u32), ("threads", u32), ("reserved", u32)]


class Matrix(Struct):
    _fields_ = [
        ("struct_size", size), ("data", ptr), ("dtype", u32), ("reserved", u32),
        ("rows", i64), ("cols", i64), ("stride", i64),
    ]  # fmt: skip


class Options(Struct):
    _fields_ = [
        ("struct_size", size), ("format", u32), ("block", u32), ("chain", u32), ("scale_rule", u32),
        ("rounding", u32), ("scale_layout", u32), ("select", u32), ("hadamard", u32), ("signs", u32), ("flags", u32),
        ("sign_mask", u32 * 4), ("domain_rows", i64), ("c", f32), ("reserved", u32),
    ]  # fmt: skip


class Stats(Struct):
    _fields_ = [
        ("nonfinite", u64), ("saturated", u64), ("underflowed", u64),
        ("sum_squares", f64), ("sum_squared_error", f64),
    ]  # fmt: skip


class QuantizeDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("rowwise", Options), ("columnwise", Options), ("nonfinite", u32), ("reserved", u32),
        ("seed", u64), ("offset", u64), ("seed_offset", ptr), ("origin_row", i64), ("origin_col", i64),
        ("rowwise_amax", ptr), ("columnwise_amax", ptr), ("stats", c.POINTER(Stats)),
        ("workspace", ptr), ("workspace_bytes", size),
    ]  # fmt: skip


class Quantized(Struct):
    _fields_ = [
        ("struct_size", size), ("codes", ptr), ("codes_bytes", size), ("scales", ptr), ("scales_bytes", size),
        ("amax", ptr), ("amax_count", size), ("rows", i64), ("cols", i64), ("code_stride", i64),
        ("scale_stride", i64), ("format", u32), ("block", u32), ("chain", u32), ("scale_rule", u32),
        ("scale_layout", u32), ("flags", u32), ("hadamard", u32), ("transposed", u32), ("sign_mask", u32 * 4),
        ("domain_rows", i64), ("c", f32), ("source_cols", i64), ("groups", i64),
    ]  # fmt: skip


class Sizes(Struct):
    _fields_ = [
        ("rowwise_codes_bytes", size), ("rowwise_scales_bytes", size), ("rowwise_amax_count", size),
        ("columnwise_codes_bytes", size), ("columnwise_scales_bytes", size), ("columnwise_amax_count", size),
        ("workspace_bytes", size),
    ]  # fmt: skip


class GemmDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("accumulate", u32), ("activation", u32), ("alpha", ptr), ("beta", ptr),
        ("bias", ptr), ("bias_dtype", u32), ("provider", u32), ("batch", i64),
        ("a_codes_batch_stride", i64), ("a_scales_batch_stride", i64),
        ("b_codes_batch_stride", i64), ("b_scales_batch_stride", i64),
        ("a_amax_batch_stride", i64), ("b_amax_batch_stride", i64),
        ("c_batch_stride", i64), ("d_batch_stride", i64), ("row_factors", ptr), ("col_factors", ptr),
        ("d_quantized", c.POINTER(Quantized)), ("d_options", Options), ("d_quantized_amax", ptr),
        ("seed", u64), ("offset", u64), ("b_packed", ptr), ("b_packed_bytes", size),
        ("workspace", ptr), ("workspace_bytes", size),
    ]  # fmt: skip


class GroupedQuantizeDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("quantize", c.POINTER(QuantizeDesc)), ("groups", i64), ("offsets", ptr),
        ("column_align", u32), ("reserved", u32),
    ]  # fmt: skip


class GroupedGemmDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("ragged", u32), ("accumulate", u32), ("groups", i64), ("offsets", ptr),
        ("column_align", u32), ("activation", u32), ("alpha", ptr), ("alpha_stride", i64), ("beta", ptr),
        ("bias", ptr), ("bias_stride", i64), ("bias_dtype", u32), ("provider", u32),
        ("b_codes_stride", i64), ("b_scales_stride", i64), ("b_amax_stride", i64),
        ("c_group_stride", i64), ("d_group_stride", i64), ("row_factors", ptr),
        ("workspace", ptr), ("workspace_bytes", size),
    ]  # fmt: skip


class HadamardDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("n", u32), ("axis", u32), ("inverse", u32), ("signs", u32), ("sign_mask", u32 * 4),
        ("seed", u64), ("offset", u64),
    ]  # fmt: skip


class Recipe(Struct):
    _fields_ = [
        ("struct_size", size), ("activation_rowwise", Options), ("activation_columnwise", Options),
        ("weight_rowwise", Options), ("weight_columnwise", Options), ("gradient_rowwise", Options),
        ("gradient_columnwise", Options), ("accumulate", u32), ("nonfinite", u32),
    ]  # fmt: skip


class LinearDesc(Struct):
    _fields_ = [
        ("struct_size", size), ("recipe", c.POINTER(Recipe)), ("seed", u64), ("offset", u64), ("seed_offset", ptr),
        ("accumulate_wgrad", u32), ("reserved", u32), ("workspace", ptr), ("workspace_bytes", size),
    ]  # fmt: skip


LOG_FN = c.CFUNCTYPE(None, ptr, u32, c.c_char_p)

_MATRIX, _QUANTIZED, _SIZE = c.POINTER(Matrix), c.POINTER(Quantized), c.POINTER(size)
_QDESC, _GDESC, _LDESC, _RECIPE = c.POINTER(QuantizeDesc), c.POINTER(GemmDesc), c.POINTER(LinearDesc), c.POINTER(Recipe)

_GQDESC, _GGDESC = c.POINTER(GroupedQuantizeDesc), c.POINTER(GroupedGemmDesc)

# name -> (result type, argument types); "s" is nvfp4_status, checked by call().
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "last_error": (c.c_char_p, []),
    "status_name": (c.c_char_p, [c.c_int32]),
    "version": (u32, []),
    "version_string": (c.c_char_p, []),
    "set_log": ("s", [LOG_FN, ptr, u32]),
    "context_create": ("s", [c.POINTER(ContextDesc), c.POINTER(ptr)]),
    "context_destroy": ("s", [ptr]),
    "quantize_sizes": ("s", [ptr, _QDESC, i64, i64, u32, u32, c.POINTER(Sizes)]),
    "amax": ("s", [ptr, _QDESC, _MATRIX, ptr, ptr, ptr]),
    "quantize": ("s", [ptr, _QDESC, _MATRIX, _QUANTIZED, _QUANTIZED, ptr]),
    "requantize": ("s", [ptr, _QDESC, _QUANTIZED, _QUANTIZED, _QUANTIZED, ptr]),
    "dequantize": ("s", [ptr, _QUANTIZED, u32, _MATRIX, ptr]),
    "transpose": ("s", [ptr, _QUANTIZED, _QUANTIZED, ptr]),
    "hadamard": ("s", [ptr, c.POINTER(HadamardDesc), _MATRIX, _MATRIX, ptr]),
    "scales_bytes": ("s", [i64, i64, u32, _SIZE]),
    "swizzle_scales": ("s", [ptr, i64, i64, ptr, i64, ptr, size, ptr]),
    "unswizzle_scales": ("s", [ptr, i64, i64, ptr, size, ptr, i64, ptr]),
    "gemm_workspace": ("s", [ptr, _GDESC, _QUANTIZED, _QUANTIZED, _MATRIX, _SIZE]),
    "gemm": ("s", [ptr, _GDESC, _QUANTIZED, _QUANTIZED, _MATRIX, _MATRIX, ptr]),
    "pack_weight_bytes": ("s", [ptr, _QUANTIZED, _SIZE]),
    "pack_weight": ("s", [ptr, _QUANTIZED, ptr, size, ptr]),
    "grouped_quantize_sizes": ("s", [ptr, _GQDESC, i64, i64, u32, u32, c.POINTER(Sizes)]),
    "grouped_quantize": ("s", [ptr, _GQDESC, _MATRIX, _QUANTIZED, _QUANTIZED, ptr]),
    "grouped_gemm_workspace": ("s", [ptr, _GGDESC, _QUANTIZED, _QUANTIZED, _MATRIX, _SIZE]),
    "grouped_gemm": ("s", [ptr, _GGDESC, _QUANTIZED, _QUANTIZED, _MATRIX, _MATRIX, ptr]),
    "recipe_init": ("s", [c.c_char_p, _RECIPE]),
    "recipe_quantize_desc": ("s", [_RECIPE, u32, _QDESC]),
    "linear_workspace": ("s", [ptr, _LDESC, i64, i64, i64, u32, _SIZE]),
    "linear_fprop": ("s", [ptr, _LDESC, _MATRIX, _MATRIX, _MATRIX, _MATRIX, ptr]),
    "linear_dgrad": ("s", [ptr, _LDESC, _MATRIX, _MATRIX, _MATRIX, ptr]),
    "linear_wgrad": ("s", [ptr, _LDESC, _MATRIX, _MATRIX, _MATRIX, ptr]),
    "supports_quantize": ("s", [ptr, _QDESC, i64, i64, u32, u32]),
    "supports_gemm": ("s", [ptr, _GDESC, i64, i64, i64, _QUANTIZED, _QUANTIZED, u32]),
    "supports_grouped_quantize": ("s", [ptr, _GQDESC, i64, i64, u32, u32]),
    "supports_grouped_gemm": ("s", [ptr, _GGDESC, i64, i64, i64, _QUANTIZED, _QUANTIZED, u32]),
    "selftest": ("s", [ptr, c.POINTER(u32), c.c_char_p, size]),
}

# The only version whose structs this file mirrors: 0.x changes the ABI with its minor number (docs/abi.md).
ABI_VERSION = (0, 1)


def _candidates() -> list[pathlib.Path]:
    """Where the library is looked for, in order; the first that exists is taken."""
    chosen = os.environ.get("NVFP4_LIBRARY")
    if chosen:
        return [pathlib.Path(chosen)]
    here = pathlib.Path(__file__).resolve().parent
    places = [here / "libnvfp4.so"]
    if len(here.parents) > 2 and (here.parents[2] / "Cargo.toml").is_file():  # a checkout: bindings/python/nvfp4
        places += [here.parents[2] / "target" / kind / "libnvfp4.so" for kind in ("release", "debug")]
    return places


def _load() -> tuple[c.CDLL, pathlib.Path]:
    places = _candidates()
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        raise ImportError(
            "libnvfp4.so was not found; looked at " + ", ".join(map(str, places)) + ". Install the wheel, or in a "
            "checkout run `cargo build --release`, or set NVFP4_LIBRARY to the file"
        )
    try:
        library = c.CDLL(str(path))
    except OSError as cause:
        raise ImportError(f"{path} could not be loaded: {cause}") from cause
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, "nvfp4_" + name)
        except AttributeError:
            raise ImportError(f"{path} has no function nvfp4_{name}: it is not of the version of this package") from None
        function.restype = c.c_int32 if result == "s" else result
        function.argtypes = arguments
    version = library.nvfp4_version()
    if (version >> 16, version >> 8 & 0xFF) != ABI_VERSION:
        text = library.nvfp4_version_string().decode()
        raise ImportError(f"{path} is version {text}, this package needs {ABI_VERSION[0]}.{ABI_VERSION[1]}.x")
    return library, path


lib, library_path = _load()


def error_of(status: int) -> Error:
    """The exception of a non-zero status that the last call on this thread returned."""
    name = lib.nvfp4_status_name(status).decode()
    message = lib.nvfp4_last_error().decode(errors="replace") or name
    return (ArgumentError if status in ARGUMENT_STATUSES else Error)(message, status, name)


def call(name: str, *arguments: Any) -> None:
    """Call ``nvfp4_<name>``; raise the library's sentence unless it returns NVFP4_OK."""
    status = getattr(lib, "nvfp4_" + name)(*arguments)
    if status:
        raise error_of(status)
