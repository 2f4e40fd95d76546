"""Operators of torch.ops.nvfp4: the bytes are those of the NumPy functions; shape rules and derivatives are right."""

import ml_dtypes
import numpy as np
import pytest
import torch

import nvfp4
import nvfp4.torch as fp4
from nvfp4.torch import _grouped, _linear, _ops  # noqa: F401

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OPTIONS = (
    {},
    {"block": "16x16"},
    {"hadamard": 16},
    {"rounding": "stochastic", "hadamard": 32},
    {"scale_layout": "swizzled"},
    {"select": "4over6", "c": 1536.0},
    {"domain": 1},
    {"format": "mxfp4", "rounding": "stochastic"},
    {"format": "mxfp4", "block": "32x32", "scale_layout": "swizzled"},
    {"format": "bf16"},
)


def as_numpy(t):
    t = t.detach().cpu()
    return t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if t.dtype == torch.bfloat16 else t.numpy()


def same_bytes(ours, theirs):
    """A `Quantized` and a `nvfp4.QuantizedTensor` of the same matrix."""
    assert ours.shape == (theirs.rows, theirs.source_cols)
    assert np.array_equal(ours.codes.cpu().numpy().reshape(-1), np.asarray(theirs.codes).reshape(-1).view(np.uint8))
    if theirs.scales is not None:
        assert np.array_equal(ours.scales.cpu().numpy().reshape(-1), np.asarray(theirs.scales).reshape(-1).view(np.uint8))
    amax = np.zeros(0, np.float32) if theirs.amax is None else np.atleast_1d(np.asarray(theirs.amax, np.float32))
    assert np.array_equal(ours.amax.cpu().numpy(), amax)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())) or "default")
@pytest.mark.parametrize("shape", [(48, 80), (1, 1), (33, 17), (5, 200)], ids=str)
def test_quantize_equals_numpy(dtype, options, shape):
    g = torch.Generator().manual_seed(shape[0])
    x = torch.randn(shape, generator=g).to(dtype)
    seed = torch.tensor([11, 7])
    row, col = fp4.quantize(x, options, axis="both", seed_offset=seed, origin=(32, 64))
    want = nvfp4.quantize(as_numpy(x), **options, axis="both", seed=11, offset=7, origin=(32, 64))
    same_bytes(row, want[0])
    same_bytes(col, want[1])
    assert np.array_equal(as_numpy(row.dequantize()), want[0].dequantize("float32"))
    assert row.dequantize().abs().sum() > 0


@pytest.mark.parametrize("make", [lambda x: x.t().contiguous().t(), lambda x: x[:, :40], lambda x: x[::3], lambda x: x.flip(0)],
                         ids=["transposed", "columns", "rows", "flipped"])  # fmt: skip
def test_strides_do_not_matter(make):
    x = make(torch.randn(48, 80))
    assert torch.equal(fp4.quantize(x).data, fp4.quantize(x.clone(memory_format=torch.contiguous_format)).data)


def test_gemm_equals_numpy():
    a, b, bias = torch.randn(48, 96), torch.randn(40, 96), torch.randn(40)
    p, q = fp4.quantize(a, {"hadamard": 16}), fp4.quantize(b, {"hadamard": 16})
    for dtype in DTYPES:
        for accumulate in ("block", "fast"):
            got = fp4.gemm(p, q, out_dtype=dtype, bias=bias, activation="silu", accumulate=accumulate, alpha=torch.tensor([0.5]))
            want = nvfp4.gemm(
                nvfp4.quantize(as_numpy(a), hadamard=16), nvfp4.quantize(as_numpy(b), hadamard=16), bias=as_numpy(bias), alpha=0.5,
                activation="silu", out_dtype=str(dtype).split(".")[1], accumulate=accumulate,
            )  # fmt: skip
            assert np.abs(want.astype(np.float32)).max() > 0
            assert np.array_equal(as_numpy(got).view(np.uint8), want.view(np.uint8)), (dtype, accumulate)


def test_hadamard_and_its_derivative():
    x = torch.randn(30, 45, requires_grad=True)
    for axis in ("row", "column"):
        y = fp4.hadamard(x, 16, axis=axis, sign_mask=0x1234)
        assert np.array_equal(as_numpy(y), nvfp4.hadamard(as_numpy(x), 16, axis=axis, sign_mask=0x1234))
        back = fp4.hadamard(y, 16, axis=axis, inverse=True, sign_mask=0x1234)
        torch.testing.assert_close(back[:30, :45], x)
        dy = torch.randn_like(y)
        (gradient,) = torch.autograd.grad(y, x, dy)
        torch.testing.assert_close((gradient * x).sum(), (dy * y).sum())  # the transform is orthogonal


