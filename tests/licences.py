#!/usr/bin/env python3
"""Checks that every crate that is compiled into the library, its tests or the emulator has a licence from the list."""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Permissive licences that Apache-2.0 works may be built with and shipped beside.
ALLOWED = {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "0BSD", "Unlicense", "CC0-1.0",
           "Apache-2.0 WITH LLVM-exception"}
# Weak copyleft by the file: used by cbindgen, which only makes the header in a test and is never shipped.
TOOLS_ONLY = {"MPL-2.0"}


def allowed(expression, ok):
    """Whether an SPDX expression can be met: any side of OR, every side of AND ("/" is an old OR)."""
    expression = expression.strip().replace("/", " OR ")
    while match := re.search(r"\(([^()]*)\)", expression):
        inner = "Apache-2.0" if allowed(match[1], ok) else "forbidden"
        expression = expression[: match.start()] + inner + expression[match.end():]
    return any(all(part.strip() in ok for part in side.split(" AND ")) for side in expression.split(" OR "))


def metadata(manifest):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features", "--manifest-path", manifest]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def shipped(data):
    """Ids of the crates that end up in the library: reached from the root by normal dependencies alone."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    found, todo = set(), [data["resolve"]["root"]]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [d["pkg"] for d in nodes[at]["deps"] if any(k["kind"] is None for k in d["dep_kinds"])]
    return found


def main():
    passed = failed = 0
    for manifest in ("Cargo.toml", "tests/emulator/Cargo.toml"):
        data = metadata(manifest)
        inside = shipped(data)
        for package in data["packages"]:
            licence = package["license"] or "none"
            ok = ALLOWED if package["id"] in inside else ALLOWED | TOOLS_ONLY
            if package["source"] is None or allowed(licence, ok):
                passed += 1
            else:
                failed += 1
                print(f"FAILED: {package['name']} {package['version']} is under {licence}, which is not on the list ({manifest})")
            if package["source"] is not None and not package["source"].startswith("registry+"):
                failed += 1
                print(f"FAILED: {package['name']} comes from {package['source']}, not from the registry")
    # The checker itself: it must be able to fail.
    for expression, want in (("MIT OR GPL-3.0", True), ("MIT AND GPL-3.0", False), ("GPL-3.0", False), ("MIT/Apache-2.0", True),
                             ("(MIT OR GPL-3.0) AND Unicode-3.0", True), ("none", False)):
        if allowed(expression, ALLOWED) != want:
            failed += 1
            print(f"FAILED: {expression} is judged wrongly")
    print(f"licences: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
