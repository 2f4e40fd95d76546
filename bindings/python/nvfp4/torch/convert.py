"""Swap a model's linear layers for 4-bit ones, and the usual choices of which."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torch import nn

from .._errors import ArgumentError
from .module import Linear
from .recipe import Recipe

Filter = Callable[[str, nn.Module], bool]


def convert_(model: nn.Module, filter: Filter | None = None, *, recipe: Recipe | None = None) -> nn.Module:
    """Replace each `torch.nn.Linear` by a `Linear` with the very same parameters, in place.

    Parameters keep their identity: an optimizer made before still holds them, tied weights stay tied, names in a state_dict
    stay. Hooks on a replaced layer are carried over; its training flag too.

    Args:
        model: any module; returned. If it is a `torch.nn.Linear` itself, the new layer is returned instead.
        filter: (qualified name, layer) -> bool, for `torch.nn.Linear` layers only; None takes all but `lm_head`-like ones
            (`skip_head`).
        recipe: a recipe of these layers' own; None: autocast's.

    Subclasses of `torch.nn.Linear` are left alone: they compute something else.
    """
    chosen = filter if filter is not None else skip_head()
    if type(model) is nn.Linear:
        return _converted(model, recipe) if filter is None or filter("", model) else model
    swapped: dict[nn.Module, Linear] = {}  # a layer that sits in two places stays one
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) is nn.Linear and name and chosen(name, module):
            parent, _, child = name.rpartition(".")
            if module not in swapped:
                swapped[module] = _converted(module, recipe)
            setattr(model.get_submodule(parent), child, swapped[module])
    return model


def _converted(linear: nn.Linear, recipe: Recipe | None) -> Linear:
    if any(f is not None for f in (getattr(linear, "parametrizations", None),)):
        raise ArgumentError("a layer has parametrizations; remove them before it is converted")
    layer = Linear(linear.in_features, linear.out_features, linear.bias is not None, device="meta", recipe=recipe)
    layer.weight, layer.bias = linear.weight, linear.bias  # type: ignore[assignment]
    for attribute in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        getattr(layer, attribute).update(getattr(linear, attribute))
    return layer.train(linear.training)


_MLP = re.compile(r"(^|\.)(mlp|ffn|feed_forward|feedforward|fc1|fc2|gate_proj|up_proj|down_proj|w1|w2|w3)(\.|$)")
_HEAD = re.compile(r"(^|\.)(lm_head|head|output|output_layer|classifier|score|embed_out)$")
_BLOCK = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


def mlp_only() -> Filter:
    """Layers of feed-forward blocks, by the usual names: mlp, ffn, feed_forward, fc1, gate_proj, w1 and the like."""
    return lambda name, _: _MLP.search(name) is not None


def skip_head() -> Filter:
    """All but the output projection, by the usual names: lm_head, head, output, classifier and the like, at the end of a name."""
    return lambda name, _: _HEAD.search(name) is None


def skip_blocks(model: nn.Module, first: int = 0, last: int = 0) -> Filter:
    """All but those of the first and last blocks; a block's number is the first number in a layer's name.

    Layers whose name has no number are not in a block, and taken. Raises ArgumentError if no layer's name has one.
    """
    numbers = {int(m[1]) for name, module in model.named_modules() if isinstance(module, (nn.Linear, Linear)) and (m := _BLOCK.search(name))}
    if not numbers:
        raise ArgumentError("no linear layer of this model has a number in its name, so there are no blocks to skip")
    count = max(numbers) + 1

    def taken(name: str, _: Any) -> bool:
        match = _BLOCK.search(name)
        return match is None or first <= int(match[1]) < count - last

    return taken


def all_of(*filters: Filter) -> Filter:
    """Layers that every filter takes."""
    return lambda name, module: all(f(name, module) for f in filters)
