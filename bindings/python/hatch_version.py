"""The package's version is the crate's, so that there is one number to change."""

import pathlib
import tomllib

_manifest = pathlib.Path(__file__).resolve().parents[2] / "Cargo.toml"
__version__ = tomllib.loads(_manifest.read_text())["package"]["version"]
