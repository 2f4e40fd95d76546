"""Version, support queries, the log, errors, the doctor, and using the library across fork."""

import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import tomllib

import numpy as np
import pytest
from common import F
from conftest import ROOT

import nvfp4
from nvfp4 import __main__ as command


def test_the_version_is_the_crates():
    want = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    assert nvfp4.version() == nvfp4.__version__ == want
    assert nvfp4.library_path.is_file()


def test_everything_public_is_documented():
    for name in nvfp4.__all__:
        thing = getattr(nvfp4, name)
        if callable(thing):
            assert thing.__doc__ and len(thing.__doc__) > 40, name
    for name in ("quantize", "gemm", "hadamard", "linear", "linear_backward"):
        doc = getattr(nvfp4, name).__doc__
        assert "docs/format.md" in doc or name.startswith("linear"), f"{name} names its source"
        assert "Raises:" in doc and "Returns:" in doc and re.search(r"\[\w+, \w+\]", doc), f"{name} tells shapes and errors"


def test_the_examples_in_the_docstrings():
    import doctest

    ran = 0
    for thing in (nvfp4, nvfp4.supports, nvfp4.recipe):
        for example in doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs={"nvfp4": nvfp4, "np": np}):
            result = doctest.DocTestRunner().run(example)
            assert result.failed == 0
            ran += result.attempted
    assert ran >= 7


def test_the_error_holds_the_librarys_sentence():
    with pytest.raises(nvfp4.Error) as caught:
        nvfp4.quantize(np.ones((4, 32), F), hadamard=24)
    error = caught.value
    assert "24" in str(error) and error.status in range(1, 14) and error.status_name.startswith("NVFP4_ERR_")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.status_name == error.status_name
    with pytest.raises(ValueError):
        nvfp4.quantize(np.ones((4, 32), F), hadamard=24)


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"format": "fp4"}, "format is 'fp4'"),
        ({"block": "16x1"}, "block is '16x1'.*'1x16', '16x16'"),
        ({"block": "16x16", "format": "mxfp4"}, "block is '16x16'.*'1x32', '32x32'"),
        ({"rounding": "up"}, "rounding is 'up'.*'nearest', 'stochastic'"),
        ({"chain": "nv"}, "chain is 'nv'"),
        ({"chain": "div6", "format": "mxfp4"}, "chain"),
        ({"scale_rule": "round"}, "scale_rule is 'round'"),
        ({"scale_layout": "tiled"}, "scale_layout is 'tiled'"),
        ({"nonfinite": "drop"}, "nonfinite is 'drop'"),
        ({"axis": "rows"}, "axis is 'rows'"),
        ({"axis": 0}, "axis is 0"),
        ({"select": "best"}, "select is 'best'"),
        ({"hadamard": 24}, "24"),
        ({"hadamard": -16}, "-16"),
        ({"hadamard": 16, "sign_mask": 0x10000}, "0x10000"),
        ({"hadamard": 32, "sign_mask": [True] * 16}, "16 signs.*32"),
        ({"hadamard": 32, "sign_mask": [1] * 32}, "sign_mask holds 1"),
        ({"hadamard": 32, "sign_mask": "random"}, "'random'"),
        ({"sign_mask": 3}, "hadamard is 0"),
        ({"domain": 0}, "domain is 0"),
        ({"domain": -3}, "-3"),
        ({"domain": "rows"}, "domain is 'rows'"),
        ({"domain": 17, "block": "16x16"}, "17"),
        ({"c": 1000.0}, "1000"),
        ({"c": float("nan")}, "nan"),
        ({"offset": 1 << 62, "rounding": "stochastic"}, str(1 << 62)),
        ({"origin": (1, 2, 3)}, "origin"),
        ({"origin": (0, 7)}, "7"),
        ({"column": {"hadamard": 16}}, "axis is 'row'"),
        ({"axis": "both", "column": {"rht": 16}}, "'rht'"),
        ({"amax": 1.0, "format": "mxfp4"}, "amax is 1.0"),
        ({"select": "ms_eden"}, "(?i)hadamard|128|transform"),
        ({"select": "4over6", "format": "mxfp4"}, "(?i)4/6|4over6|four"),
    ],
)  # fmt: skip
def test_messages_hold_the_value_at_fault(kw, message):
    with pytest.raises(nvfp4.Error, match=message) as error:
        nvfp4.quantize(np.ones((32, 64), F), **kw)
    assert isinstance(error.value, (ValueError, TypeError))


