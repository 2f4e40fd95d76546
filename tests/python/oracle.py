"""A second reading of docs/format.md in NumPy: slow, for small matrices, written from the page and not from the library.

Arrays of float32 stand for fl(.): one NumPy operation is one binary32 operation. float64 is used only where its result
is exact. A matrix is quantized by `quantize`, decoded by `decode`, multiplied by `gemm_block` and `gemm_hardware`.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np

F = np.float32
FLT_MAX = np.finfo(F).max
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
CODES = np.concatenate([GRID, -GRID])
VAL_MAX = F(6) / (F(17 / 16) * F(0.93))  # MS-EDEN (section 9)
MS_EDEN_C = F(255.99) * VAL_MAX
np.seterr(all="ignore")


# ---- number formats (section 1) -------------------------------------------------------------------------------------


def e2m1(v):
    """Codes 0..15 of float values: round to nearest, ties to the even code, saturating at 6; the sign is kept."""
    a = np.minimum(np.abs(v.astype(np.float64)), 6)
    step = np.where(a < 2, 0.5, np.where(a < 4, 1.0, 2.0))
    value = np.rint(a / step) * step
    return (np.searchsorted(GRID, value) | (np.signbit(v) << 3)).astype(np.uint8)


def e4m3(v):
    """Bytes of non-negative values: nearest, ties to even, saturating at 448."""
    a = np.minimum(v.astype(np.float64), 448)
    exponent = np.maximum(np.frexp(np.maximum(a, 2.0**-40))[1] - 1, -6)
    units = np.rint(a / 2.0 ** (exponent - 3))  # 8..16 in a binade, 0..8 among the subnormals
    return ((exponent + 6) * 8 + units).astype(np.uint8)


def e4m3_value(byte):
    byte = np.asarray(byte).astype(np.int64)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    return np.where(byte & 127 == 127, np.nan, value).astype(F)


def e8m0_value(byte):
    byte = np.asarray(byte).astype(np.int64)
    return np.where(byte == 255, np.nan, np.ldexp(1.0, np.minimum(byte, 254) - 127))


def bf16(v):
    """float32 rounded to bfloat16 (nearest even), as float32."""
    bits = np.ascontiguousarray(v, F).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    out = rounded.astype(np.uint32).view(F)
    return np.where(np.isnan(v), F("nan"), out)


# ---- random bits (sections 6, 7) ------------------------------------------------------------------------------------


def philox(key, counter):
    """Philox4x32-10: four uint32 arrays from a key of two words and a counter of four (broadcast)."""
    k0, k1 = (np.uint64(k) for k in key)
    c = [np.asarray(w, np.uint64) for w in counter]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c


def words(value):
    return value & 0xFFFFFFFF, value >> 32


def random_words(rows, cols, seed, offset, origin, columnwise):
    """The four words of each 16-column group: [4, rows, ceil(cols/16)]."""
    low, high = words(offset)
    r = np.arange(rows, dtype=np.uint64)[:, None] + np.uint64(origin[0])
    c16 = np.arange(-(-cols // 16), dtype=np.uint64)[None, :] + np.uint64(origin[1] // 16)
    top = (np.uint64(high) ^ (r >> np.uint64(32))) | np.uint64((1 << 31) if columnwise else 0)
    c = philox(words(seed), np.broadcast_arrays(c16, r & np.uint64(0xFFFFFFFF), np.uint64(low), top))
    return np.stack(c)


def random_bytes(rows, cols, seed, offset, origin=(0, 0), columnwise=False):
    """The byte of each element, 0..255."""
    w = random_words(rows, cols, seed, offset, origin, columnwise)
    order = (0, 2, 1, 3)
    out = np.empty((rows, w.shape[2] * 16), np.int64)
    for e in range(16):
        out[:, e::16] = (w[e // 4] >> np.uint64(8 * order[e % 4]) & np.uint64(255)).astype(np.int64)
    return out[:, :cols]


def seeded_mask(n, seed, offset):
    low, high = words(offset)
    return sum(int(philox(words(seed), (j, 0, low, high | 1 << 30))[0]) << 32 * j for j in range(-(-n // 32))) & ((1 << n) - 1)


# ---- the transform (section 6) --------------------------------------------------------------------------------------


def hadamard(x, n, mask, keep_f32=False):
    """Along rows, padded with zeros to a multiple of n; the result is bfloat16 in float32 unless keep_f32."""
    rows, cols = x.shape
    width = -(-cols // n) * n
    y = np.zeros((rows, width), F)
    y[:, :cols] = x
    sign = np.array([-1 if mask >> (i % n) & 1 else 1 for i in range(n)], F)
    y = (y.reshape(rows, width // n, n) * sign).reshape(rows, width // n, n)
    stride = 1
    while stride < n:
        pairs = y.reshape(rows, width // n, n // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(rows, width // n, n)
        stride *= 2
    y = (y * F(1 / math.sqrt(n)) + F(0)).reshape(rows, width)
    return y if keep_f32 else bf16(y)


def repeated(mask16, n):
    return sum(mask16 << i for i in range(0, n, 16))


# ---- quantize (sections 2 to 8) -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Quantized:
    """Linear scale bytes [rows, blocks], codes one a byte [rows, cols], amax one a row."""

    codes: np.ndarray
    scales: np.ndarray
    row_amax: np.ndarray
    fmt: str = "nvfp4"
    chain: str = "te"
    rule: str = "floor"
    c: float = 2688.0
    range_16_17: bool = False

    @property
    def packed(self):
        codes = np.pad(self.codes, ((0, 0), (0, self.codes.shape[1] % 2)))
        return codes[:, ::2] | codes[:, 1::2] << 4

    @property
    def block(self):
        return 16 if self.fmt == "nvfp4" else 32


def quantize(
    x, fmt="nvfp4", tiles=False, chain="te", rule="floor", amax=None, domain=0, c=None, select="single", mask=None, n=0,
    keep_f32=False, rounding="nearest", seed=0, offset=0, origin=(0, 0), columnwise=False, range_16_17=False,
    half_scale=False,
):  # fmt: skip
    """Quantize the rows of x (float32 values). For a columnwise copy pass the transposed matrix and origin."""
    y = np.ascontiguousarray(x, F)
    if n:
        y = hadamard(y, n, mask, keep_f32)
    rows, cols = y.shape
    block = 16 if fmt == "nvfp4" else 32
    height = block if tiles else 1
    c = MS_EDEN_C if select == "ms_eden" else F(c or (1536 if select.startswith("4over6") else 2688))
    group = domain or max(rows, 1)
    finite = np.where(np.isfinite(y), np.abs(y), 0)
    if amax is None:
        amax = [finite[i : i + group].max(initial=0) for i in range(0, max(rows, 1), group)]
    row_amax = np.repeat(np.asarray(amax, F).reshape(-1), group)[:rows]

    blocks = -(-cols // block)
    bands = -(-rows // height)
    padded = np.zeros((bands * height, blocks * block), F)
    padded[:rows, :cols] = y
    tile = padded.reshape(bands, height, blocks, block).transpose(0, 2, 1, 3)  # [band, block, row, element]
    b = np.abs(tile).max(axis=(2, 3), initial=0)  # NaN propagates
    bad = ~np.isfinite(tile).all(axis=(2, 3))
    b = np.where(bad, F(0), b).astype(F)
    tile = np.where(bad[:, :, None, None], F(0), tile)
    bits = random_bytes(padded.shape[0], padded.shape[1], seed, offset, origin, columnwise)
    bits = bits.reshape(bands, height, blocks, block).transpose(0, 2, 1, 3)
    band_amax = np.zeros(bands, F)
    band_amax[:] = row_amax[::height][:bands] if rows else 0
    if fmt == "nvfp4":
        scales, codes = _nvfp4(tile, b, band_amax[:, None], chain, c, select, rounding, bits, range_16_17)
    else:
        scales, codes = _mxfp4(tile, b, rule, rounding, bits, half_scale and tiles, range_16_17)
    scales = np.where(bad, 127 if fmt == "nvfp4" else 255, scales).astype(np.uint8)
    codes = np.where(bad[:, :, None, None], 0, codes)
    codes = codes.transpose(0, 2, 1, 3).reshape(padded.shape)[:rows, :cols].astype(np.uint8)
    scales = np.repeat(scales, height, axis=0)[:rows]
    out = Quantized(codes, scales, row_amax, fmt, chain, rule, float(c), range_16_17)
    if select == "ms_eden":
        first_word = random_words(rows, cols, seed, offset, origin, columnwise)[0].astype(np.int64)
        out.scales = _corrected(y, decode(out), scales, first_word)
    return out


def _corrected(y, decoded, scales, word):
    """Section 9: scale bytes times the correction of their block of 128, rounded stochastically to E4M3."""
    rows, cols = y.shape
    y, decoded = y.reshape(rows, cols // 128, 128), decoded.reshape(rows, cols // 128, 128)
    num, den = np.zeros(y.shape[:2], F), np.zeros(y.shape[:2], F)
    for i in range(128):
        num = num + y[..., i] * y[..., i]
        den = den + y[..., i] * decoded[..., i]
    good = (den > 0) & np.isfinite(num) & np.isfinite(den)
    v = e4m3_value(scales) * np.repeat(np.where(good, num / den, F(1)), 8, axis=1)
    low = np.searchsorted(e4m3_value(np.arange(127)), v, side="right") - 1
    low_value = e4m3_value(low).astype(np.float64)
    t = (v - low_value) / (e4m3_value(np.minimum(low + 1, 126)) - low_value)
    out = low + (np.floor(2.0**24 * t) > word >> 8)
    out = np.where(v >= 448, 126, out)
    return np.where((scales == 0) | (scales == 127), scales, out).astype(np.uint8)


def _round(v, rounding, bits):
    if rounding == "nearest":
        return e2m1(v)
    a = np.minimum(np.abs(v.astype(np.float64)), 6)
    low = np.minimum(np.searchsorted(GRID, a, side="right") - 1, 6)
    step = GRID[low + 1] - GRID[low]
    up = np.floor(256 * (a - GRID[low]) / step) + bits >= 256
    up |= a == 6  # the top of the grid, reached from low = 4
    return ((low + up) | (np.signbit(v) << 3)).astype(np.uint8)


def _outer(amax, c, chain):
    """S_enc and S_dec."""
    s_enc = np.where(amax == 0, F(1), np.minimum(c / amax, FLT_MAX)).astype(F)
    if chain == "single":
        s_enc = np.ones_like(s_enc)
    return s_enc, F(1) / s_enc


def _encode(tile, scale, s_dec, range_16_17):
    e = np.minimum(F(1) / (e4m3_value(scale) * s_dec), FLT_MAX)
    if range_16_17:
        e = e * F(F(16) / F(17))
    return tile * e[:, :, None, None]


def _nvfp4(tile, b, amax, chain, c, select, rounding, bits, range_16_17):
    s_enc, s_dec = _outer(amax, c, chain)
    base = b * (s_enc * F(F(1) / F(6))) if chain == "te" else (b / (VAL_MAX if select == "ms_eden" else F(6))) * s_enc
    scale = e4m3(base)
    if select.startswith("4over6"):
        four = e4m3(base * F(1.5))
        better = _error(tile, four, s_dec, amax, c, select) < _error(tile, scale, s_dec, amax, c, select)
        scale = np.where(better, four, scale)
    return scale, _round(_encode(tile, scale, s_dec, range_16_17), rounding, bits)


def _error(tile, scale, s_dec, amax, c, select):
    q = CODES[e2m1(_encode(tile, scale, s_dec, False))].astype(F)
    value = ((q * e4m3_value(scale)[:, :, None, None]) * amax[:, :, None, None]) / c
    d = np.abs(value - tile)
    if select == "4over6_absmax":
        return d.max(axis=(2, 3))
    total = np.zeros(d.shape[:3], F)
    for i in range(16):
        total = total + (d[..., i] * d[..., i] if select == "4over6_mse" else d[..., i])
    height = total.shape[2]
    if height == 1:
        return total[..., 0]
    for stride in (8, 4, 2, 1):
        total = total[..., :stride] + total[..., stride : 2 * stride]
    return total[..., 0]


def _mxfp4(tile, b, rule, rounding, bits, half_scale, range_16_17):
    positive = np.where(b == 0, F(1), b).astype(np.float64)
    mantissa, exponent = np.frexp(positive)  # b = mantissa * 2^exponent, mantissa in [0.5, 1)
    power = exponent - 1  # floor(log2 b)
    if rule == "floor":
        e = power - 2
    elif rule == "ceil":
        e = power - 2 + (positive > 6 * np.ldexp(1.0, power - 2))
    elif rule == "even":
        e = power - 2 + (np.rint(mantissa * 4) == 4)
    else:
        e = power + (mantissa != 0.5)
        if half_scale:
            e = e - (np.float32(b) / np.ldexp(1.0, e).astype(F) < F(0.87))
    e = np.clip(e, -127, 127)
    e = np.where(b == 0, -127, e)
    multiplier = np.ldexp(1.0, -e).astype(F)[:, :, None, None]
    if range_16_17:
        multiplier = multiplier * F(F(16) / F(17))
    v = tile * multiplier
    if rule == "encode_centric":
        v = F(6) * v
    return e + 127, _round(v, rounding, bits)


# ---- decode (section 2), gemm (section 10) --------------------------------------------------------------------------


def decode(q):
    """float32 values [rows, cols]."""
    rows, cols = q.codes.shape
    value = CODES[q.codes].astype(F)
    wider = F(F(17) / F(16)) if q.range_16_17 else F(1)
    value_of = e4m3_value if q.fmt == "nvfp4" else e8m0_value
    s = np.repeat(value_of(q.scales).astype(F), q.block, axis=1)[:, :cols]
    if q.fmt == "mxfp4" or q.chain == "single":
        if q.rule == "encode_centric":
            value = value * F(F(1) / F(6))
        out = value * (s * wider)
    else:
        c = F(q.c)
        a = np.where(q.row_amax != 0, np.maximum(q.row_amax, c / FLT_MAX), F(0))[:, None].astype(F)
        inverse = F(1) / c
        out = value * (np.where(a <= FLT_MAX / F(448), (s * a) * inverse, s * (a * inverse)) * wider)
    return np.where(np.isnan(out), out, np.clip(out, -FLT_MAX, FLT_MAX)).astype(F)


def factor(a, b):
    """g for the (row, column) pairs of D: [M, N]."""
    if a.fmt == "mxfp4" or a.chain == "single":
        ones = np.ones((a.codes.shape[0], b.codes.shape[0]), F)
        return ones * (F(F(1) / F(6)) * F(F(1) / F(6)) if a.rule == "encode_centric" else F(1))

    def clamped(q):
        return np.where(q.row_amax != 0, np.maximum(q.row_amax, F(q.c) / FLT_MAX), F(0)).astype(F)

    product = clamped(a)[:, None] * clamped(b)[None, :]
    plain = product / F(F(a.c) * F(b.c))
    split = (clamped(a) * (F(1) / F(a.c)))[:, None] * (clamped(b) * (F(1) / F(b.c)))[None, :]
    inside = (product >= 2.0**-100) & (product <= 2.0**100)
    return np.where(inside, plain, split).astype(F)


def _operands(a, b):
    value = e4m3_value if a.fmt == "nvfp4" else e8m0_value
    return CODES[a.codes], CODES[b.codes], value(a.scales).astype(np.float64), value(b.scales).astype(np.float64)


def gemm_block(a, b, alpha=1.0):
    """alpha' * acc in float32, acc of mode BLOCK."""
    va, vb, sa, sb = _operands(a, b)
    acc = np.zeros((va.shape[0], vb.shape[0]), F)
    for j in range(sa.shape[1]):
        part = slice(j * a.block, (j + 1) * a.block)
        dot = va[:, part] @ vb[:, part].T
        acc = acc + (dot * (sa[:, j : j + 1] * sb[:, j][None, :])).astype(F)
    return (F(alpha) * factor(a, b)) * acc


