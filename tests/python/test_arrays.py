"""Arrays at the boundary: types, byte order, strides, alignment, memory that may not be written."""

import numpy as np
import pytest
from common import F, assert_equal_tensors, bfloat16, bits, wide

import nvfp4

DTYPES = [F, np.float16, bfloat16]


def views(rng, dtype):
    """(name, view): the same kinds of views for each type."""
    base = rng.standard_normal((64, 256)).astype(dtype)
    yield "column slice", base[:, 64:128]
    yield "transpose", base.T
    yield "every second row", base[::2]
    yield "every third column", base[:, ::3]
    yield "broadcast row", np.broadcast_to(base[:1], (40, 256))
    yield "broadcast column", np.broadcast_to(base[:, :1], (64, 33))
    yield "reversed rows", base[::-1]
    yield "reversed columns", base[:, ::-1]
    yield "one element off", base.reshape(-1)[1 : 1 + 63 * 256].reshape(63, 256)
    yield "one row", base[5:6, 3:40]
    yield "one column", base[:, 7:8]
    yield "Fortran order", np.asfortranarray(base)
    raw = np.zeros(base.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(dtype).reshape(base.shape)
    unaligned[...] = base
    yield "unaligned", unaligned
    yield "read-only", _frozen(base)
    if dtype is not bfloat16:
        yield "byte-swapped", base.astype(np.dtype(dtype).newbyteorder(">"))


def _frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_a_view_gives_the_bytes_of_its_contiguous_copy(dtype, rng):
    for name, view in views(rng, dtype):
        copy = np.array(view, dtype=dtype, order="C")
        before = copy.tobytes()
        for axis in ("row", "column"):
            for kw in ({}, {"format": "mxfp4"}, {"block": "16x16"}, {"hadamard": 16}):
                try:
                    assert_equal_tensors(nvfp4.quantize(view, axis=axis, **kw), nvfp4.quantize(copy, axis=axis, **kw))
                except AssertionError as error:
                    raise AssertionError(f"{name}, {axis}, {kw}: {error}") from None
        for axis in ("row", "column"):
            got, want = nvfp4.hadamard(view, axis=axis), nvfp4.hadamard(copy, axis=axis)
            np.testing.assert_array_equal(bits(got.astype(F)), bits(want.astype(F)), err_msg=name)
        assert nvfp4.amax(view) == nvfp4.amax(copy)
        assert np.array(view, dtype=dtype, order="C").tobytes() == before, f"{name}: the input was written"


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.uint16, np.bool_, np.complex64, object])
def test_other_types_are_refused_by_name(dtype):
    x = np.zeros((4, 16), dtype)
    with pytest.raises(nvfp4.DtypeError, match=x.dtype.name):
        nvfp4.quantize(x)
    with pytest.raises(TypeError, match=x.dtype.name):
        nvfp4.hadamard(x)
    with pytest.raises(nvfp4.Error, match=x.dtype.name):
        nvfp4.linear(x, np.zeros((3, 16), F))


@pytest.mark.parametrize("x", [[[1.0, 2.0]], 3.0, None, "abc"])
def test_what_is_no_array_is_refused(x):
    with pytest.raises(nvfp4.DtypeError, match=type(x).__name__):
        nvfp4.quantize(x)


def test_masked_arrays_are_refused():
    """What is under the mask is no value."""
    x = np.ma.masked_greater(np.ones((2, 16), F), 5)
    for call in (nvfp4.quantize, nvfp4.hadamard, nvfp4.amax, lambda v: nvfp4.linear(v, v)):
        with pytest.raises(nvfp4.DtypeError, match=r"MaskedArray.*filled"):
            call(x)


@pytest.mark.parametrize("shape", [(), (16,), (2, 3, 16)])
def test_two_dimensions_are_needed(shape):
    with pytest.raises(nvfp4.ArgumentError, match=r"2 dimensions"):
        nvfp4.quantize(np.zeros(shape, F))


def amax_forms(value):
    """The same number in each form that a caller may hold it in."""
    yield value
    yield int(value)
    for dtype in (np.float64, F, np.float16, bfloat16, np.int64):
        yield np.asarray(value).astype(dtype)  # shape ()
        yield np.asarray([value]).astype(dtype)  # shape (1,)
        yield np.asarray(value).astype(dtype)[()]  # a scalar
    yield np.asarray([[value]])
    yield np.asarray(value, ">f4")
    yield [value]


