"""What others do of the same work on this GPU: compiled PyTorch and Triton kernels written as the emulations of vLLM and
ModelOpt do it (nested selects, a division an element), with PyTorch's own copy as the yardstick. Run beside gpu_bench on
a machine with torch and triton; prints microseconds and bytes a second in the same units.
"""

import torch
import triton
import triton.language as tl
import triton.testing


def bench(f):
    return triton.testing.do_bench(f, warmup=50, rep=200, return_mode="median") * 1e3


@triton.jit
def code_of(y):
    a = tl.abs(y)
    up = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32) + (a >= 1.75).to(tl.int32)
    up += (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    return up | ((y < 0).to(tl.int32) << 3)


@triton.jit
def value_of(y):
    a = tl.abs(y)
    g = tl.where(a <= 0.25, 0.0, tl.where(a < 0.75, 0.5, tl.where(a <= 1.25, 1.0, tl.where(a < 1.75, 1.5,
        tl.where(a <= 2.5, 2.0, tl.where(a < 3.5, 3.0, tl.where(a <= 5.0, 4.0, 6.0)))))))
    return tl.where(y < 0, -g, g)


@triton.jit
def scales_of(v, amax):
    outer = 2688.0 / amax
    inverse = 1.0 / outer
    s = (tl.max(tl.abs(v), axis=2) * (outer * (1.0 / 6))).to(tl.float8e4nv)
    return s, s.to(tl.float32) * inverse


@triton.jit
def packed(x, codes, scales, amax, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * COLS + tl.arange(0, COLS)
    v = tl.reshape(tl.load(x + r[:, None] * K + k[None, :]).to(tl.float32), (ROWS, COLS // 16, 16))
    s, step = scales_of(v, tl.load(amax))
    c = code_of(v * tl.minimum(1.0 / step, 3.4e38)[:, :, None])
    lo, hi = tl.split(tl.reshape(c, (ROWS, COLS // 2, 2)))
    half = tl.program_id(1) * COLS // 2 + tl.arange(0, COLS // 2)
    tl.store(codes + r[:, None] * (K // 2) + half[None, :], (lo | (hi << 4)).to(tl.uint8))
    block = tl.program_id(1) * COLS // 16 + tl.arange(0, COLS // 16)
    tl.store(scales + r[:, None] * (K // 16) + block[None, :], s.to(tl.uint8, bitcast=True))


@triton.jit
def fake(x, out, amax, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * COLS + tl.arange(0, COLS)
    v = tl.reshape(tl.load(x + r[:, None] * K + k[None, :]).to(tl.float32), (ROWS, COLS // 16, 16))
    _, step = scales_of(v, tl.load(amax))
    z = value_of(v * tl.minimum(1.0 / step, 3.4e38)[:, :, None]) * step[:, :, None]
    tl.store(out + r[:, None] * K + k[None, :], tl.reshape(z, (ROWS, COLS)).to(tl.bfloat16))


def torch_fake(x, amax):
    """Fake quantization as one writes it in PyTorch."""
    v = x.float().reshape(x.shape[0], -1, 16)
    outer = 2688.0 / amax
    s = (v.abs().amax(-1, keepdim=True) * (outer / 6)).to(torch.float8_e4m3fn).float() / outer
    y = v / s.clamp_min(1e-30)
    a = y.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    q = ((a / step).round() * step).clamp_max(6.0)
    return (torch.copysign(q, y) * s).reshape(x.shape).to(x.dtype)


def hadamard_fake(x, h, amax):
    """The same after a random Hadamard transform of 16 along the columns, transposed."""
    t = (x.t().reshape(-1, 16) @ h).reshape(x.shape[1], -1)
    return torch_fake(t.contiguous(), amax)


def main():
    for rows, cols in ((8192, 8192),):
        x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
        codes = torch.empty(rows, cols // 2, device="cuda", dtype=torch.uint8)
        scales = torch.empty(rows, cols // 16, device="cuda", dtype=torch.uint8)
        out = torch.empty_like(x)
        amax = x.abs().max().float().view(1)
        n = x.numel()
        h = torch.tensor([[(-1.0) ** bin(i & j).count("1") / 4 for j in range(16)] for i in range(16)], device="cuda",
                         dtype=torch.bfloat16)
        results = [("torch copy", bench(lambda: out.copy_(x)), 4.0)]
        shapes = [(m, k, w) for m in (1, 4, 16) for k in (256, 1024) for w in (2, 4, 8) if m * k <= 8192]
        best = min(bench(lambda: packed[(rows // m, cols // k)](x, codes, scales, amax, cols, ROWS=m, COLS=k, num_warps=w))
                   for m, k, w in shapes)
        results.append(("Triton packed row", best, 2.5625))
        best = min(bench(lambda: fake[(rows // m, cols // k)](x, out, amax, cols, ROWS=m, COLS=k, num_warps=w))
                   for m, k, w in shapes)
        results.append(("Triton fake quantize row", best, 4.0))
        compiled, turned = torch.compile(torch_fake), torch.compile(hadamard_fake)
        results.append(("torch.compile fake quantize row", bench(lambda: compiled(x, amax)), 4.0))
        results.append(("torch.compile RHT column fake", bench(lambda: turned(x, h, amax)), 4.0))
        results.append(("torch eager fake quantize row", bench(lambda: torch_fake(x, amax)), 4.0))
        results.append(("torch amax", bench(lambda: x.abs().max()), 2.0))
        print(f"{rows} x {cols} bf16, {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
        for name, us, size in results:
            print(f"  {name:34} {us:7.1f} us  {size * n / us / 1e6:5.2f} TB/s")


if __name__ == "__main__":
    main()
