"""What a linear layer's recipe is to the operators: a text, and the six copies, prepared once a text."""

from __future__ import annotations

import functools
import json
from typing import Any

from .. import _names
from .._errors import ArgumentError
from .._linear import Recipe, recipe as named_recipe
from . import _raw

BACKWARD = ("quantized", "high_precision", "dequantized")
FORWARD = ("quantized", "high_precision")


class Prepared:
    """The copies of each operand and how products are added up."""

    def __init__(self, text: str, recipe: Recipe, forward: str, backward: str) -> None:
        def copy(name: str) -> _raw.Copy:
            return _raw.copy_of(_raw.text_of(getattr(recipe, name)))

        self.text = text
        self.recipe = recipe
        self.forward, self.backward = forward, backward
        self.x_row, self.x_col = copy("activation_rowwise"), copy("activation_columnwise")
        self.w_row, self.w_col = copy("weight_rowwise"), copy("weight_columnwise")
        self.g_row, self.g_col = copy("gradient_rowwise"), copy("gradient_columnwise")
        self.accumulate = _names.number(_names.ACCUMULATE, recipe.accumulate, "accumulate")
        self.nonfinite = _names.number(_names.NONFINITE, recipe.nonfinite, "nonfinite")
        self.draws_weight = self.w_row.stochastic or self.w_col.stochastic
        self.draws_forward = self.x_row.stochastic or self.x_col.stochastic
        self.draws_backward = backward == "quantized" and (self.g_row.stochastic or self.g_col.stochastic)
        self.draws = self.draws_forward or self.draws_weight or self.draws_backward


def text(name: str, overrides: dict[str, Any], forward: str = "quantized", backward: str = "quantized") -> str:
    """A recipe as the text that operators take."""
    for value, legal, what in ((forward, FORWARD, "forward_override"), (backward, BACKWARD, "backward_override")):
        if value not in legal:
            raise ArgumentError(f"{what} is {value!r}; it is None or one of " + ", ".join(map(repr, legal[1:])))
    if forward != "quantized" and backward == "dequantized":
        raise ArgumentError("backward_override 'dequantized' takes the operands of a quantized forward pass; forward_override is given too")
    return json.dumps([name, overrides, forward, backward], sort_keys=True)


@functools.lru_cache(maxsize=1024)
def prepared(text: str) -> Prepared:
    """The recipe that a text names."""
    name, overrides, forward, backward = json.loads(text)
    return Prepared(text, named_recipe(name, **overrides), forward, backward)
