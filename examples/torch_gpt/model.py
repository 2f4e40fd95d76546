"""A Llama-style language model: RMSNorm, rotary positions, causal attention, SwiGLU; untied embedding and head."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the model; the defaults have 117 M parameters with a vocabulary of 16384."""

    vocabulary: int = 16384
    layers: int = 12
    width: int = 768
    heads: int = 12
    hidden: int = 2304
    length: int = 1024

    def __post_init__(self):
        if self.width % self.heads or self.width // self.heads % 2:
            raise ValueError(f"width {self.width} is not an even number of features for each of {self.heads} heads")


# The memory-bound pieces, each one kernel when compiled (`compile_pieces`): everything between two matrix products.


def add_norm(x, h, weight):
    """(x + h, its RMSNorm times `weight`); statistics in f32."""
    x = x + h
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)
    return x, (y * weight.float()).to(x.dtype)


def rotated(qkv, cos, sin, heads):
    """q, k (rotated by their positions) and v, [batch, heads, length, features], of the fused projection's output."""
    batch, length, _ = qkv.shape
    q, k, v = qkv.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)

    def turn(t):
        a, b = t.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(t.dtype)

    return turn(q), turn(k), v.contiguous()


def swiglu(gate_up):
    """silu(gate) * up of the fused projection's output."""
    gate, up = gate_up.float().chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def cross_entropy(logits, targets):
    """Mean nats a token."""
    return F.cross_entropy(logits.float(), targets)


PIECES = {f.__name__: f for f in (add_norm, rotated, swiglu, cross_entropy)}


def compile_pieces():
    """Compiles the pieces above once for every model of this process."""
    for name, function in list(PIECES.items()):
        PIECES[name] = torch.compile(function, dynamic=False)


class Block(nn.Module):
    """Attention and SwiGLU; the residual stream and what is still to be added to it go in and out."""

    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.Parameter(torch.ones(shape.width))
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.mlp_norm = nn.Parameter(torch.ones(shape.width))
        self.mlp = nn.ModuleDict({
            "gate_up": nn.Linear(shape.width, 2 * shape.hidden, bias=False),
            "down": nn.Linear(shape.hidden, shape.width, bias=False),
        })  # fmt: skip

    def forward(self, x, h, cos, sin):
        x, h = PIECES["add_norm"](x, h, self.attention_norm)
        q, k, v = PIECES["rotated"](self.qkv(h), cos, sin, self.heads)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x, h = PIECES["add_norm"](x, self.attention_out(h), self.mlp_norm)
        return x, self.mlp["down"](PIECES["swiglu"](self.mlp["gate_up"](h)))


class GPT(nn.Module):
    """tokens [batch, length] -> logits [batch, length, vocabulary]."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        features = shape.width // shape.heads
        angles = torch.outer(torch.arange(shape.length), 10000.0 ** (-torch.arange(0, features, 2) / features))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @torch.no_grad()
    def initialise(self, seed):
        """Weights of a normal distribution, the same on every device for a seed."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_residual = name.endswith(("attention_out.weight", "down.weight"))
                std = 0.02 / math.sqrt(2 * self.shape.layers) if into_residual else 0.02
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)

    def forward(self, tokens):
        length = tokens.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.embedding(tokens)
        h = torch.zeros_like(x)
        for block in self.blocks:
            x, h = block(x, h, cos, sin)
        _, h = PIECES["add_norm"](x, h, self.norm)
        return self.head(h)

    def loss(self, tokens):
        """Mean nats a token of predicting tokens[:, 1:]."""
        logits = self(tokens[:, :-1])
        return PIECES["cross_entropy"](logits.flatten(0, 1), tokens[:, 1:].flatten())
