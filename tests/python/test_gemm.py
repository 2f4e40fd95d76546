"""Products: the three accumulation modes, scales and alpha (kind O), epilogues, batches, quantized output."""

import itertools

import numpy as np
import pytest
from common import F, PLAIN, assert_equal_tensors, bfloat16, bits, expected, wide
from test_faults_shape import ones

import nvfp4
import oracle

VARIANTS = {k: v for k, v in PLAIN.items() if k not in ("mx_half",)} | {"rht16": {"hadamard": 16}, "range": {"range_16_17": True}}


def decoded(q):
    return q.dequantize().astype(np.float64)


def bound(a, b, k, scale=1.0):
    """FAST's bound on |alpha' acc - exact| in decoded values."""
    return scale * -(-k // 16) * 2.0**-22 * (np.abs(decoded(a)) @ np.abs(decoded(b)).T)


@pytest.mark.parametrize("variant", VARIANTS)
def test_block_mode_equals_the_oracle(variant, poison, rng):
    kw = VARIANTS[variant]
    for m, n, k in [(1, 3, 16), (3, 5, 32), (7, 2, 100), (17, 33, 250)]:
        x, w = rng.standard_normal((m, k)).astype(F), wide(rng, (n, k))
        a, b = nvfp4.quantize(x, **kw), nvfp4.quantize(w, **kw)
        got = nvfp4.gemm(a, b, out_dtype="float32", alpha=1.25)
        if variant != "range":
            want = oracle.gemm_block(expected(x, **kw), expected(w, **kw), 1.25)
            np.testing.assert_array_equal(bits(got), bits(want), err_msg=f"{m} {n} {k}")
        exact = 1.25 * (decoded(a) @ decoded(b).T)
        assert (np.abs(got - exact) <= bound(a, b, a.cols, 1.25) + 4e-7 * np.abs(exact) + 1e-40).all()
        assert exact.any()


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_hardware_mode_equals_the_published_model(fmt, rng):
    kw = {"format": fmt} if fmt == "mxfp4" else {"chain": "single"}
    for k in (64, 100, 200):
        x, w = wide(rng, (3, k)), rng.standard_normal((4, k)).astype(F)
        got = nvfp4.gemm(nvfp4.quantize(x, **kw), nvfp4.quantize(w, **kw), out_dtype="float32", accumulate="hardware")
        want = oracle.gemm_hardware(expected(x, **kw), expected(w, **kw))
        np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("mode", ["fast", "hardware", "hardware_k96", "block"])
def test_every_mode_is_within_the_bound(mode, rng):
    for one_signed in (False, True):
        x, w = rng.standard_normal((9, 500)).astype(F), rng.standard_normal((11, 500)).astype(F)
        if one_signed:
            x, w = np.abs(x), np.abs(w)
        a, b = nvfp4.quantize(x), nvfp4.quantize(w)
        got = nvfp4.gemm(a, b, out_dtype="float32", accumulate=mode)
        exact = decoded(a) @ decoded(b).T
        assert (np.abs(got - exact) <= bound(a, b, 500) + 4e-7 * np.abs(exact)).all()


def test_o2_one_row_equals_many(rng):
    """A amax 3, B amax 5, K = 128 all constant: 3*5*128."""
    b = nvfp4.quantize(np.full((7, 128), 5, F))
    many = nvfp4.gemm(nvfp4.quantize(np.full((64, 128), 3, F)), b, out_dtype="float32")
    one = nvfp4.gemm(nvfp4.quantize(np.full((1, 128), 3, F)), b, out_dtype="float32")
    np.testing.assert_array_equal(many, np.tile(one, (64, 1)))
    assert np.abs(one - 1920).max() <= 2 * np.spacing(F(1920))
    q = nvfp4.quantize(np.ones((2, 16), F))
    with pytest.raises(nvfp4.ArgumentError, match="amax"):
        nvfp4.QuantizedTensor.from_parts(q.codes, q.scales)
    assert (nvfp4.QuantizedTensor.from_parts(q.codes, q.scales, chain="single").dequantize() > 0).all()


@pytest.mark.parametrize("mode", ["block", "fast", "hardware"])
def test_o3_each_block_uses_its_own_scales(mode):
    scales = np.array([[(0x38, 0x40, 0x48)[j % 3] for j in range(32)]] * 32, np.uint8)
    q = nvfp4.QuantizedTensor.from_parts(np.full((32, 256), 0x22, np.uint8), scales, chain="single")
    assert (nvfp4.gemm(q, q, out_dtype="float32", accumulate=mode) == 3440).all()


def test_o4_overflow_and_where_alpha_is_applied():
    a = nvfp4.quantize(np.full((2, 64), 100, F))
    assert nvfp4.gemm(a, a, out_dtype="float32") == pytest.approx(640000, rel=1e-6)
    assert nvfp4.gemm(a, a, out_dtype="bfloat16").astype(F) == pytest.approx(638976, abs=4096)
    assert np.isposinf(nvfp4.gemm(a, a, out_dtype="float16").astype(F)).all()
    codes = np.full((3, 2048), 0x77, np.uint8)
    q = nvfp4.QuantizedTensor.from_parts(codes, np.full((3, 256), 0x7E, np.uint8), chain="single")
    for dtype in ("float16", "float32"):
        assert (nvfp4.gemm(q, q, alpha=2.0**-20, out_dtype=dtype).astype(F) == 28224).all()


def test_o7_operands_are_packed_along_k(rng):
    m, n, k = 3, 5, 32
    x, w = rng.standard_normal((m, k)).astype(F), rng.standard_normal((n, k)).astype(F)
    a, b = nvfp4.quantize(x), nvfp4.quantize(w)
    want = oracle.gemm_block(expected(x), expected(w))
    np.testing.assert_array_equal(nvfp4.gemm(a, b, out_dtype="float32"), want)
    along_n = nvfp4.quantize(np.ascontiguousarray(w.T))  # [K, N], packed along N
    with pytest.raises(nvfp4.ArgumentError, match=r"32.*5|5.*32"):
        nvfp4.gemm(a, along_n)
    # The columnwise copy of [K, N] has its blocks along K: that is the way to give it.
    np.testing.assert_array_equal(nvfp4.gemm(a, nvfp4.quantize(np.ascontiguousarray(w.T), axis="column"), out_dtype="float32"), want)


def test_formats_that_do_not_belong_together(rng):
    x = rng.standard_normal((4, 64)).astype(F)
    with pytest.raises(nvfp4.Error, match=r"(?i)format|mxfp4|block"):
        nvfp4.gemm(nvfp4.quantize(x), nvfp4.quantize(x, format="mxfp4"))


@pytest.mark.parametrize("side", ["a", "b", "both"])
def test_bf16_operands(side, rng):
    x, w = rng.standard_normal((5, 70)).astype(F), rng.standard_normal((6, 70)).astype(F)
    a = nvfp4.quantize(x, **({"format": "bf16"} if side != "b" else {}))
    b = nvfp4.quantize(w, **({"format": "bf16"} if side != "a" else {}))
    got = nvfp4.gemm(a, b, out_dtype="float32")
    va, vb = decoded(a), decoded(b)
    np.testing.assert_allclose(got, va @ vb.T, atol=70 * 2.0**-23 * (np.abs(va) @ np.abs(vb).T).max())
    assert got.any()


def gelu(v):
    return 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))


