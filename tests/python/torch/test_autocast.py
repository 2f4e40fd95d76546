"""Where layers run in 4 bits: nesting, threads, recipes, histories."""

import pickle
import threading

import pytest
import torch
import torch.nn.functional as F

import nvfp4
import nvfp4.torch as fp4

NEAREST = fp4.NVFP4BlockScaling(disable_stochastic_rounding=True)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return fp4.Linear(32, 48)


X = torch.linspace(-2, 2, 16 * 32).view(16, 32).sin() * torch.linspace(1, 3, 32)


def plain(layer, x=X):
    return F.linear(x, layer.weight, layer.bias)


def test_off_by_default(layer):
    assert torch.equal(layer(X), plain(layer))
    with fp4.autocast(enabled=False):
        assert torch.equal(layer(X), plain(layer))


def test_nested_and_left_by_an_exception(layer):
    nv, mx = fp4.linear(X, layer.weight, layer.bias, NEAREST), fp4.linear(X, layer.weight, layer.bias, fp4.MXFP4BlockScaling())
    assert not torch.equal(nv, mx)
    with fp4.autocast(recipe=NEAREST):
        assert torch.equal(layer(X), nv)
        with pytest.raises(KeyError):
            with fp4.autocast(recipe=fp4.MXFP4BlockScaling()):
                assert torch.equal(layer(X), mx)
                raise KeyError
        assert torch.equal(layer(X), nv)
        with fp4.autocast(enabled=False):
            assert torch.equal(layer(X), plain(layer))
        assert torch.equal(layer(X), nv)
    assert torch.equal(layer(X), plain(layer))


def test_one_object_entered_again(layer):
    context = fp4.autocast(recipe=NEAREST)
    with context:
        first = layer(X)
        with context:
            assert torch.equal(layer(X), first)
        assert torch.equal(layer(X), first)
    assert torch.equal(layer(X), plain(layer))


def test_another_thread_is_not_in_it(layer):
    seen = []
    with fp4.autocast(recipe=NEAREST):
        thread = threading.Thread(target=lambda: seen.append(layer(X)))
        thread.start()
        thread.join()
        assert not torch.equal(layer(X), plain(layer))
    assert torch.equal(seen[0], plain(layer))


def test_a_layers_own_recipe_comes_first(layer):
    layer.recipe = fp4.MXFP4BlockScaling()
    with fp4.autocast(recipe=NEAREST):
        assert torch.equal(layer(X), fp4.linear(X, layer.weight, layer.bias, fp4.MXFP4BlockScaling()))
    layer.quantize = False
    with fp4.autocast(recipe=NEAREST):
        assert torch.equal(layer(X), plain(layer))


def test_backward_uses_the_recipe_of_its_forward(layer):
    with fp4.autocast(recipe=NEAREST):
        y = layer(X)
    with fp4.autocast(recipe=fp4.MXFP4BlockScaling(disable_stochastic_rounding=True)):
        y.sum().backward()
    w = layer.weight.detach().clone().requires_grad_()
    fp4.linear(X, w, layer.bias, NEAREST).sum().backward()
    assert torch.equal(layer.weight.grad, w.grad)


def test_older_spelling(layer):
    want = fp4.linear(X, layer.weight, layer.bias, fp4.NVFP4BlockScaling())
    with fp4.fp4_autocast(enabled=True, fp4_recipe=fp4.Format.NV_FP4):
        assert torch.equal(layer(X), want)
    with fp4.fp4_autocast(enabled=True, fp4_recipe=NEAREST):
        assert torch.equal(layer(X), want)
    with fp4.fp4_autocast(enabled=True, fp4_recipe=fp4.Format.MX_FP4):
        assert torch.equal(layer(X), fp4.linear(X, layer.weight, layer.bias, fp4.MXFP4BlockScaling()))
    with pytest.raises(ValueError, match="E4M3"):
        fp4.fp4_autocast(fp4_recipe=fp4.Format.E4M3)


