"""Which numerics a run uses, and in which layers."""

import contextlib

import fakequant
from torch import nn

RECIPES = ("bf16", "nvfp4", "nvfp4_no_rht", "nvfp4_no_sr", "mxfp4", "fakequant")
LAYERS = ("mlp", "all", "all_but_last4")


def chosen(layers, blocks):
    """A test of module names: the linear layers that a run quantizes. The head and the embedding never are.

    mlp: gate, up and down of every block. all: the attention projections too. all_but_last4: all, but not in the last
    four blocks.
    """

    def quantized(name):
        parts = name.split(".")
        if parts[0] != "blocks":
            return False
        if layers == "mlp":
            return "mlp" in parts
        return layers == "all" or int(parts[1]) < blocks - 4

    return quantized


def apply(model, recipe, layers):
    """Swaps the chosen nn.Linear modules for quantized ones; the context that the forward pass runs under."""
    if recipe == "bf16":
        return contextlib.nullcontext
    test = chosen(layers, len(model.blocks))
    if recipe == "fakequant":
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.Linear) and test(name):
                parent, _, child = name.rpartition(".")
                setattr(model.get_submodule(parent), child, fakequant.FakeQuantLinear(module))
        return contextlib.nullcontext
    import nvfp4.torch as fp4

    fp4.convert_(model, lambda name, module: isinstance(module, nn.Linear) and test(name))
    numerics = {
        "nvfp4": fp4.NVFP4BlockScaling(),
        "nvfp4_no_rht": fp4.NVFP4BlockScaling(disable_rht=True),
        "nvfp4_no_sr": fp4.NVFP4BlockScaling(disable_stochastic_rounding=True),
        "mxfp4": fp4.MXFP4BlockScaling(),
    }[recipe]
    return lambda: fp4.autocast(enabled=True, recipe=numerics)
