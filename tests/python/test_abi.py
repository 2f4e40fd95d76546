"""The ctypes mirror against include/nvfp4.h: sizes and offsets as a C compiler sees them, constants, functions."""

import ctypes
import re
import subprocess

import pytest
from conftest import ROOT

from nvfp4 import _abi, _names

HEADER = ROOT / "include" / "nvfp4.h"
STRUCTS = {
    "nvfp4_context_desc": _abi.ContextDesc,
    "nvfp4_matrix": _abi.Matrix,
    "nvfp4_options": _abi.Options,
    "nvfp4_stats": _abi.Stats,
    "nvfp4_quantize_desc": _abi.QuantizeDesc,
    "nvfp4_quantized": _abi.Quantized,
    "nvfp4_sizes": _abi.Sizes,
    "nvfp4_gemm_desc": _abi.GemmDesc,
    "nvfp4_hadamard_desc": _abi.HadamardDesc,
    "nvfp4_recipe": _abi.Recipe,
    "nvfp4_linear_desc": _abi.LinearDesc,
    "nvfp4_grouped_quantize_desc": _abi.GroupedQuantizeDesc,
    "nvfp4_grouped_gemm_desc": _abi.GroupedGemmDesc,
}


def text():
    """The header without comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(), flags=re.S)


def constants():
    pairs = re.findall(r"#define NVFP4_(\w+) (\d+)\b", text())
    return {name: int(value) for name, value in pairs}


def test_every_struct_is_mirrored():
    in_header = set(re.findall(r"typedef struct (nvfp4_\w+)\s*\{", text()))
    assert in_header == set(STRUCTS)


def test_sizes_and_offsets_are_those_of_a_c_compiler(tmp_path):
    lines, expected = [], []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field in struct._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));')
            expected.append(f"{name}.{field[0]} {getattr(struct, field[0]).offset}")
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <nvfp4.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
    )
    program = tmp_path / "layout"
    subprocess.run(["cc", "-std=c11", f"-I{HEADER.parent}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines() == expected


@pytest.mark.parametrize("name", STRUCTS)
def test_fields_are_the_headers_in_its_order(name):
    body = re.search(r"typedef struct " + name + r"\s*\{(.*?)\}\s*" + name + ";", text(), flags=re.S).group(1)
    fields = [re.search(r"(\w+)(\[\d+\])?$", part.strip()).group(1) for part in body.split(";") if part.strip()]
    assert fields == [field[0] for field in STRUCTS[name]._fields_]


def test_every_function_is_declared_with_its_number_of_arguments():
    declared = {}
    for name, arguments in re.findall(r"\b(nvfp4_\w+)\(([^()]*)\);", text()):
        arguments = arguments.strip()
        declared[name] = 0 if arguments in ("", "void") else arguments.count(",") + 1
    ours = {"nvfp4_" + name: len(arguments) for name, (_, arguments) in _abi.FUNCTIONS.items()}
    assert declared == ours


@pytest.mark.parametrize(
    ("prefix", "table"),
    [
        ("FORMAT", _names.FORMAT), ("CHAIN", _names.CHAIN), ("RULE", _names.SCALE_RULE), ("ROUND", _names.ROUNDING),
        ("SCALES", _names.SCALE_LAYOUT), ("SELECT", _names.SELECT), ("NONFINITE", _names.NONFINITE),
        ("ACCUMULATE", _names.ACCUMULATE), ("ACTIVATION", _names.ACTIVATION), ("OPERAND", _names.OPERAND),
        ("LOG", _names.LOG_LEVEL),
    ],
)  # fmt: skip
def test_words_stand_for_the_headers_numbers(prefix, table):
    header = {k.removeprefix(prefix + "_").lower(): v for k, v in constants().items() if k.startswith(prefix + "_")}
    assert {word: number for word, number in table.items() if word != "4over6"} == header


def test_flags_and_argument_statuses():
    c = constants()
    assert (c["KEEP_F32"], c["RANGE_16_17"], c["MX_HALF_SCALE"]) == (1, 2, 4)
    assert (_names.KEEP_F32, _names.RANGE_16_17, _names.MX_HALF_SCALE) == (1, 2, 4)
    names = ["INVALID_ARGUMENT", "NULL_POINTER", "STRUCT_SIZE", "SHAPE", "ALIGNMENT", "BUFFER_SIZE", "MISMATCH"]
    assert {c["ERR_" + name] for name in names} == _abi.ARGUMENT_STATUSES
    for name in names:
        assert _abi.lib.nvfp4_status_name(c["ERR_" + name]).decode() == "NVFP4_ERR_" + name
