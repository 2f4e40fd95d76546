"""The conformance vectors (tests/vectors/README.md) through the Python functions."""

import json

import numpy as np
import oracle
import pytest
from common import F, bfloat16, bits
from conftest import ROOT

import nvfp4

FILES = sorted((ROOT / "tests" / "vectors").glob("*.json"))
DTYPES = {"float32": (F, np.uint32), "bfloat16": (bfloat16, np.uint16), "float16": (np.float16, np.uint16)}


def cases(*calls):
    found = []
    for path in FILES:
        for i, case in enumerate(json.loads(path.read_text())["cases"]):
            if case["call"] in calls:
                found.append(pytest.param(case, id=f"{path.stem}-{i}"))
    assert found
    return found


def words(texts, dtype=np.uint32):
    joined = " ".join([texts] if isinstance(texts, str) else texts).split()
    nan = {np.uint32: 0x7FC00000, np.uint16: 0x7FC0}[dtype]
    return np.array([nan if w == "nan" else int(w, 16) for w in joined], dtype)


def numbers(texts):
    return words(texts).view(F)


def array(spec):
    dtype, word = DTYPES[spec["dtype"]]
    return words(spec["bits"], word).view(dtype).reshape(spec["rows"], spec["cols"])


def raw(texts):
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8)


def mask_of(four):
    return sum(w << 32 * i for i, w in enumerate(four))


def bools(four, n):
    return [bool(mask_of(four) >> i & 1) for i in range(n)]


def same_values(got, texts, dtype="float32"):
    """Equal bits; any NaN equals any NaN."""
    word = DTYPES[dtype][1]
    want = words(texts, word)
    got_bits = np.ascontiguousarray(got).view(word).reshape(-1)
    nan = np.isnan(want.view(DTYPES[dtype][0]).astype(F))
    np.testing.assert_array_equal(np.isnan(np.asarray(got).reshape(-1).astype(F)), nan)
    np.testing.assert_array_equal(got_bits[~nan], want[~nan])


