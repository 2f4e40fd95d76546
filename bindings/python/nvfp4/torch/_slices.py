"""Slices of a matrix that several ranks hold: quantized under one amax, at their place in the whole, so that their bytes are
the whole's; and gathered as bytes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .._errors import ArgumentError
from . import _calls
from ._raw import Copy, layout

Tensor = torch.Tensor


def check(copy: Copy, what: str) -> None:
    """Raises for options with which a slice's bytes would not be the whole's."""
    o = copy.options
    if copy.has_amax and o.domain != "tensor":
        raise ArgumentError(f"{what}: domain is {o.domain}; slices of one matrix share one amax (domain 'tensor')")
    if o.scale_layout != "linear":
        raise ArgumentError(f"{what}: scale_layout is {o.scale_layout!r}; scales are gathered in the linear layout")


def quantize(
    x: Tensor, row: Copy | None, col: Copy | None, seed: Tensor | None, origin: tuple[int, int], group: Any, nonfinite: int
) -> tuple[Tensor | None, Tensor | None]:
    """Both copies of a slice whose first element is at `origin` of the whole; its amax is reduced over a group, if there is one."""
    given: list[Tensor | None] = [None, None]
    if group is not None and any(c is not None and c.has_amax for c in (row, col)):
        found = _calls.amax(x, row, col, nonfinite)
        both = torch.cat([x.new_zeros(1, dtype=torch.float32) if f is None or not f.numel() else f for f in found])
        dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
        given = [both[:1], both[1:]]
    return _calls.quantize(x, row, col, seed, given[0], given[1], origin, nonfinite)


def gather(data: Tensor, copy: Copy, rows: int, cols: int, transposed: bool, axis: int, group: Any) -> Tensor:
    """The copy of a whole matrix, of which each rank has an equal slice [rows, cols] along an axis (0: rows), in the order of
    the ranks."""
    n = dist.get_world_size(group)
    mine = layout(copy, rows, cols, transposed)
    whole = layout(copy, rows * n, cols, transposed) if axis == 0 else layout(copy, rows, cols * n, transposed)
    out = whole.empty(data)
    along_rows = (axis == 0) != transposed
    for part, target in zip(mine.views(data)[:2], whole.views(out)[:2]):
        if not part.numel():
            continue
        if along_rows:
            dist.all_gather_into_tensor(target, part.contiguous(), group=group)
        else:
            parts = part.new_empty(n * part.numel())
            dist.all_gather_into_tensor(parts, part.contiguous(), group=group)
            target.view(mine.rows, n, -1).copy_(parts.view(n, mine.rows, -1).transpose(0, 1))
    amax = whole.views(out)[2]
    if amax.numel():
        amax.copy_(mine.views(data)[2])
    return out
