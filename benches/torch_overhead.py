#!/usr/bin/env python3
"""Host time of one small call: nvfp4.torch.Linear against torch.nn.Linear, and where it goes.

    python3 benches/torch_overhead.py [--device cuda]

Microseconds from the call to its return, best of ten batches of calls; on a GPU nothing is waited for. The last column is the
time inside the C library (kernel launches included), so that what is left is Python's and PyTorch's.
"""

import argparse
import time

import nvfp4.torch as fp4
import torch
from nvfp4.torch import _calls


def best(call, calls=2000):
    for _ in range(calls // 10):
        call()
    fastest = float("inf")
    for _ in range(10):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls // 10):
            call()
        fastest = min(fastest, (time.perf_counter() - start) / (calls // 10))
    return 1e6 * fastest


class Timed:
    """The C library with a stopwatch at each function."""

    def __init__(self, library):
        self.library, self.seconds, self.calls = library, 0.0, 0

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def timed(*arguments):
            start = time.perf_counter()
            status = function(*arguments)
            self.seconds += time.perf_counter() - start
            self.calls += 1
            return status

        return timed


def inside(call, calls=1000):
    """Microseconds a call spends in the C library."""
    library = _calls._lib
    _calls._lib = timed = Timed(library)
    try:
        for _ in range(calls):
            call()
    finally:
        _calls._lib = library
    return 1e6 * timed.seconds / calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    torch.set_num_threads(1)
    place = {"device": o.device, "dtype": torch.bfloat16}
    x = torch.randn(16, 64, requires_grad=True, **place)
    plain = torch.nn.Linear(64, 64, bias=False, **place)
    layer = fp4.Linear(64, 64, bias=False, device=o.device, params_dtype=torch.bfloat16)
    print(f"16 x 64 x 64 bf16 on {torch.cuda.get_device_name() if o.device == 'cuda' else 'the CPU'}, microseconds a call")
    print(f"{'':34}{'nn.Linear':>10}{'ours':>8}{'above':>8}{'in C':>8}")
    with fp4.autocast():
        layer(x, is_first_microbatch=True)
        for name, grad, first in (("training, weight kept", True, False), ("training, weight quantized", True, None),
                                  ("inference, weight kept", False, False), ("inference, weight quantized", False, None)):  # fmt: skip
            with torch.set_grad_enabled(grad):
                ours, theirs = best(lambda: layer(x, is_first_microbatch=first)), best(lambda: plain(x))
                print(f"{name:34}{theirs:10.1f}{ours:8.1f}{ours - theirs:8.1f}{inside(lambda: layer(x, is_first_microbatch=first)):8.1f}")


if __name__ == "__main__":
    main()
