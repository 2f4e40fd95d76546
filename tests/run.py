#!/usr/bin/env python3
"""Runs every test of the project, prints one line a step and one line for everything that is skipped, and ends with
"N passed, N failed".

    make test                       # all
    python3 tests/run.py --list     # the steps
    python3 tests/run.py rust c     # some of them
    make test-long                  # checks that take hours: python3 tests/run.py --long

Output of a step is in build/test/<step>.log, and on the screen when the step fails.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test"
PREFIX = ROOT / "build" / "prefix"
CONSUMER = ROOT / "build" / "consumer"
PYTHON = str(ROOT / ".venv" / "bin" / "python")
CMAKE = os.environ.get("CMAKE") or shutil.which("cmake") or str(ROOT / ".venv" / "bin" / "cmake")
FEATURES = ["--no-default-features"] + (["--features", "cuda"] if os.environ.get("CUDA") == "1" else [])
EMULATOR = ["--manifest-path", "tests/emulator/Cargo.toml"]

# How the tools that run here tell their numbers: (passed, failed) from one line.
COUNTS = [
    (re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;"), lambda m: (int(m[1]), int(m[2]))),
    (re.compile(r"Summary \[.*tests? run: (\d+) passed(?:.*?, (\d+) failed)?"), lambda m: (int(m[1]), int(m[2] or 0))),
    (re.compile(r"tests passed, (\d+) tests? failed out of (\d+)"), lambda m: (int(m[2]) - int(m[1]), int(m[1]))),
    (re.compile(r"100% tests passed out of (\d+)"), lambda m: (int(m[1]), 0)),
    (re.compile(r"^(?:=+ )?(?:(\d+) failed, )?(\d+) passed.* in [\d.]+s"), lambda m: (int(m[2]), int(m[1] or 0))),
    (re.compile(r"^[\w-]+: (\d+) passed, (\d+) failed$"), lambda m: (int(m[1]), int(m[2]))),
]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass
class Step:
    """Commands run one after the other; the step fails with the first that does. `missing` is why it can't run."""

    name: str
    commands: list
    missing: str = ""
    env: dict = dataclasses.field(default_factory=dict)