def test_fake_quantize_is_straight_through():
    x = torch.randn(4, 6, 32, requires_grad=True)
    y = fp4.fake_quantize(x)
    assert torch.equal(y, fp4.quantize(x.detach().view(24, 32)).dequantize().view(4, 6, 32)) and not torch.equal(y, x)
    dy = torch.randn_like(y)
    y.backward(dy)
    assert torch.equal(x.grad, dy)


def test_random_bits_come_from_the_generator():
    x = torch.randn(64, 64)
    options = {"rounding": "stochastic"}
    torch.manual_seed(1)
    first, second = fp4.quantize(x, options).data, fp4.quantize(x, options).data
    torch.manual_seed(1)
    again = fp4.quantize(x, options).data
    assert torch.equal(first, again) and not torch.equal(first, second)


def _recipe(**fields):
    return fp4.NVFP4BlockScaling(**fields).prepared


def _linear_inputs(grad=True):
    r = _recipe()
    x, w, b = (torch.randn(s, requires_grad=grad) for s in ((24, 32), (48, 32), (48,)))
    seeds = torch.tensor([[1, 2], [3, 4], [5, 6]])
    row, col = _linear.quantize_weight(w.detach(), r, True, seeds)
    return (x, w, row, col, b, seeds, None, None, None, None, torch.float32, r.text, "", _linear.saved(r, True, True))


def _grouped_inputs():
    r = _recipe(disable_rht=True)
    x, w, b = (torch.randn(s, requires_grad=True) for s in ((40, 32), (2, 48, 32), (2, 48)))
    row, col = _grouped.quantize_weights(w.detach(), r, True, None)
    return (x, w, row, col, b, torch.tensor([0, 24, 40]), torch.ones(3, 2, dtype=torch.int64), torch.float32, r.text, 5)


def _texts(**options):
    q = fp4.quantize(torch.randn(32, 32), options)
    return q.options


