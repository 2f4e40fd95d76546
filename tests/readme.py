#!/usr/bin/env python3
"""Runs the code of the README files: every c, cpp and python block, against the installed library, and compares what it
prints with the `text` block that follows. The cmake block is what builds the C++ one. Links to files must lead somewhere.

    readme.py <prefix> <work directory>
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINKS_ONLY = ["docs/abi.md", "docs/pytorch.md", "docs/format.md", "tests/vectors/README.md", "examples/data/README.md"]
PAGES = ["README.md", "bindings/python/README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/README.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
CMAKE_HEAD = "cmake_minimum_required(VERSION 3.22)\nproject(readme LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 17)\nadd_executable(app main.cpp)\n"


def sh(*command, cwd=ROOT):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_block(language, code, cmake, prefix, work):
    """What the block prints, or None where there is nothing to run."""
    work.mkdir(parents=True, exist_ok=True)
    if language == "python" and "torch" in code:
        return None  # tests/python/torch/test_readme.py runs it
    if language == "python":
        (work / "main.py").write_text(code)
        return sh(sys.executable, str(work / "main.py"), cwd=work)
    if language == "c":
        (work / "main.c").write_text(code)
        sh(os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", work / "main.c", "-o", work / "main",
           f"-I{prefix}/include", f"-L{prefix}/lib", "-lnvfp4", f"-Wl,-rpath,{prefix}/lib")
        return sh(work / "main")
    if language == "cpp":
        (work / "main.cpp").write_text(code)
        (work / "CMakeLists.txt").write_text(CMAKE_HEAD + cmake)
        program = os.environ.get("CMAKE", "cmake")
        sh(program, "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        sh(program, "--build", work / "build")
        return sh(work / "build" / "app")
    if language == "sh":
        for target in re.findall(r"^make (\w[\w-]*)", code, re.M):
            sh("make", "-n", target)
        return None
    return None


def main():
    prefix, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    passed = failed = 0
    for page in PAGES + LINKS_ONLY:
        text = (ROOT / page).read_text()
        blocks = BLOCK.findall(text) if page in PAGES else []
        cmake = "".join(code for language, code in blocks if language == "cmake")
        for number, (language, code) in enumerate(blocks):
            if language in ("text", "cmake"):
                continue
            follows = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            try:
                printed = run_block(language, code, cmake, prefix, work / f"{page.replace('/', '_')}_{number}")
                if follows[0] == "text" and printed is not None and printed != follows[1]:
                    raise RuntimeError(f"it prints\n{printed}and the page says\n{follows[1]}")
                passed += 1
            except RuntimeError as error:
                failed += 1
                print(f"FAILED: block {number} ({language}) of {page}: {error}")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            if (ROOT / page).parent.joinpath(link).exists():
                passed += 1
            else:
                failed += 1
                print(f"FAILED: {page} links to {link}, which is not there")
    print(f"readme: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
