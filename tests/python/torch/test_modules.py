"""Modules: TransformerEngine's names and arguments, parameters as PyTorch's, groups, frozen weights, conversion."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nvfp4
import nvfp4.torch as fp4

NEAREST = fp4.NVFP4BlockScaling(disable_stochastic_rounding=True)


def quantized(call, recipe=NEAREST, **options):
    with fp4.autocast(recipe=recipe, **options):
        return call()


def test_linear_is_torchs_outside_autocast():
    ours, theirs = fp4.Linear(24, 40), nn.Linear(24, 40)
    theirs.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == ["weight", "bias"]
    x = torch.randn(2, 3, 24)
    assert torch.equal(ours(x), theirs(x))
    ours.load_state_dict(nn.Linear(24, 40).state_dict())
    torch.manual_seed(4)
    a = fp4.Linear(24, 40)
    torch.manual_seed(4)
    b = nn.Linear(24, 40)
    assert torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias)


def test_arguments():
    layer = fp4.Linear(32, 16, params_dtype=torch.bfloat16, return_bias=True, init_method=nn.init.ones_, name="proj")
    assert layer.weight.dtype == torch.bfloat16 and torch.equal(layer.weight, torch.ones_like(layer.weight))
    y, b = layer(torch.ones(2, 32, dtype=torch.bfloat16))
    assert b is layer.bias and torch.equal(y, torch.full((2, 16), 32.0, dtype=torch.bfloat16))
    assert fp4.Linear(8, 8, bias=False).bias is None
    assert fp4.Linear(8, 8, tp_size=1, sequence_parallel=False, ub_overlap_ag=False).in_features == 8
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        fp4.Linear(8, 8, colour=1)
    for name, value in (("parallel_mode", "column"), ("tp_size", 2), ("ub_overlap_ag", True), ("delay_wgrad_compute", True)):
        with pytest.raises(nvfp4.Error, match=name):
            fp4.Linear(8, 8, **{name: value})
    with pytest.raises(ValueError, match="31 features"):
        quantized(lambda: fp4.Linear(32, 8)(torch.zeros(2, 31)))


@pytest.mark.parametrize("normalization", ["LayerNorm", "RMSNorm"])
def test_layernorm_linear(normalization):
    layer = fp4.LayerNormLinear(48, 32, normalization=normalization, return_layernorm_output=True)
    with torch.no_grad():
        layer.layer_norm_weight.uniform_(0.5, 2)
    x = torch.randn(4, 6, 48, requires_grad=True)
    norm = F.layer_norm(x, (48,), layer.layer_norm_weight, layer.layer_norm_bias, 1e-5) if normalization == "LayerNorm" else F.rms_norm(
        x, (48,), layer.layer_norm_weight, 1e-5)  # fmt: skip
    y, out = quantized(lambda: layer(x))
    assert torch.equal(out, norm) and torch.equal(y, fp4.linear(norm, layer.weight, layer.bias, NEAREST))
    y.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
    names = {"layer_norm_weight", "weight", "bias"} | ({"layer_norm_bias"} if normalization == "LayerNorm" else set())
    assert set(layer.state_dict()) == names
    with pytest.raises(ValueError, match="'BatchNorm'"):
        fp4.LayerNormLinear(8, 8, normalization="BatchNorm")


@pytest.mark.parametrize("activation", ["gelu", "relu", "silu", "srelu", "geglu", "reglu", "swiglu", "sreglu"])
def test_layernorm_mlp(activation):
    layer = fp4.LayerNormMLP(32, 64, activation=activation, normalization="RMSNorm")
    x = torch.randn(10, 32, requires_grad=True)
    gated = activation.endswith("glu")
    assert layer.fc1_weight.shape == (128 if gated else 64, 32) and layer.fc2_weight.shape == (32, 64)
    h = fp4.linear(F.rms_norm(x, (32,), layer.layer_norm_weight, 1e-5), layer.fc1_weight, layer.fc1_bias, NEAREST)
    function = {"g": lambda t: F.gelu(t, approximate="tanh"), "r": F.relu, "s": F.silu}[activation[0]]
    if activation.startswith("sr"):
        function = lambda t: F.relu(t) ** 2  # noqa: E731
    h = function(h.chunk(2, -1)[0]) * h.chunk(2, -1)[1] if gated else function(h)
    y = quantized(lambda: layer(x))
    torch.testing.assert_close(y, fp4.linear(h, layer.fc2_weight, layer.fc2_bias, NEAREST), rtol=0, atol=2e-3)
    y.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    with pytest.raises(ValueError, match="'tanh'"):
        fp4.LayerNormMLP(8, 8, activation="tanh")


class TestGrouped:
    SPLITS = [30, 0, 47]

    @pytest.mark.parametrize("recipe", [NEAREST, fp4.MXFP4BlockScaling(disable_stochastic_rounding=True)], ids=["nvfp4", "mxfp4"])
    def test_equals_a_linear_layer_a_group(self, recipe):
        layer = fp4.GroupedLinear(3, 64, 80)
        x = torch.randn(77, 64, requires_grad=True)
        y = quantized(lambda: layer(x, self.SPLITS), recipe)
        dy = torch.randn_like(y)
        y.backward(dy)
        start = 0
        for g, count in enumerate(self.SPLITS):
            rows = slice(start, start + count)
            start += count
            if not count:
                assert not layer.weight.grad[g].any() and not layer.bias.grad[g].any()
                continue
            xs, w, b = (t.detach().clone().requires_grad_() for t in (x[rows], layer.weight[g], layer.bias[g]))
            ys = fp4.linear(xs, w, b, recipe)
            ys.backward(dy[rows])
            assert torch.equal(y[rows], ys) and torch.equal(x.grad[rows], xs.grad) and torch.equal(layer.weight.grad[g], w.grad)
            torch.testing.assert_close(layer.bias.grad[g], b.grad)

    def test_splits_on_the_device(self):
        layer = fp4.GroupedLinear(3, 32, 48)
        x = torch.randn(80, 32)
        y = quantized(lambda: layer(x, torch.tensor(self.SPLITS)))
        assert torch.equal(y[:77], quantized(lambda: layer(x[:77], self.SPLITS))) and not y[77:].any()
        assert torch.equal(layer(x, torch.tensor(self.SPLITS))[:77], layer(x[:77], self.SPLITS))

    def test_bad_splits(self):
        layer = fp4.GroupedLinear(3, 32, 48)
        for splits in ([1, 2], [10, 10, 10], [-1, 5, 16]):
            with pytest.raises(ValueError, match="m_splits"):
                layer(torch.zeros(20, 32), splits)
        with pytest.raises(ValueError, match="int32"):
            layer(torch.zeros(20, 32), torch.tensor([5, 5, 10], dtype=torch.int32))

    def test_checkpoint_with_a_weight_a_group(self):
        layer = fp4.GroupedLinear(2, 16, 32)
        state = {f"weight{g}": torch.randn(32, 16) for g in range(2)} | {f"bias{g}": torch.randn(32) for g in range(2)}
        layer.load_state_dict(state)
        assert torch.equal(layer.weight[1], state["weight1"]) and torch.equal(layer.bias[0], state["bias0"])


def test_move_copy_save():
    layer = fp4.Linear(32, 48)
    x = torch.randn(16, 32)
    want = quantized(lambda: layer(x), is_first_microbatch=True)
    assert layer.slots["weight"].kept is not None
    other = copy.deepcopy(layer)
    assert other.slots["weight"].kept is None and torch.equal(quantized(lambda: other(x)), want)
    with torch.no_grad():
        other.weight.zero_()
    assert torch.equal(quantized(lambda: layer(x)), want)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.equal(quantized(lambda: torch.load(file, weights_only=False)(x)), want)
    layer.to(torch.bfloat16)
    assert layer.slots["weight"].kept is None and quantized(lambda: layer(x.bfloat16())).dtype == torch.bfloat16
    layer.to(torch.float64)
    with pytest.raises(TypeError, match="float64"):
        quantized(lambda: layer(x.double()))


class TestConvert:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.ModuleDict({"q": nn.Linear(16, 16), "o": nn.Linear(16, 16)})
            self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

        def forward(self, x):
            return x + self.mlp(self.attn["o"](self.attn["q"](x)))

    def model(self):
        torch.manual_seed(0)
        model = nn.Sequential()
        model.blocks = nn.Sequential(*(self.Block() for _ in range(4)))
        model.lm_head = nn.Linear(16, 8)
        return model

    def names(self, filter):
        model = fp4.convert_(self.model(), filter)
        return {n for n, m in model.named_modules() if isinstance(m, fp4.Linear)}

    def test_policies(self):
        model = self.model()
        every = {n for n, m in model.named_modules() if isinstance(m, nn.Linear)}
        assert self.names(None) == every - {"lm_head"} and self.names(lambda *_: True) == every
        assert self.names(fp4.mlp_only()) == {n for n in every if "mlp" in n}
        middle = self.names(fp4.all_of(fp4.skip_blocks(model, first=1, last=2), fp4.skip_head()))
        assert middle == {n for n in every if n.startswith("blocks.1.")}
        with pytest.raises(ValueError, match="number"):
            fp4.skip_blocks(nn.ModuleDict({"a": nn.Linear(2, 2)}))

    def test_parameters_keep_their_identity(self):
        model = self.model()
        model.blocks[1].attn["o"] = model.blocks[1].attn["q"]  # one layer in two places
        model.blocks[2].mlp[0].weight = model.blocks[3].mlp[0].weight  # tied weights
        before, x = dict(model.named_parameters()), torch.randn(5, 16)
        want, state = model(x), list(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        calls = []
        model.blocks[0].mlp[0].register_forward_hook(lambda *_: calls.append(1))
        model.eval()
        assert fp4.convert_(model) is model
        assert dict(model.named_parameters()).keys() == before.keys() and all(before[n] is p for n, p in model.named_parameters())
        assert list(model.state_dict()) == state and torch.equal(model(x), want) and calls == [1]
        assert model.blocks[1].attn["o"] is model.blocks[1].attn["q"] and not model.blocks[0].mlp[0].training
        with fp4.autocast():
            model(x).sum().backward()
        optimizer.step()
        assert not torch.equal(model(x), want)

    def test_subclasses_are_left_alone(self):
        class Special(nn.Linear):
            pass

        assert not self.names(lambda *_: False)
        model = nn.Sequential(Special(4, 4))
        fp4.convert_(model, lambda *_: True)
        assert type(model[0]) is Special
        assert isinstance(fp4.convert_(nn.Linear(4, 4)), fp4.Linear)


class TestFrozen:
    def test_same_bits_without_the_weight(self):
        layer = fp4.Linear(64, 96)
        x = torch.randn(20, 64, requires_grad=True)
        want = quantized(lambda: layer(x))
        dy = torch.randn_like(want)
        (dx,) = torch.autograd.grad(want, x, dy)
        frozen = fp4.FrozenLinear(layer.weight, layer.bias, NEAREST)
        got = frozen(x)
        assert torch.equal(got, want) and torch.equal(torch.autograd.grad(got, x, dy)[0], dx)
        assert not list(frozen.parameters())
        stored = sum(b.numel() * b.element_size() for n, b in frozen.named_buffers() if n != "bias")
        assert stored <= 1.15 * layer.weight.numel()
        torch.testing.assert_close(frozen.dequantized(), fp4.quantize(layer.weight.detach(), {"block": "16x16"}).dequantize())
        other = fp4.FrozenLinear(torch.zeros(96, 64), torch.zeros(96), NEAREST)
        other.load_state_dict(frozen.state_dict())
        assert torch.equal(other(x), want)

    def test_adapters_learn(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))
        fp4.freeze_(model, lora_rank=4)
        trained = [n for n, p in model.named_parameters() if p.requires_grad]
        assert trained == ["0.lora_a", "0.lora_b", "2.lora_a", "2.lora_b"]
        x, target = torch.randn(64, 32), torch.randn(64, 16)
        base = {n: b.clone() for n, b in model.named_buffers()}
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0]
        assert all(torch.equal(base[n], b) for n, b in model.named_buffers())

    def test_frozen_weight_of_a_linear_layer(self):
        layer = fp4.Linear(32, 48).requires_grad_(False)
        x = torch.randn(8, 32, requires_grad=True)
        quantized(lambda: layer(x)).sum().backward()
        assert x.grad.abs().sum() > 0 and layer.weight.grad is None
