"""What the modules share: arguments that are not there, state, and one linear layer under the thread's autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .._errors import ArgumentError, Error
from . import _gathered, _linear, _ops
from ._autocast import OFF, State, current
from ._history import History, QuantizedWeight, Slot
from ._prepared import Prepared
from .recipe import DelayedScaling, Recipe

Tensor = torch.Tensor

# Arguments of TransformerEngine's that are understood and not offered, with the value that asks for nothing.
_NOT_THERE = {
    "get_rng_state_tracker": None, "rng_tracker_name": None, "parameters_split": None, "ub_name": None,
    "ub_overlap_ag": False, "ub_overlap_rs": False, "ub_overlap_rs_dgrad": False, "ub_bulk_dgrad": False, "ub_bulk_wgrad": False,
    "ub_overlap_ag_fprop": False, "ub_overlap_rs_fprop": False, "ub_overlap_ag_dgrad": False, "delay_wgrad_compute": False,
    "symmetric_ar_type": None, "save_original_input": False, "zero_centered_gamma": False, "seq_length": None,
    "micro_batch_size": None, "set_parallel_mode": False, "parallel_mode": None, "tp_group": None, "tp_size": 1,
    "sequence_parallel": False, "bias_gelu_nvfusion": False, "gemm_bias_unfused_add": False,
}  # fmt: skip


def refuse(module: str, options: dict[str, Any]) -> None:
    """Raises for arguments that this package does not have; those that ask for nothing pass."""
    for name, value in options.items():
        if name not in _NOT_THERE:
            raise TypeError(f"{module}() got an unexpected keyword argument {name!r}")
        if value != _NOT_THERE[name]:
            split = name in ("parallel_mode", "tp_group", "tp_size", "sequence_parallel")
            hint = "ColumnParallelLinear and RowParallelLinear are split over ranks" if split else f"leave it at {_NOT_THERE[name]!r}"
            raise Error(f"{module}({name}={value!r}) is not there; {hint}", 7, "NVFP4_ERR_NOT_SUPPORTED")


class Base(nn.Module):
    """A module with quantized weights.

    Attributes:
        recipe: a recipe of this module's own, used wherever autocast is enabled; None: autocast's.
        quantize: False leaves it in high precision always.
        fuse_wgrad_accumulation: dW is added to `main_grad` of the weight.
        slots: state of each weight.
        state: the autocast of its last forward pass.
    """

    weights: tuple[str, ...] = ("weight",)

    def __init__(self, recipe: Recipe | None, quantize: bool, fuse_wgrad_accumulation: bool, rest: dict[str, Any]) -> None:
        super().__init__()
        refuse(type(self).__name__, rest)
        if recipe is not None and not isinstance(recipe, Recipe):
            raise ArgumentError(f"recipe is a {type(recipe).__name__}; a recipe of nvfp4.torch is needed, such as NVFP4BlockScaling()")
        self.recipe, self.quantize, self.fuse_wgrad_accumulation = recipe, quantize, fuse_wgrad_accumulation
        self.slots = {name: Slot() for name in self.weights}
        self.state = OFF

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "state": OFF}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.state = OFF

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, slot in self.slots.items():
            if slot.history is not None:
                destination[f"{prefix}{name}_amax_history"] = slot.history.saved()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name, slot in self.slots.items():
            slot.kept = None
            saved = state_dict.pop(f"{prefix}{name}_amax_history", None)
            if saved is not None:
                device = getattr(self, name).device
                slot.history = History(saved[1:].clone().to(device), saved[0].to(device))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        for name, slot in self.slots.items():
            slot.kept = None
            if slot.history is not None:
                slot.history = slot.history.to(getattr(self, name).device)
        return self


def initialize(weight: Tensor, bias: Tensor | None, init_method: Callable[[Tensor], Any] | None) -> None:
    """Fill a linear layer's parameters as `torch.nn.Linear` does, or by a function of the weight."""
    if init_method is not None:
        init_method(weight)
        if bias is not None:
            nn.init.zeros_(bias)
        return
    nn.init.kaiming_uniform_(weight, a=5**0.5)
    if bias is not None:
        bound = weight.shape[1] ** -0.5 if weight.shape[1] else 0.0
        nn.init.uniform_(bias, -bound, bound)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype that PyTorch's own linear would compute in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def run(module: Base, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, is_first_microbatch: bool | None) -> Tensor:
    """y [..., out] = x W^T + bias by the weight `name` of a module, under the thread's autocast."""
    state = state_of(module)
    dtype = compute_dtype(x)
    if not (state.enabled and module.quantize):
        recipe = module.recipe or state.recipe
        if state.calibrating and isinstance(recipe, DelayedScaling):
            _step(module.slots[name], x.detach().reshape(-1, x.shape[-1]), recipe.prepared, recipe, state)
        return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
    recipe = module.recipe or state.recipe
    assert recipe is not None
    r: Prepared = recipe.prepared
    if x.shape[-1] != weight.shape[1]:
        raise ArgumentError(f"x has {x.shape[-1]} features ({tuple(x.shape)}); the weight has {weight.shape[1]} ({tuple(weight.shape)})")
    flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if flat.dtype != dtype:
        flat = flat.to(dtype)
    grad = torch.is_grad_enabled()
    wants_x, wants_w = grad and flat.requires_grad, grad and weight.requires_grad
    seed_offset = seeds(r, flat, wants_x or wants_w)
    if isinstance(weight, _gathered.GatheredWeight):
        if isinstance(recipe, DelayedScaling) or state.group:
            raise ArgumentError(f"{recipe}: a weight gathered in 4 bits goes without delay and amax_reduction_group")
        y = _gathered.linear(flat, weight, bias, r, dtype, seed_offset)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])
    first = is_first_microbatch if is_first_microbatch is not None else state.is_first_microbatch
    slot = module.slots[name]
    w_row, w_col = copies_of(slot, weight, r, wants_x, first, seed_offset)
    x_amax = g_amax = g_seen = None
    if isinstance(recipe, DelayedScaling):
        x_amax, g_amax, g_seen = _step(slot, flat.detach(), r, recipe, state)
    elif state.group:
        x_amax = _linear.reduced_amax(flat.detach(), r.x_row, r.x_col, r.nonfinite, state.group)
    main_grad = None
    if module.fuse_wgrad_accumulation and wants_w:
        main_grad = getattr(weight, "main_grad", None)
        if main_grad is None:
            raise ArgumentError(f"fuse_wgrad_accumulation adds to main_grad of {name}: make it, f32 zeros of shape {tuple(weight.shape)}, before the forward pass")
    save = _linear.saved(r, wants_x, wants_w)
    group = "" if g_seen is not None else state.group
    y = _linear.linear(flat, weight, w_row, w_col, bias, seed_offset, x_amax, g_amax, g_seen, main_grad, dtype, r.text, group, save)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])


