"""What the tests share: the variants that a test runs over, the library's call next to the oracle's, comparing bytes."""

import ml_dtypes
import numpy as np

import nvfp4
import oracle

bfloat16 = ml_dtypes.bfloat16
F = np.float32

# Every kind of quantizer with the deterministic rounding and no transform.
PLAIN = {
    "te": {},
    "div6": {"chain": "div6"},
    "single": {"chain": "single"},
    "tiles": {"block": "16x16"},
    "tiles_div6": {"block": "16x16", "chain": "div6"},
    "per_row": {"domain": 1},
    "c1536": {"c": 1536.0},
    "mx_floor": {"format": "mxfp4"},
    "mx_ceil": {"format": "mxfp4", "scale_rule": "ceil"},
    "mx_even": {"format": "mxfp4", "scale_rule": "even"},
    "mx_centric": {"format": "mxfp4", "scale_rule": "encode_centric"},
    "mx_tiles": {"format": "mxfp4", "block": "32x32"},
    "mx_half": {"format": "mxfp4", "block": "32x32", "scale_rule": "encode_centric", "half_scale": True},
    "four6": {"select": "4over6"},
    "four6_mse": {"select": "4over6_mse"},
    "four6_absmax": {"select": "4over6_absmax", "c": 2688.0},
}
# And those with a transform or with random bits.
OTHER = {
    "rht16": {"hadamard": 16},
    "rht32_plain": {"hadamard": 32, "sign_mask": 0},
    "rht64_mask": {"hadamard": 64, "sign_mask": 0x123456789ABCDEF1},
    "rht128_f32": {"hadamard": 128, "keep_f32": True, "sign_mask": 0x5A5A},
    "rht128_seeded": {"hadamard": 128, "sign_mask": "seeded"},
    "mx_rht32": {"format": "mxfp4", "hadamard": 32},
    "sr": {"rounding": "stochastic"},
    "sr_range": {"rounding": "stochastic", "range_16_17": True},
    "rne_range": {"range_16_17": True},
    "mx_sr": {"format": "mxfp4", "rounding": "stochastic"},
    "mx_sr_range": {"format": "mxfp4", "rounding": "stochastic", "range_16_17": True, "scale_rule": "ceil"},
    "rht16_sr": {"hadamard": 16, "rounding": "stochastic"},
    "four6_sr": {"select": "4over6", "rounding": "stochastic"},
    "tiles_sr": {"block": "16x16", "rounding": "stochastic"},
}
ALL = PLAIN | OTHER


def values(x):
    """The float32 values of any accepted array."""
    return np.asarray(x).astype(F)


def expected(x, axis="row", *, format="nvfp4", block=None, chain="te", scale_rule="floor", domain=0, amax=None, c=None,
             select="single", hadamard=0, sign_mask=None, keep_f32=False, rounding="nearest", seed=0, offset=0,
             origin=(0, 0), range_16_17=False, half_scale=False):  # fmt: skip
    """The oracle's answer to `nvfp4.quantize` with the same arguments."""
    tiles = block in ("16x16", "32x32")
    mask = None
    if hadamard:
        mask = oracle.repeated(0xD7E8, hadamard) if sign_mask is None else sign_mask
        if mask == "seeded":
            mask = oracle.seeded_mask(hadamard, seed, offset)
        elif mask < 1 << 16:
            mask = oracle.repeated(mask, hadamard)
    chain = "div6" if chain == "te" and select != "single" else chain
    kw = dict(
        fmt=format, tiles=tiles, chain=chain, rule=scale_rule, amax=amax, c=c, select=select, mask=mask, n=hadamard,
        domain=0 if domain == "tensor" else domain, keep_f32=keep_f32, rounding=rounding, seed=seed, offset=offset,
        range_16_17=range_16_17, half_scale=half_scale,
    )  # fmt: skip
    x = values(x)
    if axis == "row":
        return oracle.quantize(x, origin=origin, **kw)
    if tiles and (rounding == "stochastic" or select != "single"):  # the rowwise copy decides and draws
        row = oracle.quantize(x, origin=origin, **kw)
        block_ = row.block
        scales = np.repeat(row.scales[::block_].T, block_, axis=0)[: x.shape[1]]
        return oracle.Quantized(
            row.codes.T.copy(), scales, np.full(x.shape[1], row.row_amax[0] if row.row_amax.size else 0, F), row.fmt,
            row.chain, row.rule, row.c, row.range_16_17,
        )  # fmt: skip
    return oracle.quantize(x.T, origin=origin[::-1], columnwise=True, **kw)


def linear_scales(q):
    """Scale bytes [rows, blocks] of a tensor in either layout."""
    if q.scale_layout == "linear":
        return q.scales
    block = 32 if q.format == "mxfp4" else 16
    return nvfp4.unswizzle_scales(q.scales, q.rows, -(-q.cols // block))


def assert_bytes(got, want, what):
    """Equality of two arrays of bytes with the first difference in the message."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    differ = np.argwhere(got != want)
    if len(differ):
        at = tuple(differ[0])
        raise AssertionError(f"{what}: {len(differ)} of {got.size} differ, first at {at}: {got[at]:#x}, want {want[at]:#x}")


def assert_same(q, o):
    """A tensor of the library equals the oracle's."""
    assert q.shape == o.codes.shape
    assert_bytes(linear_scales(q), o.scales, "scales")
    assert_bytes(q.codes, o.packed, "codes")
    if q.amax is not None:
        got = np.repeat(np.asarray(q.amax).reshape(-1), q.rows if q.domain == "tensor" else q.domain)[: q.rows]
        np.testing.assert_array_equal(got, o.row_amax)


def assert_equal_tensors(a, b):
    """Two tensors of the library hold the same bytes."""
    assert a.shape == b.shape
    assert_bytes(a.codes, b.codes, "codes")
    if a.scales is not None:
        assert_bytes(linear_scales(a), linear_scales(b), "scales")
    np.testing.assert_array_equal(np.asarray(a.amax), np.asarray(b.amax))


def codes(q):
    """One code a byte, [rows, cols]."""
    out = np.empty((q.rows, q.codes.shape[1] * 2), np.uint8)
    out[:, ::2], out[:, 1::2] = q.codes & 15, q.codes >> 4
    return out[:, : q.cols]


def bits(x):
    """float32 bit patterns, so that NaN and -0 compare."""
    return np.ascontiguousarray(x, F).view(np.uint32)


def wide(rng, shape):
    """Values over many octaves, with zeros, subnormals and both signs."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-40, 20, shape))
    x[rng.random(shape) < 0.1] = 0
    x[rng.random(shape) < 0.02] = 1e-41
    return x.astype(F)
