"""Recipes, and linear layers against their own parts and against a float64 model of the quantized operands."""

import dataclasses
import pickle

import numpy as np
import pytest
from common import F, bfloat16, bits

import nvfp4

RECIPES = ["nvfp4", "nvfp4_no_rht", "mxfp4", "bf16"]
SHAPES = [(33, 47, 29), (1, 5, 3), (100, 64, 17), (17, 130, 31), (64, 96, 48)]  # tokens, in, out


def layer(rng, shape, dtype=bfloat16):
    tokens, fan_in, fan_out = shape
    x = rng.standard_normal((tokens, fan_in)).astype(dtype)
    w = (rng.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in)).astype(dtype)
    dy = rng.standard_normal((tokens, fan_out)).astype(dtype)
    return x, w, dy


# Activations draw with offset, weights with offset | 1 << 60, gradients with offset | 2 << 60 (nvfp4.h).
DRAW = {"activation": 0, "weight": 1 << 60, "gradient": 2 << 60}


def operand(recipe, name, direction, value, seed, offset):
    """The quantized operand as the layer makes it."""
    options = getattr(recipe, f"{name}_{direction}")
    kw = dataclasses.asdict(options)
    # Signs of seeded transforms are drawn from the layer's own offset, so that both operands of wgrad share them.
    assert kw["sign_mask"] != "seeded"
    axis = "row" if direction == "rowwise" else "column"
    if direction == "columnwise":
        other = getattr(recipe, f"{name}_rowwise")
        pair = nvfp4.quantize(
            value, axis="both", seed=seed, offset=offset | DRAW[name], nonfinite=recipe.nonfinite, column=options,
            **dataclasses.asdict(other),
        )  # fmt: skip
        return pair[1]
    return nvfp4.quantize(value, axis=axis, seed=seed, offset=offset | DRAW[name], nonfinite=recipe.nonfinite, **kw)


