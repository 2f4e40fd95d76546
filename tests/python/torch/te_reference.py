"""TransformerEngine's own Python reference of NVFP4, out of its wheel, without its compiled core.

The wheel `transformer_engine` of the package index is pure Python. Three of its files are what is needed; the two classes
that they take from the rest of the package (base classes without behaviour of their own here) have stand-ins below. The
wheel is kept in the user's cache beside PyTorch's packages; nothing of it is part of this repository.
"""

import hashlib
import importlib
import os
import pathlib
import subprocess
import sys
import types
import zipfile

WHEEL = "transformer_engine-2.20.2-py3-none-any.whl"
SHA256 = "7dcfad943a1a55b2612db9a0e43697fe98c70f4c42ec391ba3a0f872f6ce2094"
FILES = ("gemm", "reference_utils", "reference_nvfp4")
FOLDER = "transformer_engine/pytorch/custom_recipes"


def wheel():
    """The path of the pinned wheel, fetched on first use; OSError if it can't be had."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nvfp4-peers" / "wheels"
    path = cache / WHEEL
    if not path.exists():
        name, version = WHEEL.split("-")[:2]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
             "-d", cache, f"{name}=={version}"], capture_output=True, text=True)  # fmt: skip
        if done.returncode or not path.exists():
            raise OSError(f"{WHEEL} can't be fetched: {done.stderr.strip().splitlines()[-1:]}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == SHA256, f"{path} has sha256 {digest}, want {SHA256}"
    return path


class Storage:
    """Stands in for QuantizedTensorStorage, which the reference's tensor class only derives from."""


class Quantizer:
    """Stands in for Quantizer: keeps which copies are wanted."""

    def __init__(self, *, rowwise, columnwise):
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise
        self.internal = False


def load():
    """The module reference_nvfp4 as it is in the wheel."""
    packages = ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.tensor",
                "transformer_engine.pytorch.custom_recipes")  # fmt: skip
    for name in packages:
        sys.modules.setdefault(name, types.ModuleType(name)).__path__ = []
    tensors = types.ModuleType("transformer_engine.pytorch.quantized_tensor")
    tensors.QuantizedTensorStorage, tensors.Quantizer = Storage, Quantizer
    tests = types.ModuleType("transformer_engine.pytorch.tensor.utils")
    tests.is_custom = lambda tensor: True
    sys.modules.update({tensors.__name__: tensors, tests.__name__: tests})
    recipes = sys.modules[packages[-1]]
    with zipfile.ZipFile(wheel()) as archive:
        for name in FILES:
            full = f"{recipes.__name__}.{name}"
            if full not in sys.modules:
                module = types.ModuleType(full)
                sys.modules[full] = module  # before it runs: dataclasses look their module up
                source = archive.read(f"{FOLDER}/{name}.py")
                exec(compile(source, f"{WHEEL}/{FOLDER}/{name}.py", "exec"), module.__dict__)
                setattr(recipes, name, module)
    return importlib.import_module(f"{recipes.__name__}.reference_nvfp4")
