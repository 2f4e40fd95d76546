"""The conformance vectors against implementations by others, where those define the same thing.

ml_dtypes, gfloat, mlx and gguf come with tests/requirements.txt. torchao, compressed-tensors and fouroversix need PyTorch:
`make test` (tests/peers.py, unless PEERS=0) brings it and runs their tests, and tests/numerics/digests.rs holds digests of what they
gave for 131072 elements. None of this needs the library built: pytest --noconftest tests/python/test_crosscheck.py.

What an implementation is known to do otherwise is folded in its own function and nowhere else.
"""

import importlib.util
import sys
import types

import conformance
import ml_dtypes
import numpy as np
import pytest

F = np.float32
FLT_MAX = np.finfo(F).max
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F)
VALUES = np.concatenate([GRID, -GRID])
PLAIN = {"format", "block", "chain", "scale_rule", "amax", "c", "axis"}


def plain_cases(**wanted):
    """Deterministic cases without a transform, finite, one amax: (name, x as the copy has it, amax, C, output)."""
    found = 0
    for name, case in conformance.cases("quantize"):
        o = case["options"]
        if "output" not in case or set(o) - PLAIN or any(o.get(k) not in v for k, v in wanted.items()):
            continue
        x = conformance.matrix(case["input"]).astype(F)
        if not np.isfinite(x).all() or x.size == 0:
            continue
        x = x.T if o.get("axis") == "column" else x
        amax = conformance.floats(o["amax"])[0] if "amax" in o else np.abs(x).max()
        found += 1
        yield name, np.ascontiguousarray(x), F(amax), F(o.get("c", 2688)), case["output"]
    assert found, f"no vector has {wanted}"