ACTIVATIONS = {None: lambda v: v, "gelu": gelu, "silu": lambda v: v / (1 + np.exp(-v)), "relu2": lambda v: np.maximum(v, 0) ** 2}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogue(activation, poison, rng):
    m, n, k = 13, 7, 80
    a, b = nvfp4.quantize(rng.standard_normal((m, k)).astype(F)), nvfp4.quantize(rng.standard_normal((n, k)).astype(F))
    acc = nvfp4.gemm(a, b, out_dtype="float32", alpha=0.5)
    row, col = np.exp2(rng.integers(-2, 2, m)).astype(F), np.exp2(rng.integers(-2, 2, n)).astype(F)
    for ctype, btype in itertools.product((F, bfloat16, np.float16), repeat=2):
        c, bias = rng.standard_normal((m, n)).astype(ctype), rng.standard_normal(n).astype(btype)
        before = (F(0.75) * c.astype(F) + acc * row[:, None] * col) + bias.astype(F)  # factors are powers of two: exact
        for dtype, ulp in (("float32", 2.0**-22), ("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
            got = nvfp4.gemm(
                a, b, bias=bias, c=c, alpha=0.5, beta=0.75, activation=activation, out_dtype=dtype, row_factors=row, col_factors=col
            )
            assert got.dtype.name == dtype
            want = ACTIVATIONS[activation](before.astype(np.float64))
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=1.01 * ulp, atol=2e-6 if dtype == "float32" else 4e-6)
            if activation is None:
                np.testing.assert_array_equal(bits(got.astype(F)), bits(before.astype(got.dtype).astype(F)))


def test_beta_zero_does_not_read_c(rng):
    a = nvfp4.quantize(rng.standard_normal((4, 32)).astype(F))
    nan = np.full((4, 4), np.nan, F)
    np.testing.assert_array_equal(nvfp4.gemm(a, a, c=nan, beta=0.0), nvfp4.gemm(a, a))
    assert np.isnan(nvfp4.gemm(a, a, c=nan, beta=1.0).astype(F)).all()


def test_row_groups_are_applied_in_the_epilogue(rng):
    x = rng.standard_normal((37, 64)).astype(F) * np.exp2(np.arange(37) % 7, dtype=F)[:, None]
    w = rng.standard_normal((20, 64)).astype(F)
    for da, db in ((1, "tensor"), (8, 1), ("tensor", 3), (128, 16)):
        got = nvfp4.gemm(nvfp4.quantize(x, domain=da), nvfp4.quantize(w, domain=db), out_dtype="float32")
        want = oracle.gemm_block(expected(x, domain=da), expected(w, domain=db))
        np.testing.assert_array_equal(bits(got), bits(want))


def test_batches(rng):
    xs = [rng.standard_normal((5, 48)).astype(F) for _ in range(3)]
    ws = [rng.standard_normal((4, 48)).astype(F) for _ in range(3)]
    c = rng.standard_normal((3, 5, 4)).astype(F)
    for kw in ({}, {"format": "mxfp4"}, {"scale_layout": "swizzled"}, {"domain": 2}, {"format": "bf16"}):
        a, b = [nvfp4.quantize(x, **kw) for x in xs], [nvfp4.quantize(w, **kw) for w in ws]
        for left, right in ((a, b), (a, b[0]), (a[0], b)):
            got = nvfp4.gemm(left, right, c=c, beta=0.5, out_dtype="float32")
            shared = nvfp4.gemm(left, right, c=c[0], beta=0.5, out_dtype="float32")
            for i in range(3):
                one = left[i] if isinstance(left, list) else left, right[i] if isinstance(right, list) else right
                np.testing.assert_array_equal(got[i], nvfp4.gemm(*one, c=c[i], beta=0.5, out_dtype="float32"))
                np.testing.assert_array_equal(shared[i], nvfp4.gemm(*one, c=c[0], beta=0.5, out_dtype="float32"))
    with pytest.raises(nvfp4.ArgumentError, match="3.*2"):
        nvfp4.gemm([nvfp4.quantize(x) for x in xs], [nvfp4.quantize(w) for w in ws[:2]])


QUANTIZED = [("nvfp4", kw) for kw in ({}, {"block": "16x16"}, {"domain": 1}, {"chain": "single"}, {"rounding": "stochastic"})]
QUANTIZED += [("mxfp4", kw) for kw in ({}, {"block": "32x32"}, {"scale_rule": "ceil"}, {"rounding": "stochastic"})]
QUANTIZED += [(fmt, {"scale_layout": "swizzled"}) for fmt in ("nvfp4", "mxfp4")]


@pytest.mark.parametrize(("fmt", "kw"), QUANTIZED)
def test_quantized_output(fmt, kw, poison, rng):
    a, b = nvfp4.quantize(rng.standard_normal((19, 64)).astype(F)), nvfp4.quantize(rng.standard_normal((35, 64)).astype(F))
    d = nvfp4.gemm(a, b, out_dtype="float32")
    has_amax = fmt == "nvfp4" and kw.get("chain") != "single"
    amax = (np.abs(d).max(axis=1) if "domain" in kw else np.abs(d).max()) if has_amax else None
    got = nvfp4.gemm(a, b, out_dtype=fmt, out_options={"format": fmt, **kw}, out_amax=amax, seed=3, offset=4)
    want = nvfp4.quantize(d, format=fmt, amax=amax, seed=3, offset=4, **kw)
    assert_equal_tensors(got, want)
    if has_amax:
        with pytest.raises(nvfp4.Error, match="amax"):
            nvfp4.gemm(a, b, out_dtype=fmt, out_options=kw)


def test_scale_extremes_of_g():
    """aA * aB outside 2^-100..2^100 takes the other order and neither overflows nor flushes to zero."""
    for va, vb in ((1e30, 1e-30), (1e30, 1e4), (1e-30, 1e-5), (3e38, 1e-38)):
        x, w = np.full((2, 32), va, F), np.full((3, 32), vb, F)
        a, b = nvfp4.quantize(x), nvfp4.quantize(w)
        got = nvfp4.gemm(a, b, out_dtype="float32")
        np.testing.assert_array_equal(bits(got), bits(oracle.gemm_block(expected(x), expected(w))))
        assert got == pytest.approx(decoded(a) @ decoded(b).T, rel=2e-6) and got.all()


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
def test_nan_scales_reach_only_their_row_and_column(fmt, rng):
    x, w = rng.standard_normal((5, 64)).astype(F), rng.standard_normal((6, 64)).astype(F)
    x[2, 3], w[4, 60] = np.nan, np.inf
    for mode in ("block", "hardware", "fast"):
        d = nvfp4.gemm(nvfp4.quantize(x, format=fmt), nvfp4.quantize(w, format=fmt), out_dtype="float32", accumulate=mode)
        bad = np.zeros((5, 6), bool)
        bad[2], bad[:, 4] = True, True
        np.testing.assert_array_equal(np.isnan(d), bad)


def test_wrong_operands():
    q = ones(3, 32)
    for bad, where in ((np.ones((3, 32), F), "a"), ([q, 1], "a"), (None, "a")):
        with pytest.raises(nvfp4.DtypeError, match=where):
            nvfp4.gemm(bad, q)
    with pytest.raises(nvfp4.ArgumentError, match=r"bias has 4 values.*3 columns"):
        nvfp4.gemm(q, q, bias=np.zeros(4, F))
    with pytest.raises(nvfp4.ArgumentError, match=r"\(2, 3\).*\(3, 3\)"):
        nvfp4.gemm(q, q, c=np.zeros((2, 3), F), beta=1)
    with pytest.raises(nvfp4.ArgumentError, match="'tanh'"):
        nvfp4.gemm(q, q, activation="tanh")
    with pytest.raises(nvfp4.DtypeError, match="float64"):
        nvfp4.gemm(q, q, out_dtype="float64")
    with pytest.raises(nvfp4.ArgumentError, match="'exact'"):
        nvfp4.gemm(q, q, accumulate="exact")
    with pytest.raises(nvfp4.ArgumentError, match="row_factors holds 2"):
        nvfp4.gemm(q, q, row_factors=[1, 2])


@pytest.mark.parametrize("variant", ["nvfp4", "mxfp4", "bf16", "swizzled"])
def test_a_packed_weight_gives_the_same_products(variant, poison, rng):
    kw = {"scale_layout": "swizzled"} if variant == "swizzled" else {"format": variant}
    for m, n, k in [(1, 33, 40), (5, 2, 100), (130, 70, 257)]:
        a = nvfp4.quantize(rng.standard_normal((m, k)).astype(F), **kw)
        b = nvfp4.quantize(rng.standard_normal((n, k)).astype(F), **kw)
        packed = nvfp4.pack_weight(b)
        assert str(packed.data.nbytes) in repr(packed)
        want = nvfp4.gemm(a, b, out_dtype="float32")
        assert want.any()
        np.testing.assert_array_equal(bits(nvfp4.gemm(a, b, out_dtype="float32", b_packed=packed)), bits(want))
        both = nvfp4.gemm([a, a], b, out_dtype="float32", b_packed=packed)
        np.testing.assert_array_equal(bits(both), bits(np.stack([want, want])))


def test_a_packed_weight_of_another_matrix_is_refused(rng):
    x = rng.standard_normal((40, 64)).astype(F)
    a, b = nvfp4.quantize(x), nvfp4.quantize(x)
    packed = nvfp4.pack_weight(b)
    with pytest.raises(nvfp4.ArgumentError, match="another matrix"):
        nvfp4.gemm(a, nvfp4.quantize(-x), b_packed=packed)
    with pytest.raises(nvfp4.ArgumentError, match=r"holds an NVFP4 matrix \[40, 64\]"):
        nvfp4.gemm(a, nvfp4.quantize(x[:39]), b_packed=packed)
    with pytest.raises(nvfp4.ArgumentError, match="batch has 2 different"):
        nvfp4.gemm([a, a], [b, b], b_packed=packed)
    for byte in (0, 0xFF):
        with pytest.raises(nvfp4.ArgumentError, match="b_packed"):
            nvfp4.gemm(a, b, b_packed=nvfp4.PackedWeight(np.full_like(packed.data, byte)))
    with pytest.raises(nvfp4.DtypeError, match="ndarray"):
        nvfp4.gemm(a, b, b_packed=packed.data)
    with pytest.raises(nvfp4.DtypeError, match="ndarray"):
        nvfp4.pack_weight(x)
