"""Faults seen in other implementations, kinds A to E: zero and tiny scales, saturation, values that are not finite,
rounding. Each goes through every entry point of Python: rowwise, columnwise, tiles, every format."""

import numpy as np
import pytest
from common import F, PLAIN, assert_equal_tensors, bfloat16, bits, codes, linear_scales, values

import nvfp4

DTYPES = [F, bfloat16, np.float16]
ONE = 2688.0  # as a given amax it makes the outer scale 1: block scale = block amax / 6


def oriented(x, axis, **kw):
    """Quantize so that the copy's rows are the rows of x. "tiles" in the axis asks for square tiles, which for a single
    row have the blocks' bytes."""
    axis, _, tiles = axis.partition(" ")
    if tiles:
        kw["block"] = "32x32" if kw.get("format") == "mxfp4" else "16x16"
    return nvfp4.quantize(np.ascontiguousarray(x.T) if axis == "column" else x, axis=axis, **kw)


AXES = ["row", "column"]
ENTRIES = ["row", "column", "row tiles", "column tiles"]


def ulps(got, want):
    return np.abs(np.asarray(got, np.float64) - want) / np.spacing(F(abs(want)))


@pytest.mark.parametrize("axis", ENTRIES)
@pytest.mark.parametrize("dtype", [F, bfloat16])
@pytest.mark.parametrize("chain", ["te", "div6"])
def test_a1_a_zero_block_beside_a_small_one(axis, dtype, chain):
    x = np.zeros((1, 32), dtype)
    x[0, 16:] = dtype(0.006)
    q = oriented(x, axis, chain=chain)
    assert linear_scales(q).tolist() == [[0x00, 0x7E]]
    assert not codes(q)[0, :16].any() and not q.dequantize()[0, :16].any()
    assert ulps(q.dequantize()[0, 16:], float(dtype(0.006))).max() <= 1


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", PLAIN)
def test_no_scale_byte_is_nan_for_finite_input(variant, axis, rng):
    x = rng.standard_normal((40, 64)) * np.exp2(rng.integers(-120, 120, (40, 1)))
    x[rng.random((40, 64)) < 0.3] = 0
    x[5:9] = 0
    for dtype in DTYPES:
        with np.errstate(over="ignore"):
            data = np.clip(x, -6e4, 6e4).astype(dtype) if dtype is np.float16 else x.astype(dtype)
        q = oriented(data, axis, **PLAIN[variant])
        assert (linear_scales(q) < (0xFF if q.format == "mxfp4" else 0x7F)).all()
        assert np.isfinite(q.dequantize()).all()


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", PLAIN)
def test_a2_an_all_zero_tensor(variant, axis):
    for shape in [(1, 16), (33, 48), (256, 4096)]:
        for dtype in DTYPES if shape[1] < 100 else [bfloat16]:
            q = oriented(np.zeros(shape, dtype), axis, **PLAIN[variant])
            assert not q.codes.any() and not linear_scales(q).any()
            assert q.amax is None or not np.asarray(q.amax).any()
            assert not bits(q.dequantize()).any()
    zero = oriented(np.zeros((5, 48), F), axis, **PLAIN[variant])
    other = nvfp4.quantize(np.ones((7, 48), F), **PLAIN[variant])
    if axis == "row":
        assert not bits(nvfp4.gemm(zero, other, out_dtype="float32")).any()


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", [*PLAIN, "rht"])
def test_a3_a_zero_row_does_not_touch_the_others(variant, axis, rng):
    kw = PLAIN.get(variant, {"hadamard": 16})
    x = rng.standard_normal((4, 64)).astype(F)
    x[2] = 0
    x[0, 0] = 4.0
    has_amax = kw.get("format") != "mxfp4" and kw.get("chain") != "single" and "domain" not in kw
    given = {"amax": 4.0} if has_amax else {}
    q = oriented(x, axis, **kw, **given)
    assert not q.dequantize()[2].any()
    if kw.get("block") is None:
        fewer = oriented(np.delete(x, 2, 0), axis, **kw, **given)
        np.testing.assert_array_equal(np.delete(q.codes, 2, 0), fewer.codes)
        np.testing.assert_array_equal(np.delete(q.scales, 2, 0), fewer.scales)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", ["1x32", "32x32"])
