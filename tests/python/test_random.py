"""Stochastic rounding (kind M), and slices that must equal the whole."""

import numpy as np
import pytest
from common import ALL, F, assert_bytes, assert_equal_tensors, bfloat16, codes, linear_scales

import nvfp4
import oracle

ONE = 2688.0
AXES = ["row", "column"]


def draw(x, axis="row", **kw):
    """Stochastic rounding of the rows of x at scale 1 (each block holds a 6)."""
    x = np.ascontiguousarray(x.T) if axis == "column" else x
    return nvfp4.quantize(x, rounding="stochastic", axis=axis, amax=ONE, **kw)


def with_six(value, rows, cols=4096):
    x = np.full((rows, cols), value, F)
    x[:, ::16] = 6
    return x


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", ["1x16", "16x16"])
def test_m1_values_go_to_a_neighbour(axis, block):
    q = draw(with_six(2.25, 16, 64), axis, block=block, seed=5)
    y = q.dequantize()
    assert set(np.unique(y)) == {2, 3, 6} and (y[:, ::16] == 6).all()


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("value", "sigma", "gap"), [(2.25, 0.0022, 1), (0.1, 0.001, 0.5), (1.3, 0.0012, 0.5), (5.9, 0.0022, 2)])
def test_m2_the_mean_is_the_value(axis, sign, value, sigma, gap):
    x = with_six(sign * value, 256)
    y = draw(x, axis, seed=11).dequantize().astype(np.float64)
    y = np.delete(y.reshape(256, 256, 16), 0, axis=2)
    assert abs(y.mean() - sign * float(F(value))) <= sigma + gap / 256


@pytest.mark.parametrize("axis", AXES)
def test_m2_values_on_the_grid_never_move(axis):
    grid = np.array([6, 0, 0.5, 1, 1.5, 2, 3, 4, -0.5, -1, -1.5, -2, -3, -4, -6, -0.0], F)
    x = np.tile(grid, (512, 4))
    for seed in range(8):
        got = draw(x, axis, seed=seed)
        np.testing.assert_array_equal(codes(got)[0], np.tile([7, 0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 8], 4))
        assert (codes(got) == codes(got)[0]).all()


@pytest.mark.parametrize("axis", AXES)
def test_m3_the_draw_is_a_function_of_seed_and_offset(axis):
    x = with_six(2.25, 256)
    first = draw(x, axis, seed=1, offset=9)
    assert_equal_tensors(first, draw(x, axis, seed=1, offset=9))
    a = (codes(first).reshape(256, 256, 16)[..., 1:] == 5).astype(np.float64) - 0.25
    for other in (
        {"seed": 1, "offset": 10}, {"seed": 2, "offset": 9}, {"seed": 1 + (1 << 32), "offset": 9},
        {"seed": 1, "offset": 9 + (1 << 32)}, {"seed": 1, "offset": (1 << 62) - 1},
    ):  # fmt: skip
        b = (codes(draw(x, axis, **other)).reshape(256, 256, 16)[..., 1:] == 5).astype(np.float64) - 0.25
        assert abs((a != b).mean() - 0.375) < 0.005
        assert abs((a * b).mean() / 0.1875) < 0.005
    flat = a.reshape(256, -1)
    for x0, x1 in ((flat[:, :-1], flat[:, 1:]), (flat[:-1], flat[1:]), (a[:, :-1], a[:, 1:])):
        assert abs((x0 * x1).mean() / 0.1875) < 0.006
    with pytest.raises(nvfp4.ArgumentError, match=str(1 << 62)):
        draw(x[:1], axis, offset=1 << 62)


def test_the_two_copies_draw_different_bits():
    x = np.full((256, 256), 2.25, F)
    x[np.add.outer(np.arange(256), np.arange(256)) % 16 == 0] = 6  # one in each block of both copies
    row, column = nvfp4.quantize(x, axis="both", rounding="stochastic", amax=ONE, seed=3)
    same = (codes(row) == codes(column).T).mean()
    assert abs(same - (1 + 15 * 0.625) / 16) < 0.01


@pytest.mark.parametrize("kw", [{}, {"format": "mxfp4"}, {"chain": "div6"}])
def test_means_of_4096_draws(kw, rng):
    """Every element with |x e| <= 6: the mean within 5 standard errors plus the stated bias; others are 6 in each draw."""
    x = rng.standard_normal((4, 96)).astype(F)
    o = oracle.quantize(x, fmt=kw.get("format", "nvfp4"), chain=kw.get("chain", "te"))
    unit = oracle.decode(oracle.Quantized(np.full_like(o.codes, 2), o.scales, o.row_amax, o.fmt, o.chain)).astype(np.float64)
    v = x.astype(np.float64) / unit  # in steps of the grid
    total = np.zeros_like(v)
    draws = 4096
    for offset in range(draws):
        total += nvfp4.quantize(x, rounding="stochastic", offset=offset, **kw).dequantize()
    mean = total / draws / unit
    a = np.minimum(np.abs(v), 6)
    low = oracle.GRID[np.minimum(np.searchsorted(oracle.GRID, a, side="right") - 1, 6)]
    gap = oracle.GRID[np.searchsorted(oracle.GRID, low) + 1] - low
    p = (a - low) / gap
    allowed = 5 * gap * np.sqrt(np.maximum(p * (1 - p), 1e-4) / draws) + gap / 256 + 1e-5
    inside = np.abs(v) <= 6
    assert (np.abs(mean - v)[inside] <= allowed[inside]).all()
    np.testing.assert_allclose(np.abs(mean)[~inside], 6, rtol=1e-5)