def operands(recipe, x, w, dy, seed, offset):
    return {
        "fprop": (operand(recipe, "activation", "rowwise", x, seed, offset), operand(recipe, "weight", "rowwise", w, seed, offset)),
        "dgrad": (operand(recipe, "gradient", "rowwise", dy, seed, offset), operand(recipe, "weight", "columnwise", w, seed, offset)),
        "wgrad": (
            operand(recipe, "gradient", "columnwise", dy, seed, offset), operand(recipe, "activation", "columnwise", x, seed, offset),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", RECIPES)
def test_the_layer_is_its_products(name, shape, poison, rng):
    """Byte for byte: the same as quantizing the operands and multiplying; and within the bound of a float64 model."""
    recipe = nvfp4.recipe(name)
    for dtype in (F, bfloat16):
        x, w, dy = layer(rng, shape, dtype)
        seed, offset = 17, 5
        bias = rng.standard_normal(shape[2]).astype(dtype)
        y = nvfp4.linear(x, w, recipe=name, seed=seed, offset=offset, bias=bias, out_dtype="float32")
        dx, dw, db = nvfp4.linear_backward(dy, x, w, recipe, seed, offset, bias=True)
        assert dx.dtype == dy.dtype and dw.dtype == F and db.dtype == F
        products = operands(recipe, x, w, dy, seed, offset)
        for product, got in (("fprop", y), ("dgrad", dx), ("wgrad", dw)):
            a, b = products[product]
            added = bias if product == "fprop" else None
            want = nvfp4.gemm(a, b, bias=added, out_dtype=got.dtype.name)
            np.testing.assert_array_equal(bits(got.astype(F)), bits(want.astype(F)), err_msg=f"{product} {dtype}")
            va, vb = a.dequantize().astype(np.float64), b.dequantize().astype(np.float64)
            model = va @ vb.T + (0 if added is None else added.astype(np.float64))
            steps = -(-a.cols // 16) if name != "bf16" else a.cols
            allowed = steps * 2.0**-22 * (np.abs(va) @ np.abs(vb).T) + 1e-30
            allowed += np.abs(model) * (2.0**-8 if got.dtype != F else 2.0**-22)
            assert got.shape == model.shape and got.any()
            assert (np.abs(got.astype(np.float64) - model) <= allowed).all(), product
        np.testing.assert_allclose(db, dy.astype(np.float64).sum(axis=0), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", RECIPES)
def test_the_layer_is_near_the_plain_one(name):
    """Against x W^T itself: the error of 4 bits and not more, for each product."""
    rng = np.random.default_rng(0)
    x, w, dy = layer(rng, (256, 192, 128), F)
    dx, dw = nvfp4.linear_backward(dy, x, w, name, seed=1)
    for got, want in ((nvfp4.linear(x, w, name, seed=1), x @ w.T), (dx, dy @ w), (dw, dy.T @ x)):
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert (1e-4 < error < 0.006) if name == "bf16" else (0.05 < error < 0.25), error
        assert abs((got * want).sum() / (want * want).sum() - 1) < 0.03, "magnitude"


def test_names_map():
    for name, other in (("te_nvfp4", "nvfp4"), ("te_nvfp4_no_rht", "nvfp4_no_rht")):
        assert dataclasses.replace(nvfp4.recipe(name), name=other) == nvfp4.recipe(other)


def test_what_the_recipes_say():
    r = nvfp4.recipe("nvfp4")
    assert (r.activation_rowwise.hadamard, r.activation_columnwise.hadamard, r.gradient_columnwise.hadamard) == (0, 16, 16)
    assert r.gradient_rowwise.hadamard == 0 and r.weight_columnwise.hadamard == 0
    assert r.gradient_rowwise.rounding == r.gradient_columnwise.rounding == "stochastic"
    assert r.activation_rowwise.rounding == r.weight_rowwise.rounding == "nearest"
    assert r.weight_rowwise.block == r.weight_columnwise.block == "16x16" and r.activation_rowwise.block == "1x16"
    plain = nvfp4.recipe("nvfp4_no_rht")
    assert plain.activation_columnwise.hadamard == plain.gradient_columnwise.hadamard == 0
    assert plain.gradient_rowwise.rounding == "stochastic" and plain.weight_rowwise.block == "16x16"
    assert nvfp4.recipe("mxfp4").weight_rowwise.format == "mxfp4"
    assert nvfp4.recipe("bf16").weight_rowwise.format == "bf16"


def test_overrides():
    r = nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"}, columnwise={"hadamard": 0}, accumulate="hardware", nonfinite="saturate")
    assert r.gradient_rowwise.rounding == r.gradient_columnwise.rounding == "nearest"
    assert all(getattr(r, f"{o}_columnwise").hadamard == 0 for o in ("activation", "weight", "gradient"))
    assert (r.accumulate, r.nonfinite) == ("hardware", "saturate")
    r = nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"}, gradient_rowwise={"rounding": "stochastic", "range_16_17": True})
    assert (r.gradient_rowwise.rounding, r.gradient_columnwise.rounding) == ("stochastic", "nearest")
    assert r.gradient_rowwise.range_16_17 and not r.gradient_columnwise.range_16_17
    r = nvfp4.recipe("nvfp4", weight=nvfp4.Options(format="bf16"))
    assert r.weight_rowwise.format == r.weight_columnwise.format == "bf16"
    for name in RECIPES:
        assert pickle.loads(pickle.dumps(nvfp4.recipe(name))) == nvfp4.recipe(name)


def test_overrides_change_the_layer(rng):
    x, w, dy = layer(rng, (40, 48, 32))
    base = nvfp4.linear_backward(dy, x, w, "nvfp4", seed=1)
    nearest = nvfp4.linear_backward(dy, x, w, nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"}), seed=1)
    again = nvfp4.linear_backward(dy, x, w, nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"}), seed=2)
    assert (base[0] != nearest[0]).any() and (base[1] != nearest[1]).any()
    for a, b in zip(nearest, again):
        np.testing.assert_array_equal(a, b)
    hardware = nvfp4.linear(x, w, nvfp4.recipe("nvfp4", accumulate="hardware"), out_dtype="float32")
    q = nvfp4.quantize(x), nvfp4.quantize(w, block="16x16")
    np.testing.assert_array_equal(hardware, nvfp4.gemm(*q, out_dtype="float32", accumulate="hardware"))


def test_seeded_signs_are_shared_by_the_operands_of_wgrad(rng):
    x, w, dy = layer(rng, (200, 48, 32), F)
    r = nvfp4.recipe(
        "nvfp4", gradient_columnwise={"hadamard": 128, "sign_mask": "seeded"}, activation_columnwise={"hadamard": 128, "sign_mask": "seeded"}
    )
    _, dw = nvfp4.linear_backward(dy, x, w, r, seed=3, offset=9)
    want = dy.T @ x
    assert np.linalg.norm(dw - want) / np.linalg.norm(want) < 0.25


def test_seed_and_offset(rng):
    x, w, dy = layer(rng, (40, 48, 32))
    first = nvfp4.linear_backward(dy, x, w, seed=1, offset=2)
    for a, b in zip(first, nvfp4.linear_backward(dy, x, w, seed=1, offset=2)):
        np.testing.assert_array_equal(a, b)
    for kw in ({"seed": 1, "offset": 3}, {"seed": 2, "offset": 2}):
        for a, b in zip(first, nvfp4.linear_backward(dy, x, w, **kw)):
            assert (a != b).any()
    with pytest.raises(nvfp4.Error, match=str(1 << 60)):
        nvfp4.linear(x, w, offset=1 << 60)


def test_wgrad_adds_to_dw(rng):
    x, w, dy = layer(rng, (40, 48, 32))
    once = nvfp4.linear_backward(dy, x, w, seed=1)[1]
    start = rng.standard_normal((32, 48)).astype(F)
    dw = start.copy()
    for _ in range(4):
        assert nvfp4.linear_backward(dy, x, w, seed=1, dw=dw)[1] is dw
    want = start
    for _ in range(4):
        want = want + once
    np.testing.assert_allclose(dw, want, rtol=3e-6, atol=1e-6)
    for bad in (dw[:, ::2], dw.astype(np.float64), dw.T, dw[:5], None.__class__):
        with pytest.raises(nvfp4.Error, match="dw"):
            nvfp4.linear_backward(dy, x, w, dw=bad)
    both = np.ones((48, 48), F)
    with pytest.raises(nvfp4.Error, match="shares memory"):
        nvfp4.linear_backward(np.ones((9, 48), F), np.ones((9, 48), F), both, dw=both)
    frozen = dw.copy()
    frozen.flags.writeable = False
    with pytest.raises(nvfp4.Error, match="writable"):
        nvfp4.linear_backward(dy, x, w, dw=frozen)


def test_bad_values_stay_where_they_were(rng):
    x, w, _ = layer(rng, (6, 64, 5), F)
    x[2, 7] = np.inf
    y = nvfp4.linear(x, w)
    assert np.isnan(y[2]).all() and np.isfinite(np.delete(y, 2, 0)).all()
    assert np.isfinite(nvfp4.linear(np.minimum(x, 100), w)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w, dy: nvfp4.linear(x, w[:, :9]), "in is 48 in x and 9 in w"),
        (lambda x, w, dy: nvfp4.linear(x, w, bias=np.zeros(7, F)), "out is 7 in bias and 32 in w"),
        (lambda x, w, dy: nvfp4.linear_backward(dy[:5], x, w), "tokens is 5 in dy and 40 in x"),
        (lambda x, w, dy: nvfp4.linear_backward(dy[:, :5], x, w), "out is 5 in dy and 32 in w"),
        (lambda x, w, dy: nvfp4.linear_backward(dy, x[:, :5], w), "in is 5 in x and 48 in w"),
        (lambda x, w, dy: nvfp4.linear(x, w, "fp8"), "fp8"),
        (lambda x, w, dy: nvfp4.linear(x, w, 3), "3"),
        (lambda x, w, dy: nvfp4.recipe("nvfp4", grad={}), "'grad'"),
        (lambda x, w, dy: nvfp4.recipe("nvfp4", gradient={"round": "nearest"}), "'round'"),
        (lambda x, w, dy: nvfp4.recipe("nvfp4", gradient={"rounding": "up"}), "'up'"),
        (lambda x, w, dy: nvfp4.recipe("nvfp4", accumulate="exact"), "'exact'"),
    ],
)
def test_messages(call, message, rng):
    with pytest.raises(nvfp4.ArgumentError, match=message):
        call(*layer(rng, (40, 48, 32)))
