"""The library's bytes against TransformerEngine's Python reference (quantizer and GEMM), loaded from its wheel."""

import numpy as np
import pytest
import te_reference
import torch

import nvfp4

try:
    te = te_reference.load()
except OSError as cause:
    pytest.skip(f"TransformerEngine's reference was not compared: {cause}", allow_module_level=True)
import ml_dtypes

E2M1 = te.reference_utils.Fp4Formats.E2M1
SHAPES = [(64, 96), (96, 160), (256, 32)]


def made(rng, kind, shape):
    """bf16 values of a named distribution, without -0.0 (which the reference, unlike the hardware, encodes as +0)."""
    normal = rng.standard_normal(shape)
    rows, cols = np.indices(shape)
    values = {
        "ordinary": normal,
        "heavy_tailed": rng.standard_t(2, shape),
        "tiny": normal * 1e-30,
        "wide": np.sign(normal) * np.exp2(rng.uniform(-24, 24, shape)),
        "sparse": normal * (rng.random(shape) < 0.05),
        "graded": normal * np.exp2(-cols / 8 + rows / 16),
        "large": normal * 1e30,
        "ties": rng.choice([0.25, -0.25, 0.75, 1.25, -1.75, 2.5, 3.5, 5.0, 6.0, -6.0], shape),
        "zero": np.zeros(shape),
    }[kind]
    return values.astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(0)


KINDS = ("ordinary", "heavy_tailed", "tiny", "wide", "sparse", "graded", "large", "ties", "zero")


def as_torch(x):
    """The same bf16 values as a tensor."""
    return torch.from_numpy(x.view(np.uint16).copy()).view(torch.bfloat16)


def as_bytes(t):
    return t.contiguous().view(torch.uint8).numpy()


def same(ours, codes, scales, amax, what):
    """Codes, scale bytes and amax of one copy."""
    for got, want, name in ((ours.codes, as_bytes(codes), "codes"), (ours.scales, as_bytes(scales), "scales")):
        assert got.shape == want.shape, f"{what} {name}: shape {got.shape}, want {want.shape}"
        differ = np.argwhere(got != want)
        at = tuple(differ[0]) if len(differ) else None
        assert at is None, f"{what} {name}: {len(differ)} of {got.size} differ, first at {at}: {got[at]:#x}, want {want[at]:#x}"
    assert np.float32(ours.amax) == np.float32(amax.item()), f"{what}: amax {ours.amax}, want {amax.item()}"


def quantized(x, **options):
    """Both copies by the reference."""
    return te.NVFP4QuantizerRef(dtype=E2M1, **options).quantize(as_torch(x))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_rowwise_and_columnwise(kind, shape, rng):
    x = made(rng, kind, shape)
    theirs = quantized(x)
    row, column = nvfp4.quantize(x, axis="both")
    same(row, theirs.data, theirs.scale, theirs.global_amax_row, "rowwise")
    same(column, theirs.data_t, theirs.scale_t, theirs.global_amax_col, "columnwise")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_columnwise_after_the_transform(kind, shape, rng):
    x = made(rng, kind, shape)
    theirs = quantized(x, with_rht=True)
    row, column = nvfp4.quantize(x, axis="both", column={"hadamard": 16})
    same(row, theirs.data, theirs.scale, theirs.global_amax_row, "rowwise")
    same(column, theirs.data_t, theirs.scale_t, theirs.global_amax_col, "columnwise")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_square_tiles(kind, shape, rng):
    x = made(rng, kind, shape)
    theirs = quantized(x, quant_tile_shape=(16, 16))
    row, column = nvfp4.quantize(x, axis="both", block="16x16")
    same(row, theirs.data, theirs.scale, theirs.global_amax_row, "rowwise")
    same(column, theirs.data_t, theirs.scale_t, theirs.global_amax_col, "columnwise")


@pytest.mark.parametrize("mode", ["mae", "mse"])
@pytest.mark.parametrize("bound", [256, 448])
@pytest.mark.parametrize("kind", ["ordinary", "heavy_tailed", "graded", "sparse"])
def test_four_over_six(kind, bound, mode, rng):
    x = made(rng, kind, (64, 96))
    theirs = quantized(x, nvfp4_use_4over6=True, nvfp4_e4m3_max=bound, nvfp4_4over6_err_mode=mode)
    row, column = nvfp4.quantize(x, axis="both", select=f"4over6_{mode}", c=6.0 * bound)
    same(row, theirs.data, theirs.scale, theirs.global_amax_row, "rowwise")
    same(column, theirs.data_t, theirs.scale_t, theirs.global_amax_col, "columnwise")


# The three products of a linear layer: (which copy of the first operand, of the second, transformed), all dimensions
# of which differ. fprop and dgrad contract rowwise amaxes, wgrad columnwise ones.
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("product", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("kind", ["ordinary", "heavy_tailed", "graded", "large"])
def test_block_product(kind, product, out, rng):
    tokens, n_in, n_out = 96, 160, 64
    x, dy = made(rng, kind, (tokens, n_in)), made(rng, "heavy_tailed", (tokens, n_out))
    w = made(rng, "ordinary", (n_out, n_in))
    qx, qdy, qw = quantized(x, with_rht=True), quantized(dy, with_rht=True), quantized(w, quant_tile_shape=(16, 16))
    ours_x, ours_dy = (nvfp4.quantize(v, axis="both", column={"hadamard": 16}) for v in (x, dy))
    ours_w = nvfp4.quantize(w, axis="both", block="16x16")
    if product == "fprop":
        a, b, sa, sb, ra, rb, ours = qx.data, qw.data, qx.scale, qw.scale, qx, qw, (ours_x[0], ours_w[0])
    elif product == "dgrad":
        a, b, sa, sb, ra, rb, ours = qdy.data, qw.data_t, qdy.scale, qw.scale_t, qdy, qw, (ours_dy[0], ours_w[1])
    else:
        a, b, sa, sb, ra, rb, ours = qdy.data_t, qx.data_t, qdy.scale_t, qx.scale_t, qdy, qx, (ours_dy[1], ours_x[1])
    theirs = qx._quantizer.qgemm(
        a, b, te.gemm.MMParams(), out, sa, sb, gemm_type=getattr(te.gemm.GEMMType, product.upper()), qresult_x=ra, qresult_w=rb
    )
    name = str(out).split(".")[1]
    got = nvfp4.gemm(*ours, accumulate="block", out_dtype=name)
    unsigned = np.uint32 if out == torch.float32 else np.uint16
    want = theirs.view(torch.int32 if out == torch.float32 else torch.int16).numpy().view(unsigned)
    assert np.abs(theirs.float().numpy()).max() > 0
    np.testing.assert_array_equal(got.view(unsigned), want)
