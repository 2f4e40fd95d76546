"""What a layer keeps from call to call: its weight's copies within a step, and amax of earlier steps (`DelayedScaling`)."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed._functional_collectives import all_reduce

Tensor = torch.Tensor


class QuantizedWeight:
    """The copies of a weight that a module keeps between the micro-batches of a step."""

    __slots__ = ("recipe", "version", "row", "col")

    def __init__(self, recipe: str, version: int, row: Tensor, col: Tensor | None) -> None:
        self.recipe, self.version, self.row, self.col = recipe, version, row, col


class History:
    """Amax of the activation and the gradient, rowwise and columnwise copy, of earlier steps.

    Attributes:
        steps: f32 [length, 2, 2], the latest first; 0 where there was no step yet.
        seen: f32 [2, 2], the largest of the step under way.
        given: f32 [2, 2], what the step under way is quantized with; 0: with its own.
    """

    def __init__(self, steps: Tensor, seen: Tensor) -> None:
        self.steps, self.seen = steps, seen
        self.given = torch.zeros_like(seen)

    @staticmethod
    def empty(length: int, device: torch.device) -> History:
        """One without steps."""
        return History(torch.zeros(length, 2, 2, device=device), torch.zeros(2, 2, device=device))

    def roll(self, group: str, margin: int, most_recent: bool) -> None:
        """A step is over: note its amax, and what the next one is quantized with."""
        seen = all_reduce(self.seen, "max", group) if group else self.seen
        # A step without a tensor (0) or with an infinite one is not one to go by.
        last = torch.where((seen > 0) & seen.isfinite(), seen, self.steps[0])
        self.steps.copy_(torch.cat([last.unsqueeze(0), self.steps[:-1]]))
        self.given.copy_((last if most_recent else self.steps.amax(0)) * 2.0**margin)
        self.seen.zero_()

    def to(self, device: torch.device) -> History:
        """The same elsewhere."""
        moved = History(self.steps.to(device), self.seen.to(device))
        moved.given = self.given.to(device)
        return moved


class Slot:
    """The state of one weight of a module."""

    __slots__ = ("kept", "history")

    def __init__(self) -> None:
        self.kept: QuantizedWeight | None = None
        self.history: History | None = None

    def __reduce__(self) -> Any:
        return _slot, (self.history,)  # the weight is quantized again when it is needed

    def __deepcopy__(self, memo: Any) -> Slot:
        history = None
        if self.history is not None:
            history = History(self.history.steps.clone(), self.history.seen.clone())
            history.given = self.history.given.clone()
        return _slot(history)


def _slot(history: History | None) -> Slot:
    slot = Slot()
    slot.history = history
    return slot