def padded(x, to):
    """Columns padded with zeros to a multiple."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % to)))


def midpoints(x, scale):
    """Where x / scale lies exactly between two values of the grid: implementations break ties their own way."""
    v = np.abs(x.astype(np.float64) / scale)
    return np.isin(v, (GRID[1:].astype(np.float64) + GRID[:-1]) / 2)


# ---- casts ----------------------------------------------------------------------------------------------------------


def test_decoding_tables_of_ml_dtypes_and_gfloat():
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats

    def table(info, n):
        return np.array([gfloat.decode_float(info, i).fval for i in range(n)])

    _, case = next(c for c in conformance.cases("dequantize") if c[0] == "decode_codes-0")
    values = conformance.floats(case["output"])
    order = conformance.codes(case["a"])[0]
    assert set(order) == set(range(16))
    for theirs in (table(formats.format_info_ocp_e2m1, 16), np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)):
        conformance.same_floats(values, theirs.astype(F)[order])
    _, case = next(c for c in conformance.cases("dequantize") if c[0] == "decode_e4m3-0")
    ours = conformance.floats(case["output"])
    for theirs in (table(formats.format_info_ocp_e4m3, 128), np.arange(128, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)):
        conformance.same_floats(ours, theirs.astype(F))
    _, case = next(c for c in conformance.cases("dequantize") if c[0] == "decode_e8m0-0")
    rows = conformance.floats(case["output"]).reshape(-1, 4)
    bytes_ = conformance.scales(case["a"])[:, 0]
    e8m0 = table(formats.format_info_ocp_e8m0, 256)
    with np.errstate(over="ignore"):
        want = np.clip(e8m0[bytes_, None] * VALUES[conformance.codes(case["a"])], -FLT_MAX, FLT_MAX).astype(F)
    conformance.same_floats(rows, want)


def test_ties_as_ml_dtypes_and_gfloat_round_them():
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats

    for name, case in conformance.cases("quantize"):
        if not name.startswith("tie_to_even"):
            continue
        x = conformance.matrix(case["input"])[0]
        ours = conformance.codes(case["output"])[0]
        np.testing.assert_array_equal(ours, x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8))
        info = formats.format_info_ocp_e2m1
        theirs = [gfloat.encode_float(info, gfloat.round_float(info, float(v), sat=True)) for v in x]
        np.testing.assert_array_equal(ours, theirs)


# ---- whole rules ----------------------------------------------------------------------------------------------------


def formula(x, amax, c, chain, side):
    """Section 2 with the casts of ml_dtypes, kept away from where those are no oracle: (codes, scale bytes)."""
    rows, cols = x.shape
    x = np.pad(x, ((0, -rows % side), (0, -cols % 16)))
    blocks = np.abs(x).reshape(x.shape[0] // side, side, x.shape[1] // 16, 16).max((1, 3))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        s_enc = F(1) if amax == 0 or chain == "single" else min(c / amax, FLT_MAX)
        s_dec = F(1) / s_enc
        scale = blocks * (s_enc * F(1 / 6)) if chain == "te" else blocks / F(6) * s_enc
        s = np.minimum(scale, F(448)).astype(ml_dtypes.float8_e4m3fn)
        e = np.minimum(F(1) / (s.astype(F) * s_dec), FLT_MAX)
        v = x * np.repeat(np.repeat(e, side, 0), 16, 1)
    codes = np.clip(v, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return codes[:rows, :cols], np.repeat(s.view(np.uint8), side, 0)[:rows]


@pytest.mark.parametrize("chain, block", [("te", "1x16"), ("te", "16x16"), ("div6", "1x16"), ("single", "1x16")])
def test_formula_with_the_casts_of_ml_dtypes(chain, block):
    for name, x, amax, c, out in plain_cases(chain=[chain], block=[block]):
        codes, scales = formula(x, amax, c, chain, 16 if block == "16x16" else 1)
        np.testing.assert_array_equal(conformance.scales(out), scales, name)
        np.testing.assert_array_equal(conformance.codes(out), codes, name)


def mlx_codes(x, mode, **options):
    """Codes and scale bytes of MLX. It gives code 0 for what rounds to -0 and breaks ties towards zero."""
    mx = pytest.importorskip("mlx.core")
    packed, scales = mx.quantize(mx.array(padded(x, 64)), mode=mode, **options)
    packed = np.array(packed).view(np.uint8).reshape(x.shape[0], -1)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(x.shape[0], -1)[:, : x.shape[1]]
    return codes, np.array(scales)[:, : -(-x.shape[1] // (32 if mode == "mxfp4" else 16))]


def folded(codes):
    """Code 8, minus zero, as 0."""
    return np.where(codes == 8, 0, codes)


@pytest.mark.parametrize("chain", ["div6", "single"])
def test_mlx_nvfp4(chain):
    mx = pytest.importorskip("mlx.core")
    for name, x, amax, _, out in plain_cases(chain=[chain], block=["1x16"]):
        if not 1e-30 < amax < 1e30:
            continue  # MLX has no clamp of the outer scale
        options = {"global_scale": mx.array(amax)} if chain == "div6" else {}
        codes, scales = mlx_codes(x, "nvfp4", **options)
        np.testing.assert_array_equal(conformance.scales(out), scales, name)
        value = np.repeat(scales.view(ml_dtypes.float8_e4m3fn).astype(np.float64), 16, 1)[:, : x.shape[1]]
        value = value * (amax / 2688.0 if chain == "div6" else 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            tie = midpoints(x, value)
        ours = folded(conformance.codes(out))
        np.testing.assert_array_equal(ours[~tie], codes[~tie], name)


def test_mlx_mxfp4_has_the_ceil_rule():
    for name, x, _, _, out in plain_cases(format=["mxfp4"], block=["1x32"], scale_rule=["ceil"]):
        inside = (np.abs(x).max(1) > 1e-30) & (np.abs(x).max(1) < 1e37)  # the ends of E8M0 are MLX's own
        codes, scales = mlx_codes(x, "mxfp4")
        np.testing.assert_array_equal(conformance.scales(out)[inside], scales[inside], name)
        value = np.ldexp(1.0, np.repeat(scales.astype(np.int64), 32, 1)[:, : x.shape[1]] - 127)
        decided = ~midpoints(x, value) & inside[:, None]
        np.testing.assert_array_equal(folded(conformance.codes(out))[decided], codes[decided], name)


def test_gguf_decodes_nvfp4_and_mxfp4():
    quants = pytest.importorskip("gguf.quants")
    kind = sys.modules["gguf"].GGMLQuantizationType
    for name, x, _, _, out in plain_cases(chain=["single"], block=["1x16"]):
        codes, scales = padded(conformance.codes(out), 64), padded(conformance.scales(out), 4)
        # Four blocks of 16: their scales, then byte j of a block with element j low and element j + 8 high.
        parts = codes.reshape(-1, 4, 2, 8)
        body = (parts[:, :, 0] | parts[:, :, 1] << 4).reshape(-1, 32)
        decoded = quants.dequantize(np.concatenate([scales.reshape(-1, 4), body], 1), kind.NVFP4)
        decoded = decoded.reshape(x.shape[0], -1)[:, : x.shape[1]]
        want = VALUES[conformance.codes(out)] * np.repeat(
            conformance.scales(out).view(ml_dtypes.float8_e4m3fn).astype(F), 16, 1)[:, : x.shape[1]]  # fmt: skip
        np.testing.assert_array_equal(decoded, want, name)
        if "decoded" in out:
            np.testing.assert_array_equal(decoded.ravel(), conformance.floats(out["decoded"]), name)
    for name, x, _, _, out in plain_cases(format=["mxfp4"], block=["1x32"], scale_rule=["floor"]):
        if "decoded" not in out or x.shape[1] % 32:
            continue
        parts = conformance.codes(out).reshape(-1, 2, 16)
        body = np.concatenate([conformance.scales(out).reshape(-1, 1), parts[:, 0] | parts[:, 1] << 4], 1)
        decoded = quants.dequantize(body, kind.MXFP4).ravel()
        np.testing.assert_array_equal(decoded, conformance.floats(out["decoded"]), name)


def test_gguf_mxfp4_has_the_floor_rule():
    quants = pytest.importorskip("gguf.quants")
    kind = sys.modules["gguf"].GGMLQuantizationType
    for name, x, _, _, out in plain_cases(format=["mxfp4"], block=["1x32"], scale_rule=["floor"]):
        top = np.abs(x).max(1)
        # 0 and the ends are its own. Its floor(log2(b)) is taken in f32, where the value just below a power of two
        # rounds up: that row is left out.
        keep = (top > 1e-30) & (top < 1e37)
        keep[keep] = np.log2(np.nextafter(top[keep], F(np.inf))) % 1 != 0
        x = x[keep]
        if not keep.any():
            continue
        theirs = quants.quantize(padded(x, 32), kind.MXFP4).reshape(-1, 17)
        scales = theirs[:, 0].reshape(x.shape[0], -1)
        np.testing.assert_array_equal(conformance.scales(out)[keep], scales, name)
        body = theirs[:, 1:]
        codes = np.concatenate([body & 15, body >> 4], 1).reshape(x.shape[0], -1)[:, : x.shape[1]]
        value = np.ldexp(1.0, np.repeat(scales.astype(np.int64), 32, 1)[:, : x.shape[1]] - 127)
        decided = ~midpoints(x, value)
        np.testing.assert_array_equal(folded(conformance.codes(out))[keep][decided], codes[decided], name)


# ---- with PyTorch ---------------------------------------------------------------------------------------------------


def torch_bytes(tensor):
    import torch

    return tensor.contiguous().view(torch.uint8).numpy()


def unpacked(packed, shape):
    packed = packed.reshape(shape[0], -1)
    return np.stack([packed & 15, packed >> 4], -1).reshape(shape[0], -1)[:, : shape[1]]


def test_torchao():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchao")
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
    from torchao.prototype.mx_formats.config import ScaleCalculationMode

    for name, x, amax, _, out in plain_cases(chain=["div6"], block=["1x16"]):
        if amax < 1e-30 or conformance.scales(out).min() < 0x08:
            continue  # torchao floors scales at 2^-6
        scale = nvfp4_tensor.per_tensor_amax_to_scale(torch.tensor(amax))
        s, q = nvfp4_tensor.nvfp4_quantize(torch.from_numpy(padded(x, 16)), 16, scale)
        np.testing.assert_array_equal(conformance.scales(out), torch_bytes(s).reshape(x.shape[0], -1), name)
        np.testing.assert_array_equal(conformance.codes(out), unpacked(torch_bytes(q), x.shape), name)
    modes = {"floor": ScaleCalculationMode.FLOOR, "ceil": ScaleCalculationMode.RCEIL, "even": ScaleCalculationMode.EVEN}
    for rule, mode in modes.items():
        for name, x, _, _, out in plain_cases(format=["mxfp4"], block=["1x32"], scale_rule=[rule]):
            inside = (np.abs(x).max(1) > 1e-30) & (np.abs(x).max(1) < 1e37)  # its own clamps are elsewhere
            if not inside.any():
                continue
            t = torch.from_numpy(padded(x[inside], 32))
            s, q = mx_tensor.to_mx(t, torch.float4_e2m1fn_x2, 32, mode)
            np.testing.assert_array_equal(conformance.scales(out)[inside], torch_bytes(s).reshape(len(t), -1), name)
            np.testing.assert_array_equal(
                conformance.codes(out)[inside], unpacked(torch_bytes(q), (len(t), x.shape[1])), name)  # fmt: skip


def test_compressed_tensors():
    torch = pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils.helpers import calculate_qparams

    e4m3 = torch.float8_e4m3fn
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", symmetric=True, group_size=16,
                            scale_dtype=e4m3, zp_dtype=e4m3)  # fmt: skip
    for name, x, amax, c, out in plain_cases(chain=["div6"], block=["1x16"]):
        if amax < 1e-30 or conformance.scales(out).min() == 0:
            continue  # zero scales and the clamp of the outer scale are its own
        t = torch.from_numpy(padded(x, 16))
        outer = torch.tensor([c / amax])
        blocks = t.reshape(len(t), -1, 16)
        s, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=outer)
        q = quantize_and_pack_fp4(t, s.float(), outer)
        np.testing.assert_array_equal(conformance.scales(out), torch_bytes(s.to(e4m3)).reshape(len(t), -1), name)
        zero = x == 0  # it writes 0 for -0.0
        np.testing.assert_array_equal(conformance.codes(out)[~zero], unpacked(torch_bytes(q), x.shape)[~zero], name)


def fouroversix():
    """Its PyTorch reference, without the rest of the package, which wants a GPU and Transformers."""
    spec = importlib.util.find_spec("fouroversix")
    if spec is None:
        pytest.skip("fouroversix is not installed")
    for name in ("fouroversix", "fouroversix.quantize", "fouroversix.quantize.pytorch"):
        module = types.ModuleType(name)
        module.__path__ = [spec.submodule_search_locations[0] + name.removeprefix("fouroversix").replace(".", "/")]
        sys.modules[name] = module
    return importlib.import_module("fouroversix.quantize.pytorch.reference")


def test_fouroversix():
    torch = pytest.importorskip("torch")
    reference = fouroversix()
    rules = {"4over6_mae": "mae", "4over6_mse": "mse", "4over6_absmax": "abs_max"}
    compared = 0
    for name, case in conformance.cases("quantize"):
        o = case["options"]
        if o.get("select") not in rules or set(o) - {"format", "block", "chain", "select"}:
            continue
        x = conformance.matrix(case["input"]).astype(F)
        tiles = o["block"] == "16x16"
        full = np.pad(x, ((0, -x.shape[0] % 16 if tiles else 0), (0, -x.shape[1] % 16)))
        q, s, _ = reference.quantize_to_fp4(
            torch.from_numpy(full), block_scale_2d=tiles, use_blackwell_scale_layout=False,
            scale_rule=reference.ScaleRule(rules[o["select"]]))  # fmt: skip
        scales = torch_bytes(s).reshape(len(full), -1)[: len(x)]
        np.testing.assert_array_equal(conformance.scales(case["output"]), scales, name)
        zero = x == 0
        codes = unpacked(torch_bytes(q), (len(full), x.shape[1]))[: len(x)]
        np.testing.assert_array_equal(conformance.codes(case["output"])[~zero], codes[~zero], name)
        compared += 1
    assert compared >= 4
