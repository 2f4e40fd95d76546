"""What a layer keeps from call to call: its weight's copies within a step, and amax of earlier steps (`DelayedScaling`)."""

from __future__ import annotations

from typing import Any

import torch

from ._linear import shared_max

Tensor = torch.Tensor


class QuantizedWeight:
    """The copies of a weight that a module keeps between the micro-batches of a step."""

    __slots__ = ("recipe", "version", "row", "col")

    def __init__(self, recipe: str, version: int, row: Tensor, col: Tensor | None) -> None:
        self.recipe, self.version, self.row, self.col = recipe, version, row, col


class History:
    """Amax of the activation and the gradient, rowwise and columnwise copy, of earlier forward passes and their backward ones.

    Attributes:
        steps: f32 [length, 2, 2], the latest first; 0 where there was no step yet.
        x_seen: f32 [2], of the latest forward pass, which writes it.
        g_seen: f32 [2], of the latest backward pass, which writes it. (A tensor that both wrote could not be in a compiled graph.)
        given: f32 [2, 2], what the latest forward pass and its backward pass are quantized with; 0: with their own.
    """

    def __init__(self, steps: Tensor, seen: Tensor) -> None:
        self.steps, self.x_seen, self.g_seen = steps, seen[0].clone(), seen[1].clone()
        self.given = torch.zeros_like(seen)

    @staticmethod
    def empty(length: int, device: torch.device) -> History:
        """One without steps."""
        return History(torch.zeros(length, 2, 2, device=device), torch.zeros(2, 2, device=device))

    def roll(self, group: str, margin: int, most_recent: bool) -> None:
        """Before a forward pass: note the last one's amax, and what this one is quantized with."""
        seen = torch.stack([self.x_seen, self.g_seen])
        seen = shared_max(seen, group) if group else seen
        # A step without a tensor (0) or with an infinite one is not one to go by.
        last = torch.where((seen > 0) & seen.isfinite(), seen, self.steps[0])
        self.steps.copy_(torch.cat([last.unsqueeze(0), self.steps[:-1]]))
        self.given.copy_((last if most_recent else self.steps.amax(0)) * 2.0**margin)

    def saved(self) -> Tensor:
        """f32 [length + 1, 2, 2]: what a checkpoint holds."""
        return torch.cat([torch.stack([self.x_seen, self.g_seen]).unsqueeze(0), self.steps])

    def to(self, device: torch.device) -> History:
        """A copy, there."""
        moved = History(self.steps.clone().to(device), torch.stack([self.x_seen, self.g_seen]).to(device))
        moved.given = self.given.clone().to(device)
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
        return _slot(None if self.history is None else self.history.to(self.history.steps.device))


def _slot(history: History | None) -> Slot:
    slot = Slot()
    slot.history = history
    return slot
