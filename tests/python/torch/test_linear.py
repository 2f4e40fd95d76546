"""The linear layer: bits of the C library's, derivatives, overrides, what it saves, mixing with PyTorch's own machinery."""

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nvfp4
import nvfp4.torch as fp4

SEED, OFFSET = 5, 9
SEEDS = torch.tensor([[SEED, OFFSET + (operand << 60)] for operand in range(3)])  # as nvfp4_linear_* numbers its operands
RECIPES = {
    "nvfp4": fp4.NVFP4BlockScaling(),
    "nvfp4_no_rht": fp4.NVFP4BlockScaling(disable_rht=True),
    "mxfp4": fp4.MXFP4BlockScaling(),
}


def as_numpy(t):
    t = t.detach()
    return t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if t.dtype == torch.bfloat16 else t.numpy()


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).requires_grad_()


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(48, 64, 80), (1, 32, 16), (33, 48, 20), (7, 200, 33)], ids=str)
def test_equals_the_library(name, dtype, shape):
    tokens, inner, outer = shape
    x, w, b = leaf(tokens, inner, dtype=dtype), leaf(outer, inner), leaf(outer)
    y = fp4.linear(x, w, b, RECIPES[name], seed_offset=SEEDS)
    want = nvfp4.linear(as_numpy(x), as_numpy(w), name, SEED, OFFSET, bias=as_numpy(b))
    assert np.abs(want.astype(np.float32)).max() > 0
    assert np.array_equal(as_numpy(y).view(np.uint8), want.view(np.uint8))
    dy = torch.randn(tokens, outer).to(dtype)
    y.backward(dy)
    dx, dw, db = nvfp4.linear_backward(as_numpy(dy), as_numpy(x), as_numpy(w), name, SEED, OFFSET, bias=True)
    assert np.array_equal(as_numpy(x.grad).view(np.uint8), dx.view(np.uint8))
    assert np.array_equal(w.grad.numpy(), dw) and np.abs(dw).max() > 0
    np.testing.assert_allclose(b.grad.numpy(), db, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 31, 33])
def test_any_number_of_tokens(tokens):
    x, w = leaf(2, tokens, 40), leaf(24, 40)
    y = fp4.linear(x, w, recipe=RECIPES["nvfp4_no_rht"], seed_offset=SEEDS)
    flat = fp4.linear(x.detach().reshape(-1, 40), w.detach(), recipe=RECIPES["nvfp4_no_rht"], seed_offset=SEEDS)
    assert y.shape == (2, tokens, 24) and torch.equal(y.reshape(-1, 24), flat)
    y.sum().backward()
    assert x.grad.shape == x.shape and x.grad.isfinite().all()


def test_strided_input_and_gradient():
    x, w = torch.randn(40, 24).t(), leaf(32, 40)
    a, b = x.requires_grad_(), x.detach().contiguous().requires_grad_()
    dy = torch.randn(32, 24).t()
    out = []
    for each in (a, b):
        w.grad = None
        y = fp4.linear(each, w, recipe=RECIPES["nvfp4"], seed_offset=SEEDS)
        y.backward(dy)
        out.append((y.detach(), each.grad.clone(), w.grad.clone()))
    assert all(torch.equal(p, q) for p, q in zip(*out))


def test_only_what_is_wanted_is_computed():
    x, w = leaf(32, 48), leaf(16, 48)
    full = torch.autograd.grad(fp4.linear(x, w, seed_offset=SEEDS).sum(), (x, w))
    (dx,) = torch.autograd.grad(fp4.linear(x, w.detach(), seed_offset=SEEDS).sum(), x)
    (dw,) = torch.autograd.grad(fp4.linear(x.detach(), w, seed_offset=SEEDS).sum(), w)
    assert torch.equal(dx, full[0]) and torch.equal(dw, full[1])
    b = leaf(16)
    (db,) = torch.autograd.grad(fp4.linear(x.detach(), w.detach(), b, seed_offset=SEEDS).sum(), b)
    assert torch.equal(db, torch.full((16,), 32.0))
    assert not fp4.linear(x.detach(), w.detach()).requires_grad


def test_overrides():
    x, w = leaf(32, 48), leaf(64, 48)
    dy = torch.randn(32, 64)
    plain = fp4.NVFP4BlockScaling(disable_stochastic_rounding=True)
    y = fp4.linear(x, w, recipe=plain)

    high = fp4.linear(x, w, recipe=fp4.NVFP4BlockScaling(backward_override="high_precision"))
    assert torch.equal(high, y)
    dx, dw = torch.autograd.grad(high, (x, w), dy)
    torch.testing.assert_close(dx, dy @ w)
    torch.testing.assert_close(dw, dy.t() @ x)

    held = fp4.linear(x, w, recipe=fp4.NVFP4BlockScaling(backward_override="dequantized"))
    assert torch.equal(held, y)
    dx, dw = torch.autograd.grad(held, (x, w), dy)
    xq = fp4.quantize(x.detach()).dequantize()
    wq = fp4.quantize(w.detach(), {"block": "16x16"}).dequantize()
    torch.testing.assert_close(dx, dy @ wq)
    torch.testing.assert_close(dw, dy.t() @ xq)

    late = fp4.linear(x, w, recipe=fp4.NVFP4BlockScaling(disable_stochastic_rounding=True, forward_override="high_precision"))
    assert torch.equal(late, F.linear(x, w)) and not torch.equal(late, y)
    got, want = torch.autograd.grad(late, (x, w), dy), torch.autograd.grad(y, (x, w), dy)
    assert all(torch.equal(p, q) for p, q in zip(got, want))


def test_second_derivative_is_refused():
    x, w = leaf(16, 32), leaf(16, 32)
    (dx,) = torch.autograd.grad(fp4.linear(x, w, seed_offset=SEEDS).square().sum(), x, create_graph=True)
    with pytest.raises((NotImplementedError, RuntimeError)):
        dx.sum().backward()


def saved_bytes(call):
    sizes = {}

    def pack(t):
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = call()
    return y, sum(sizes.values())


def test_activation_is_saved_in_four_bits():
    x, w = leaf(1024, 1024, dtype=torch.bfloat16), leaf(16, 1024, dtype=torch.bfloat16)
    _, ours = saved_bytes(lambda: fp4.linear(x, w))
    weight_copy = fp4.quantize(w.detach(), {"block": "16x16"}, axis="column").data.numel()
    share = (ours - weight_copy) / (2 * x.numel())
    assert 0.25 < share <= 0.30, share


def test_torch_autocast_sets_the_type():
    x, w = leaf(32, 48), leaf(16, 48)
    with torch.autocast("cpu", torch.bfloat16):
        y = fp4.linear(x, w, seed_offset=SEEDS)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, fp4.linear(x.detach().bfloat16(), w.detach(), seed_offset=SEEDS))
    y.sum().backward()
    assert x.grad.dtype == torch.float32 and w.grad.dtype == torch.float32


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_grad_scaler_sees_overflow(value):
    layer = fp4.Linear(32, 32, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = layer.weight.detach().clone()
    with fp4.autocast():
        y = layer(torch.randn(16, 32))
    dy = torch.randn_like(y)
    dy[3, 5] = value
    scaler.scale((y * dy).sum()).backward()
    assert not layer.weight.grad.isfinite().all()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, before) and scaler.get_scale() == 512.0


def test_weight_changed_before_backward_is_noticed():
    """With the operands as they were, backward needs the very weight that forward saw."""
    x, w = leaf(16, 32), leaf(16, 32)
    y = fp4.linear(x, w, recipe=fp4.NVFP4BlockScaling(backward_override="high_precision"))
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