def have(*command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def rust_tests(*where, only=()):
    """nextest when it is there (doc tests are cargo's own in any case), else cargo test. `only` names targets."""
    if have("cargo", "nextest", "--version"):
        return [["cargo", "nextest", "run", "--locked", "--no-fail-fast", "--success-output", "final", *where, *only],
                ["cargo", "test", "--locked", "--doc", *where]]
    return [["cargo", "test", "--locked", "--no-fail-fast", *where, *only, "--", "--show-output"]]


def steps():
    fmt = "" if have("cargo", "fmt", "--version") else "rustfmt is not installed, so the format was not checked"
    clippy = "" if have("cargo", "clippy", "--version") else "clippy is not installed, so the lints were not run"
    yield Step("format", [["cargo", "fmt", "--check"]], fmt)
    yield Step("lints", [["cargo", "clippy", "--locked", "--all-targets", *FEATURES, "--", "-D", "warnings"]], clippy)
    yield Step("licences", [[sys.executable, "tests/licences.py"]])
    yield Step("rust", rust_tests(*FEATURES))
    # The emulated GPU runs what nvcc makes of kernels; CUTLASS's programs share a cache, so they run in one process.
    nvcc = [["make", "-s", ".venv-cuda/ready"]] if not os.environ.get("NVCC") else []
    tests = sorted(f.stem for f in (ROOT / "tests" / "emulator" / "tests").glob("*.rs") if f.stem != "cutlass")
    apart = ["--lib", *(arg for name in tests for arg in ("--test", name))]
    yield Step("emulator", [*nvcc, *rust_tests(*EMULATOR, only=apart)])
    yield Step("cutlass", [["cargo", "test", "--locked", *EMULATOR, "--test", "cutlass", "--", "--test-threads", "1", "--show-output"]])
    yield Step("gpu-emulated", [["sh", "tests/gpu/emulated.sh", "build/emulated"]])
    yield Step("headers", [["sh", "tests/c/headers.sh", str(PREFIX / "include")]])
    yield Step("c", [
        [CMAKE, "-S", "tests/c", "-B", str(CONSUMER), f"-DCMAKE_PREFIX_PATH={PREFIX}"],
        [CMAKE, "--build", str(CONSUMER), "--parallel", "2"],
        [str(pathlib.Path(CMAKE).resolve().parent / "ctest"), "--test-dir", str(CONSUMER), "--verbose", "--timeout", "600"],
    ])
    yield Step("panic", [["sh", "tests/c/panic.sh", str(ROOT / "build" / "panic")]])
    yield Step("sanitizers", [["sh", "tests/c/sanitize.sh", "address", "build/sanitize"], ["sh", "tests/c/sanitize.sh", "thread", "build/sanitize"]])
    yield Step("cuda", [["sh", "tests/c/cuda.sh", str(CONSUMER), "build/cuda"]])
    yield Step("valgrind", [["sh", "tests/c/valgrind.sh", str(CONSUMER)]])
    yield Step("cmake", [
        [CMAKE, "-S", "cmake", "-B", "build/cmake-cargo", "-DNVFP4_CUDA=" + ("ON" if os.environ.get("CUDA") == "1" else "OFF")],
        [CMAKE, "--build", "build/cmake-cargo"],
        [CMAKE, "--install", "build/cmake-cargo", "--prefix", "build/cmake-cargo/prefix"],
        ["sh", "tests/c/relocate.sh", str(PREFIX), "build/relocate"],
    ], env={"CMAKE": CMAKE})
    wheel_env = {"NVFP4_PREBUILT": str(ROOT / "target" / "release" / "libnvfp4.so"), "NVFP4_TEST_INSTALLED": "1"}
    yield Step("wheel", [
        ["rm", "-rf", "build/wheel"],
        [PYTHON, "-m", "build", "--wheel", "--no-isolation", "--outdir", "build/wheel", "bindings/python"],
        ["sh", "-c", f"{PYTHON} -m pip install -q --disable-pip-version-check --no-deps --force-reinstall build/wheel/*.whl"],
    ], env=wheel_env)
    yield Step("python", [[PYTHON, "-m", "pytest", "-q", "-rs", "tests/python"]], env=wheel_env)
    # Nothing of this needs an Arm machine, but the Rust target is not everywhere.
    arm = "aarch64-unknown-linux-gnu"
    qemu, linker = shutil.which("qemu-aarch64"), shutil.which("aarch64-linux-gnu-gcc")
    missing = "" if have("sh", "-c", f'test -d "$(rustc --print target-libdir --target {arm})"') and qemu and linker else (
        f"the NEON kernels were not tested and no wheel for aarch64 was made: that needs the Rust target {arm}, qemu-user and "
        "gcc-aarch64-linux-gnu, on none of which this run depends")
    yield Step("aarch64", [
        ["cargo", "test", "--release", "--locked", "--lib", *FEATURES[:1], "--target", arm, "cpu::"],
        ["make", "wheel", "ARCH=aarch64", "CUDA=0"],
    ], missing, env={"CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": linker or "",
                     "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER": f"{qemu} -L /usr/aarch64-linux-gnu"})
    # PyTorch's packages, kept between runs in a folder of the user's cache; PEERS=0 leaves this 540 MB download out.
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nvfp4-peers"
    peers = "" if os.environ.get("PEERS") != "0" else (
        "PEERS is 0, so PyTorch (540 MB) was not brought: nvfp4.torch was not tested, and torchao, compressed-tensors and "
        "fouroversix did not run beside the vectors; digests of what they gave were compared")
    yield Step("peers", [[sys.executable, "tests/peers.py", str(cache), "crosscheck"]], peers)
    yield Step("torch", [[sys.executable, "tests/peers.py", str(cache), "torch"]], peers and "PEERS is 0: see above")
    mypy = [PYTHON, "-m", "mypy", "--config-file", "bindings/python/pyproject.toml"]
    yield Step("types", [[*mypy, "--exclude", "nvfp4/torch/", "bindings/python/nvfp4"]])
    yield Step("readme", [[PYTHON, "tests/readme.py", str(PREFIX), "build/readme"]], env={"CMAKE": CMAKE})
    yield Step("demo", [["sh", "tests/demo.sh", "build/examples/trainer", "build/demo"]])


def long_steps():
    """Checks for the night: every path over many inputs."""
    yield Step("patterns", [["cargo", "test", "--release", "--locked", "--lib", *FEATURES, "--", "--ignored", "a_hundred_million"]])
    nvcc = [["make", "-s", ".venv-cuda/ready"]] if not os.environ.get("NVCC") else []
    # The first leaves the table of what caught which fault in the guide's folder.
    mutate = [sys.executable, "tests/emulator/mutate.py"]
    yield Step("mutation", [*nvcc, [*mutate, "--test-kernels", "--table", "tests/emulator/mutations.md"]])
    yield Step("mutation-library", [*nvcc, [*mutate, "--library"]])
    families = {
        "quantize": ["--only", "random", "--configs", "10000"],
        "products": ["--only", "random products", "--products", "10000"],
        "grouped": ["--only", "grouped", "--groups", "10000"],
        "fp4-products": ["--only", "fp4 products", "--products", "10000"],
    }
    for arch in ["sm_90", "sm_100", "sm_103", "sm_120"]:
        for name, arguments in families.items():
            if name != "fp4-products" or arch != "sm_90":
                yield Step(f"{name}-{arch}", [["sh", "tests/gpu/emulated.sh", "build/emulated", arch, *arguments]])


def run(step):
    """Runs one step: (passed, failed)."""
    if step.missing:
        print(f"SKIPPED: {step.missing}", flush=True)
        return 0, 0
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{step.name}.log"
    start = time.monotonic()
    code = 0
    with log.open("w") as out:
        for command in step.commands:
            print("$", " ".join(command), file=out, flush=True)
            code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **step.env}).returncode
            if code:
                print(f"exit status {code}", file=out)
                break
    lines = [ESCAPES.sub("", line) for line in log.read_text(errors="replace").splitlines()]
    passed = failed = 0
    for line in lines:
        for pattern, count in COUNTS:
            if match := pattern.search(line):
                numbers = count(match)
                passed, failed = passed + numbers[0], failed + numbers[1]
                break
        if skipped := re.match(r"\s*(?:\d+: )?((?:SKIPPED|skipped\b(?! tests)).*)", line):
            print(skipped[1])
    if code and not failed:
        failed = 1
    if not code and not passed and not failed:
        passed = 1  # a tool that does not count: it passed
    if code:
        print("\n".join(lines[-80:]))
    print(f"{'FAILED' if failed else 'ok'}: {step.name}, {passed} passed, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    return passed, failed


def kernels_hash():
    """sha256 over the sorted `sha256sum` lines of the files in kernels/ and src/cuda; "" when there are none."""
    files = subprocess.run(["git", "ls-files", "kernels", "src/cuda"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    sums = "".join(f"{hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256(sums.encode()).hexdigest() if files else ""


def gpu_currency():
    """One line: whether the last run on a GPU was of the kernels that are here."""
    now = kernels_hash()
    if not now:
        return "GPU: there are no kernels in this version"
    last = ROOT / "tests" / "gpu" / "last_run.json"
    if not last.is_file():
        return f"SKIPPED: the kernels have not run on a GPU (no tests/gpu/last_run.json); their hash is {now}"
    if now in last.read_text():
        record = json.loads(last.read_text())
        device = record.get("device", "a GPU") if isinstance(record, dict) else "a GPU"
        return f"GPU: the last run, on {device}, was of these kernels"
    return f"SKIPPED: kernels/ or src/cuda changed since the last run on a GPU; their hash is now {now}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("steps", nargs="*", help="names of the steps to run; none: all")
    parser.add_argument("--long", action="store_true", help="the checks that take hours, instead")
    parser.add_argument("--list", action="store_true", help="name the steps")
    parser.add_argument("--kernels-hash", action="store_true", help="print the hash that tests/gpu/last_run.json is compared with")
    options = parser.parse_args()
    if options.kernels_hash:
        print(kernels_hash())
        return 0
    todo = list(long_steps() if options.long else steps())
    if options.list:
        print("\n".join(step.name for step in todo))
        return 0
    unknown = set(options.steps) - {step.name for step in todo}
    if unknown:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    passed = failed = 0
    start = time.monotonic()
    for step in todo:
        if not options.steps or step.name in options.steps:
            numbers = run(step)
            passed, failed = passed + numbers[0], failed + numbers[1]
    print(gpu_currency())
    print(f"took {(time.monotonic() - start) / 60:.1f} minutes")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
