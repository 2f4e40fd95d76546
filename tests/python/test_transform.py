"""The Hadamard transform by itself and inside quantize, square tiles and their transpose (kind N)."""

import numpy as np
import pytest
from common import F, assert_bytes, assert_equal_tensors, assert_same, bfloat16, bits, codes, expected, linear_scales, wide

import nvfp4
import oracle

LENGTHS = [16, 32, 64, 128]


def matrix(n, mask):
    """diag(sign) H / sqrt(n) in float64."""
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    sign = np.array([-1.0 if mask >> i & 1 else 1.0 for i in range(n)])
    return sign[:, None] * h / np.sqrt(n)


def masks(n):
    """(given, as applied)"""
    yield None, oracle.repeated(0xD7E8, n)
    yield 0xD7E8, oracle.repeated(0xD7E8, n)
    yield 0, 0
    yield 0x0001, oracle.repeated(1, n)
    if n > 16:
        yield 1 << (n - 1) | 0x5, 1 << (n - 1) | 0x5
    bits_ = [i % 3 == 0 for i in range(n)]
    yield bits_, sum(1 << i for i, b in enumerate(bits_) if b)
    yield np.array([i == 2 for i in range(n)]), 4  # below 2^16, yet not repeated


@pytest.mark.parametrize("n", LENGTHS)
def test_the_transform_is_the_matrix(n, rng):
    x = rng.standard_normal((5, 2 * n)).astype(F)
    for given, applied in masks(n):
        y = nvfp4.hadamard(x, n, given)
        want = (x.reshape(5, 2, n).astype(np.float64) @ matrix(n, applied)).reshape(5, 2 * n)
        np.testing.assert_allclose(y, want, atol=2e-6)
        np.testing.assert_array_equal(bits(y), bits(oracle.hadamard(x, n, applied, keep_f32=True)))
        column = nvfp4.hadamard(np.ascontiguousarray(x.T), n, given, axis="column")
        np.testing.assert_array_equal(bits(column), bits(y.T))
        back = nvfp4.hadamard(y, n, given, inverse=True)
        np.testing.assert_allclose(back, x, atol=2e-6)
        q = nvfp4.quantize(x, hadamard=n, sign_mask=given)
        assert q.sign_mask == applied and q.hadamard == n


@pytest.mark.parametrize("n", LENGTHS)
def test_seeded_signs(n, rng):
    x = rng.standard_normal((3, n)).astype(F)
    seed, offset = (9 << 40) + 3, (1 << 35) + 2
    mask = oracle.seeded_mask(n, seed, offset)
    y = nvfp4.hadamard(x, n, "seeded", seed=seed, offset=offset)
    np.testing.assert_array_equal(bits(y), bits(oracle.hadamard(x, n, mask, keep_f32=True)))
    q = nvfp4.quantize(x, hadamard=n, sign_mask="seeded", seed=seed, offset=offset)
    assert q.sign_mask == mask
    other = nvfp4.quantize(x, hadamard=n, sign_mask="seeded", seed=seed, offset=offset + 1)
    assert other.sign_mask != mask