CHECKED = {
    "quantize": lambda: (torch.randn(32, 48), _texts(), _texts(hadamard=16)),
    "amax": lambda: (torch.randn(32, 48), _texts(), _texts(hadamard=16)),
    "dequantize": lambda: (fp4.quantize(torch.randn(32, 48)).data, _texts(), 32, 48, False, torch.bfloat16),
    "hadamard": lambda: (torch.randn(30, 48, requires_grad=True), 16, 1, False, None),
    "gemm": lambda: (fp4.quantize(torch.randn(32, 48)).data, _texts(), 32, 48, False, fp4.quantize(torch.randn(16, 48)).data, _texts(), 16,
                     48, False, torch.float32, "block"),  # fmt: skip
    "linear": _linear_inputs,
    "grouped_linear": _grouped_inputs,
    "linear_backward": lambda: (torch.randn(24, 48), None, None, 32, None, None, torch.float32, torch.float32, _recipe().text),
    "note_amax_": lambda: (torch.randn(24, 48), _texts(), _texts(), torch.zeros(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.nvfp4, name).default, CHECKED[name]())


def test_draw_is_known_to_be_random():
    assert torch.Tag.nondeterministic_seeded in torch.ops.nvfp4.draw.default.tags
    torch.manual_seed(5)
    a, b = torch.ops.nvfp4.draw(torch.zeros(1)), torch.ops.nvfp4.draw(torch.zeros(1))
    assert a.shape == (3, 2) and a.dtype == torch.int64 and not torch.equal(a, b) and int(a.min()) >= 0 and int(a.max()) < 1 << 60


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: fp4.quantize(torch.zeros(3, 4, 5)), "(3, 4, 5)"),
        (lambda: fp4.quantize(torch.zeros(4, 4, dtype=torch.float64)), "float64"),
        (lambda: fp4.quantize(torch.zeros(4, 4), {"rounding": "stochastic"}, seed_offset=torch.zeros(3, dtype=torch.int64)), "seed_offset"),
        (lambda: fp4.quantize(torch.zeros(4, 4), axis="up"), "'up'"),
        (lambda: fp4.quantize(torch.zeros(4, 4), {"blok": 1}), "blok"),
        (lambda: fp4.quantize(torch.zeros(4, 4), amax=torch.zeros(2)), "amax"),
        (lambda: fp4.gemm(fp4.quantize(torch.zeros(4, 32)), fp4.quantize(torch.zeros(4, 48))), "(4, 48)"),
        (lambda: fp4.gemm(fp4.quantize(torch.zeros(4, 32), {"hadamard": 16}), fp4.quantize(torch.zeros(4, 32))), "adamard"),
        (lambda: fp4.linear(torch.zeros(4, 32), torch.zeros(8, 16)), "(8, 16)"),
        (lambda: torch.ops.nvfp4.dequantize(torch.zeros(5, dtype=torch.uint8), _texts(), 4, 32, False, torch.float32), "(5,)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, part):
    with pytest.raises((ValueError, TypeError, nvfp4.Error), match=".") as caught:
        call()
    assert part in str(caught.value)


class TestGroups:
    OFFSETS = [0, 30, 30, 77]

    def operands(self):
        g = torch.Generator().manual_seed(3)
        return torch.randn(80, 64, generator=g), torch.randn(80, 48, generator=g), torch.randn(3, 48, 64, generator=g)

    def test_equal_numpy(self):
        x, dy, w = self.operands()
        where, options = torch.tensor(self.OFFSETS), {"hadamard": 16}
        row, col = fp4.grouped_quantize(x, where, axis="both", column=options)
        want_row, want_col = nvfp4.grouped_quantize(x.numpy(), self.OFFSETS, axis="both", column=options)
        y = fp4.grouped_gemm(row, [fp4.quantize(one) for one in w], out_dtype=torch.float32, accumulate="block", bias=dy[:3])
        want = nvfp4.grouped_gemm(want_row, [nvfp4.quantize(one.numpy()) for one in w], out_dtype="float32", bias=dy[:3].numpy())
        assert np.array_equal(y.numpy(), want) and np.abs(want).max() > 0 and not y[77:].any()
        other = fp4.grouped_quantize(dy, where, options, axis="column")
        dw = fp4.grouped_gemm(other, col, out_dtype=torch.float32, accumulate="block")
        want = nvfp4.grouped_gemm(nvfp4.grouped_quantize(dy.numpy(), self.OFFSETS, options, axis="column"), want_col, out_dtype="float32")
        assert np.array_equal(dw.numpy(), want) and dw.shape == (3, 48, 64) and not dw[1].any()

    def test_opcheck(self):
        x, dy, w = self.operands()
        where = torch.tensor(self.OFFSETS)
        torch.library.opcheck(torch.ops.nvfp4.grouped_quantize.default, (x, where, _texts(), _texts(hadamard=16)))
        a = fp4.grouped_quantize(x, where)
        b = _grouped.stacked([fp4.quantize(one).data for one in w])
        args = (a.data, a.options, 80, 64, b, _texts(), 48, 64, False, where, False, torch.float32, "block")
        torch.library.opcheck(torch.ops.nvfp4.grouped_gemm.default, args)

    def test_bad_input_is_named(self):
        x, dy, w = self.operands()
        where = torch.tensor(self.OFFSETS)
        a, column = fp4.grouped_quantize(x, where), fp4.grouped_quantize(x, where, axis="column")
        weights = [fp4.quantize(one) for one in w]
        for call, part in (
            (lambda: fp4.grouped_gemm(a, weights[:2]), "2 of 1 kinds for 3"),
            (lambda: fp4.grouped_gemm(column, weights), "rowwise"),
            (lambda: fp4.grouped_gemm(a, column), "columnwise"),
            (lambda: fp4.grouped_gemm(a, weights, bias=torch.zeros(2, 48)), "(2, 48)"),
            (lambda: fp4.grouped_gemm(a, [fp4.quantize(dy[:48])] * 3), "(48, 48)"),
            (lambda: fp4.grouped_quantize(x, where.int()), "int32"),
            (lambda: fp4.grouped_quantize(x, torch.tensor([0, 90])), "90"),
            (lambda: fp4.grouped_quantize(x, torch.tensor([5, 3])), "3"),
        ):
            with pytest.raises((ValueError, nvfp4.Error)) as caught:
                call()
            assert part in str(caught.value), caught.value
