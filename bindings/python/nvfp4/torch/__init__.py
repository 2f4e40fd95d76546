"""4-bit training in PyTorch.

    import nvfp4.torch as fp4

    fp4.convert_(model)                       # torch.nn.Linear -> 4-bit layers, same parameters
    with fp4.autocast():                      # NVFP4BlockScaling, as TransformerEngine names it
        loss = model(batch)
    loss.backward()

Needs PyTorch 2.6 or newer. CPU and CUDA tensors; docs/pytorch.md has the rest.
"""

from .recipe import Custom, DelayedScaling, Format, MXFP4BlockScaling, NVFP4BlockScaling, Recipe  # isort: skip
from ._autocast import autocast, fp4_autocast, is_available
from ._random import keep_random_state_
from .convert import all_of, convert_, mlp_only, skip_blocks, skip_head
from .fsdp import prepare_fsdp, reduce_amax
from .functional import (
    GroupedQuantized, Quantized, dequantize, fake_quantize, gemm, grouped_gemm, grouped_quantize, hadamard, linear, quantize,
)  # fmt: skip
from .grouped import GroupedLinear
from .lora import FrozenLinear, LoRALinear, freeze_
from .module import LayerNormLinear, LayerNormMLP, Linear
from .tensor_parallel import ColumnParallelLinear, RowParallelLinear

__all__ = [
    "ColumnParallelLinear", "Custom", "DelayedScaling", "Format", "FrozenLinear", "GroupedLinear", "GroupedQuantized", "LayerNormLinear",
    "LayerNormMLP", "Linear", "LoRALinear", "MXFP4BlockScaling", "NVFP4BlockScaling", "Quantized", "Recipe",
    "RowParallelLinear", "all_of", "autocast", "convert_", "dequantize", "fake_quantize", "fp4_autocast", "freeze_", "gemm",
    "grouped_gemm", "grouped_quantize", "hadamard", "is_available", "keep_random_state_", "linear", "mlp_only", "prepare_fsdp", "quantize", "reduce_amax",
    "skip_blocks", "skip_head",
]  # fmt: skip