@pytest.mark.parametrize("axis", ["row", "column"])
def test_a_tail_is_padded_with_zeros(axis, poison, rng):
    for shape in [(5, 17), (33, 40), (1, 1), (16, 100)]:
        for n in LENGTHS:
            x = rng.standard_normal(shape).astype(F)
            y = nvfp4.hadamard(x, n, axis=axis)
            want = oracle.hadamard(x if axis == "row" else x.T, n, oracle.repeated(0xD7E8, n), keep_f32=True)
            np.testing.assert_array_equal(bits(y), bits(want if axis == "row" else want.T))
            q = nvfp4.quantize(x, hadamard=n, axis=axis)
            assert q.cols == -(-(shape[1] if axis == "row" else shape[0]) // n) * n
            assert q.source_cols == (shape[1] if axis == "row" else shape[0])
            assert_same(q, expected(x, axis, hadamard=n))


@pytest.mark.parametrize("dtype", [bfloat16, np.float16])
def test_the_result_has_the_type_of_the_input(dtype, rng):
    x = rng.standard_normal((4, 32)).astype(dtype)
    y = nvfp4.hadamard(x, 32, 0)
    assert y.dtype == x.dtype
    want = oracle.hadamard(x.astype(F), 32, 0, keep_f32=True).astype(dtype)
    np.testing.assert_array_equal(y.view(np.uint16), want.view(np.uint16))


def test_a_zero_result_is_plus_zero():
    x = np.zeros((1, 16), F)
    x[0, :2] = 1, 1
    assert not np.signbit(nvfp4.hadamard(x, 16, 0)[nvfp4.hadamard(x, 16, 0) == 0]).any()
    assert not bits(nvfp4.hadamard(-np.zeros((1, 16), F), 16, 0)).any()


def test_n1_operands_with_other_signs_must_not_meet():
    e0 = np.zeros((16, 1), F)
    e0[0] = 1
    s, t = 0x0000, 0x0001

    def copy(mask, n=16):
        return nvfp4.quantize(e0, axis="column", hadamard=n, sign_mask=mask)

    assert nvfp4.gemm(copy(s), copy(s), out_dtype="float32") == pytest.approx(1, rel=1e-6)
    assert nvfp4.gemm(copy(t), copy(t), out_dtype="float32") == pytest.approx(1, rel=1e-6)
    for a, b in ((copy(s), copy(t)), (copy(s), nvfp4.quantize(e0, axis="column")), (copy(0), copy(0, 32))):
        with pytest.raises(nvfp4.ArgumentError) as error:
            nvfp4.gemm(a, b)
        assert error.value.status_name in ("NVFP4_ERR_MISMATCH", "NVFP4_ERR_SHAPE")


def test_n1_the_transform_cancels(rng):
    x, y = rng.standard_normal((256, 5)), rng.standard_normal((256, 7))
    hx, hy = (nvfp4.hadamard(v.astype(F), 16, axis="column").astype(np.float64) for v in (x, y))
    np.testing.assert_allclose(hx.T @ hy, x.T @ y, atol=2e-5)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_n2_amax_is_of_the_values_that_are_quantized(axis):
    x = np.zeros((1, 16), F)
    x[0, :2] = 1, 2.0**-9
    x = np.ascontiguousarray(x.T) if axis == "column" else x
    assert nvfp4.quantize(x, hadamard=16, sign_mask=0, axis=axis).amax == 0.25
    assert nvfp4.quantize(x, hadamard=16, sign_mask=0, axis=axis, keep_f32=True).amax == 0.25048828125
    assert nvfp4.amax(x, {"hadamard": 16, "sign_mask": 0}, axis=axis) == 0.25


def weight():
    i, j = np.indices((48, 32))
    return (((37 * i + 11 * j) % 29 - 14) / 8).astype(F)


@pytest.mark.parametrize("chain", ["te", "div6"])
@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_n3_tiles_commute_with_transposition(fmt, chain, poison):
    kw = {"block": "16x16", "chain": chain} if fmt == "nvfp4" else {"format": "mxfp4", "block": "32x32"}
    side = 16 if fmt == "nvfp4" else 32
    w = weight()
    row = nvfp4.quantize(w, **kw)
    both_row, both_column = nvfp4.quantize(w, axis="both", **kw)
    column = nvfp4.quantize(w, axis="column", **kw)
    transposed = nvfp4.quantize(np.ascontiguousarray(w.T), **kw)
    shuffled = nvfp4.transpose(row)
    assert_equal_tensors(row, both_row)
    for other in (both_column, column, transposed, shuffled):
        assert_bytes(codes(other), np.ascontiguousarray(codes(row).T), "codes")
        tiles = linear_scales(row)[::side]
        assert_bytes(linear_scales(other)[::side], np.ascontiguousarray(tiles.T), "tile scales")
        np.testing.assert_array_equal(bits(other.dequantize()), bits(row.dequantize().T))
        assert other.amax == row.amax
    assert linear_scales(row).shape == (48, -(-32 // side))


def test_transpose_of_any_shape_and_layout(poison, rng):
    for shape in [(1, 1), (15, 33), (16, 16), (50, 70), (0, 5)]:
        x = wide(rng, shape)
        for kw in ({"block": "16x16"}, {"format": "mxfp4", "block": "32x32"}):
            for layout in ("linear", "swizzled"):
                q = nvfp4.quantize(x, scale_layout=layout, **kw)
                want = nvfp4.quantize(np.ascontiguousarray(x.T), scale_layout=layout, **kw)
                got = nvfp4.transpose(q)
                assert_equal_tensors(got, want)
                np.testing.assert_array_equal(got.scales, want.scales)
    for kw in ({"block": "16x16", "rounding": "stochastic"}, {"block": "16x16", "select": "4over6"}):
        row, column = nvfp4.quantize(wide(rng, (40, 37)), axis="both", **kw)
        assert_equal_tensors(nvfp4.transpose(row), column)


def test_transpose_needs_tiles(rng):
    with pytest.raises(nvfp4.Error, match=r"(?i)tile|2d|block"):
        nvfp4.transpose(nvfp4.quantize(rng.standard_normal((16, 16)).astype(F)))


def test_1d_blocks_do_not_claim_to_commute():
    row, column = nvfp4.quantize(weight(), axis="both")
    assert not np.array_equal(codes(row).T, codes(column))
