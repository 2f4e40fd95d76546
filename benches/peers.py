#!/usr/bin/env python3
"""Rates of other CPU implementations, for benches/cpu: one line "name nT: rate" each, in 1e9 elements or operations a second.

    python3 benches/peers.py [--quick]

NumPy and ml_dtypes are measured by the Python that runs this; PyTorch and torchao by it too if it has them, else by the
environment that tests/torch_environment.py keeps in the user's cache. What is missing is said on stderr. OPENBLAS_CORETYPE and
OPENBLAS_L2_SIZE have to be unset.
"""

import os
import pathlib
import subprocess
import sys
import time

QUICK = "--quick" in sys.argv
COUNTS = sorted({1, len(os.sched_getaffinity(0))})


def best(run, limit=None):
    """Seconds of the fastest of several runs."""
    run()
    limit = limit or (0.3 if QUICK else 1.5)
    begin, fastest, runs = time.perf_counter(), float("inf"), 0
    while runs < 3 or time.perf_counter() - begin < limit:
        start = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - start)
        runs += 1
    return fastest


def report(name, threads, amount, seconds):
    print(f"{name} {threads}T: {amount / seconds * 1e-9:.5f}", flush=True)


def quantize_numpy(np, ml_dtypes, x, amax):
    """NVFP4 as a NumPy user writes it: two-level scales, chain TE, casts by ml_dtypes."""
    encode = np.float32(2688) / amax
    block = np.abs(x).reshape(-1, 16).max(1)
    scale = np.minimum(block * (encode * np.float32(1 / 6)), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
    with np.errstate(divide="ignore", over="ignore"):
        multiplier = np.minimum(1 / (scale.astype(np.float32) * (1 / encode)), np.float32(3.4e38))
    y = np.clip(x.reshape(-1, 16) * multiplier[:, None], -6, 6)
    codes = y.astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(-1, 2)
    return codes[:, 0] | codes[:, 1] << 4, scale


def numpy_peers(threads):
    import ml_dtypes
    import numpy as np

    if threads == 1:
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
        for n, place in ((1 << 17, "in cache"), (1 << 23, "DRAM")):
            x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
            amax = np.abs(x).max()
            codes, scale = quantize_numpy(np, ml_dtypes, x, amax)
            # ml_dtypes and NumPy use one thread whatever there is, so the rate stands for all counts.
            for count in COUNTS:
                report(f"ml_dtypes quantize f32, {place}", count, n, best(lambda: quantize_numpy(np, ml_dtypes, x, amax)))
                report(f"numpy amax f32, {place}", count, n, best(lambda: np.abs(x).max()))

            def decode():
                values = table[np.stack([codes & 15, codes >> 4], 1).reshape(-1, 16)]
                return values * (scale.astype(np.float32) * (amax / np.float32(2688)))[:, None]

            for count in COUNTS:
                report(f"ml_dtypes dequantize, {place}", count, n, best(decode))
    b = np.random.default_rng(2).standard_normal((4096, 4096)).astype(np.float32)
    for m in (1, 4, 8, 32, 512):
        a = np.random.default_rng(3).standard_normal((m, 4096)).astype(np.float32)
        report(f"OpenBLAS sgemm {m}x4096x4096", threads, 2 * m * 4096**2, best(lambda: a @ b.T))


def torch_peers():
    import logging
    import warnings

    warnings.simplefilter("ignore")
    import torch

    logging.disable(logging.WARNING)

    for threads in COUNTS:
        torch.set_num_threads(threads)
        b = torch.randn(4096, 4096)
        for m in (1, 4, 8, 32, 512):
            a = torch.randn(m, 4096)
            report(f"MKL sgemm {m}x4096x4096", threads, 2 * m * 4096**2, best(lambda: a @ b.T))
        a8 = torch.randint(-9, 9, (512, 4096), dtype=torch.int8)
        b8 = torch.randint(-9, 9, (4096, 4096), dtype=torch.int8)
        report("torch int8 512x4096x4096", threads, 2 * 512 * 4096**2, best(lambda: torch._int_mm(a8, b8.T)))
        layer = torch.nn.Linear(1024, 4096, bias=False)
        x = torch.randn(512, 1024, requires_grad=True)
        dy = torch.randn(512, 4096)

        def step():
            layer.weight.grad = x.grad = None
            layer(x).backward(dy)

        report("torch f32 linear step", threads, 6 * 512 * 1024 * 4096, best(step))
        try:
            from torchao.prototype.mx_formats import nvfp4_tensor
        except ImportError as error:
            print(f"no torchao: {error}", file=sys.stderr)
            continue
        for n, place in ((1 << 17, "in cache"), (1 << 23, "DRAM")):
            data = torch.randn(n // 2048, 2048)
            scale = nvfp4_tensor.per_tensor_amax_to_scale(data.abs().max())
            eager = lambda: nvfp4_tensor.nvfp4_quantize(data, 16, scale)  # noqa: E731
            report(f"torchao quantize f32, {place}", threads, n, best(eager))
            try:
                quantize = torch.compile(nvfp4_tensor.nvfp4_quantize)
                report(f"torchao compiled quantize f32, {place}", threads, n, best(lambda: quantize(data, 16, scale)))
                packed = nvfp4_tensor.NVFP4Tensor.to_nvfp4(data.bfloat16(), 16, scale)
                report(f"torchao dequantize, {place}", threads, n, best(lambda: packed.dequantize(torch.bfloat16)))
                decode = torch.compile(lambda t: t.dequantize(torch.bfloat16))
                report(f"torchao compiled dequantize, {place}", threads, n, best(lambda: decode(packed)))
            except Exception as error:  # A peer that does not run is a line, not the end.
                print(f"torchao, {place}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--numpy":
        return numpy_peers(int(sys.argv[2]))
    if "--torch" in sys.argv:
        return torch_peers()
    quick = ["--quick"] if QUICK else []
    here = os.path.abspath(__file__)
    for threads in COUNTS:
        # OpenBLAS reads its thread count once, at import.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
        subprocess.run([sys.executable, here, "--numpy", str(threads), *quick], env=environment)
    try:
        import torch  # noqa: F401

        return subprocess.run([sys.executable, here, "--torch", *quick]).returncode
    except ImportError:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nvfp4-peers"
    for ready in cache.glob("*/ready"):
        place = ready.parent
        real = sorted({str(p.parent) for p in place.rglob("nvidia/**/*.so*")})
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join([str(place / "stand-ins"), *real])}
        return subprocess.run([place / "bin" / "python", here, "--torch", *quick], env=environment).returncode
    print("no PyTorch here, nor in the cache of tests/torch_environment.py", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
