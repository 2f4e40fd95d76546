"""How one copy of a matrix is quantized, as words (`Options`), and the same as the C descriptor."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, Union

import numpy as np

from . import _abi, _names
from ._arrays import integer, size_t, unsigned
from ._errors import ArgumentError, DtypeError

SignMask = Union[int, str, tuple[bool, ...], None]

# NVFP4_SIGNS_*
DEFAULT, MASK16, MASK, SEEDED = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of one copy (rowwise or columnwise). Section numbers are those of docs/format.md.

    Attributes:
        format: ``"nvfp4"`` (section 2), ``"mxfp4"`` (section 4) or ``"bf16"`` (pass-through).
        block: ``"1x16"`` or ``"16x16"``; MXFP4 ``"1x32"`` or ``"32x32"``; None is the one along the row.
        chain: ``"te"``, ``"div6"`` or ``"single"`` (NVFP4 only). Where `select` chooses a scale, the default ``"te"`` stands
            for ``"div6"``, as sections 8 and 9 say; the tensor records the chain that was used.
        scale_rule: MXFP4 exponent: ``"floor"``, ``"ceil"``, ``"even"``, ``"encode_centric"``.
        rounding: ``"nearest"`` or ``"stochastic"`` (section 7).
        scale_layout: ``"linear"`` or ``"swizzled"`` (128x4 tiles).
        select: ``"single"``; ``"4over6"`` (= ``"4over6_mae"``), ``"4over6_mse"``, ``"4over6_absmax"`` (section 8);
            ``"ms_eden"`` (section 9).
        hadamard: length of the transform along the copy's rows: 0, 16, 32, 64, 128 (section 6).
        sign_mask: None (0xD7E8, repeated); an int below 2^16 (repeated every 16) or above (all bits as they stand);
            `hadamard` booleans, True where the sign is -1; ``"seeded"`` (drawn from seed and offset).
        domain: ``"tensor"``, or the number of rows that share one amax (section 5).
        c: 2688.0 or 1536.0; None is the default of `select`.
        range_16_17: encode with 16/17 of the multiplier so that stochastic rounding never clips.
        keep_f32: the transform's output is not rounded to bfloat16.
        half_scale: MXFP4 encode-centric tiles take half the scale iff amax/scale < 0.87.
    """

    format: str = "nvfp4"
    block: str | None = None
    chain: str = "te"
    scale_rule: str = "floor"
    rounding: str = "nearest"
    scale_layout: str = "linear"
    select: str = "single"
    hadamard: int = 0
    sign_mask: SignMask = None
    domain: Union[Literal["tensor"], int] = "tensor"
    c: float | None = None
    range_16_17: bool = False
    keep_f32: bool = False
    half_scale: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sign_mask, (np.ndarray, list, tuple)):
            object.__setattr__(self, "sign_mask", tuple(_sign(s) for s in self.sign_mask))
        elif self.sign_mask is not None and not isinstance(self.sign_mask, str):
            object.__setattr__(self, "sign_mask", integer(self.sign_mask, "sign_mask"))
        object.__setattr__(self, "_c", self._descriptor())

    def __reduce__(self) -> tuple[Any, ...]:
        return Options, tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @staticmethod
    def of(value: Options | Mapping[str, Any] | None, base: Options | None = None) -> Options:
        """`value`, or `base` (default: all defaults) with the fields that a mapping names replaced."""
        if isinstance(value, Options):
            return value
        base = base or Options()
        if value is None:
            return base
        known = {field.name for field in dataclasses.fields(Options)}
        for name in value:
            if name not in known:
                raise ArgumentError(f"{name!r} is no option of a copy; options are " + ", ".join(sorted(known)))
        return dataclasses.replace(base, **value)

    def to_c(self) -> _abi.Options:
        """The C descriptor: to be copied, not to be changed."""
        c: _abi.Options = getattr(self, "_c")
        return c

    def _descriptor(self) -> _abi.Options:
        fmt = _names.number(_names.FORMAT, self.format, "format")
        select = _names.number(_names.SELECT, self.select, "select")
        hadamard = unsigned(self.hadamard, 32, "hadamard")
        signs, words = sign_fields(self.sign_mask, hadamard)
        if hadamard == 0 and self.sign_mask is not None:
            raise ArgumentError(f"sign_mask is {self.sign_mask!r} but hadamard is 0: there is no transform to sign")
        return _abi.Options(
            format=fmt,
            block=_names.block_number(self.format, self.block),
            chain=_names.number(_names.CHAIN, self.chain, "chain"),
            scale_rule=_names.number(_names.SCALE_RULE, self.scale_rule, "scale_rule"),
            rounding=_names.number(_names.ROUNDING, self.rounding, "rounding"),
            scale_layout=_names.number(_names.SCALE_LAYOUT, self.scale_layout, "scale_layout"),
            select=select,
            hadamard=hadamard,
            signs=signs,
            flags=(_names.KEEP_F32 * bool(self.keep_f32))
            | (_names.RANGE_16_17 * bool(self.range_16_17))
            | (_names.MX_HALF_SCALE * bool(self.half_scale)),
            sign_mask=words,
            domain_rows=domain_rows(self.domain),
            c=c_value(self.c),
        )

    @staticmethod
    def from_c(o: _abi.Options) -> Options:
        """The words of a C descriptor."""
        fmt = _names.word(_names.FORMAT, o.format, "format")
        literal = mask_int(o.sign_mask)
        mask: SignMask = {DEFAULT: None, MASK16: literal & 0xFFFF, SEEDED: "seeded"}.get(o.signs)
        if o.signs == MASK:
            mask = tuple(bool(literal >> i & 1) for i in range(o.hadamard))
        return Options(
            format=fmt,
            block=_names.block_word(fmt, o.block),
            chain=_names.word(_names.CHAIN, o.chain, "chain"),
            scale_rule=_names.word(_names.SCALE_RULE, o.scale_rule, "scale_rule"),
            rounding=_names.word(_names.ROUNDING, o.rounding, "rounding"),
            scale_layout=_names.word(_names.SCALE_LAYOUT, o.scale_layout, "scale_layout"),
            select=_names.word(_names.SELECT, o.select, "select"),
            hadamard=o.hadamard,
            sign_mask=mask if o.hadamard else None,
            domain=int(o.domain_rows) or "tensor",
            c=float(o.c) or None,
            range_16_17=bool(o.flags & _names.RANGE_16_17),
            keep_f32=bool(o.flags & _names.KEEP_F32),
            half_scale=bool(o.flags & _names.MX_HALF_SCALE),
        )


