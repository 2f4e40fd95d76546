"""Wheel build: cargo makes libnvfp4.so, the wheel carries it as a plain file beside the package.

NVFP4_PREBUILT=/path/to/libnvfp4.so packs that file instead of calling cargo. The tag is py3-none and this machine's
platform, or what NVFP4_WHEEL_PLATFORM says (`make wheel`: manylinux_2_28_*): ctypes loads the library, so one wheel serves
every Python 3.
"""

import os
import pathlib
import platform
import subprocess
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the library (and the licence) into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            raise RuntimeError("the library's source is not in this folder: build a wheel from a checkout (`python -m build --wheel`)")
        tag = os.environ.get("NVFP4_WHEEL_PLATFORM") or f"linux_{platform.machine()}"
        build_data["tag"] = f"py3-none-{tag}"
        build_data["pure_python"] = False
        if version == "editable":  # an editable install finds target/release itself
            return
        root = pathlib.Path(self.root).parents[1]
        library = os.environ.get("NVFP4_PREBUILT") or str(self._build(root))
        if not os.path.isfile(library):
            raise FileNotFoundError(f"{library} (from NVFP4_PREBUILT or cargo) is no file")
        build_data["force_include"][library] = "nvfp4/libnvfp4.so"
        licence = root / "LICENSE"
        if licence.is_file():
            build_data["force_include"][str(licence)] = "nvfp4/LICENSE"

    def _build(self, root: pathlib.Path) -> pathlib.Path:
        try:
            subprocess.run(["cargo", "build", "--release", "--locked", "--lib"], cwd=root, check=True)
        except FileNotFoundError:
            raise RuntimeError("cargo was not found: install Rust, or set NVFP4_PREBUILT to a built libnvfp4.so") from None
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        return (target if target.is_absolute() else root / target) / "release" / "libnvfp4.so"
