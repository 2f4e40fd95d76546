"""Cases of test_distributed.py: layers split over a group against the unsharded layer on one CPU.

Products are in mode BLOCK, which is the same bits on a CPU and on a GPU.
"""

import torch
import torch.distributed as dist
from nvfp4.torch import _slices
from nvfp4.torch._raw import layout
from torch import nn

import nvfp4
import nvfp4.torch as fp4

TOKENS, IN, OUT = 128, 256, 384
RECIPES = [
    fp4.NVFP4BlockScaling(accumulate="block"), fp4.NVFP4BlockScaling(disable_rht=True, accumulate="block"),
    fp4.MXFP4BlockScaling(accumulate="block"),
]  # fmt: skip
SEEDS = 17


def made(seed, *shape):
    """The same values on every rank, one row larger than the rest so that amaxes differ between slices."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    x[shape[0] // 3] *= 4
    x[:, shape[1] - 2] *= 3
    return x.bfloat16().float()


def unsharded(recipe):
    """x, w, b, dy and what one CPU makes of them: y, dx, dw, db. Rank 0 draws, so its bits are those of the split layers."""
    x, w, b, dy = made(1, TOKENS, IN), made(2, OUT, IN) / 8, made(3, OUT, 2)[:, 0], made(4, TOKENS, OUT)
    a, c, d = (t.clone().requires_grad_() for t in (x, w, b))
    torch.manual_seed(SEEDS)
    y = fp4.linear(a, c, d, recipe)
    y.backward(dy)
    return [x, w, b, dy], [y.detach(), a.grad, c.grad, d.grad]


def whole_linear(w, b, device):
    linear = nn.Linear(IN, OUT, device=device)
    linear.weight.data, linear.bias.data = w.to(device), b.to(device)
    return linear


def equal(got, want, what):
    got = got.cpu()
    differ = (got != want).sum().item()
    assert got.shape == want.shape and not differ, f"{what}: {differ} of {want.numel()} differ, shapes {got.shape}, {want.shape}"
    assert want.abs().max() > 0


def near(got, want, terms, what):
    """A sum over ranks of f32 products, in whatever order."""
    got, bound = got.cpu(), 2.0**-20 * terms * want.abs().max()
    assert (got - want).abs().max() <= bound, f"{what}: off by {(got - want).abs().max()}, bound {bound}"
    assert want.abs().max() > 0


def part(t, rank, world, axis):
    return t.chunk(world, axis)[rank].contiguous()


def called(layer, recipe, x, rank):
    """The layer's output; only rank 0's generator is where the unsharded layer's was."""
    torch.manual_seed(SEEDS + 100 * rank)
    with fp4.autocast(recipe=recipe):
        return layer(x)


def case_column_parallel(rank, world, device):
    for recipe in RECIPES:
        for sequence in (False, True):
            (x, w, b, dy), (y, dx, dw, db) = unsharded(recipe)
            layer = fp4.ColumnParallelLinear.from_linear(whole_linear(w, b, device), dist.group.WORLD, sequence_parallel=sequence)
            mine = (part(x, rank, world, 0) if sequence else x.clone()).to(device).requires_grad_()
            if device.type == "cuda":
                torch.manual_seed(SEEDS)  # draws of a GPU's generator are others: compare with what does not draw
            out = called(layer, recipe, mine, rank)
            what = f"{recipe}, sequence {sequence}, "
            equal(out.detach(), part(y, rank, world, 1), what + "y")
            out.backward(part(dy, rank, world, 1).to(device))
            if device.type == "cpu":
                equal(layer.weight.grad, part(dw, rank, world, 0), what + "dw")
                near(mine.grad, part(dx, rank, world, 0) if sequence else dx, OUT, what + "dx")
            near(layer.bias.grad, part(db, rank, world, 0), TOKENS, what + "db")


def case_row_parallel(rank, world, device):
    for recipe in RECIPES:
        for sequence in (False, True):
            (x, w, b, dy), (y, dx, dw, db) = unsharded(recipe)
            layer = fp4.RowParallelLinear.from_linear(whole_linear(w, b, device), dist.group.WORLD, sequence_parallel=sequence)
            mine = part(x, rank, world, 1).to(device).requires_grad_()
            out = called(layer, recipe, mine, rank)
            what = f"{recipe}, sequence {sequence}, "
            near(out.detach(), part(y, rank, world, 0) if sequence else y, IN, what + "y")
            out.backward((part(dy, rank, world, 0) if sequence else dy).to(device))
            if device.type == "cpu":
                equal(mine.grad, part(dx, rank, world, 1), what + "dx")
                equal(layer.weight.grad, part(dw, rank, world, 1), what + "dw")
            near(layer.bias.grad, db, TOKENS, what + "db")