def _sign(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise DtypeError(f"sign_mask holds {value!r}; a sequence of signs is of booleans, True where the sign is -1")
    return bool(value)


def sign_fields(mask: SignMask, n: int) -> tuple[int, Any]:
    """NVFP4_SIGNS_* and the four words of a sign mask for a transform of length `n`."""
    if mask is None:
        return DEFAULT, words_of(0)
    if isinstance(mask, str):
        if mask != "seeded":
            raise ArgumentError(f"sign_mask is {mask!r}; the only word it may be is 'seeded'")
        return SEEDED, words_of(0)
    if isinstance(mask, tuple):
        if len(mask) != n:
            raise ArgumentError(f"sign_mask holds {len(mask)} signs; the transform has length {n}")
        return MASK, words_of(sum(1 << i for i, minus in enumerate(mask) if minus))
    if mask < 0 or mask >> max(n, 16):
        raise ArgumentError(f"sign_mask is {mask:#x}; it has at most {max(n, 16)} bits and is not negative")
    return (MASK16 if mask < 1 << 16 else MASK), words_of(mask)


def applied_mask(mask: SignMask, n: int) -> int:
    """All `n` bits of the signs that `mask` stands for (not for seeded ones, which the call draws)."""
    if n == 0:
        return 0
    signs, words = sign_fields(mask, n)
    if signs == SEEDED:
        raise ArgumentError("sign_mask is 'seeded'; give the mask that was applied")
    if signs == MASK:
        return mask_int(words)
    sixteen = 0xD7E8 if signs == DEFAULT else mask_int(words)
    return sum(sixteen << i for i in range(0, n, 16))


def words_of(mask: int) -> Any:
    """Four uint32, the lowest bits first."""
    return (ctypes.c_uint32 * 4)(*(mask >> 32 * i & 0xFFFFFFFF for i in range(4)))


def mask_int(words: Any) -> int:
    """The int of four uint32."""
    return sum(int(w) << 32 * i for i, w in enumerate(words))


def domain_rows(domain: str | int) -> int:
    """0 for the whole tensor, else the rows that share one amax."""
    if domain == "tensor":
        return 0
    if isinstance(domain, str):
        raise ArgumentError(f"domain is {domain!r}; it is 'tensor' or a number of rows")
    rows = size_t(domain, "domain")
    if rows == 0:
        raise ArgumentError("domain is 0; it is 'tensor' or a number of rows of at least 1")
    return rows


def c_value(c: float | None) -> float:
    """0 for the default, else C of section 2; the library says which values are legal."""
    if c is None:
        return 0.0
    value = float(c)
    if value == 0 or not math.isfinite(value):
        raise ArgumentError(f"c is {c}; it is 2688 or 1536, or None for the default")
    return value