def test_a7_a_zero_block_of_mxfp4(axis, block):
    x = np.zeros((1, 64), F)
    x[0, 32:] = 3.0
    for rule, byte, code in (("floor", 126, 7), ("ceil", 126, 7)):  # 3 = 6 * 2^-1; floor(log2 3) - 2 = -1
        q = oriented(x, axis, format="mxfp4", block=block, scale_rule=rule)
        assert linear_scales(q).tolist() == [[0, byte]]
        assert set(codes(q)[0, 32:]) == {code} and not codes(q)[0, :32].any()
        np.testing.assert_array_equal(q.dequantize(), x)
    # What stands in the scale of a zero block does not matter to a product.
    ones = nvfp4.quantize(np.ones((3, 64), F), format="mxfp4")
    q = nvfp4.quantize(x, format="mxfp4")
    want = nvfp4.gemm(q, ones, out_dtype="float32")
    assert (want == 96).all()
    for byte in (0, 1, 127, 200, 254):
        scales = q.scales.copy()
        scales[0, 0] = byte
        other = nvfp4.QuantizedTensor.from_parts(q.codes, scales, format="mxfp4")
        np.testing.assert_array_equal(nvfp4.gemm(other, ones, out_dtype="float32"), want)


@pytest.mark.parametrize("axis", ENTRIES)
def test_b1_tiny_mxfp4(axis):
    q = oriented(np.full((1, 32), 2.0**-126, F), axis, format="mxfp4")
    assert linear_scales(q).tolist() == [[0]] and set(codes(q)[0]) == {4}
    assert (q.dequantize() == F(2.0**-126)).all()
    mixed = np.full((1, 32), 1e-38, F)
    mixed[0, 0] = 1.0
    for x in (np.full((1, 32), 9.2e-40, bfloat16), mixed):
        assert np.count_nonzero(values(x)) == 32
        for rule in ("floor", "ceil", "even", "encode_centric"):
            y = oriented(x, axis, format="mxfp4", scale_rule=rule).dequantize()
            assert np.isfinite(y).all() and (np.abs(y - values(x)) <= np.abs(values(x))).all()


@pytest.mark.parametrize("layout", ["linear", "swizzled"])
def test_b2_every_scale_byte_decodes(layout):
    """All 256 bytes, code 1.0; the sign bit of a scale is never set by us and 0x80 decodes to -0."""
    scales = np.arange(256, dtype=np.uint8)[:, None]
    packed = np.full((256, 8), 0x22, np.uint8)
    given = nvfp4.swizzle_scales(scales) if layout == "swizzled" else scales
    q = nvfp4.QuantizedTensor.from_parts(packed, given, chain="single", scale_layout=layout)
    y = q.dequantize()
    k = np.arange(1, 8)
    np.testing.assert_array_equal(y[1:8, 0], k * 2.0**-9)
    assert y[0, 0] == 0 and y[8, 0] == 2.0**-6 and y[0x7E, 0] == 448 and np.isnan(y[0x7F]).all()
    for byte in range(8, 0x7F):
        assert y[byte, 0] == (1 + (byte & 7) / 8) * 2.0 ** ((byte >> 3) - 7)
    scaled = nvfp4.QuantizedTensor.from_parts(packed, given, ONE, scale_layout=layout).dequantize()
    np.testing.assert_allclose(scaled[:0x7F], y[:0x7F], rtol=1.2e-7)


def test_b3_the_end_bytes_of_e8m0():
    bytes_ = np.array([[0], [1], [127], [254], [255]], np.uint8)
    y = nvfp4.QuantizedTensor.from_parts(np.full((5, 16), 0x22, np.uint8), bytes_, format="mxfp4").dequantize()
    assert bits(y[0, :1])[0] == 0x00400000
    assert (y[:4, 0].astype(np.float64) == [2.0**-127, 2.0**-126, 1, 2.0**127]).all()
    assert np.isnan(y[4]).all()


@pytest.mark.parametrize("axis", ENTRIES)
@pytest.mark.parametrize(
    ("value", "byte", "decoded", "relative"),
    [(1e-36, 0x66, 9.874e-37, 2e-3), (8e-36, 0x7E, 8e-36, 5e-3), (0.01, 0x7E, None, 1.2e-7)],
)
def test_b4_small_tensors_keep_their_range(axis, value, byte, decoded, relative):
    x = np.full((1, 16), value, bfloat16)
    q = oriented(x, axis, chain="div6")
    assert linear_scales(q).tolist() == [[byte]] and set(codes(q)[0]) == {7}
    want = decoded if decoded else float(values(x)[0, 0])
    np.testing.assert_allclose(q.dequantize(), want, rtol=relative)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", ["1x16", "16x16"])
