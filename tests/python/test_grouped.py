"""Groups of tokens: every group equals the plain call on its rows, byte for byte."""

import ml_dtypes
import numpy as np
import pytest

import nvfp4

F = np.float32
OFFSETS = [
    [0, 5, 5, 37, 38],
    [0, 128, 256],
    [3, 3, 20, 90],
    [0, 0, 0],
    [0, 1],
]
OPTIONS = [
    {},
    {"format": "mxfp4"},
    {"hadamard": 16, "rounding": "stochastic"},
    {"hadamard": 128, "scale_layout": "swizzled"},
    {"scale_layout": "swizzled", "select": "4over6"},
    {"format": "bf16"},
    {"chain": "single", "block": "16x16"},
]


def same(have, want):
    assert have.shape == want.shape
    np.testing.assert_array_equal(have.codes, want.codes)
    if want.scales is not None:
        np.testing.assert_array_equal(have.scales, want.scales)
    assert (have.amax is None) == (want.amax is None)
    if want.amax is not None:
        assert F(have.amax).tobytes() == F(want.amax).tobytes()
    assert (have.format, have.hadamard, have.sign_mask, have.transposed) == (
        want.format, want.hadamard, want.sign_mask, want.transposed,
    )  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
def test_each_group_is_quantized_alone(rng, poison, offsets, options):
    x = rng.standard_normal((offsets[-1] + 2, 48), dtype=F) * np.linspace(1, 9, offsets[-1] + 2, dtype=F)[:, None]
    row, col = nvfp4.grouped_quantize(x, offsets, options, axis="both", seed=7, offset=3)
    assert len(row) == len(col) == len(offsets) - 1
    plain = {k: v for k, v in options.items() if k != "scale_layout"}
    for g, (first, last) in enumerate(zip(offsets, offsets[1:])):
        if first == last:
            assert row.group(g).rows == col.group(g).source_cols == 0
            continue
        part = x[first:last]
        origin = (0 if "block" in options else first, 0)
        same(row.group(g), nvfp4.quantize(part, **plain, seed=7, offset=3, origin=origin))
        origin = (int(col.starts[g]), 0)
        same(col.group(g), nvfp4.quantize(part, **plain, axis="column", seed=7, offset=3, origin=origin))


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
def test_ragged_m_is_one_product_a_group(rng, poison, offsets, fmt):
    groups = len(offsets) - 1
    x = rng.standard_normal((offsets[-1] + 3, 96), dtype=F)
    a = nvfp4.grouped_quantize(x, offsets, {"format": fmt, "scale_layout": "swizzled"})
    b = [nvfp4.quantize(rng.standard_normal((40, 96), dtype=F), fmt) for _ in range(groups)]
    bias = rng.standard_normal((groups, 40), dtype=F)
    alpha = rng.standard_normal(groups)
    d = nvfp4.grouped_gemm(a, b, bias=bias, alpha=alpha, out_dtype="float32", activation="gelu")
    assert d.shape == (offsets[-1] + 3, 40)
    assert not d[: offsets[0]].any() and not d[offsets[-1] :].any()
    for g, (first, last) in enumerate(zip(offsets, offsets[1:])):
        want = nvfp4.gemm(a.group(g), b[g], bias=bias[g], alpha=alpha[g], out_dtype="float32", activation="gelu")
        assert last == first or want.any()
        np.testing.assert_array_equal(d[first:last], want)


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize("options", [{}, {"hadamard": 16, "rounding": "stochastic"}, {"format": "mxfp4"}], ids=str)
def test_ragged_k_is_one_product_a_group(rng, poison, offsets, options):
    groups = len(offsets) - 1
    dy, x = (rng.standard_normal((offsets[-1], n), dtype=F).astype(ml_dtypes.bfloat16) for n in (24, 40))
    a = nvfp4.grouped_quantize(dy, offsets, options, axis="column", seed=1)
    b = nvfp4.grouped_quantize(x, offsets, options, axis="column", seed=2)
    d = nvfp4.grouped_gemm(a, b, out_dtype="float32")
    before = rng.standard_normal((groups, 24, 40), dtype=F)
    more = nvfp4.grouped_gemm(a, b, c=before, beta=1.0, out_dtype="float32")
    for g, (first, last) in enumerate(zip(offsets, offsets[1:])):
        want = nvfp4.gemm(a.group(g), b.group(g), out_dtype="float32")
        np.testing.assert_array_equal(d[g], want)
        assert want.any() == (last > first)
        np.testing.assert_array_equal(more[g], want + before[g])


def test_one_weight_and_one_amax_serve_every_group(rng):
    x = rng.standard_normal((30, 64), dtype=F)
    a, b = nvfp4.quantize(x), nvfp4.quantize(rng.standard_normal((8, 64), dtype=F))
    d = nvfp4.grouped_gemm(a, b, [0, 11, 11, 30], out_dtype="float32")
    np.testing.assert_array_equal(d, nvfp4.gemm(a, b, out_dtype="float32"))


@pytest.mark.parametrize(
    "offsets, words",
    [([0, 9, 7], "offsets[2] is 7"), ([-1, 4], "offsets[0] is -1"), ([0, 31], "offsets[1] is 31"), ([0], "G + 1"), ([0.0, 1.0], "integers")],
)
def test_bad_offsets_are_named(offsets, words):
    with pytest.raises(nvfp4.ArgumentError) as e:
        nvfp4.grouped_quantize(np.ones((30, 16), F), offsets)
    assert words in str(e.value)


def test_operands_that_do_not_belong_together():
    x = np.ones((30, 32), F)
    row, col = nvfp4.grouped_quantize(x, [0, 10, 30], axis="both")
    other = nvfp4.grouped_quantize(x, [0, 11, 30], axis="column")
    wide = nvfp4.grouped_quantize(x, [0, 10, 30], axis="column", column_align=64)
    weights = [nvfp4.quantize(x)] * 2
    for a, b, words in [
        (col, weights, "rowwise"), (row, col, "columnwise"), (col, other, "offsets"), (col, wide, "16 and 64"),
        (row, weights[:1] * 3, "3 matrices for 2"), (weights[0], weights, "offsets"),
    ]:  # fmt: skip
        with pytest.raises(nvfp4.ArgumentError) as e:
            nvfp4.grouped_gemm(a, b)
        assert words in str(e.value)
    with pytest.raises(nvfp4.Error, match="domain_rows is 1"):
        nvfp4.grouped_quantize(x, [0, 30], {"domain": 1})