def gemm_hardware(a, b):
    """acc of mode HARDWARE (K = 64 a step) for finite scales, exactly as the published model says. Very slow."""
    out = np.zeros((a.codes.shape[0], b.codes.shape[0]), F)
    cols = a.codes.shape[1]
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            acc = F(0)
            for k in range(0, cols, 64):
                acc = hardware_step(
                    CODES[a.codes[m, k : k + 64]], CODES[b.codes[n, k : k + 64]],
                    a.scales[m], b.scales[n], a.block, k, acc, a.fmt,
                )  # fmt: skip
            out[m, n] = acc
    return out


def hardware_step(va, vb, sa, sb, block, k0, acc, fmt="nvfp4"):
    terms, top = [], []
    for g in range(0, len(va), 16):
        p = Fraction(0)
        for x, y in zip(va[g : g + 16], vb[g : g + 16]):
            p += Fraction(float(x)) * Fraction(float(y))
        j = (k0 + g) // block
        siga, ea = _scale_parts(sa[j], fmt)
        sigb, eb = _scale_parts(sb[j], fmt)
        terms.append(p * siga * sigb * Fraction(2) ** (ea + eb))
        top.append(ea + eb)
    c = Fraction(float(acc))
    top.append(max(math.frexp(float(acc))[1] - 1, -126) if acc else -126)
    unit = Fraction(2) ** (max(top) - 35)
    total = sum(_truncate(t, unit) for t in [*terms, c])
    if total == 0:
        return F(0)
    exponent = max(_floor_log2(abs(total)), -126)
    return F(float(_truncate(total, Fraction(2) ** (exponent - 23))))


def _scale_parts(byte, fmt):
    byte = int(byte)
    if fmt == "mxfp4":
        return Fraction(1), byte - 127
    if byte == 0:
        return Fraction(0), -126
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return (Fraction(mantissa, 8), -6) if exponent == 0 else (1 + Fraction(mantissa, 8), exponent - 7)


def _truncate(value, unit):
    return int(value / unit) * unit  # int() of a Fraction truncates towards zero


def _floor_log2(value):
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


# ---- layouts --------------------------------------------------------------------------------------------------------


def swizzle(scales):
    """128x4 tiles: offset = ((r/128)*ceil(C/4) + c/4)*512 + (r%32)*16 + ((r%128)/32)*4 + c%4."""
    rows, cols = scales.shape
    tiles = -(-cols // 4)
    out = np.zeros(-(-rows // 128) * tiles * 512, np.uint8)
    r, c = np.indices(scales.shape)
    out[((r // 128) * tiles + c // 4) * 512 + (r % 32) * 16 + (r % 128) // 32 * 4 + c % 4] = scales
    return out
