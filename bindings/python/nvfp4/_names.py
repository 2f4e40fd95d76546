"""Words of the Python surface for the C ABI's numbers, and the error for a word that is not one of them."""

from __future__ import annotations

from ._errors import ArgumentError

FORMAT = {"nvfp4": 0, "mxfp4": 1, "bf16": 2}
CHAIN = {"te": 0, "div6": 1, "single": 2}
SCALE_RULE = {"floor": 0, "ceil": 1, "even": 2, "encode_centric": 3}
ROUNDING = {"nearest": 0, "stochastic": 1}
SCALE_LAYOUT = {"linear": 0, "swizzled": 1}
SELECT = {"single": 0, "4over6_mae": 1, "4over6": 1, "4over6_mse": 2, "4over6_absmax": 3, "ms_eden": 4}
NONFINITE = {"propagate": 0, "saturate": 1}
ACCUMULATE = {"default": 0, "fast": 1, "block": 2, "hardware": 3, "hardware_k96": 4}
ACTIVATION = {"none": 0, "gelu": 1, "silu": 2, "relu2": 3}
AXIS = {"row": 1, "column": 2, "both": 3}
OPERAND = {"activation": 0, "weight": 1, "gradient": 2}
LOG_LEVEL = {"off": 0, "error": 1, "warn": 2, "info": 3, "plan": 4}

KEEP_F32, RANGE_16_17, MX_HALF_SCALE = 1, 2, 4

# Elements that share a scale along a row; bytes of a row of codes come from code_bytes().
BLOCK_OF_FORMAT = {"nvfp4": 16, "mxfp4": 32, "bf16": 1}
BLOCK = {
    "nvfp4": {"1x16": 0, "16x16": 1},
    "mxfp4": {"1x32": 0, "32x32": 1},
    "bf16": {},
}


def number(table: dict[str, int], word: object, what: str) -> int:
    """The C number of `word`."""
    if isinstance(word, str) and word in table:
        return table[word]
    raise ArgumentError(f"{what} is {word!r}; it is one of " + ", ".join(map(repr, table)))


def word(table: dict[str, int], value: int, what: str) -> str:
    """The word of a C number (the first that has it)."""
    for name, number_ in table.items():
        if number_ == value:
            return name
    raise ArgumentError(f"{what} holds {value}, which this version does not know")


def block_number(fmt: str, block: str | None) -> int:
    """NVFP4_BLOCK_* of a block shape; None is the format's block along a row."""
    names = BLOCK[fmt]
    if block is None:
        return 0
    if block in names:
        return names[block]
    legal = ", ".join(map(repr, names)) or "None (it has no scales)"
    raise ArgumentError(f"block is {block!r}; format {fmt!r} takes {legal}")


def block_word(fmt: str, value: int) -> str | None:
    """The block shape's name, None for bf16."""
    return word(BLOCK[fmt], value, "block") if BLOCK[fmt] else None


def code_bytes(fmt: str, cols: int) -> int:
    """Bytes of one row of codes."""
    return 2 * cols if fmt == "bf16" else (cols + 1) // 2


def scale_cols(fmt: str, cols: int) -> int:
    """Scale bytes of one row (0 for bf16)."""
    return 0 if fmt == "bf16" else -(-cols // BLOCK_OF_FORMAT[fmt])
