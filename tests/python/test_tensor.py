"""QuantizedTensor: parts from elsewhere (kind P as far as bytes go), copies, pickles, lifetime, many threads."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from common import ALL, F, assert_equal_tensors, bfloat16, bits, wide

import nvfp4

MADE = {k: ALL[k] for k in ("te", "single", "tiles", "per_row", "mx_floor", "mx_centric", "four6", "rht64_mask", "sr_range")}
MADE |= {"bf16": {"format": "bf16"}, "swizzled": {"scale_layout": "swizzled"}, "seeded": {"hadamard": 32, "sign_mask": "seeded"}}


def parts(q):
    """Arguments of from_parts that describe q."""
    names = ("cols", "format", "block", "scale_layout", "rows", "scale_rule", "domain", "c", "range_16_17", "hadamard",
             "transposed", "source_cols")  # fmt: skip
    kw = {name: getattr(q, name) for name in names}
    if q.hadamard:
        kw["sign_mask"] = [bool(q.sign_mask >> i & 1) for i in range(q.hadamard)]
    if q.chain:
        kw["chain"] = q.chain
    return (q.codes, q.scales, q.amax), kw


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("variant", MADE)
def test_from_parts_is_the_same_tensor(variant, axis, rng):
    q = nvfp4.quantize(wide(rng, (21, 70)), axis=axis, **MADE[variant])
    arrays, kw = parts(q)
    again = nvfp4.QuantizedTensor.from_parts(*arrays, **kw)
    for name in ("rows", "cols", "format", "block", "chain", "scale_rule", "scale_layout", "domain", "hadamard", "sign_mask",
                 "transposed", "source_cols", "range_16_17"):  # fmt: skip
        assert getattr(again, name) == getattr(q, name), name
    assert_equal_tensors(again, q)
    np.testing.assert_array_equal(bits(again.dequantize()), bits(q.dequantize()))
    if not q.range_16_17:
        np.testing.assert_array_equal(bits(nvfp4.gemm(again, q, out_dtype="float32")), bits(nvfp4.gemm(q, q, out_dtype="float32")))


@pytest.mark.parametrize("variant", MADE)
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q)), lambda q: pickle.loads(pickle.dumps(q, 2))])
def test_copies_and_pickles(how, variant, rng):
    q = nvfp4.quantize(wide(rng, (9, 70)), stats=True, **MADE[variant])
    again = how(q)
    assert again is not q and again.stats == q.stats and repr(again) == repr(q)
    assert_equal_tensors(again, q)
    want = q.dequantize()
    if how is not copy.copy:
        q.codes[...] = 0
    np.testing.assert_array_equal(bits(again.dequantize()), bits(want))


def test_p1_outer_scale_conventions():
    """A divisor 2688/amax and a multiplier amax/2688 are the same number; amax is what from_parts takes."""
    codes, scales = np.full((16, 16), 0x77, np.uint8), np.full((16, 2), 0x7E, np.uint8)
    divisor, multiplier = F(768), F(0.0013020833)
    for amax in (2688 / divisor, multiplier * 2688, np.float64(3.5), bfloat16(3.5)):
        y = nvfp4.QuantizedTensor.from_parts(codes, scales, amax).dequantize()
        assert np.abs(y - F(3.5)).max() <= 2 * np.spacing(F(3.5))
    six = nvfp4.QuantizedTensor.from_parts(codes, scales, 6.0).dequantize()
    assert (six == 6).all()


def test_p2_the_first_element_is_in_the_low_nibble():
    x = np.zeros((1, 16), F)
    x[0, :2] = 0.5, 6
    q = nvfp4.quantize(x, chain="single")
    assert q.codes[0, 0] == 0x71
    y = nvfp4.QuantizedTensor.from_parts(q.codes, q.scales, chain="single").dequantize()
    assert y[0, :2].tolist() == [0.5, 6]
    swapped = nvfp4.QuantizedTensor.from_parts(q.codes << 4 | q.codes >> 4, q.scales, chain="single").dequantize()
    assert swapped[0, :2].tolist() == [6, 0.5]


def test_p5_shards_cut_at_blocks(rng):
    w = rng.standard_normal((8, 1792)).astype(F)
    q = nvfp4.quantize(w)
    shards = [
        nvfp4.QuantizedTensor.from_parts(q.codes[:, i * 112 : (i + 1) * 112], q.scales[:, i * 14 : (i + 1) * 14], q.amax)
        for i in range(8)
    ]
    np.testing.assert_array_equal(np.concatenate([s.dequantize() for s in shards], axis=1), q.dequantize())
    q = nvfp4.quantize(rng.standard_normal((8, 1856)).astype(F))
    with pytest.raises(nvfp4.ArgumentError, match=r"\[8, 14\].*232 columns.*\[8, 15\]"):
        nvfp4.QuantizedTensor.from_parts(q.codes[:, :116], q.scales[:, :14], q.amax)


def test_p6_scales_of_packed_bytes_are_refused():
    with pytest.raises(nvfp4.ArgumentError, match=r"\[2048, 64\].*2048 columns.*\[2048, 128\]"):
        nvfp4.QuantizedTensor.from_parts(np.zeros((2048, 1024), np.uint8), np.zeros((2048, 64), np.uint8), 1.0)


def test_p10_every_byte_decodes():
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6] + [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6], F)
    codes = np.arange(256, dtype=np.uint8)[None]
    q = nvfp4.QuantizedTensor.from_parts(codes, np.full((1, 32), 0x38, np.uint8), chain="single")
    want = np.stack([table[codes[0] & 15], table[codes[0] >> 4]], axis=1).reshape(1, 512)
    for dtype in ("float32", "bfloat16", "float16"):
        np.testing.assert_array_equal(bits(q.dequantize(dtype).astype(F)), bits(want))
    np.testing.assert_array_equal(bits(q.dequantize(transpose=True)), bits(want.T))


def test_parts_may_be_views_and_one_byte_floats(rng):
    import ml_dtypes

    q = nvfp4.quantize(rng.standard_normal((20, 64)).astype(F))
    room = np.zeros((20, 100), np.uint8)
    room[:, 3:35], room[:, 50:54] = q.codes, q.scales
    forms = [
        (room[:, 3:35], room[:, 50:54]),
        (np.asfortranarray(q.codes), np.asfortranarray(q.scales)),
        (q.codes[::-1].copy()[::-1], q.scales),
        (q.codes, q.scales.view(ml_dtypes.float8_e4m3fn)),
    ]
    for codes, scales in forms:
        other = nvfp4.QuantizedTensor.from_parts(codes, scales, q.amax)
        np.testing.assert_array_equal(other.dequantize(), q.dequantize())
        np.testing.assert_array_equal(nvfp4.gemm(other, q), nvfp4.gemm(q, q))
        np.testing.assert_array_equal(nvfp4.gemm([other] * 2, q)[1], nvfp4.gemm(q, q))
        assert nvfp4.requantize(other, {"format": "mxfp4"}).format == "mxfp4"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": np.zeros((4, 8), np.int8)}, "codes has dtype int8"),
        ({"codes": np.zeros((4, 8), F)}, "codes has dtype float32"),
        ({"codes": [[1, 2]]}, "codes is a list"),
        ({"codes": np.zeros(8, np.uint8)}, r"codes has shape \(8,\)"),
        ({"scales": np.zeros((4, 1), F)}, "scales has dtype float32"),
        ({"scales": None}, "scales is a NoneType"),
        ({"amax": None}, "amax is missing"),
        ({"cols": 18}, r"\[4, 8\].*18 columns.*\[4, 9\]"),
        ({"rows": 5}, r"5 rows"),
        ({"format": "fp4"}, "format is 'fp4'; it is one of 'nvfp4', 'mxfp4', 'bf16'"),
        ({"block": "1x32"}, "block is '1x32'; format 'nvfp4' takes '1x16', '16x16'"),
        ({"chain": "ct"}, "chain is 'ct'"),
        ({"chain": "div6", "format": "mxfp4"}, "chain is 'div6'.*'mxfp4'"),
        ({"chain": "single"}, "amax is 1.0.*'single'"),
        ({"scale_layout": "blocked"}, "scale_layout is 'blocked'"),
        ({"domain": 0}, "domain is 0"),
        ({"domain": "row"}, "domain is 'row'"),
        ({"c": 0.0}, r"c is 0\.0"),
        ({"hadamard": 16, "sign_mask": 1 << 16}, "0x10000"),
        ({"hadamard": 16, "sign_mask": "seeded"}, "seeded"),
        ({"sign_mask": 1}, "hadamard is 0"),
    ],
)
def test_wrong_parts(change, message):
    kw = {"codes": np.zeros((4, 8), np.uint8), "scales": np.zeros((4, 1), np.uint8), "amax": 1.0} | change
    with pytest.raises(nvfp4.Error, match=message) as error:
        nvfp4.QuantizedTensor.from_parts(**kw)
    assert isinstance(error.value, (ValueError, TypeError))


@pytest.mark.parametrize("kw", [{"c": 100.0}, {"hadamard": 24}])
def test_parts_that_the_library_refuses(kw):
    """What Python leaves to the planner is refused at the first use."""
    with pytest.raises(nvfp4.Error, match=str(int(next(iter(kw.values()))))):
        nvfp4.QuantizedTensor.from_parts(np.zeros((4, 8), np.uint8), np.zeros((4, 1), np.uint8), 1.0, **kw).dequantize()


def test_a_tensor_keeps_its_memory_alive(rng):
    x = rng.standard_normal((64, 64)).astype(F)
    source = nvfp4.quantize(x)
    codes = source.codes.copy()
    alive = weakref.ref(codes)
    q = nvfp4.QuantizedTensor.from_parts(codes, source.scales.copy(), source.amax)
    del codes
    gc.collect()
    assert alive() is not None
    trash = [np.full(4096, 0xEE, np.uint8) for _ in range(100)]
    np.testing.assert_array_equal(q.dequantize(), source.dequantize())
    del q, trash
    gc.collect()
    assert alive() is None, "nothing holds the memory of a tensor that is gone"


def test_results_do_not_share_memory(rng):
    x = rng.standard_normal((16, 32)).astype(F)
    q = nvfp4.quantize(x)
    first = q.dequantize()
    first[...] = 0
    assert q.dequantize().any()
    before = q.codes.copy()
    x[...] = 0
    np.testing.assert_array_equal(q.codes, before)


def test_many_threads_get_the_serial_results(rng):
    """L1: nothing is shared between calls; errors belong to the thread that made them."""
    inputs = [rng.standard_normal((97, 200)).astype(bfloat16) for _ in range(4)]
    weights = nvfp4.quantize(rng.standard_normal((31, 200)).astype(F), block="16x16")

    def work(x):
        row, column = nvfp4.quantize(x, axis="both", rounding="stochastic", seed=5)
        return row.codes, column.scales, nvfp4.gemm(row, weights, out_dtype="float32"), nvfp4.linear(x, np.asarray(x[:20]), seed=2)

    want = [work(x) for x in inputs]
    failures = []

    def loop(i):
        try:
            for _ in range(25):
                for got, expected in zip(work(inputs[i]), want[i]):
                    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8))
                with pytest.raises(nvfp4.Error, match=str(1000 + i)):
                    nvfp4.quantize(inputs[i], hadamard=1000 + i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_the_number_of_threads_changes_no_byte(rng):
    x = wide(rng, (301, 170))
    results = []
    try:
        for threads in (1, 2, 3, 7, 16, 0):
            nvfp4.set_threads(threads)
            row, column = nvfp4.quantize(x, axis="both", rounding="stochastic", seed=1)
            tiles = nvfp4.quantize(x, block="16x16", select="4over6", stats=True)
            d = nvfp4.gemm(row, tiles, out_dtype="float32")
            y = nvfp4.hadamard(x, axis="column")
            dx, dw = nvfp4.linear_backward(x[:, :60], x, x[:60])
            results.append(
                b"".join(v.tobytes() for v in (row.codes, row.scales, column.codes, column.scales, tiles.codes, d, y, dx, dw))
                + repr(tiles.stats).encode()
            )
    finally:
        nvfp4.set_threads(0)
    assert all(r == results[0] for r in results)


def test_the_number_of_threads_may_change_during_calls(rng):
    """A context lives until the last call that uses it is over."""
    x = rng.standard_normal((200, 300)).astype(F)
    want = nvfp4.quantize(x).codes.tobytes()
    stop, wrong = threading.Event(), []

    def loop():
        while not stop.is_set():
            if nvfp4.quantize(x).codes.tobytes() != want:
                wrong.append(1)

    workers = [threading.Thread(target=loop) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for i in range(300):
            nvfp4.set_threads(1 + i % 3)
            gc.collect(0)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        nvfp4.set_threads(0)
    assert not wrong
