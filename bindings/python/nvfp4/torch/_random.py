"""The random state of stochastic rounding in a model's state_dict."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_KEY = "nvfp4_random_state"


def keep_random_state_(model: nn.Module) -> nn.Module:
    """Let the model's state_dict carry the states of PyTorch's generators, from which stochastic rounding draws, and
    load_state_dict set them: training goes on with the very bits that it would have had.

    Entries: `nvfp4_random_state.cpu`, and `.cuda` for the current GPU. A state_dict without them still loads. Returns the model.
    """

    def save(module: nn.Module, state_dict: dict[str, Any], prefix: str, _: Any) -> None:
        state_dict[f"{prefix}{_KEY}.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            state_dict[f"{prefix}{_KEY}.cuda"] = torch.cuda.get_rng_state()

    def load(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        cpu = state_dict.pop(f"{prefix}{_KEY}.cpu", None)
        if cpu is not None:
            torch.set_rng_state(cpu.cpu())
        cuda = state_dict.pop(f"{prefix}{_KEY}.cuda", None)
        if cuda is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(cuda.cpu())

    model.register_state_dict_post_hook(save)
    model.register_load_state_dict_pre_hook(load)
    return model