@pytest.mark.parametrize("axis", ["row", "column", "both"])
def test_supports_is_the_planners_answer(axis):
    """Truth of the query equals success of the call, for good and bad combinations."""
    x = np.ones((64, 64), F)
    asked = 0
    for fmt in ("nvfp4", "mxfp4", "bf16"):
        for hadamard in (0, 16, 24, 128):
            for select in ("single", "4over6", "ms_eden"):
                for domain in ("tensor", 1, 17):
                    for block in (None, "16x16", "32x32"):
                        kw = dict(format=fmt, hadamard=hadamard, select=select, domain=domain, block=block)
                        try:
                            answer = nvfp4.supports("quantize", 64, 64, dtype="float32", axis=axis, **kw)
                        except nvfp4.ArgumentError as error:
                            assert "block" in str(error)
                            continue
                        try:
                            nvfp4.quantize(x, axis=axis, **kw)
                            assert answer and answer.reason == "", kw
                        except nvfp4.Error as error:
                            assert not answer and answer.reason == str(error), kw
                        asked += 1
    assert asked > 100


def test_supports_gemm():
    assert nvfp4.supports("gemm", 3, 5, 7)
    assert nvfp4.supports("gemm", 3, 5, 7, format="mxfp4", accumulate="hardware", out_dtype="float32", activation="gelu")
    answer = nvfp4.supports("gemm", 3, 5, 64, b={"format": "mxfp4"})
    assert not answer and answer.reason
    answer = nvfp4.supports("gemm", 3, 5, -1)
    assert not answer and "-1" in answer.reason
    assert not nvfp4.supports("gemm", 4, 4, 32, hadamard=16, b={"hadamard": 0})
    for wrong in (("conv", 1, 2), ("gemm", 1, 2), ("quantize", 1, 2, 3)):
        with pytest.raises(nvfp4.ArgumentError, match=wrong[0]):
            nvfp4.supports(*wrong)


def test_the_log_is_off_until_asked_for_and_can_be_turned_off():
    lines = []

    def fail():
        with pytest.raises(nvfp4.Error):
            nvfp4.quantize(np.ones((4, 32), F), hadamard=24)

    fail()
    nvfp4.set_log(lambda level, message: lines.append((level, message)), "plan")
    try:
        fail()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        assert sum("24" in message for _, message in lines) >= 2 and all(1 <= level <= 4 for level, _ in lines)
    finally:
        nvfp4.set_log(None)
    count = len(lines)
    fail()
    assert len(lines) == count
    with pytest.raises(nvfp4.ArgumentError, match="'loud'"):
        nvfp4.set_log(print, "loud")


def test_an_exception_in_the_log_function_goes_no_further(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(args.exc_value))

    def broken(level, message):
        raise KeyError("broken log")

    nvfp4.set_log(broken, "plan")
    try:
        with pytest.raises(nvfp4.Error, match="24"):
            nvfp4.quantize(np.ones((4, 32), F), hadamard=24)
    finally:
        nvfp4.set_log(None)
    assert seen and all(isinstance(e, KeyError) for e in seen)


def _child(queue):
    q = nvfp4.quantize(np.arange(64 * 64, dtype=F).reshape(64, 64))
    queue.put(q.codes.tobytes())


def test_fork_after_use():
    want = nvfp4.quantize(np.arange(64 * 64, dtype=F).reshape(64, 64)).codes.tobytes()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    got = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0 and got == want