@pytest.mark.parametrize("chain", ["te", "div6"])
def test_c1_a_given_amax_below_the_data_saturates(axis, block, chain):
    x = np.ones((1, 16), F)
    x[0, 0] = 10
    q = oriented(x, axis, amax=1.0, block=block, chain=chain, stats=True)
    assert linear_scales(q).tolist() == [[0x7E]] and set(codes(q)[0]) == {7}
    np.testing.assert_allclose(q.dequantize(), 1.0, rtol=1.2e-7)
    assert q.stats.saturated >= 1


@pytest.mark.parametrize("axis", ENTRIES)
def test_c2_one_level_saturates_and_keeps_the_sign(axis):
    x = np.zeros((1, 16), F)
    x[0, :3] = 3000, -2900, 100
    q = oriented(x, axis, chain="single")
    assert linear_scales(q).tolist() == [[0x7E]]
    assert q.dequantize()[0, :3].tolist() == [2688, -2688, 0]
    assert ulps(oriented(x, axis).dequantize()[0, 0], 3000.0) <= 1


@pytest.mark.parametrize("axis", ENTRIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_d1_a_bad_value_stays_visible_where_it_was(axis, dtype, fmt, bad, rng):
    block, nan = (16, 0x7F) if fmt == "nvfp4" else (32, 0xFF)
    clean = rng.standard_normal((2, 3 * block)).astype(dtype)
    clean[1, 0] = 7
    want = oriented(clean, axis, format=fmt)
    for at in (0, 1, block // 2, block - 1, block + 3):
        x = clean.copy()
        x[0, at] = bad
        q = oriented(x, axis, format=fmt, stats=True)
        hit = at // block
        keep = np.ones((2, 3), bool)
        keep[0 : 2 if "tiles" in axis else 1, hit] = False
        assert linear_scales(q)[0, hit] == nan and not codes(q)[0, hit * block : (hit + 1) * block].any()
        np.testing.assert_array_equal(linear_scales(q)[keep], linear_scales(want)[keep])
        y, z = q.dequantize(), want.dequantize()
        inside = np.repeat(~keep, block, axis=1)
        assert np.isnan(y[inside]).all()
        np.testing.assert_array_equal(y[~inside], z[~inside])
        assert q.stats.nonfinite == 1
        assert q.amax is None or q.amax == 7


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kw", [{}, {"format": "mxfp4"}, {"block": "16x16"}, {"hadamard": 16}])
@pytest.mark.parametrize("axis", AXES)
def test_saturate_replaces_bad_values(dtype, kw, axis, rng):
    x = rng.standard_normal((20, 40)).astype(dtype)
    x[3, 4], x[5, 6], x[7, 8] = np.nan, np.inf, -np.inf
    clean = x.copy()
    big = {F: np.finfo(F).max, np.float16: 65504, bfloat16: 3.3895314e38}[dtype]
    clean[3, 4], clean[5, 6], clean[7, 8] = 0, big, -big
    got = nvfp4.quantize(x, nonfinite="saturate", axis=axis, stats=True, **kw)
    assert_equal_tensors(got, nvfp4.quantize(clean, nonfinite="saturate", axis=axis, **kw))
    assert got.stats.nonfinite == 3
    assert np.isfinite(got.dequantize()).all()


@pytest.mark.parametrize("amax", [np.nan, np.inf, -np.inf, -1.0, 1e39])
@pytest.mark.parametrize("axis", ["row", "column", "both"])
def test_a_given_amax_must_be_finite_and_not_negative(amax, axis):
    x = np.ones((16, 16), F)
    with np.errstate(over="ignore"), pytest.raises(nvfp4.ArgumentError, match=r"(?i)amax.*(nan|inf|-1)"):
        nvfp4.quantize(x, amax=np.float64(amax), axis=axis)
    q = nvfp4.quantize(x)
    with np.errstate(over="ignore"), pytest.raises(nvfp4.ArgumentError, match=r"(?i)amax.*(nan|inf|-1)"):
        nvfp4.QuantizedTensor.from_parts(q.codes, q.scales, np.float64(amax))


HALVES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("kw", [{}, {"chain": "div6"}, {"chain": "single"}, {"block": "16x16"}])
def test_e1_ties_go_to_the_even_code(axis, kw):
    given = {} if kw.get("chain") == "single" else {"amax": ONE}
    up, down = np.nextafter(F(HALVES), F(9)), np.nextafter(F(HALVES), F(0))
    for sign, bit in ((1, 0), (-1, 8)):
        for data, want in ((F(HALVES), [0, 2, 2, 4, 4, 6, 6]), (up, [1, 2, 3, 4, 5, 6, 7]), (down, [0, 1, 2, 3, 4, 5, 6])):
            x = np.zeros((1, 16), F)
            x[0, 0] = 6
            x[0, 1:8] = sign * data
            q = oriented(x, axis, **kw, **given)
            assert codes(q)[0, 1:8].tolist() == [code | bit for code in want]
            assert linear_scales(q).tolist() == [[0x38]]


@pytest.mark.parametrize("axis", AXES)
def test_e2_all_codes_survive_decode_and_encode(axis):
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    for order in (range(16), [15 - i for i in range(16)], [i ^ 1 for i in range(16)]):
        order = np.array(list(order), np.uint8)
        packed = (order[::2] | order[1::2] << 4)[None, :]
        q = nvfp4.QuantizedTensor.from_parts(packed, np.array([[0x38]], np.uint8), chain="single")
        y = q.dequantize()
        want = np.array([table[c & 7] * (-1.0 if c & 8 else 1.0) for c in order], F)
        np.testing.assert_array_equal(bits(y[0]), bits(want))
        np.testing.assert_array_equal(oriented(y, axis, chain="single").codes, packed)


@pytest.mark.parametrize("axis", ENTRIES)
def test_e3_elements_are_encoded_with_the_scale_that_decodes_them(axis):
    q = oriented(np.full((1, 32), 4.0, F), axis, format="mxfp4", scale_rule="ceil")
    assert linear_scales(q).tolist() == [[127]] and set(codes(q)[0]) == {6} and (q.dequantize() == 4).all()
    x = np.zeros((1, 16), F)
    x[0, :2] = 6.3, 2.6
    q = oriented(x, axis, amax=ONE)
    assert linear_scales(q).tolist() == [[0x38]] and codes(q)[0, :2].tolist() == [7, 5]
    np.testing.assert_allclose(q.dequantize()[0, :2], [6, 3], rtol=1.2e-7)


@pytest.mark.parametrize("axis", ENTRIES)
def test_e4_the_mx_exponent_comes_from_the_f32_value(axis):
    for value, byte in ((7.9999995, 127), (3.9999998, 126)):
        assert linear_scales(oriented(np.full((1, 32), value, F), axis, format="mxfp4")).tolist() == [[byte]]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", ["1x32", "32x32"])
@pytest.mark.parametrize(
    ("rule", "want"),
    [("floor", [127] * 6 + [128]), ("ceil", [127, 127, 127, 128, 128, 128, 128])],
)
def test_e5_exponent_rules(axis, block, rule, want):
    for value, byte in zip([4, 5, 6.0, 6.0000005, 6.5, 7.9, 8], want):
        x = np.zeros((1, 32), F)
        x[0, 9] = value
        q = oriented(x, axis, format="mxfp4", block=block, scale_rule=rule)
        assert linear_scales(q).tolist() == [[byte]]
        assert q.scale_rule == rule
        if rule == "ceil":
            assert oriented(x, axis, format="mxfp4", scale_rule=rule, stats=True).stats.saturated == 0


@pytest.mark.parametrize("axis", ENTRIES)
def test_e8_codes_are_rounded_not_truncated(axis):
    x = np.zeros((1, 16), F)
    x[0, :7] = 6, 0.49, 0.74, 1.74, 2.6, 3.6, 5.1
    assert oriented(x, axis, chain="single").dequantize()[0, 1:7].tolist() == [0.5, 0.5, 1.5, 3, 4, 6]


@pytest.mark.parametrize("axis", ENTRIES)
def test_n4_each_block_has_its_own_scale(axis):
    x = np.repeat([1, 100, 1, 100], 16).astype(F)[None, :]
    q = oriented(x, axis)
    assert linear_scales(q).tolist() == [[0x49, 0x7E, 0x49, 0x7E]]
    np.testing.assert_allclose(q.dequantize()[0, [0, 20, 40, 60]], [1.00446, 100, 1.00446, 100], rtol=1e-5)
