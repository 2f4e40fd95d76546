"""Training mechanics: micro-batches, main_grad, recomputed activations, compiled graphs, random state, shared amax."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import nvfp4.torch as fp4

NEAREST = fp4.NVFP4BlockScaling(disable_stochastic_rounding=True)


def model(seed=0, **options):
    torch.manual_seed(seed)
    return nn.Sequential(fp4.Linear(48, 64, **options), nn.GELU(), fp4.Linear(64, 32, **options))


def gradients(net):
    return [p.grad.clone() for p in net.parameters()]


def run(net, x, forward=None, recipe=None):
    """Loss and all gradients of one step, with the same random bits each time."""
    torch.manual_seed(7)
    net.zero_grad()
    x = x.clone().requires_grad_()
    with fp4.autocast(recipe=recipe):
        y = (forward or net)(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *gradients(net)]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b))


class TestMicroBatches:
    def test_weights_are_quantized_once_a_step(self):
        layer, x = fp4.Linear(48, 64), torch.randn(16, 48)
        with fp4.autocast(recipe=NEAREST):
            first = layer(x, is_first_microbatch=True)
            kept = layer.slots["weight"].kept
            again = layer(x, is_first_microbatch=False)
            assert layer.slots["weight"].kept is kept and torch.equal(first, again)
            with torch.no_grad():
                layer.weight.mul_(1.5)  # as an optimizer does: the same memory
            changed = layer(x, is_first_microbatch=False)
            assert layer.slots["weight"].kept is not kept and torch.equal(changed, layer(x)) and not torch.equal(changed, first)
            layer(x, is_first_microbatch=True)
        with fp4.autocast(recipe=fp4.MXFP4BlockScaling()):
            other = layer(x, is_first_microbatch=False)
            assert torch.equal(other, layer(x))

    def test_by_autocast(self):
        net, x = model(), torch.randn(16, 48)
        with fp4.autocast(recipe=NEAREST, is_first_microbatch=True):
            first = net(x)
        kept = [layer.slots["weight"].kept for layer in (net[0], net[2])]
        with fp4.autocast(recipe=NEAREST, is_first_microbatch=False):
            assert torch.equal(net(x), first)
        assert all(k is not None and k is layer.slots["weight"].kept for k, layer in zip(kept, (net[0], net[2])))

    def test_evaluated_then_trained(self):
        """Copies kept by a pass without gradients hold no columnwise copy: they are made again when one is wanted."""
        net, x = model(), torch.randn(16, 48)
        want = run(net, x, recipe=NEAREST)
        with torch.no_grad(), fp4.autocast(recipe=NEAREST, is_first_microbatch=True):
            net(x)

        def later(x):
            with fp4.autocast(recipe=NEAREST, is_first_microbatch=False):
                return net(x)

        assert same(run(net, x, later), want)
        assert same(run(net, x, lambda x: checkpoint(later, x, use_reentrant=False)), want)

    def test_main_grad(self):
        layer, x = fp4.Linear(48, 64, fuse_wgrad_accumulation=True), torch.randn(16, 48)
        twin = fp4.Linear(48, 64)
        twin.load_state_dict(layer.state_dict())
        layer.weight.main_grad = torch.zeros_like(layer.weight, dtype=torch.float32)
        for step in range(4):
            with fp4.autocast(recipe=NEAREST, is_first_microbatch=step == 0):
                layer(x).square().sum().backward()
        with fp4.autocast(recipe=NEAREST):
            twin(x).square().sum().backward()
        assert layer.weight.grad is None and torch.equal(layer.weight.main_grad, 4 * twin.weight.grad)
        del layer.weight.main_grad
        with pytest.raises(ValueError, match="main_grad"), fp4.autocast():
            layer(x)
        layer.weight.main_grad = torch.zeros_like(layer.weight, dtype=torch.bfloat16)
        with pytest.raises(TypeError, match="bfloat16"), fp4.autocast():
            layer(x).sum().backward()


class TestRecomputed:
    @pytest.mark.parametrize("reentrant", [False, True])
    def test_same_random_bits(self, reentrant):
        net, x = model(), torch.randn(32, 48)
        want = run(net, x)
        # The backward pass, and with it the second forward pass, is outside the context.
        got = run(net, x, lambda x: checkpoint(net, x, use_reentrant=reentrant))
        assert same(got, want)
        with fp4.autocast(enabled=False):  # another call in between does not count inside the context
            assert not same(run(net, x, recipe=NEAREST), want)

    def test_inner_context_is_entered_again(self):
        net, x = model(), torch.randn(32, 48)

        def inner(x):
            with fp4.autocast(recipe=fp4.MXFP4BlockScaling()):
                h = net[0](x)
            return net[2](net[1](h))

        want = run(net, x, inner)
        assert same(run(net, x, lambda x: checkpoint(inner, x, use_reentrant=False)), want) and not same(want, run(net, x))

    def test_delayed_scaling(self):
        recipe = fp4.DelayedScaling(amax_history_len=4, base=NEAREST)
        out = []
        for forward in (lambda net: net, lambda net: lambda x: checkpoint(net, x, use_reentrant=False)):
            net = model()
            torch.manual_seed(1)
            for step in range(3):
                result = run(net, (1 + step) * torch.linspace(-1, 1, 32 * 48).view(32, 48), forward(net), recipe)
            out.append(result)
        assert same(*out)


class TestCompiled:
    @pytest.mark.parametrize("recipe", [None, fp4.MXFP4BlockScaling(), fp4.NVFP4BlockScaling(backward_override="dequantized"),
                                        fp4.DelayedScaling(amax_history_len=2)], ids=["nvfp4", "mxfp4", "dequantized", "delayed"])  # fmt: skip
    def test_equals_eager(self, recipe):
        torch._dynamo.reset()
        x = torch.randn(32, 48)
        eager, compiled = model(), model()
        if isinstance(recipe, fp4.DelayedScaling):
            with pytest.raises(Exception, match="before it is compiled"):
                run(compiled, x, torch.compile(compiled, fullgraph=True, backend="aot_eager"), recipe=recipe)
            torch._dynamo.reset()
            for net in (eager, compiled):
                run(net, 3 * x, recipe=recipe)
        want, got = run(eager, x, recipe=recipe), run(compiled, x, torch.compile(compiled, fullgraph=True, backend="aot_eager"), recipe=recipe)
        assert same(want, got)

    def test_context_inside_the_graph(self):
        torch._dynamo.reset()
        net, x = model(), torch.randn(32, 48)

        def step(x):
            with fp4.autocast(recipe=NEAREST):
                return net(x).relu() + net(x)

        got = torch.compile(step, fullgraph=True, backend="aot_eager")(x)
        assert torch.equal(got, step(x))

    def test_a_recipe_change_compiles_again(self):
        torch._dynamo.reset()
        net, x = model(), torch.randn(32, 48)
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        for recipe in (NEAREST, fp4.MXFP4BlockScaling(), NEAREST):
            with fp4.autocast(recipe=recipe), torch.no_grad():
                assert torch.equal(compiled(x), net(x))
        assert torch.equal(compiled(x), net(x))

    def test_few_graphs_for_many_sizes(self):
        torch._dynamo.reset()
        net = model()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(net, fullgraph=True, backend=counter)
        for tokens in (33, 1, 2, 7, 16, 31):
            x = torch.randn(tokens, 48)
            with fp4.autocast(recipe=NEAREST):
                y = compiled(x)
                y.sum().backward()
                assert torch.equal(y, net(x))
        assert counter.frame_count <= 3, counter.frame_count  # static, dynamic, and one token

    def test_main_grad_and_micro_batches(self):
        torch._dynamo.reset()
        x = torch.randn(32, 48)
        out = []
        for compile in (lambda f: f, lambda f: torch.compile(f, fullgraph=True, backend="aot_eager")):
            net = model(fuse_wgrad_accumulation=True)
            for layer in (net[0], net[2]):
                layer.weight.main_grad = torch.zeros_like(layer.weight)
            torch.manual_seed(3)
            step = compile(net)
            for micro in range(3):
                with fp4.autocast(is_first_microbatch=micro == 0):
                    step(x).square().sum().backward()
            out.append([net[0].weight.main_grad, net[2].weight.main_grad, net[0].bias.grad])
        assert same(*out) and out[0][0].abs().sum() > 0


def test_training_goes_on_with_the_same_bits():
    x = torch.randn(32, 48)

    def train(net, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            with fp4.autocast():
                net(x).square().mean().backward()
            optimizer.step()

    net = fp4.keep_random_state_(model())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    train(net, optimizer, 3)
    saved = {k: v.clone() for k, v in net.state_dict().items()}, optimizer.state_dict()
    assert "nvfp4_random_state.cpu" in saved[0]
    import copy

    saved = copy.deepcopy(saved)
    train(net, optimizer, 3)
    other = fp4.keep_random_state_(model(seed=1))
    second = torch.optim.AdamW(other.parameters(), lr=1e-2)
    torch.rand(100)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    train(other, second, 3)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), other.parameters()))
    model().load_state_dict({k: v for k, v in saved[0].items() if "random" not in k})


def test_no_two_calls_share_random_bits():
    layer, x = fp4.Linear(64, 64, bias=False), torch.randn(64, 64)
    grads = []
    for _ in range(2):
        layer.zero_grad()
        with fp4.autocast():
            layer(x).backward(torch.linspace(-1, 1, 64 * 64).view(64, 64))
        grads.append(layer.weight.grad.clone())
    assert not torch.equal(*grads)


@pytest.fixture
def alone(tmp_path):
    """A group of this process only."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_amax_reduction_of_one_rank_changes_nothing(alone):
    net, x = model(), torch.randn(32, 48)
    want = run(net, x)

    def shared(x):
        with fp4.autocast(amax_reduction_group=alone):
            return net(x)

    assert same(run(net, x, shared), want)
    torch._dynamo.reset()
    assert same(run(net, x, torch.compile(shared, fullgraph=True, backend="aot_eager")), want)


