"""Where layers run in 4 bits, and by which recipe: `autocast`, a context of the thread that is in it."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .._errors import ArgumentError, Error
from .recipe import Format, MXFP4BlockScaling, NVFP4BlockScaling, Recipe


class State:
    """What `autocast` says to the layers within it."""

    __slots__ = ("enabled", "calibrating", "recipe", "group", "is_first_microbatch")

    def __init__(self, enabled: bool, calibrating: bool, recipe: Recipe | None, group: str, is_first_microbatch: bool | None) -> None:
        self.enabled, self.calibrating, self.recipe, self.group = enabled, calibrating, recipe, group
        self.is_first_microbatch = is_first_microbatch


OFF = State(False, False, None, "", None)


class _Current(threading.local):
    def __init__(self) -> None:
        self.state = OFF


current = _Current()


class autocast:
    """Linear layers of this package within it run in 4 bits.

    May be nested (the inner one counts), entered again, and left by an exception. Another thread is not in it. A layer with
    a recipe of its own uses that one where autocast is enabled. The recipe of a backward pass is that of its forward pass, also
    where an activation checkpoint does the forward pass again, outside: a layer uses the autocast of its last forward pass then.

    Args:
        enabled: False: layers run as `torch.nn.Linear` does.
        calibrating: with enabled=False, amax histories (`DelayedScaling`) are kept all the same.
        recipe: None is `NVFP4BlockScaling()`.
        amax_reduction_group: a process group whose ranks share the amax of each tensor.
        is_first_microbatch: True: weights are quantized and kept; False: those are used, unless a weight has changed since;
            None: weights are quantized in each call. An argument of a layer's call comes first.
    """

    def __init__(
        self, enabled: bool = True, calibrating: bool = False, recipe: Recipe | None = None, amax_reduction_group: Any = None,
        *, is_first_microbatch: bool | None = None,
    ) -> None:  # fmt: skip
        if recipe is not None and not isinstance(recipe, Recipe):
            raise ArgumentError(f"recipe is a {type(recipe).__name__}; a recipe of nvfp4.torch is needed, such as NVFP4BlockScaling()")
        group = "" if amax_reduction_group is None else amax_reduction_group.group_name
        self._state = State(enabled, calibrating, recipe if recipe is not None else _DEFAULT, group, is_first_microbatch)
        self._outer: list[State] = []

    def __enter__(self) -> autocast:
        self._outer.append(current.state)
        current.state = self._state
        return self

    def __exit__(self, *_: Any) -> None:
        current.state = self._outer.pop()


_DEFAULT = NVFP4BlockScaling()


def fp4_autocast(
    enabled: bool = True, calibrating: bool = False, fp4_recipe: Recipe | Format | None = None, fp4_group: Any = None
) -> autocast:
    """The older spelling of `autocast`; a `Format` stands for its recipe."""
    if isinstance(fp4_recipe, Format):
        recipes: dict[Format, type[Recipe]] = {Format.NV_FP4: NVFP4BlockScaling, Format.E2M1: NVFP4BlockScaling, Format.MX_FP4: MXFP4BlockScaling}
        if fp4_recipe not in recipes:
            raise ArgumentError(f"fp4_recipe is {fp4_recipe}; Format.NV_FP4 or Format.MX_FP4 is needed, or a recipe")
        return autocast(enabled, calibrating, recipes[fp4_recipe](), fp4_group)
    return autocast(enabled, calibrating, fp4_recipe, fp4_group)


def is_available(return_reason: bool = False, device: torch.device | str | None = None) -> Any:
    """Whether 4-bit layers run there; with return_reason, (bool, why not or how: native FP4 units, emulation or CPU).

    Args:
        device: "cpu", "cuda" or a device; None is a GPU if there is one.
    """
    from . import _raw

    place = torch.device(device) if device is not None else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        _raw.context(place)
    except Error as error:
        return (False, str(error)) if return_reason else False
    if place.type == "cpu":
        how = "on the CPU"
    else:
        major, minor = torch.cuda.get_device_capability(place)
        how = f"on {torch.cuda.get_device_name(place)} (sm_{major}{minor}), " + (
            "with its FP4 units" if major >= 10 else "which has no FP4 units: the same numbers by bf16 products"
        )
    return (True, how) if return_reason else True