def tensor(spec):
    """A quantized operand of a vector."""
    rows, cols, fmt = spec["rows"], spec["cols"], spec["format"]
    block = 32 if fmt == "mxfp4" else 16
    layout = spec.get("scale_layout", "linear")
    row_bytes = 2 * cols if fmt == "bf16" else (cols + 1) // 2
    scales = None
    if fmt != "bf16":
        scales = raw(spec["scales"])
        scales = scales if layout == "swizzled" else scales.reshape(rows, -(-cols // block))
    kw = {k: spec[k] for k in ("scale_rule", "range_16_17", "hadamard", "source_cols", "transposed", "chain") if k in spec}
    if spec.get("hadamard"):
        kw["sign_mask"] = bools(spec["signs"], spec["hadamard"])
    if "domain" in spec:
        kw["domain"] = spec["domain"] if spec["domain"] else "tensor"
    if "c_bits" in spec:
        kw["c"] = float(numbers(spec["c_bits"])[0])
    amax = numbers(spec["amax"]) if spec.get("amax") else None
    if spec.get("chain") == "single" or fmt != "nvfp4":
        amax, kw = None, {k: v for k, v in kw.items() if k != "c"}
    name = spec["block"] if fmt != "bf16" else None
    return nvfp4.QuantizedTensor.from_parts(
        raw(spec["codes"]).reshape(rows, row_bytes), scales, amax, cols, fmt, name, scale_layout=layout, rows=rows, **kw
    )


def refuse(case, call):
    """The call fails with the status of the vector, or is refused by Python before it."""
    with pytest.raises(nvfp4.Error) as error:
        call()
    assert error.value.status in (case["error"]["status"], 1)


@pytest.mark.parametrize("case", cases("quantize"))
def test_quantize(case, poison):
    options = dict(case["options"])
    x = array(case["input"])
    if isinstance(options.get("sign_mask"), list):
        options["sign_mask"] = bools(options["sign_mask"], options["hadamard"])
    if options.get("format") == "bf16":
        options.pop("block", None)
    if "amax" in options:
        options["amax"] = numbers(options["amax"])
    if "origin" in options:
        options["origin"] = tuple(options["origin"])
    if "error" in case:
        return refuse(case, lambda: nvfp4.quantize(x, **options))
    q = nvfp4.quantize(x, **options)
    want = case["output"]
    assert q.shape == (want["rows"], want["cols"])
    np.testing.assert_array_equal(q.codes.reshape(-1), raw(want["codes"]))
    if q.scales is not None:
        np.testing.assert_array_equal(q.scales.reshape(-1), raw(want["scales"]))
    if want.get("amax") and q.amax is not None:
        np.testing.assert_array_equal(bits(np.asarray(q.amax).reshape(-1)), words(want["amax"]))
    for name in ("chain", "scale_rule", "hadamard", "source_cols", "transposed", "range_16_17", "scale_layout"):
        if name in want:
            assert getattr(q, name) == want[name], name
    if "signs" in want:
        assert q.sign_mask == mask_of(want["signs"])
    if "c_bits" in want and q.amax is not None:
        assert bits(np.array([q.c]))[0] == words(want["c_bits"])[0]
    if "decoded" in want:
        same_values(q.dequantize(), want["decoded"])
        same_values(tensor(want).dequantize(), want["decoded"])


@pytest.mark.parametrize("case", cases("dequantize"))
def test_dequantize(case, poison):
    same_values(tensor(case["a"]).dequantize(case["dtype"]), case["output"], case["dtype"])


@pytest.mark.parametrize("case", cases("gemm"))
def test_gemm(case, poison):
    kw = {"accumulate": case["accumulate"], "out_dtype": case["out_dtype"], "activation": case.get("activation")}
    for name in ("alpha", "beta"):
        if name in case:
            kw[name] = numbers(case[name])[0]
    for name in ("row_factors", "col_factors"):
        if name in case:
            kw[name] = numbers(case[name])
    if "bias" in case:
        bias = case["bias"]
        kw["bias"] = array(bias).reshape(-1) if isinstance(bias, dict) else numbers(bias)
    if "c" in case:
        c = case["c"]
        kw["c"] = array(c) if isinstance(c, dict) else numbers(c).reshape(case["a"]["rows"], case["b"]["rows"])
    if "out_options" in case:
        out = dict(case["out_options"])
        out.pop("format")
        kw |= {"seed": out.pop("seed", 0), "offset": out.pop("offset", 0)}
        amax = numbers(out.pop("amax")) if "amax" in out else None
        kw |= {"out_options": out, "out_amax": amax if amax is None or amax.size > 1 else amax[0]}
    if "error" in case:
        return refuse(case, lambda: nvfp4.gemm(tensor(case["a"]), tensor(case["b"]), **kw))
    d = nvfp4.gemm(tensor(case["a"]), tensor(case["b"]), **kw)
    assert d.shape == (case["a"]["rows"], case["b"]["rows"])
    if "out_options" not in case:
        return same_values(d, case["output"], case["out_dtype"])
    want = case["output"]
    np.testing.assert_array_equal(d.codes.reshape(-1), raw(want["codes"]))
    np.testing.assert_array_equal(np.asarray(d.scales).reshape(-1), raw(want["scales"]))
    same_values(d.dequantize(), want["decoded"])


@pytest.mark.parametrize("case", cases("hadamard"))
def test_hadamard(case, poison):
    x = numbers(case["input"]).reshape(1, -1)
    signs = bools(case["signs"], case["n"])
    same_values(nvfp4.hadamard(x, case["n"], signs, inverse=case["inverse"]), case["output"])
    column = nvfp4.hadamard(x.T, case["n"], signs, axis="column", inverse=case["inverse"])
    same_values(column, case["output"])


@pytest.mark.parametrize("case", cases("activation"))
def test_activation(case, poison):
    """K = 0 leaves act(bias); a bias of -0 is +0 there, as the accumulator's +0 is added to it."""
    x = numbers(case["input"])
    empty = nvfp4.quantize(np.zeros((1, 0), F)), nvfp4.quantize(np.zeros((x.size, 0), F))
    d = nvfp4.gemm(*empty, bias=x, activation=case["activation"], out_dtype="float32").reshape(-1)
    want = numbers(case["output"])
    keep = words(case["input"]) != 0x80000000
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(d), nan)
    np.testing.assert_array_equal(bits(d)[keep & ~nan], bits(want)[keep & ~nan])


@pytest.mark.parametrize("case", cases("matrix_unit_step"))
def test_matrix_unit_step(case):
    """The oracle's step; and the library's product where the accumulator starts at 0."""
    a, b = (np.array([int(h, 16) for h in case[k]], np.uint8) for k in "ab")
    sa, sb = raw(case["scales_a"]), raw(case["scales_b"])
    fmt = case["format"]
    block = 64 // len(sa)
    c = numbers(case["c"])[0]
    nan = 0x7F if fmt == "nvfp4" else 0xFF
    if nan not in sa and nan not in sb and np.isfinite(c):
        got = oracle.hardware_step(oracle.CODES[a], oracle.CODES[b], sa & 0x7F if fmt == "nvfp4" else sa,
                                   sb & 0x7F if fmt == "nvfp4" else sb, block, 0, c, fmt)  # fmt: skip
        same_values(np.array([got]), case["output"])
    if words(case["c"])[0] == 0:
        chain = {"chain": "single"} if fmt == "nvfp4" else {}
        ta, tb = (
            nvfp4.QuantizedTensor.from_parts((v[::2] | v[1::2] << 4)[None], s[None], format=fmt, **chain) for v, s in ((a, sa), (b, sb))
        )
        same_values(nvfp4.gemm(ta, tb, out_dtype="float32", accumulate="hardware"), case["output"])


@pytest.mark.parametrize("case", cases("philox4x32_10"))
def test_the_oracles_generator(case):
    got = [int(w) for w in oracle.philox(case["key"], case["counter"])]
    want = case["output"]
    assert got == [int(w) for w in (words(want) if isinstance(want[0], str) else want)]


def test_every_call_of_the_vectors_is_read():
    known = {"quantize", "dequantize", "gemm", "hadamard", "activation", "matrix_unit_step", "philox4x32_10"}
    assert {case["call"] for path in FILES for case in json.loads(path.read_text())["cases"]} == known
