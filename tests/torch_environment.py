"""An environment with PyTorch, and with torchao, compressed-tensors and fouroversix, which need it.

PyTorch's wheel (540 MB) wants another 4 GB of CUDA libraries that a CPU never calls. They are replaced by empty stand-ins
here: libraries with the same names and symbols whose functions return an error. Needs gcc and readelf. An environment is
kept under the hash of its pins and of this file, so that the next run starts at once.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALONE = ["torch==2.15.0", "torchao==0.18.0", "compressed-tensors==0.20.1"]  # without what they depend on
REAL_CUDA = ["nvidia-cuda-runtime==13.5.37", "nvidia-cuda-cupti==13.5.25"]  # small, and used at import
FROM_SOURCE = ["fouroversix==1.0.5"]
OTHERS = """sympy filelock typing_extensions networkx jinja2 fsspec setuptools>=77.0.3 wheel transformers pydantic loguru psutil
            numpy==2.4.6 ml_dtypes==0.6.0 gfloat==0.5.2 pytest==9.2.0""".split()


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Needs:
    """What the libraries of PyTorch want from libraries that are not there."""

    def __init__(self, libraries, present):
        self.missing = set()  # file names
        self.symbols = {}  # version -> names; version "" for those without
        self.owner = {}  # version -> file name
        for library in libraries:
            dynamic = output("readelf", "-dW", library)
            self.missing |= {n for n in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic) if re.match("lib(cu|nv|nccl)", n)}
            file = None
            for line in output("readelf", "-VW", library).splitlines():
                if match := re.search(r"File: (\S+)", line):
                    file = match[1]
                elif (match := re.search(r"Name: (\S+)", line)) and file:
                    self.owner[match[1]] = file
            for line in output("readelf", "--dyn-syms", "-W", library).splitlines():
                fields = line.split()
                if len(fields) >= 8 and fields[6] == "UND":
                    name, _, version = fields[7].partition("@")
                    self.symbols.setdefault(version.strip("@"), set()).add(name)
        self.missing -= present

    def of(self, file, takes_unversioned):
        """(version, names) that the stand-in of a file has to define."""
        for version, names in self.symbols.items():
            if version and self.owner.get(version) == file:
                yield version, sorted(names)
        if takes_unversioned:
            foreign = re.compile("nccl|nvshmem|cuFile|cusparseLt|cudss|cu[A-Z]")
            yield "", sorted(n for n in self.symbols.get("", ()) if foreign.match(n))


def write_stand_ins(site, folder):
    """A library for each CUDA library that is missing. Symbols without a version may come from any: the first has them."""
    folder.mkdir(exist_ok=True)
    lib = site / "torch" / "lib"
    present = {p.name for p in (site / "nvidia").rglob("*.so*")} | {p.name for p in lib.iterdir()}
    needs = Needs(sorted(map(str, lib.glob("*.so"))), present)
    assert needs.missing, "PyTorch needs no CUDA library: another wheel than this script is for"
    for i, file in enumerate(sorted(needs.missing)):
        parts = list(needs.of(file, i == 0))
        source, script = folder / f"{file}.c", folder / f"{file}.map"
        source.write_text("".join(f"int {n}(void) {{ return 999; }}\n" for _, names in parts for n in names))
        script.write_text("\n".join(f"{v} {{ global: {' '.join(n + ';' for n in names)} }};" for v, names in parts if v))
        versions = [f"-Wl,--version-script={script}"] if any(v for v, _ in parts) else []
        subprocess.run(["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", folder / file, source, f"-Wl,-soname,{file}",
                        *versions], check=True)  # fmt: skip


def environment(folder):
    """(python, environment variables) of an environment under `folder`, made now if it is not there."""
    pins = "\n".join(ALONE + REAL_CUDA + FROM_SOURCE + OTHERS) + pathlib.Path(__file__).read_text() + sys.version
    place = folder / hashlib.sha256(pins.encode()).hexdigest()[:16]
    python = place / "bin" / "python"
    stand_ins = place / "stand-ins"
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not (place / "ready").exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([*pip, *OTHERS], check=True)
        subprocess.run([*pip, "--no-deps", *ALONE, *REAL_CUDA], check=True)
        write_stand_ins(next((place / "lib").glob("python3*")) / "site-packages", stand_ins)
    real = sorted({str(p.parent) for p in place.rglob("nvidia/**/*.so*")})
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join([str(stand_ins), *real]), "SKIP_CUDA_BUILD": "1"}
    if not (place / "ready").exists():
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", *FROM_SOURCE], check=True, env=env)
        (place / "ready").touch()
    return python, env
