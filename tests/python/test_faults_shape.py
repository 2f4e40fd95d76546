"""Faults seen in other implementations, kinds F to J: tails, logical against packed extents, the swizzled layout and its
padding, empty matrices, views and alignment, more than 2^31 elements."""

import pathlib
import re

import numpy as np
import pytest
from common import F, PLAIN, assert_bytes, assert_equal_tensors, assert_same, bfloat16, bits, expected, linear_scales

import nvfp4
import oracle

AXES = ["row", "column"]
FORMATS = ["nvfp4", "mxfp4"]


def ones(rows, cols, fmt="nvfp4", scale=None, **kw):
    """All codes 1.0 with all scales `scale` (1.0)."""
    block, one = (16, 0x38) if fmt == "nvfp4" else (32, 127)
    packed = np.full((rows, -(-cols // 2)), 0x22, np.uint8)
    if cols % 2:
        packed[:, -1] = 0x02
    scales = np.full((rows, -(-cols // block)), one if scale is None else scale, np.uint8)
    chain = {"chain": "single"} if fmt == "nvfp4" else {}
    return nvfp4.QuantizedTensor.from_parts(packed, scales, cols=cols, format=fmt, **chain, **kw)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", PLAIN)
def test_f1_f2_any_shape_and_padding_changes_nothing(variant, axis, rng):
    """A tail is quantized as the zero-padded matrix, cut."""
    kw = PLAIN[variant]
    block = 32 if kw.get("format") == "mxfp4" else 16
    for shape in [(1, 16), (33, 16), (3, 48), (5, 80), (1, 15), (7, 17), (2, 24), (3, 1000), (40, 24), (1, 1), (31, 33)]:
        x = rng.standard_normal(shape).astype(F)
        if axis == "column":
            x = np.ascontiguousarray(x.T)
        q = nvfp4.quantize(x, axis=axis, **kw)
        padded = np.zeros([-(-s // block) * block for s in x.shape], F)
        padded[: x.shape[0], : x.shape[1]] = x
        if "domain" in kw:
            continue
        p = nvfp4.quantize(padded, axis=axis, **kw)
        assert q.amax is None or q.amax == p.amax
        assert_bytes(linear_scales(q), linear_scales(p)[: q.rows], "scales")
        np.testing.assert_array_equal(bits(q.dequantize()), bits(p.dequantize()[: q.rows, : q.cols]))
        if q.cols % 2:
            assert not (q.codes[:, -1] >> 4).any(), "the spare nibble is 0"


def test_f2_many_rows(rng):
    x = rng.standard_normal((5743, 40)).astype(bfloat16)
    for kw in ({}, {"format": "mxfp4"}, {"block": "16x16"}):
        for axis in AXES:
            assert_same(nvfp4.quantize(x, axis=axis, **kw), expected(x, axis, **kw))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("k", [272, 528, 1040])
def test_f3_a_batch_never_touches_its_neighbours(fmt, k):
    for m, n in ((1, 3), (5, 2)):
        nan = 0x7F if fmt == "nvfp4" else 0xFF
        a = [ones(m, k, fmt, nan), ones(m, k, fmt), ones(m, k, fmt, nan)]
        b = [ones(n, k, fmt, nan), ones(n, k, fmt), ones(n, k, fmt)]
        for mode in ("block", "hardware"):
            d = nvfp4.gemm(a, b, out_dtype="float32", accumulate=mode)
            assert d.shape == (3, m, n)
            assert (d[1] == k).all() and np.isnan(d[0]).all() and np.isnan(d[2]).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_f4_logical_and_packed_extents(fmt):
    q = ones(4, 64, fmt)
    assert q.shape == (4, 64) and q.codes.shape == (4, 32)
    assert (nvfp4.gemm(q, ones(3, 64, fmt), out_dtype="float32") == 64).all()
    good = q.scales.shape[1]
    for wrong in (2, 4, 8):
        if wrong == good:
            continue
        with pytest.raises(nvfp4.ArgumentError, match=rf"\[4, {wrong}\].*\[4, {good}\]"):
            nvfp4.QuantizedTensor.from_parts(q.codes, np.zeros((4, wrong), np.uint8), 1.0 if fmt == "nvfp4" else None, format=fmt)
    with pytest.raises(nvfp4.ArgumentError, match=r"\[4, 32\].*32 columns.*\[4, 16\]"):
        nvfp4.QuantizedTensor.from_parts(q.codes, q.scales, 1.0, cols=32)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("m", [1, 5, 33, 129, 255])
def test_g1_the_padding_of_swizzled_scales_is_written(fmt, m, poison, rng):
    for k in (16, 48, 80):
        x = rng.standard_normal((m, k)).astype(F)
        q = nvfp4.quantize(x, format=fmt, scale_layout="swizzled")
        want = nvfp4.quantize(x, format=fmt)
        np.testing.assert_array_equal(q.scales, oracle.swizzle(want.scales))
        b = nvfp4.quantize(rng.standard_normal((7, k)).astype(F), format=fmt, scale_layout="swizzled")
        d = nvfp4.gemm(q, b, out_dtype="float32")
        assert np.isfinite(d).all() and d.any()
        np.testing.assert_array_equal(d, nvfp4.gemm(want, b, out_dtype="float32"))


@pytest.mark.parametrize(("fmt", "k"), [("mxfp4", 1504), ("mxfp4", 32), ("nvfp4", 1008), ("nvfp4", 16)])
def test_g2_the_consumer_does_not_read_the_padding(fmt, k, rng):
    q = nvfp4.quantize(rng.standard_normal((5, k)).astype(F), format=fmt, scale_layout="swizzled")
    real = oracle.swizzle(np.ones((5, -(-k // (16 if fmt == "nvfp4" else 32))), np.uint8)) == 1
    other = nvfp4.quantize(rng.standard_normal((3, k)).astype(F), format=fmt)
    clean = nvfp4.gemm(q, other, out_dtype="float32")
    assert clean.any()
    for dirt in (0xFF, 0x7F, 0x01):
        scales = np.where(real, q.scales, dirt).astype(np.uint8)
        dirty = nvfp4.QuantizedTensor.from_parts(q.codes, scales, q.amax, cols=k, format=fmt, scale_layout="swizzled")
        np.testing.assert_array_equal(nvfp4.gemm(dirty, other, out_dtype="float32"), clean)
        np.testing.assert_array_equal(nvfp4.gemm(other, dirty, out_dtype="float32"), clean.T)
        np.testing.assert_array_equal(dirty.dequantize(), q.dequantize())


@pytest.mark.parametrize(("m", "c"), [(1, 1), (33, 2), (128, 4), (130, 2), (300, 7), (0, 3), (3, 0)])
def test_g3_swizzle_and_back(m, c, poison, rng):
    scales = rng.integers(1, 255, (m, c), dtype=np.uint8)
    swizzled = nvfp4.swizzle_scales(scales)
    assert swizzled.size == 128 * -(-m // 128) * 4 * -(-c // 4)
    np.testing.assert_array_equal(swizzled, oracle.swizzle(scales))
    np.testing.assert_array_equal(nvfp4.unswizzle_scales(swizzled, m, c), scales)


@pytest.mark.parametrize(("c", "r", "at", "offset"), [(8, 33, 5, 533), (2, 129, 0, 528), (4, 127, 3, 511)])
def test_g3_offsets_by_hand(c, r, at, offset):
    scales = np.zeros((r + 1, c), np.uint8)
    scales[r, at] = 77
    assert np.flatnonzero(nvfp4.swizzle_scales(scales)).tolist() == [offset]


@pytest.mark.parametrize("fmt", FORMATS)
def test_g4_the_layout_travels_with_the_tensor(fmt, rng):
    x = rng.standard_normal((128, 64)).astype(F)
    linear, swizzled = (nvfp4.quantize(x, format=fmt, scale_layout=layout) for layout in ("linear", "swizzled"))
    want = nvfp4.gemm(linear, linear, out_dtype="float32")
    for a, b in ((linear, swizzled), (swizzled, linear), (swizzled, swizzled)):
        np.testing.assert_array_equal(nvfp4.gemm(a, b, out_dtype="float32"), want)
    with pytest.raises(nvfp4.ArgumentError, match=r"2048|1024|512"):
        nvfp4.QuantizedTensor.from_parts(
            linear.codes, swizzled.scales[:-1], linear.amax, format=fmt, scale_layout="swizzled"
        )
    with pytest.raises(nvfp4.ArgumentError, match="scales"):
        nvfp4.QuantizedTensor.from_parts(linear.codes, swizzled.scales, linear.amax, format=fmt)


def test_g5_swizzle_copies_only_real_bytes(poison, rng):
    base = np.full((128, 4), 0xFF, np.uint8)
    base[:100, :3] = rng.integers(1, 127, (100, 3))
    swizzled = nvfp4.swizzle_scales(base[:100, :3])
    assert np.count_nonzero(swizzled) == 300 and swizzled.size == 512


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", [*PLAIN, "rht", "sr", "bf16"])
@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0)])
def test_h1_empty_matrices(shape, variant, axis):
    special = {"rht": {"hadamard": 16}, "sr": {"rounding": "stochastic"}, "bf16": {"format": "bf16"}}
    kw = PLAIN.get(variant) if variant in PLAIN else special[variant]
    for layout in ("linear", "swizzled"):
        if variant == "bf16" and layout == "swizzled":
            continue
        q = nvfp4.quantize(np.zeros(shape, F), axis=axis, scale_layout=layout, stats=True, **kw)
        rows, cols = shape if axis == "row" else shape[::-1]
        assert q.shape == (rows, cols) and q.codes.size == 0
        assert q.amax is None or not np.asarray(q.amax).any()
        assert q.dequantize().shape == (rows, cols) and q.dequantize("bfloat16", transpose=True).shape == (cols, rows)
        assert q.stats == nvfp4.Stats(0, 0, 0, 0.0, 0.0)
        assert (q.scales is None) or not q.scales.any()


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 32), (5, 0, 32), (5, 3, 0), (0, 0, 0)])
def test_h1_empty_products(m, n, k, poison, rng):
    for fmt in FORMATS:
        a, b = (nvfp4.quantize(np.ones((rows, k), F), format=fmt) for rows in (m, n))
        assert not nvfp4.gemm(a, b, out_dtype="float32").any()
        c = rng.standard_normal((m, n)).astype(F)
        bias = rng.standard_normal(n).astype(F)
        d = nvfp4.gemm(a, b, c=c, beta=2.0, bias=bias, out_dtype="float32")
        assert d.shape == (m, n)
        if k == 0:
            np.testing.assert_array_equal(d, F(2) * c + bias)
            np.testing.assert_array_equal(nvfp4.gemm(a, b, bias=bias, out_dtype="float32"), np.tile(bias, (m, 1)))
    assert nvfp4.hadamard(np.zeros((m, n), F)).shape == (m, -(-n // 16) * 16)
    x, w, dy = np.ones((m, k), F), np.ones((n, k), F), np.ones((m, n), F)
    assert not nvfp4.linear(x, w).any() or k
    dx, dw = nvfp4.linear_backward(dy, x, w)
    assert dx.shape == x.shape and dw.shape == w.shape
    assert m or not dw.any()


@pytest.mark.parametrize("offset", [1, 2, 4, 8, 16])
def test_i2_inputs_at_any_address(offset, rng):
    x = rng.standard_normal((30, 33)).astype(bfloat16)
    raw = np.zeros(x.nbytes + 64, np.uint8)
    moved = raw[offset : offset + x.nbytes].view(bfloat16).reshape(x.shape)
    moved[...] = x
    for axis in AXES:
        assert_equal_tensors(nvfp4.quantize(moved, axis=axis), nvfp4.quantize(x, axis=axis))
    q = nvfp4.quantize(x)
    parts = []
    for part in (q.codes, q.scales):
        raw = np.zeros(part.nbytes + 64, np.uint8)
        raw[offset : offset + part.nbytes] = part.reshape(-1)
        parts.append(raw[offset : offset + part.nbytes].reshape(part.shape))
    shifted = nvfp4.QuantizedTensor.from_parts(*parts, q.amax, cols=33)
    np.testing.assert_array_equal(shifted.dequantize(), q.dequantize())
    np.testing.assert_array_equal(nvfp4.gemm(shifted, shifted), nvfp4.gemm(q, q))


def available_gib():
    meminfo = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+)", meminfo).group(1)) / 2**20


@pytest.mark.parametrize("fmt", FORMATS)
def test_j1_more_than_2_to_31_elements(fmt):
    """The zeros of the input are pages that nobody wrote, so 1.3 GB of memory are enough."""
    if available_gib() < 4:
        pytest.skip(f"needs 4 GiB of free memory, {available_gib():.1f} are there")
    x = np.zeros((65537, 32768), bfloat16)
    x[-1] = np.tile(np.arange(1, 17), 2048).astype(bfloat16)
    q = nvfp4.quantize(x, format=fmt)
    assert q.amax in (16, None) and not q.codes[:-1].any() and not q.scales[:-1].any()
    last = nvfp4.quantize(x[-1:], format=fmt)
    np.testing.assert_array_equal(q.codes[-1], last.codes[0])
    np.testing.assert_array_equal(q.scales[-1], last.scales[0])
    tail = nvfp4.QuantizedTensor.from_parts(q.codes[-1:], q.scales[-1:], q.amax, format=fmt)
    np.testing.assert_array_equal(tail.dequantize(), last.dequantize())
