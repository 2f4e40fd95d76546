"""The wheel as a user gets it: its tag, what is in it, what the library needs, and a clean environment that uses it."""

import os
import subprocess
import sys
import venv
import zipfile

import pytest
from conftest import ROOT
from elf import dynamic, newest_glibc

import nvfp4

PACKAGE = ROOT / "bindings" / "python"
# libdl, libpthread and librt are part of libc since glibc 2.34; older ones list them apart.
SYSTEM = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "librt.so.1"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the library under test."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(PACKAGE)]
    done = subprocess.run(build, capture_output=True, text=True, env=os.environ | {"NVFP4_PREBUILT": str(nvfp4.library_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_tag_and_contents(wheel):
    assert wheel.name == f"nvfp4-{nvfp4.version()}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"nvfp4-{nvfp4.version()}.dist-info/"
        meta = archive.read(info + "WHEEL").decode()
        described = archive.read(info + "METADATA").decode()
        library = archive.read("nvfp4/libnvfp4.so")
    files = [*(PACKAGE / "nvfp4").rglob("*.py"), PACKAGE / "nvfp4" / "py.typed"]
    sources = {str(path.relative_to(PACKAGE)) for path in files}
    assert {n for n in names if not n.startswith(info)} == sources | {"nvfp4/libnvfp4.so", "nvfp4/LICENSE"}
    assert "Root-Is-Purelib: false" in meta and "Tag: py3-none-linux_x86_64" in meta
    assert "Requires-Python: >=3.11" in described and "Apache-2.0" in described
    requires = [line.split()[1].split(">")[0] for line in described.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert sorted(requires) == ["ml-dtypes", "numpy"]
    assert library == nvfp4.library_path.read_bytes()


def test_the_library_needs_only_the_system(wheel):
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read("nvfp4/libnvfp4.so")
    needed, soname = dynamic(data)
    assert needed and set(needed) <= SYSTEM, needed
    assert soname == "libnvfp4.so." + ".".join(nvfp4.version().split(".")[:2])
    assert newest_glibc(data) <= (2, 39)


def test_a_clean_environment(wheel, tmp_path):
    """Only the wheel and NumPy are there (ml_dtypes too for the second half): import, use, doctor."""
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NVFP4_", "PYTHON"))}

    def run(*arguments):
        done = subprocess.run([python, *arguments], capture_output=True, text=True, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    import numpy

    def install(*what):
        return subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what], env=env, cwd=tmp_path, capture_output=True, text=True
        )

    done = install(f"numpy=={numpy.__version__}")
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached: " + done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    done = install("--no-deps", str(wheel))
    assert done.returncode == 0, done.stderr
    code = "import numpy as np, nvfp4; q = nvfp4.quantize(np.ones((3, 20), np.float32)); print(q.dequantize().sum(), nvfp4.library_path)"
    total, path = run("-c", code).split()
    assert float(total) == pytest.approx(60, rel=1e-6) and path.startswith(str(tmp_path / "env"))
    report = run("-m", "nvfp4", "doctor")
    assert "passed, 0 failure(s)" in report and "ml_dtypes not installed" in report
    done = install(str(wheel))
    assert done.returncode == 0, done.stderr
    run("-c", "import numpy as np, nvfp4; q = nvfp4.quantize(np.ones((3, 20), np.float32)); assert (nvfp4.gemm(q, q) == 20).all()")
