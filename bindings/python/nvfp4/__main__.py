"""``python -m nvfp4 doctor``: which library is loaded, what the machine offers, and whether the library works on it."""

from __future__ import annotations

import ctypes
import os
import pathlib
import platform
import sys

import numpy as np

from . import _abi, _context
from ._errors import Error

USAGE = "usage: python -m nvfp4 doctor"
# What the CPU backend may choose its code by.
FEATURES = ("sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_vnni")


def cpu_state() -> str:
    """The CPU's name, the features that matter here, and the number of threads the process may use."""
    try:
        info = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError as cause:
        return f"unknown ({cause})"
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    have = " ".join(f for f in FEATURES if f in flags) or "none of " + " ".join(FEATURES)
    name = fields.get("model name", platform.machine())
    return f"{name}; {have}; {len(os.sched_getaffinity(0))} threads"


def driver_state() -> str:
    """What the CUDA driver says of itself, without the library."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "none (libcuda.so.1 is not installed); the CPU backend needs none"
    status = cuda.cuInit(0)
    if status:
        return f"installed, but cuInit returns {status}"
    version, devices = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(devices))
    number = version.value
    return f"CUDA {number // 1000}.{number % 1000 // 10}, {devices.value} device(s)"


def selftest(context: _context.Context) -> tuple[int, str]:
    """Number of failed checks and the library's report."""
    failures = ctypes.c_uint32()
    report = ctypes.create_string_buffer(1 << 16)
    _abi.call("selftest", context.handle, ctypes.byref(failures), report, len(report))
    return failures.value, report.value.decode(errors="replace").rstrip()


def show(title: str, text: str) -> None:
    """One entry; further lines of `text` are indented."""
    print(f"{title + ':':<10} " + text.replace("\n", "\n" + " " * 11))


def doctor() -> int:
    """Print the report; 0 iff every selftest that could run passed."""
    show("version", _context.version())
    show("library", str(_abi.library_path))
    show("python", f"{platform.python_version()}, numpy {np.__version__}, ml_dtypes {_ml_dtypes()}")
    show("cpu", cpu_state())
    show("driver", driver_state())
    worst = 0
    for name, device in (("cpu test", 0), ("gpu test", 1)):
        try:
            context = _context.Context(device=device)
        except Error as cause:
            show(name, f"not run: {cause} ({cause.status_name})")
            worst |= device == 0
            continue
        try:
            failures, report = selftest(context)
        except Error as cause:
            failures, report = 1, f"{cause} ({cause.status_name})"
        show(name, f"{'FAILED' if failures else 'passed'}, {failures} failure(s)\n{report}".rstrip())
        worst |= failures != 0
    return int(worst)


def _ml_dtypes() -> str:
    try:
        import ml_dtypes
    except ImportError:
        return "not installed (needed for bfloat16 arrays)"
    return str(ml_dtypes.__version__)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if arguments == ["doctor"]:
        return doctor()
    print(USAGE, file=sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr)
    return 0 if arguments in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