def test_a_given_amax_means_the_same_in_every_form(rng):
    """O1: a global scale is converted by value, whatever type it comes in."""
    x = rng.standard_normal((8, 64)).astype(F)
    for axis in ("row", "column", "both"):
        want = nvfp4.quantize(x, amax=F(6.0), axis=axis)
        for form in amax_forms(6.0):
            if axis == "both" and isinstance(form, list):
                form = form * 2  # a list is the pair of the two copies there
            got = nvfp4.quantize(x, amax=form, axis=axis)
            for g, w in zip(got, want) if axis == "both" else [(got, want)]:
                assert_equal_tensors(g, w)
    want = nvfp4.quantize(x, amax=F(6.0))
    for form in amax_forms(6.0):
        got = nvfp4.QuantizedTensor.from_parts(want.codes, want.scales, form)
        np.testing.assert_array_equal(got.dequantize(), want.dequantize())
        d = nvfp4.gemm(got, want, alpha=form, beta=0, out_dtype="float32")
        np.testing.assert_array_equal(d, nvfp4.gemm(want, want, alpha=6.0, out_dtype="float32"))


@pytest.mark.parametrize("amax", [b"6", "6", 6j, np.complex64(6), object()])
def test_what_is_no_real_number_is_no_amax(amax):
    x = np.ones((1, 16), F)
    q = nvfp4.quantize(x)
    with pytest.raises(nvfp4.DtypeError):
        nvfp4.quantize(x, amax=amax)
    with pytest.raises(nvfp4.DtypeError):
        nvfp4.QuantizedTensor.from_parts(q.codes, q.scales, amax)


@pytest.mark.parametrize("amax", [[1.0, 2.0], np.ones(3), np.ones((2, 2)), []])
def test_one_amax_a_domain(amax):
    with pytest.raises(nvfp4.ArgumentError, match=f"{np.size(amax)} value"):
        nvfp4.quantize(np.ones((1, 16), F), amax=amax)


@pytest.mark.parametrize("bad", [1.5, True, "3", None, -1, 1 << 64])
def test_seeds_are_unsigned_integers(bad):
    with pytest.raises(nvfp4.Error, match=r"seed"):
        nvfp4.quantize(np.ones((1, 16), F), seed=bad, rounding="stochastic")


def test_numpy_integers_are_integers(rng):
    x = wide(rng, (4, 32))
    a = nvfp4.quantize(x, rounding="stochastic", seed=np.uint64(1 << 63), offset=np.int32(7), origin=(np.int64(16), 0))
    b = nvfp4.quantize(x, rounding="stochastic", seed=1 << 63, offset=7, origin=(16, 0))
    assert_equal_tensors(a, b)


def test_operands_of_linear_and_gemm_may_be_views(rng):
    base = rng.standard_normal((48, 96)).astype(bfloat16)
    x, w, dy = base[::2, 8:40], base[:20, 40:72], base[24:, 72:92]
    copies = [np.ascontiguousarray(v) for v in (x, w, dy)]
    np.testing.assert_array_equal(bits(nvfp4.linear(x, w).astype(F)), bits(nvfp4.linear(*copies[:2]).astype(F)))
    for got, want in zip(nvfp4.linear_backward(dy, x, w, seed=4), nvfp4.linear_backward(copies[2], *copies[:2], seed=4)):
        np.testing.assert_array_equal(bits(got.astype(F)), bits(want.astype(F)))
    a, b = nvfp4.quantize(x), nvfp4.quantize(w)
    c = rng.standard_normal((40, 48)).astype(F).T[:24, :40:2]
    bias = rng.standard_normal(60).astype(np.float16)[::-3]
    got = nvfp4.gemm(a, b, bias=bias, c=c, beta=0.5, out_dtype="float32")
    want = nvfp4.gemm(a, b, bias=bias.copy(), c=np.ascontiguousarray(c), beta=0.5, out_dtype="float32")
    np.testing.assert_array_equal(got, want)
