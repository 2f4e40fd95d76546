"""Cases of test_distributed.py: DDP, FSDP2 with weights gathered in 4 bits, and checkpoints between them."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from nvfp4.torch import _gathered
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import nvfp4
import nvfp4.torch as fp4

FOLDER = ""  # set by distributed.py: the same on all ranks
NEAREST = fp4.NVFP4BlockScaling(disable_stochastic_rounding=True, accumulate="block")
WIDTH, HIDDEN = 128, 256


def model(device, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN, bias=False), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
    return fp4.convert_(net, lambda *_: True).to(device)


def batch(rank, device, step=0):
    return torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank)).to(device)


def gradients_of_all(world, device, steps=1, rate=0.0):
    """Parameters and mean gradients of `world` batches, by one process."""
    net = model(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for step in range(steps):
        total = None
        for rank in range(world):
            net.zero_grad()
            with fp4.autocast(recipe=NEAREST):
                net(batch(rank, device, step)).square().mean().backward()
            each = [p.grad.clone() for p in net.parameters()]
            total = each if total is None else [a + b for a, b in zip(total, each)]
        total = [g / world for g in total]
        for p, g in zip(net.parameters(), total):
            p.grad = g
        optimizer.step()
    return net, total


def full(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def sharded(device, world, policy=None, reduce=True):
    net = model(device)
    names = fp4.prepare_fsdp(net)
    assert names == ["0", "2", "4"]
    mesh = init_device_mesh(device.type, (world,))
    options = {} if policy is None else {"mp_policy": policy}
    for layer in (net[0], net[2], net[4]):
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)


def same(got, want, world, what):
    """Equal bits where the order of the sum over ranks is one (2 ranks), else within rounding of it."""
    for name, (p, q) in enumerate(zip(got, want)):
        p = full(p).cpu()
        q = q.cpu()
        assert q.abs().max() > 0
        if world == 2:
            assert torch.equal(p, q), f"{what} {name}: {(p != q).sum()} of {p.numel()} differ"
        else:
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6 * q.abs().max().item(), msg=lambda m: f"{what} {name}: {m}")


def case_ddp(rank, world, device):
    _, want = gradients_of_all(world, device)
    net = DistributedDataParallel(model(device))
    with fp4.autocast(recipe=NEAREST):
        net(batch(rank, device)).square().mean().backward()
    same([p.grad for p in net.parameters()], want, world, "gradient")


def case_ddp_accumulates(rank, world, device):
    net = DistributedDataParallel(model(device))
    x = batch(rank, device)
    with net.no_sync(), fp4.autocast(recipe=NEAREST, is_first_microbatch=True):
        net(x).square().mean().backward()
    with fp4.autocast(recipe=NEAREST, is_first_microbatch=False):
        net(x).square().mean().backward()
    _, want = gradients_of_all(world, device)
    for p, g in zip(net.parameters(), want):
        torch.testing.assert_close(p.grad, 2 * g, rtol=1e-5, atol=1e-6)


def case_fsdp_equals_one_process(rank, world, device):
    """Outputs of the first step have the very bits of the unsharded model's; so have two ranks' weights after three steps."""
    one, _ = gradients_of_all(world, device, steps=3, rate=0.1)
    net = sharded(device, world)
    with torch.no_grad(), fp4.autocast(recipe=NEAREST):
        assert torch.equal(net(batch(rank, device)), model(device)(batch(rank, device)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        with fp4.autocast(recipe=NEAREST):
            net(batch(rank, device, step)).square().mean().backward()
        optimizer.step()
        assert fp4.reduce_amax(net) == 3
    same(list(net.parameters()), list(one.parameters()), world, "weight")


def case_fsdp_gathers_four_bits(rank, world, device):
    """What FSDP2 hands over after a gather are its outputs, in the memory that the collective wrote."""
    seen, original = [], _gathered.ShardedWeight.fsdp_post_all_gather

    def noting(self, outputs, *args, **kwargs):
        seen.append(sum(t.numel() * t.element_size() for t in outputs))
        return original(self, outputs, *args, **kwargs)

    net = sharded(device, world)
    weights = sum(p.numel() for p in net.parameters() if p.ndim == 2)
    _gathered.ShardedWeight.fsdp_post_all_gather = noting
    try:
        with torch.no_grad(), fp4.autocast(recipe=NEAREST):
            net(batch(rank, device))
    finally:
        _gathered.ShardedWeight.fsdp_post_all_gather = original
    assert len(seen) == 3 and 0.25 < sum(seen) / (2 * weights) <= 0.30, (seen, weights)


def case_fsdp_mixed_precision(rank, world, device):
    """bf16 parameters and f32 reduction: the bytes are those of the bf16 weight."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = sharded(device, world, policy)
    want = model(device).bfloat16()
    x = batch(rank, device).bfloat16()
    with fp4.autocast(recipe=NEAREST):
        y = net(x)
        assert y.dtype == torch.bfloat16 and torch.equal(y, want(x))
    y.float().square().mean().backward()
    assert all(p.grad is not None and full(p.grad).isfinite().all() and full(p.grad).dtype == torch.float32 for p in net.parameters())