def test_the_log_function_outlives_nothing_at_exit():
    """A process that ends with a log set ends cleanly."""
    code = "import nvfp4, numpy as np; nvfp4.set_log(print, 'plan'); nvfp4.quantize(np.ones((2, 32), np.float32)); print('end')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0 and done.stdout.endswith("end\n") and not done.stderr, done.stderr


def environment():
    """For a child that must find the same package and library."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "NVFP4_LIBRARY": str(nvfp4.library_path)}


def test_doctor(capsys):
    assert command.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for needle in (nvfp4.version(), str(nvfp4.library_path), "cpu:", "driver:", "cpu test:", "passed, 0 failure(s)", "gpu test:"):
        assert needle in out
    done = subprocess.run([sys.executable, "-m", "nvfp4", "doctor"], capture_output=True, text=True, env=environment())
    assert done.returncode == 0 and "passed, 0 failure(s)" in done.stdout


def test_the_command_line():
    assert command.main([]) == 2 and command.main(["nurse"]) == 2 and command.main(["--help"]) == 0


@pytest.mark.parametrize(
    ("library", "message"),
    [("/nonexistent/libnvfp4.so", "was not found.*/nonexistent/libnvfp4.so"), (__file__, "could not be loaded"), ("libm", "no function nvfp4_")],
)
def test_a_library_that_cannot_be_used(library, message):
    if library == "libm":
        maps = open("/proc/self/maps").read()
        library = next(line.split()[-1] for line in maps.splitlines() if re.search(r"libm[.-]", line))
    env = environment() | {"NVFP4_LIBRARY": library}
    done = subprocess.run([sys.executable, "-c", "import nvfp4"], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "ImportError" in done.stderr
    assert re.search(message, done.stderr), done.stderr


def test_import_needs_numpy_only():
    """ml_dtypes is imported where a bfloat16 array is first made, and its absence is told then."""
    code = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, nvfp4
assert not [m for m in sys.modules if m.split(".")[0] in ("torch", "jax", "scipy")]
q = nvfp4.quantize(np.ones((2, 32), np.float32))
assert nvfp4.gemm(q, q, out_dtype="float32")[0, 0] == 32
try:
    nvfp4.gemm(q, q)
except nvfp4.DtypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0 and "ml_dtypes" in done.stdout, done.stderr


CALLER = """
import numpy as np, nvfp4
x = np.ones((2, 32), np.float32)
q: nvfp4.QuantizedTensor = nvfp4.quantize(x)
a, b = nvfp4.quantize(x, axis="both")
d: nvfp4.QuantizedTensor = nvfp4.gemm(a, b, out_dtype="nvfp4", out_amax=1.0)
dx, dw, db = nvfp4.linear_backward(x, x, x, bias=True)
print(nvfp4.gemm(q, q, out_dtype="float32").sum())
"""
WRONG = """
import numpy as np, nvfp4
x = np.ones((2, 32), np.float32)
nvfp4.quantize(x, rounding=3)
nvfp4.quantize(x).codez
a, b = nvfp4.quantize(x)
nvfp4.gemm(x, x)
"""


def test_types(tmp_path):
    """mypy --strict is clean, and a caller's code is checked against the signatures. (nvfp4.torch needs PyTorch: tests/peers.py.)"""
    mypy = pytest.importorskip("mypy.api")
    package = ROOT / "bindings" / "python" / "nvfp4"
    out, _, status = mypy.run(["--strict", "--no-incremental", "--exclude", "nvfp4/torch/", str(package)])
    assert status == 0, out
    for name, code in (("caller.py", CALLER), ("wrong.py", WRONG)):
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "caller.py", "wrong.py"],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"MYPYPATH": str(package.parent)},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in lines if line.startswith("caller.py")], done.stdout
    assert {int(line.split(":")[1]) for line in lines} == {4, 5, 6, 7}, done.stdout
