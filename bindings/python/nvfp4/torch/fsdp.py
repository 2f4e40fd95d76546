"""FSDP2 that gathers weights in 4 bits: `prepare_fsdp(model)`, then `fully_shard` as ever (see _gathered.py)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ._gathered import TILE, ShardedWeight, local_amax
from .convert import Filter
from .module import Linear


def prepare_fsdp(model: nn.Module, filter: Filter | None = None) -> list[str]:
    """Marks the weights of the model's 4-bit linear layers for gathering in 4 bits; call it before `fully_shard`.

    Args:
        model: its layers are `Linear` already (`convert_`); they run inside autocast with a recipe whose weights are NVFP4 in
            16x16 tiles, rounded to nearest (`NVFP4BlockScaling()`).
        filter: (name, layer) -> bool; None takes every layer whose weight has a multiple of 16 rows.

    Returns:
        Names of the layers that were marked.

    A layer's rows over the number of ranks must be a multiple of 16. Weights of other layers are gathered as FSDP2 does.
    """
    names = []
    for name, module in model.named_modules():
        if not isinstance(module, Linear) or module.weight.shape[0] % TILE:
            continue
        if filter is not None and not filter(name, module):
            continue
        weight = module.weight
        module.weight = nn.Parameter(ShardedWeight(weight.detach()), requires_grad=weight.requires_grad)
        names.append(name)
    return names


@torch.no_grad()
def reduce_amax(model: nn.Module) -> int:
    """One all-reduce for the amax of all marked weights; call it after `optimizer.step()`.

    Without it each weight is reduced by itself when it is gathered. An amax is not used once its weight has changed.

    Returns:
        The number of weights.
    """
    groups: dict[Any, list[ShardedWeight]] = {}
    for parameter in model.parameters():
        local = getattr(parameter, "_local_tensor", None)
        if isinstance(local, ShardedWeight):
            groups.setdefault(parameter.device_mesh, []).append(local)  # type: ignore[attr-defined]
    for mesh, weights in groups.items():
        values = torch.cat([local_amax(w._plain) for w in weights])
        dist.all_reduce(values, dist.ReduceOp.MAX, group=mesh.get_group())
        for weight, value in zip(weights, values.split(1)):
            weight._reduced = (weight._plain._version, value)
    return sum(map(len, groups.values()))