def test_recipe_options_reach_the_copies():
    p = fp4.NVFP4BlockScaling(
        disable_rht=True, disable_stochastic_rounding=True, disable_2d_quantization=True, row_scaled_activation=True,
        nvfp4_4over6="weights", nvfp4_4over6_err_mode="MSE", accumulate="block",
    ).prepared  # fmt: skip
    assert p.recipe.activation_columnwise.hadamard == 0 and p.recipe.gradient_columnwise.rounding == "nearest"
    assert p.recipe.weight_rowwise.block == "1x16" and p.recipe.activation_rowwise.domain == 1
    assert (p.recipe.weight_rowwise.select, p.recipe.weight_rowwise.c) == ("4over6_mse", 1536.0)
    assert p.recipe.activation_rowwise.select == "single" and p.recipe.accumulate == "block" and not p.draws
    default = fp4.NVFP4BlockScaling().prepared
    assert default.recipe == nvfp4.recipe("nvfp4") and default.draws
    mx = fp4.MXFP4BlockScaling(scale_rule="even", hadamard=32).prepared.recipe
    assert mx.activation_rowwise.scale_rule == "even" and mx.gradient_columnwise.hadamard == 32 and mx.activation_columnwise.scale_rule == "even"
    assert fp4.MXFP4BlockScaling().prepared.recipe == nvfp4.recipe("mxfp4")
    assert pickle.loads(pickle.dumps(NEAREST)) == NEAREST and hash(NEAREST) == hash(fp4.NVFP4BlockScaling(False, True))


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: fp4.NVFP4BlockScaling(fp8_dpa=True), "fp8_dpa"),
        (lambda: fp4.NVFP4BlockScaling(fp8_mha=True), "fp8_mha"),
        (lambda: fp4.NVFP4BlockScaling(fp4_format=fp4.Format.MX_FP4), "fp4_format"),
        (lambda: fp4.NVFP4BlockScaling(nvfp4_4over6="both"), "'both'"),
        (lambda: fp4.NVFP4BlockScaling(backward_override="bf16"), "'bf16'"),
        (lambda: fp4.NVFP4BlockScaling(forward_override="high_precision", backward_override="dequantized"), "forward_override"),
        (lambda: fp4.MXFP4BlockScaling(scale_rule="up"), "'up'"),
        (lambda: fp4.DelayedScaling(amax_history_len=0), "0"),
        (lambda: fp4.DelayedScaling(fp8_format=fp4.Format.E4M3), "fp8_format"),
        (lambda: fp4.Custom("nvfp5"), "nvfp5"),
        (lambda: fp4.autocast(recipe="nvfp4"), "str"),
        (lambda: fp4.Linear(4, 4, recipe="nvfp4"), "str"),
    ],
)
def test_what_is_not_there_is_named(make, part):
    with pytest.raises((nvfp4.Error, ValueError)) as caught:
        make()
    assert part in str(caught.value)


def test_availability():
    assert fp4.is_available(device="cpu") is True
    works, how = fp4.is_available(return_reason=True, device="cpu")
    assert works and "CPU" in how
    if not torch.cuda.is_available():
        works, why = fp4.is_available(return_reason=True, device="cuda:0")
        assert not works and len(why) > 10


class TestDelayedScaling:
    RECIPE = fp4.DelayedScaling(amax_history_len=3, base=NEAREST)

    def step(self, layer, x, recipe=None):
        with fp4.autocast(recipe=recipe or self.RECIPE):
            return layer(x)

    def test_first_step_uses_its_own_amax(self, layer):
        y = self.step(layer, X)
        assert torch.equal(y, fp4.linear(X, layer.weight, layer.bias, NEAREST))
        y.sum().backward()
        w = layer.weight.detach().clone().requires_grad_()
        fp4.linear(X, w, layer.bias, NEAREST).sum().backward()
        assert torch.equal(layer.weight.grad, w.grad)

    def test_later_steps_look_back(self, layer):
        with torch.no_grad():
            self.step(layer, 3 * X)
            y = self.step(layer, X)
        amax = (3 * X).abs().max()
        q = fp4.quantize(X, amax=amax.reshape(1))
        w = fp4.quantize(layer.weight.detach(), {"block": "16x16"})
        assert torch.equal(y, fp4.gemm(q, w, out_dtype=torch.float32, bias=layer.bias.detach()))
        assert not torch.equal(y, fp4.linear(X, layer.weight, layer.bias, NEAREST).detach())
        history = layer.slots["weight"].history
        assert history.given[0, 0] == amax
        with torch.no_grad():
            for _ in range(3):
                self.step(layer, X)
        assert history.given[0, 0] == X.abs().max()  # the large one is out of the window of 3

    def test_most_recent_and_margin(self, layer):
        recipe = fp4.DelayedScaling(margin=1, amax_history_len=4, amax_compute_algo="most_recent", base=NEAREST)
        with torch.no_grad():
            self.step(layer, 3 * X, recipe)
            self.step(layer, X, recipe)
            self.step(layer, X, recipe)
        assert layer.slots["weight"].history.given[0, 0] == 2 * X.abs().max()

    def test_gradient_history(self, layer):
        for scale in (8.0, 1.0):
            self.step(layer, X).backward(scale * torch.ones(16, 48))
        self.step(layer, X)
        assert layer.slots["weight"].history.given[1, 0] == 8.0

    def test_calibrating_without_quantizing(self, layer):
        with fp4.autocast(enabled=False, calibrating=True, recipe=self.RECIPE):
            assert torch.equal(layer(2 * X), plain(layer, 2 * X))
        with torch.no_grad():
            self.step(layer, X)
        assert layer.slots["weight"].history.given[0, 0] == (2 * X).abs().max()

    def test_history_is_in_the_state_dict(self, layer):
        with torch.no_grad():
            self.step(layer, 3 * X)
        other = fp4.Linear(32, 48)
        other.load_state_dict(layer.state_dict())
        assert torch.equal(self.step(other, X), self.step(layer, X))
        plain_layer = torch.nn.Linear(32, 48)
        other.load_state_dict(plain_layer.state_dict())

    def test_an_infinite_amax_is_not_remembered(self, layer):
        bad = X.clone()
        bad[0, 0] = float("inf")
        with torch.no_grad():
            self.step(layer, X)
            self.step(layer, bad)
            y = self.step(layer, X)
        assert y.isfinite().all() and layer.slots["weight"].history.given[0, 0].isfinite()