def case_fsdp_refuses(rank, world, device):
    net = sharded(device, world)
    for recipe, word in ((fp4.MXFP4BlockScaling(), "w_row"), (fp4.NVFP4BlockScaling(disable_2d_quantization=True), "16x16"),
                         (fp4.DelayedScaling(), "delay")):  # fmt: skip
        try:
            with fp4.autocast(recipe=recipe):
                net(batch(rank, device))
        except nvfp4.Error as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{recipe} was not refused")
        net = sharded(device, world)
    try:
        net(batch(rank, device))
    except nvfp4.Error as error:
        assert "autocast" in str(error), error
    else:
        raise AssertionError("high precision was not refused")


def case_checkpoint_on_another_world_size(rank, world, device):
    """Saved by all ranks, loaded by the first two (as a group of their own), and by one process without FSDP."""
    net = sharded(device, world)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.5)
    dcp.save(get_model_state_dict(net), checkpoint_id=f"{FOLDER}/checkpoint")
    want = model(device)
    with torch.no_grad():
        for p in want.parameters():
            p.mul_(1.5)
    single = model(device, seed=9)
    state = single.state_dict()
    dcp.load(state, checkpoint_id=f"{FOLDER}/checkpoint", no_dist=True)
    single.load_state_dict(state)
    assert all(torch.equal(p, q) for p, q in zip(single.parameters(), want.parameters()))
    half = dist.new_group(list(range(world // 2)))
    if rank < world // 2:
        from torch.distributed.device_mesh import DeviceMesh

        fewer = model(device, seed=9)
        fp4.prepare_fsdp(fewer)
        fully_shard(fewer, mesh=DeviceMesh.from_group(half, device.type))
        state = get_model_state_dict(fewer)
        dcp.load(state, checkpoint_id=f"{FOLDER}/checkpoint", process_group=half)
        set_model_state_dict(fewer, state)
        with torch.no_grad(), fp4.autocast(recipe=NEAREST):
            assert torch.equal(fewer(batch(rank, device)), want(batch(rank, device)))
    dist.barrier()


def case_amax_is_shared_over_a_group(rank, world, device):
    """With amax_reduction_group, what the ranks quantize together is what one process would."""
    net, recipe = model(device)[0], fp4.NVFP4BlockScaling(disable_stochastic_rounding=True, accumulate="block")
    x = torch.cat([(1 + r) * batch(r, device) for r in range(world)])
    want = x.clone().requires_grad_()
    with fp4.autocast(recipe=recipe):
        y = net(want)
    dy = torch.cat([(1 + r) * torch.ones(32, HIDDEN, device=device) for r in range(world)])
    y.backward(dy)
    rows = slice(32 * rank, 32 * rank + 32)
    mine = x[rows].clone().requires_grad_()
    with fp4.autocast(recipe=recipe, amax_reduction_group=dist.group.WORLD):
        got = net(mine)
    got.backward(dy[rows])
    assert torch.equal(got, y[rows]) and torch.equal(mine.grad, want.grad[rows])
    with fp4.autocast(recipe=recipe):
        alone = net(mine)
    assert rank == world - 1 or not torch.equal(alone, y[rows])
