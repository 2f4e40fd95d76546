"""Reads tests/vectors (its README says what each field means)."""

import json
import pathlib

import ml_dtypes
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "vectors"
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def cases(call):
    """(file and number, section, case) of every case of one call."""
    for path in sorted(FOLDER.glob("*.json")):
        file = json.loads(path.read_text())
        assert file["name"] == path.stem
        for i, case in enumerate(file["cases"]):
            if case["call"] == call:
                yield f"{path.stem}-{i}", case


def words(lines):
    """A flat list of the space-separated words of a list of strings (or of one)."""
    return " ".join([lines] if isinstance(lines, str) else lines).split()


def floats(lines, dtype="float32"):
    """Values of one of the three types; the word nan is a NaN."""
    kind = DTYPES[dtype]
    size = np.dtype(kind).itemsize
    quiet = {4: 0x7FC00000, 2: 0x7FC0 if dtype == "bfloat16" else 0x7E00}[size]
    unsigned = np.array([quiet if w == "nan" else int(w, 16) for w in words(lines)], f"u{size}")
    return unsigned.view(kind)


def bytes_of(lines):
    """The bytes of a list of strings of hexadecimal digits."""
    return np.frombuffer(bytes.fromhex("".join(lines)), np.uint8)


def matrix(m):
    """An input [rows, cols] in its own type."""
    return floats(m["bits"], m["dtype"]).reshape(m["rows"], m["cols"])


def codes(q):
    """One code a byte, [rows, cols]."""
    packed = bytes_of(q["codes"]).reshape(q["rows"], -(-q["cols"] // 2))
    out = np.empty((q["rows"], 2 * packed.shape[1]), np.uint8)
    out[:, ::2], out[:, 1::2] = packed & 15, packed >> 4
    return out[:, : q["cols"]]


def block(q):
    """Elements that share a scale along a row."""
    return 32 if q["format"] == "mxfp4" else 16


def scales(q):
    """Scale bytes [rows, blocks]; the case must be linear."""
    assert "scale_layout" not in q
    return bytes_of(q["scales"]).reshape(q["rows"], -(-q["cols"] // block(q)))


def sign_mask(value):
    """A sign mask as the Python package takes it: four words become one number."""
    return sum(w << 32 * i for i, w in enumerate(value)) if isinstance(value, list) else value


def same_floats(got, want):
    """Equality by bits; a NaN equals any NaN."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    unsigned = f"u{want.dtype.itemsize}"
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    equal = (got.view(unsigned) == want.view(unsigned)) | nan
    assert equal.all(), f"{(~equal).sum()} of {equal.size} differ, first at {np.argwhere(~equal)[0]}"