def case_high_precision(rank, world, device):
    """Outside autocast the pair of layers is plain PyTorch's, within rounding."""
    (x, w, b, dy), _ = unsharded(RECIPES[0])
    plain = whole_linear(w, b, "cpu")
    for sequence in (False, True):
        for cls, axis in ((fp4.ColumnParallelLinear, 0), (fp4.RowParallelLinear, 1)):
            layer = cls.from_linear(whole_linear(w, b, device), dist.group.WORLD, sequence_parallel=sequence)
            a = x.clone().requires_grad_()
            plain.zero_grad()
            plain(a).backward(dy)
            mine = (part(x, rank, world, 1) if axis else part(x, rank, world, 0) if sequence else x.clone()).to(device).requires_grad_()
            out = layer(mine)
            wanted, given = plain(a).detach(), dy
            if axis == 0:
                wanted, given = part(wanted, rank, world, 1), part(dy, rank, world, 1)
            elif sequence:
                wanted, given = part(wanted, rank, world, 0), part(dy, rank, world, 0)
            near(out.detach(), wanted, IN, f"{cls.__name__} {sequence} y")
            out.backward(given.to(device))
            dx = part(a.grad, rank, world, 1) if axis else part(a.grad, rank, world, 0) if sequence else a.grad
            near(mine.grad, dx, OUT, f"{cls.__name__} {sequence} dx")
            near(layer.weight.grad, part(plain.weight.grad, rank, world, axis), TOKENS, f"{cls.__name__} {sequence} dw")


def case_bytes_are_those_of_the_whole(rank, world, device):
    """Stochastic rounding with a transform, split both ways, gathered both ways."""
    whole = made(5, 16 * 4 * world, 16 * 3 * world).bfloat16().to(device)
    seed = torch.tensor([11, 2**40 + 1], device=device)
    row, col = (fp4.Custom("nvfp4", (("gradient", {"rounding": "stochastic"}),)).prepared.g_row, RECIPES[0].prepared.g_col)
    want = _slices.quantize(whole, row, col, seed, (0, 0), None, 0)
    for axis in (0, 1):
        mine = part(whole, rank, world, axis)
        origin = (rank * mine.shape[0], 0) if axis == 0 else (0, rank * mine.shape[1])
        got = _slices.quantize(mine, row, col, seed, origin, dist.group.WORLD, 0)
        for data, reference, copy, transposed in zip(got, want, (row, col), (False, True)):
            joined = _slices.gather(data, copy, *mine.shape, transposed, axis, dist.group.WORLD)
            assert torch.equal(joined, reference), f"axis {axis}, transposed {transposed}"
    # It could fail: at the wrong place other bits are drawn, and under its own amax a slice has other scales.
    mine = part(whole, rank, world, 0)
    other, _ = _slices.quantize(mine, row, None, seed, (0, 0), dist.group.WORLD, 0)
    place, all_ = layout(row, *mine.shape, False), layout(row, *whole.shape, False)
    mine_of = part(all_.views(want[0])[0].view(all_.rows, -1), rank, world, 0).reshape(-1)
    assert rank == 0 or (place.views(other)[0] != mine_of).any()


def case_sequence_parallel_travels_in_four_bits(rank, world, device):
    sent, original = [], dist.all_gather_into_tensor

    def counting(out, t, **kwargs):
        sent.append(t.numel() * t.element_size())
        return original(out, t, **kwargs)

    dist.all_gather_into_tensor = counting
    try:
        (x, w, b, dy), _ = unsharded(RECIPES[0])
        layer = fp4.ColumnParallelLinear.from_linear(whole_linear(w, b, device).bfloat16(), dist.group.WORLD, sequence_parallel=True)
        mine = part(x, rank, world, 0).bfloat16().to(device).requires_grad_()
        out = called(layer, RECIPES[0], mine, rank)
        assert sum(sent) <= 0.30 * 2 * mine.numel(), (sent, mine.numel())
        out.backward(part(dy, rank, world, 1).bfloat16().to(device))
        assert sum(sent) <= 0.60 * 2 * mine.numel(), (sent, mine.numel())
    finally:
        dist.all_gather_into_tensor = original


def case_weights_are_quantized_once_a_step(rank, world, device):
    layer = fp4.ColumnParallelLinear(64, 64 * world, tp_group=dist.group.WORLD, device=device)
    x = torch.ones(16, 64, device=device)
    with fp4.autocast(recipe=RECIPES[0]):
        first = layer(x, is_first_microbatch=True)
        kept = layer.slots["weight"].kept
        assert torch.equal(layer(x, is_first_microbatch=False), first) and layer.slots["weight"].kept is kept
        with torch.no_grad():
            layer.weight.mul_(3)
        assert not torch.equal(layer(x, is_first_microbatch=False), first)


def case_what_is_refused(rank, world, device):
    def refused(words, make):
        try:
            with fp4.autocast(recipe=RECIPES[0]):
                make()
        except nvfp4.Error as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError(f"not refused: {words}")

    group = dist.group.WORLD
    refused(["out_features is 41"], lambda: fp4.ColumnParallelLinear(64, 41, tp_group=group))
    refused(["out_features", "multiple of 16"], lambda: fp4.ColumnParallelLinear(64, 8 * world, tp_group=group, device=device)(torch.ones(16, 64, device=device)))
    layer = fp4.ColumnParallelLinear(64, 64 * world, tp_group=group, sequence_parallel=True, device=device)
    refused(["17 tokens"], lambda: layer(torch.ones(17, 64, device=device)))
    refused(["32 features", "64 columns"], lambda: layer(torch.ones(16, 32, device=device)))
    layer.recipe = fp4.NVFP4BlockScaling(row_scaled_activation=True)
    refused(["x_row", "domain is 1"], lambda: layer(torch.ones(16, 64, device=device)))
    layer.recipe = fp4.DelayedScaling()
    refused(["without delay"], lambda: layer(torch.ones(16, 64, device=device)))
    layer.recipe = None
    with fp4.autocast():
        assert layer(torch.ones(16, 64, device=device)).isfinite().all()
