"""NVFP4 training numerics written in plain PyTorch, without libnvfp4: the control that its training runs are held to.

The same rules (docs/format.md): 1x16 blocks for activations and gradients, 16x16 tiles for weights, transform of 16 on both
operands of wgrad, stochastic rounding of gradients (with random bits of PyTorch's own). A product is of the exact values
code x block scale, which bf16 holds, accumulated in f32, times both outer scales. tests/python/torch/test_fakequant.py holds
the deterministic parts to the library's bytes.
"""

import functools

import torch
from torch import nn

SIGNS = [1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1]
FLT_MAX = torch.finfo(torch.float32).max
SIXTH = torch.tensor(1 / 6).item()  # of f32: a product with it rounds once


@functools.cache
def hadamard(device):
    """diag(signs) H16 / 4 in bf16, which holds it exactly."""
    h = torch.ones(1, 1)
    while len(h) < 16:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return (torch.tensor(SIGNS)[:, None] * h / 4).to(device, torch.bfloat16)


def transformed(x):
    """The transform of 16 along the last axis of a bf16 matrix, rounded to bf16."""
    return (x.reshape(-1, 16) @ hadamard(x.device)).view(x.shape)


def quantize(x, tiles=False, stochastic=False):
    """(code values, block scales, amax) in f32: x is codes * scales * amax / 2688. `scales` has one column a block."""
    x = x.float()
    rows, cols = x.shape
    blocks = x.view(rows, cols // 16, 16)
    largest = blocks.abs().amax(-1)
    if tiles:
        largest = largest.view(rows // 16, 16, -1).amax(1).repeat_interleave(16, 0)
    amax = largest.amax()
    # torch.div of tensors: `2688.0 / amax` would be a reciprocal and a product, two roundings.
    encode = torch.where(amax == 0, 1.0, torch.clamp(torch.div(torch.full_like(amax, 2688.0), amax), max=FLT_MAX))
    scales = torch.clamp(largest * (encode * SIXTH), max=448.0).to(torch.float8_e4m3fn).float()
    factor = torch.clamp(1.0 / (scales * (1.0 / encode)), max=FLT_MAX)
    v = blocks * factor[..., None]
    size = torch.clamp(v.abs(), max=6.0)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    at = size / step
    if stochastic:
        low = torch.floor(at)
        bits = torch.randint(0, 256, at.shape, device=x.device, dtype=torch.int32)
        at = low + (torch.floor(256 * (at - low)) + bits >= 256)
    else:
        at = torch.round(at)  # half to even, which is the even code on each of the three pieces of the grid
    return torch.copysign(at * step, v).view(rows, cols), scales, amax


def operand(x, **options):
    """The matrix a tensor core multiplies (bf16, exact) and its outer scale."""
    codes, scales, amax = quantize(x, **options)
    return (codes * scales.repeat_interleave(16, 1)).bfloat16(), amax


def product(a, b):
    """a b^T of two operands, in bf16."""
    (a, amax_a), (b, amax_b) = a, b
    if a.is_cuda:
        y = torch.mm(a, b.t(), out_dtype=torch.float32)
    else:
        y = a.float() @ b.float().t()
    return (y * (amax_a * amax_b / 2688.0**2)).bfloat16()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, options):
        ctx.save_for_backward(x, w)
        ctx.options = options
        flat = x.reshape(-1, x.shape[-1])
        return product(operand(flat), operand(w, tiles=True)).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        rht, stochastic = ctx.options
        x2, dy2 = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        turn = transformed if rht else (lambda t: t)
        dx = product(operand(dy2, stochastic=stochastic), operand(w.t().contiguous(), tiles=True))
        dw = product(operand(turn(dy2.t().contiguous()), stochastic=stochastic), operand(turn(x2.t().contiguous())))
        return dx.view(x.shape), dw, None


class FakeQuantLinear(nn.Module):
    """An nn.Linear without bias whose three products see NVFP4 values."""

    def __init__(self, linear, rht=True, stochastic=True):
        super().__init__()
        if linear.bias is not None or linear.in_features % 16 or linear.out_features % 16:
            raise ValueError(f"{linear}: no bias, and features that are multiples of 16, are needed")
        self.weight, self.options = linear.weight, (rht, stochastic)

    def forward(self, x):
        return _Linear.apply(x, self.weight, self.options)
