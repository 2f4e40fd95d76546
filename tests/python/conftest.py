"""Finds the package: the installed one if NVFP4_TEST_INSTALLED is set, else the checkout's with its built library."""

import importlib.util
import os
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
if not os.environ.get("NVFP4_TEST_INSTALLED"):
    sys.path.insert(0, str(ROOT / "bindings" / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from nvfp4 import _arrays  # noqa: E402

# The tests in torch/ need PyTorch; a folder of that name is no module, so look for the package's file.
_torch = importlib.util.find_spec("torch")
collect_ignore = [] if _torch and _torch.origin else ["torch"]


@pytest.fixture(params=[0xFF, 0x00], ids=["dirty", "clean"])
def poison(request, monkeypatch):
    """Every output and workspace starts as this byte; a test that uses it runs with both."""

    def empty(shape, dtype):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = request.param
        return array

    monkeypatch.setattr(_arrays, "empty", empty)
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)