def state_of(module: Base) -> State:
    """The thread's autocast; where a backward pass does a checkpointed forward pass again, that of the first one."""
    state = current.state
    if not torch.compiler.is_compiling():
        if torch._C._current_graph_task_id() == -1:
            module.__dict__["state"] = state  # past Module.__setattr__, which takes as long as a launch
        elif state is OFF:
            state = module.state
    return state


def seeds(r: Prepared, x: Tensor, backward: bool) -> Tensor | None:
    """What a call draws from PyTorch's generator, if its recipe rounds stochastically somewhere."""
    if not (r.draws_forward or r.draws_weight or (r.draws_backward and backward)):
        return None
    drawn: Tensor = _ops.draw_now(x) if _linear.eager(x) else _ops.draw(x)
    return drawn


def copies_of(
    slot: Slot, weight: Tensor, r: Prepared, columnwise: bool, first: bool | None, seed_offset: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The weight's copies: kept ones where a step's later micro-batches ask for them and it has not changed, else new ones."""
    kept = slot.kept
    if first is False and kept is not None and kept.recipe == r.text and (kept.col is not None or not columnwise):
        if torch.compiler.is_compiling() or kept.version == weight._version:
            return kept.row, kept.col if columnwise else None
    if first is not None and torch.is_grad_enabled():
        columnwise = True  # a later micro-batch may want it
    row, col = _linear.quantize_weight(weight.detach(), r, columnwise, seed_offset)
    if first is not None:
        slot.kept = QuantizedWeight(r.text, -1 if torch.compiler.is_compiling() else weight._version, row, col)
    return row, col


def _step(slot: Slot, x: Tensor, r: Prepared, recipe: DelayedScaling, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Given amax of x and of dy from earlier steps, and where the backward pass notes dy's."""
    with torch.no_grad():
        history = slot.history
        if history is None or history.steps.shape[0] != recipe.amax_history_len:
            if torch.compiler.is_compiling():  # a graph can't write, in its backward pass, what it made itself
                raise ArgumentError(f"{recipe}: call the layer once under it before it is compiled, so that it has a history")
            history = slot.history = History.empty(recipe.amax_history_len, x.device)
        recomputed = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
        if not recomputed:  # a forward pass that is done again takes what it took
            history.roll(state.group if recipe.reduce_amax else "", recipe.margin, recipe.amax_compute_algo == "most_recent")
        _ops.note_amax_(x, r.x_row.text, r.x_col.text, history.x_seen)
        x_amax = torch.where(history.given[0] > 0, history.given[0], history.x_seen)
        return x_amax, history.given[1].clone(), history.g_seen
