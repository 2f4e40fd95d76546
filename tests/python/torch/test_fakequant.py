"""examples/torch_gpt/fakequant.py, the control of the training runs, against the library: bytes where nothing is random,
distributions where something is, and the three products of a layer within the bound of mode FAST."""

import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

import nvfp4

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples" / "torch_gpt"))
import fakequant  # noqa: E402

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
SHAPE = (96, 160)


def matrix(rng, kind, shape=SHAPE):
    x = {"normal": rng.standard_normal(shape), "heavy": rng.standard_t(2, shape), "tiny": rng.standard_normal(shape) * 1e-30,
         "graded": rng.standard_normal(shape) * np.exp2(-np.arange(shape[1]) / 6), "zero": np.zeros(shape)}[kind]  # fmt: skip
    return x.astype(ml_dtypes.bfloat16)


def tensor(x):
    return torch.from_numpy(x.view(np.uint16).copy()).view(torch.bfloat16)


def decoded_codes(q):
    """The values of a tensor's codes, [rows, cols]."""
    codes = np.stack((q.codes & 15, q.codes >> 4), -1).reshape(q.rows, -1)[:, : q.cols]
    return np.where(codes & 8, -GRID[codes & 7], GRID[codes & 7])


def same(ours, theirs):
    values, scales, amax = theirs
    np.testing.assert_array_equal(decoded_codes(ours).view(np.uint32), values.numpy().view(np.uint32))
    np.testing.assert_array_equal(ours.scales, scales.to(torch.float8_e4m3fn).view(torch.uint8).numpy())
    assert np.float32(ours.amax) == np.float32(amax.item())


@pytest.mark.parametrize("draw", range(8))
@pytest.mark.parametrize("kind", ["normal", "heavy", "tiny", "graded", "zero"])
def test_deterministic_bytes(kind, draw):
    x = matrix(np.random.default_rng(draw), kind)
    same(nvfp4.quantize(x), fakequant.quantize(tensor(x)))
    same(nvfp4.quantize(x, block="16x16"), fakequant.quantize(tensor(x), tiles=True))
    column = nvfp4.quantize(x, axis="column", hadamard=16)
    same(column, fakequant.quantize(fakequant.transformed(tensor(x).t().contiguous())))


def test_stochastic_rounding_has_the_same_neighbours_and_mean(rng):
    x = matrix(rng, "normal")
    torch.manual_seed(3)
    draws = 400
    ours = np.stack([decoded_codes(nvfp4.quantize(x, rounding="stochastic", seed=7, offset=i)) for i in range(draws)])
    theirs = np.stack([fakequant.quantize(tensor(x), stochastic=True)[0].numpy() for _ in range(draws)])
    low, high = theirs.min(0), theirs.max(0)
    assert ((ours >= low) & (ours <= high)).mean() > 0.98  # an improbable neighbour may have come up on one side only
    assert (high > low).mean() > 0.9
    # The mean of `draws` values that are `step` apart has a standard deviation of at most step / 2 / sqrt(draws).
    step = np.maximum(np.maximum(high, ours.max(0)) - np.minimum(low, ours.min(0)), 1e-9)
    z = (ours.mean(0) - theirs.mean(0)) / (step * 0.5 * np.sqrt(2 / draws))
    assert np.abs(z).max() < 6 and abs(z.mean()) < 6 / np.sqrt(z.size)


def test_products_of_a_layer(rng):
    tokens, n_in, n_out = 96, 160, 64
    x, w, dy = matrix(rng, "heavy", (tokens, n_in)), matrix(rng, "normal", (n_out, n_in)), matrix(rng, "normal", (tokens, n_out))
    recipe = nvfp4.recipe("nvfp4", gradient={"rounding": "nearest"})
    y = nvfp4.linear(x, w, recipe=recipe, out_dtype="float32")
    dx, dw = nvfp4.linear_backward(dy.astype(np.float32), x, w, recipe=recipe)
    linear = torch.nn.Linear(n_in, n_out, bias=False)
    linear.weight.data = tensor(w)
    layer = fakequant.FakeQuantLinear(linear, stochastic=False)
    input_ = tensor(x).requires_grad_()
    output = layer(input_)
    output.backward(tensor(dy))
    for got, want in ((output, y), (input_.grad, dx), (layer.weight.grad, dw)):
        got = got.detach().float().numpy()
        assert np.abs(got - want).max() <= 2**-8 * np.abs(want).max()  # its output is bf16
        assert np.abs(got - want).sum() <= 2**-9 * np.abs(want).sum()
