"""Faults for mutate.py in the library's own Blackwell kernels (kernels/ at the top of the repository).

The program of the GPU tests is built once; each changed kernel is compiled to PTX that the emulator loads instead of the
one in the program (NVFP4_EMU_PTX). A fault is caught by the trials of a new context (`--only certification`) or, if those
pass, by random products on a chip of few multiprocessors, so that every block has many tiles.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAGS = "-std=c++17 -O3 --fmad=false --ftz=false --prec-div=true --prec-sqrt=true -lineinfo -ptx".split()
GEMM, COMMON, PACK, WARP = "gemm_sm100a.cu", "blackwell.cuh", "gemm_pack_sm100a.cu", "gemm_sm120.cu"
# What is compiled for a file, an entry of it, and the chip.
COMPILED = {GEMM: (GEMM, "gemm_sm100_nvfp4", "100"), COMMON: (GEMM, "gemm_sm100_nvfp4", "100"), PACK: (PACK, "gemm_pack_sm100", "100"),
            WARP: (WARP, "gemm_sm120_nvfp4", "120")}
EMPTY = "mbarrier_wait(shared_address(&shared.empty[at.index]), at.phase ^ 1);\n            if (rank == 0)"

# (what, file, text, replacement)
FAULTS = [
    # Columns of tensor memory and who may use them when.
    ("scales past the last column", GEMM, "kColumns - 48", "kColumns - 40"),
    ("second accumulator over the scales", GEMM, "kShare ? kScales - kN : kN", "kN"),
    ("shared columns not waited for", GEMM, "W::kShare ? 1 : 2", "2"),
    ("an accumulator is called drained after its first part", GEMM, "i == (W::kShare ? 0 : kChunks - 1)", "i == 0"),
    ("shared columns are not stored first", GEMM, "(W::kShare && !second ? kChunks - 1 - i : i)", "i"),
    ("no fence before an accumulator is handed back", GEMM, "tensor_fence_before();\n                __syncwarp();", "__syncwarp();"),
    ("loads not waited for", GEMM, "                tensor_wait_loads();\n", ""),
    ("drained accumulator not waited for", GEMM, "mbarrier_wait(shared_address(&shared.drained[other & 1]), other >> 1 & 1);", ""),
    ("drained accumulator: wrong phase", GEMM, "other >> 1 & 1)", "other & 1)"),
    ("MMAs not waited for", GEMM, "mbarrier_wait(shared_address(&shared.ready[second]), n >> 1 & 1);", ""),
    ("MMAs: wrong phase", GEMM, "n >> 1 & 1);\n        tensor_fence_after", "n & 1);\n        tensor_fence_after"),
    ("no fence after the MMAs", GEMM, "n >> 1 & 1);\n        tensor_fence_after();", "n >> 1 & 1);"),
    ("drained: arrivals of one CTA expected", GEMM, "4 * W::G);", "4);"),
    ("tensor memory not freed", GEMM, "        tensor_free<W::G>(memory, kColumns);\n", ""),
    ("freed before all have stored", GEMM, "    __syncwarp();\n    everyone<W>();\n", "    __syncwarp();\n"),
    ("used before it is set up", GEMM, "    tensor_fence_before();\n    everyone<W>();\n    tensor_fence_after();\n", "    tensor_fence_before();\n    tensor_fence_after();\n"),
    ("another warp's quarter of the lanes", GEMM, "threadIdx.x / 32 % 4", "threadIdx.x / 32 - 2"),
    # The ring of stages.
    ("stage not waited for by the MMAs", GEMM, "mbarrier_wait(shared_address(&shared.full[at.index]), at.phase);", ""),
    ("stage not waited for by the copies", GEMM, EMPTY, "if (rank == 0)"),
    ("stage waited for in the wrong phase", GEMM, EMPTY, EMPTY.replace("at.phase ^ 1", "at.phase")),
    ("bytes of one CTA expected", GEMM, "W::G * kBytes", "kBytes"),
    ("bytes of one scale tile expected", GEMM, "(1 + W::G) * W::kScaleTiles", "2 * W::kScaleTiles"),
    ("stage not handed back", GEMM, "            tensor_commit<W::G>(shared_address(&shared.empty[at.index]));\n", ""),
    ("accumulator not announced", GEMM, "        tensor_commit<W::G>(shared_address(&shared.ready[n & 1]));\n", ""),
    ("a stage wants two arrivals", GEMM, "mbarrier_init(shared_address(&shared.full[i]), 1)", "mbarrier_init(shared_address(&shared.full[i]), 2)"),
    ("MMAs issued by the whole warp", GEMM, "rank == 0 && elect()", "rank == 0"),
    ("MMAs issued by both CTAs", GEMM, "rank == 0 && elect()", "elect()"),
    # Which rows, columns and scales.
    ("both CTAs bring the same rows of A", GEMM, "a_tile * kRows, a_item", "p.row * W::kM, a_item"),
    ("both CTAs bring the same rows of B", GEMM, "rank * W::kColumnsEach", "0"),
    ("half a stage along K", GEMM, "&args.a, step * 32", "&args.a, step * 16"),
    ("MXFP4: scales of another stage", GEMM, "step * W::kScaleTiles / 4", "step"),
    ("both CTAs have the same scales of A", GEMM, "0, scales, a_tile", "0, scales, p.row"),
    ("scales of B by tile of D", GEMM, "b_row / kRows", "p.col"),
    ("scales of B over each other", GEMM, "shared.b_scales[at.index][rank]", "shared.b_scales[at.index][0]"),
    ("scales of B to one CTA only", GEMM, "copy_box<W::G, true>", "copy_box<W::G, false>"),
    ("narrow tiles: scales of the even one", GEMM, "% kRows / 32 : 0)", "% kRows / 128 : 0)"),
    ("A of the first product of a batch", GEMM, "args.a_items ? p.item : 0", "0"),
    ("scales of two steps in one place", GEMM, "a_scales + 4 * i,", "a_scales + 4 * (i & 2),"),
    ("half a scale tile on", GEMM, "sa + 32 * i", "sa + 16 * i"),
    ("scales of B in the wrong order", GEMM, "(i * W::G + j), scales", "(i + j * W::kScaleTiles), scales"),
    ("B does not advance along K", GEMM, "b + 2 * i, instruction", "b, instruction"),
    ("A advances by 16 bytes", GEMM, "acc, a + 2 * i", "acc, a + i"),
    ("MXFP4: a scale tile a step", GEMM, "W::Nv ? i : i / 2", "i"),
    ("MXFP4: the same half of each word", GEMM, "W::kN, i & 1)", "W::kN, 0)"),
    ("first step adds", GEMM, "* tile, step + i)", "* tile, 1)"),
    ("each stage starts anew", GEMM, "* tile, step + i)", "* tile, i)"),
    ("tile order: rows of a short band", GEMM, "first + rest % high", "first + rest % args.band"),
    ("tile order: columns of a short band", GEMM, "col = rest / high", "col = rest / args.band"),
    ("both CTAs store the same rows", GEMM, "rank * kRows + 32 * quarter", "32 * quarter"),
    ("second half of the lanes stored over the first", GEMM, "row0 + 16 * h", "row0 + 8 * h"),
    # Descriptors and instructions.
    ("bytes signalled to the own CTA", COMMON, "address & 0xFEFFFFFF", "address"),
    ("codes: swizzle of 64 bytes", COMMON, "uint64_t(2) << 61", "uint64_t(4) << 61"),
    ("descriptors: version bit", COMMON, "uint64_t(1) << 46", "uint64_t(0) << 46"),
    ("codes: stride of half a pattern", COMMON, "1024 >> 4", "512 >> 4"),
    ("scales: stride of two groups", COMMON, "uint64_t(128 >> 4)", "uint64_t(256 >> 4)"),
    ("instruction: type of B", COMMON, "1u << 7 | 1u << 10", "1u << 7 | 2u << 10"),
    ("instruction: half of N", COMMON, "(n >> 3) << 17", "(n >> 4) << 17"),
    ("instruction: half of M", COMMON, "(m >> 7) << 27", "(m >> 8) << 27"),
    ("instruction: E4M3 for MXFP4", COMMON, "1u << 23 | half", "half"),
    ("instruction: scale ids 0 and 1", COMMON, "2u << 4 | 2u << 29", "1u << 4 | 1u << 29"),
    ("commit to one CTA", COMMON, '::"r"(bar), "h"(uint16_t(3))', '::"r"(bar), "h"(uint16_t(1))'),
    ("multicast to one CTA", COMMON, 'of_leader<2>(bar)), "h"(uint16_t(3))', 'of_leader<2>(bar)), "h"(uint16_t(1))'),
    # The packing copy.
    ("pack: scale words row by row", PACK, "word % 4 * 32 + word / 4", "word"),
    ("pack: scales of the first product", PACK, "tile / across / down * args.x.scales_batch", "0"),
    ("pack: last scale tile left out", PACK, "(blocks + 3) / 4", "blocks / 4"),
    ("pack: codes of the first product", PACK, "item * args.x.codes_batch", "0"),
    # Block-scaled mma.sync.
    ("warp: halves of A's K exchanged", WARP, "2 * Half + (lane >> 4))", "2 * Half + 1 - (lane >> 4))"),
    ("warp: scales of A by quad", WARP, "[m0 + 8 * t + g]", "[m0 + 4 * g + t]"),
    ("warp: scales of the first 32 columns", WARP, "[n0 + 32 + 8 * t + g]", "[n0 + 8 * t + g]"),
    ("warp: MXFP4: the first two bytes always", WARP, "Nv ? 0 : 2 * Half", "0"),
    ("warp: NVFP4: the first word always", WARP, "Nv ? Half : 0", "0"),
    ("warp: scales of the other 16 rows", WARP, "mma_scaled<Nv, kByte, 0, j % 4>", "mma_scaled<Nv, kByte, 1, j % 4>"),
    ("warp: copies not waited for", WARP, '"n"(kScaledStages - 2)', '"n"(kScaledStages - 1)'),
    ("warp: no barrier before a stage is read", WARP, "__syncthreads();  // this stage", "// this stage"),
    ("warp: D staged over a stage in use", WARP, 'asm volatile("cp.async.wait_group 0;" ::: "memory");\n        __syncthreads();',
     'asm volatile("cp.async.wait_group 0;" ::: "memory");'),
    ("warp: copies past the end of K", WARP, "(step + 1) * kScaledK <= k", "step * kScaledK <= k"),
    ("warp: half the stride of scale tiles", WARP, "(x.swizzled ? 128 : 1)", "(x.swizzled ? 64 : 1)"),
    ("warp: scale bytes in descending order", WARP, "<< (8 * i);", "<< (24 - 8 * i);"),
    ("warp: another stage is read", WARP, "shared.ring[step % kScaledStages];\n            multiply", "shared.ring[(step + 1) % kScaledStages];\n            multiply"),
    ("warp: a stage in use is filled", WARP, "load(step + kScaledStages - 1)", "load(step + kScaledStages)"),
    ("warp: tiles of B exchanged", WARP, "(lane >> 4) * 8 + (lane & 7)", "(lane >> 3 & 1) * 8 + (lane & 7)"),
    ("warp: the first rows of A twice", WARP, "&acc[1][4 * j], a[1]", "&acc[1][4 * j], a[0]"),
]


def build():
    """The GPU tests' program; the emulator's library."""
    subprocess.run(["cargo", "build", "--locked", "--manifest-path", str(HERE / "Cargo.toml")], check=True)
    env = dict(os.environ, NVFP4_EMULATOR_PTX="1", NVFP4_CUDA_ARCHS="90a")
    out = subprocess.run(
        ["cargo", "test", "--locked", "--no-default-features", "--features", "cuda", "--test", "gpu", "--no-run"],
        cwd=ROOT, env=env, text=True, stderr=subprocess.PIPE, check=True).stderr
    return ROOT / re.search(r"\(([^()]*gpu-[0-9a-f]+)\)", out).group(1), HERE / "target/debug/libnvfp4_emulator.so"


def products(program, driver, ptx, chip, seeds):
    """None when everything passes, else what named the fault."""
    for seed in range(seeds):
        env = dict(os.environ, LD_LIBRARY_PATH=str(driver), NVFP4_EMU_ARCH="sm_" + chip, NVFP4_EMU_PTX=str(ptx), NVFP4_EMU_SMS="4",
                   NVFP4_EMU_SEED=str(seed), NVFP4_REQUIRE_GPU="1")
        parts = [["fp4 products", "--products", "40", "--seed", str(seed + 1)]]
        for part in ([["certification"]] if seed == 0 else []) + parts:
            try:
                p = subprocess.run([program, "--only", *part], env=env, text=True, capture_output=True, timeout=300)
            except subprocess.TimeoutExpired:
                return "no end within 300 s"
            if p.returncode:
                said = re.search(r"^emulator: (.*)", p.stderr, re.M) or re.search(r"(byte \d+ of D|D \d+ \[.*?\]) is .*", p.stdout)
                return said.group(1 if said.group(0).startswith("emulator") else 0) if said else "wrong result"
    return None


def check(options):
    """(fault, file, what named it) for the library's kernels."""
    nvcc = os.environ.get("NVCC") or shutil.which("nvcc") or next(
        map(str, ROOT.glob(".venv-cuda/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")), None)
    if not nvcc:
        sys.exit("mutate.py needs nvcc")
    program, library = build()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        copy, ptx, driver = folder / "kernels", folder / "ptx", folder / "driver"
        shutil.copytree(ROOT / "kernels", copy)
        ptx.mkdir(), driver.mkdir()
        # Copies, so that the tree may be worked in meanwhile.
        shutil.copy(library, driver / "libcuda.so.1")
        program = shutil.copy(program, folder / "gpu")
        sources = {file: (copy / file).read_text() for file in COMPILED}
        for chip in ("100", "120"):
            said = products(program, driver, ptx, chip, options.seeds)
            if said:
                sys.exit(f"the library fails on sm_{chip} without a fault: {said}")
        for name, file, old, new in FAULTS:
            if options.only not in name:
                continue
            source = sources[file]
            if source.count(old) != 1:
                sys.exit(f"'{name}': the text occurs {source.count(old)} times in {file}")
            (copy / file).write_text(source.replace(old, new))
            unit, entry, chip = COMPILED[file]
            to = ptx / f"{entry}.ptx"
            c = subprocess.run([nvcc, *FLAGS, f"-arch=compute_{chip}a", "-o", to, copy / unit], text=True, capture_output=True)
            if c.returncode:
                sys.exit(f"'{name}' does not compile:\n{c.stderr}")
            said = products(program, driver, ptx, chip, options.seeds) or "SURVIVED"
            (copy / file).write_text(source)
            to.unlink()
            rows.append((name, file, said))
            print(f"{'caught  ' if said != 'SURVIVED' else 'SURVIVED'} {name}: {said}", flush=True)
    return rows