def test_range_16_17_averages_out():
    """Nothing clips, so n draws gain one bit for each 4 times n."""
    x = np.random.default_rng(5).standard_normal((64, 512)).astype(F)
    total, errors = np.zeros(x.shape), {}
    for n in range(1, 257):
        total += nvfp4.quantize(x, rounding="stochastic", range_16_17=True, seed=8, offset=n, stats=True).dequantize()
        if n in (1, 4, 16, 64, 256):
            errors[n] = np.sqrt(((total / n - x) ** 2).mean())
    ratios = [errors[n] / errors[4 * n] for n in (1, 4, 16, 64)]
    assert all(1.8 < r < 2.15 for r in ratios), ratios
    q = nvfp4.quantize(x, rounding="stochastic", range_16_17=True, stats=True)
    assert q.stats.saturated == 0 and q.range_16_17
    assert q.stats.relative_error == pytest.approx(23.5e-3, rel=0.03)
    assert nvfp4.quantize(x, rounding="stochastic", stats=True).stats.relative_error == pytest.approx(18.8e-3, rel=0.03)


SHARDED = ["te", "tiles", "mx_floor", "mx_tiles", "four6", "sr", "sr_range", "mx_sr", "tiles_sr", "rht16", "rht16_sr",
           "rht64_mask", "rht128_seeded", "four6_sr", "single"]  # fmt: skip


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("variant", SHARDED)
def test_a_slice_quantizes_to_the_slice_of_the_whole(variant, axis, rng):
    kw = dict(ALL[variant], seed=77, offset=(3 << 33) + 5)
    x = rng.standard_normal((256, 384)).astype(bfloat16)
    if kw.get("format") != "mxfp4" and kw.get("chain") != "single":
        kw["amax"] = 5.5
    whole = nvfp4.quantize(x, axis=axis, **kw)
    block = 32 if kw.get("format") == "mxfp4" else 16
    step = max(kw.get("hadamard", 0), block)
    for r0, r1, c0, c1 in [(step, 256, 0, 384), (0, step, step, 384), (step, 2 * step, step, 3 * step), (128, 250, 256, 383)]:
        origin = (r0, c0)
        part = nvfp4.quantize(x[r0:r1, c0:c1], axis=axis, origin=origin, **kw)
        if axis == "column":
            r0, r1, c0, c1 = c0, c1, r0, r1
        if kw.get("hadamard") and (c1 - c0) % kw["hadamard"]:
            continue  # a cut inside a transform is another transform
        wanted = codes(whole)[r0:r1, c0:c1]
        if (r1 - r0) % block and "block" in kw or (c1 - c0) % block:
            # The last, cut block has another maximum; the others are the whole's.
            rows, cols = (r1 - r0) // block * block if "block" in kw else r1 - r0, (c1 - c0) // block * block
            assert_bytes(codes(part)[:rows, :cols], wanted[:rows, :cols], "codes")
            continue
        assert_bytes(codes(part), wanted, "codes")
        assert_bytes(linear_scales(part), linear_scales(whole)[r0:r1, c0 // block : -(-c1 // block)], "scales")


@pytest.mark.parametrize("axis", AXES)
def test_far_origins(axis, rng):
    """Coordinates beyond 2^32 count in full."""
    x = rng.standard_normal((16, 32)).astype(F)
    seen = []
    for origin in [(0, 0), (1 << 32, 0), (0, 1 << 35), (1 << 35, 1 << 32), (16, 16)]:
        q = nvfp4.quantize(x, rounding="stochastic", origin=origin, axis=axis)
        y = np.ascontiguousarray(x.T) if axis == "column" else x
        o = oracle.quantize(y, rounding="stochastic", origin=origin if axis == "row" else origin[::-1], columnwise=axis == "column")
        np.testing.assert_array_equal(q.codes, o.packed)
        seen.append(q.codes.tobytes())
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(("origin", "kw"), [((0, 8), {}), ((8, 0), {"block": "16x16"}), ((0, 16), {"hadamard": 32}), ((-16, 0), {})])
def test_an_origin_inside_a_block_is_refused(origin, kw):
    with pytest.raises(nvfp4.ArgumentError, match=str(max(origin, key=abs))):
        nvfp4.quantize(np.ones((32, 32), F), origin=origin, **kw)


def test_r5_shards_with_a_common_amax_equal_the_whole(rng):
    a, b = rng.uniform(-1, 1, (32, 64)).astype(F), rng.uniform(-8, 8, (32, 64)).astype(F)
    a[0, 0], b[0, 0] = 1, 8
    whole = nvfp4.quantize(np.concatenate([a, b]))
    parts = [nvfp4.quantize(part, amax=8.0) for part in (a, b)]
    np.testing.assert_array_equal(np.concatenate([p.codes for p in parts]), whole.codes)
    np.testing.assert_array_equal(np.concatenate([p.scales for p in parts]), whole.scales)
    assert not np.array_equal(nvfp4.quantize(a).scales, parts[0].scales)
