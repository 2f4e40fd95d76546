#!/usr/bin/env python3
"""Runs the tests that need PyTorch: tests/python/torch, and what torchao, compressed-tensors and fouroversix say of the vectors.

    python3 tests/peers.py FOLDER crosscheck | torch [pytest's arguments]     # FOLDER holds the environments
"""

import pathlib
import subprocess
import sys

import torch_environment

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
TESTS = {
    "crosscheck": ["--noconftest", "-k", "torchao or compressed or fouroversix", "tests/python/test_crosscheck.py"],
    "torch": ["tests/python/torch"],
}
# Its own Python checks the types: mypy is in .venv, PyTorch is not.
MYPY = [str(ROOT / ".venv" / "bin" / "python"), "-m", "mypy", "--config-file", "bindings/python/pyproject.toml", "bindings/python/nvfp4/torch"]


def main():
    folder, what, *arguments = sys.argv[1:]
    python, env = torch_environment.environment(pathlib.Path(folder).resolve())
    if what == "torch":
        env["NVFP4_LIBRARY"] = str(ROOT / "target" / "release" / "libnvfp4.so")
    code = subprocess.run([python, *PYTEST, *TESTS[what], *arguments], cwd=ROOT, env=env).returncode
    if what == "torch" and not arguments:
        code = subprocess.run([*MYPY, "--python-executable", str(python)], cwd=ROOT).returncode or code
    return code


if __name__ == "__main__":
    sys.exit(main())
