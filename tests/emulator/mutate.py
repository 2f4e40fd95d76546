#!/usr/bin/env python3
"""Mutation check: plants one fault at a time in the test kernels and in the library's Blackwell kernels
(mutate_library.py) and shows that the suite on the emulator catches each.

    python3 tests/emulator/mutate.py [--only WORD] [--seeds N] [--table FILE] [--library | --test-kernels]

Every fault is one textual replacement that must match exactly once. The kernels are copied to a
temporary folder, the fault goes into the copy, and the test binary of that chip runs on it
(NVFP4_EMU_KERNELS) with several schedules (NVFP4_EMU_SEED). A fault is caught when any run fails;
the table says what named it: the strict machine's own sentence, or a wrong result. Needs nvcc as
the tests do. Exit status 1 when a fault survives or the kernels without faults fail.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mutate_library

HERE = Path(__file__).resolve().parent
ONE, PAIR, CONVERT, WARP, HOPPER, COMMON = (
    "nvfp4_sm100.cu", "nvfp4_pair_sm100.cu", "convert_sm100.cu", "nvfp4_sm120.cu", "wgmma_sm90.cu", "sm100.cuh")
# Test binary and the test to run for each kernel file.
RUN = {
    ONE: ("tensor_sm100", "one_cta"),
    PAIR: ("tensor_sm100", "pairs"),
    CONVERT: ("tensor_sm100", "conversions"),
    WARP: ("tensor_sm120", ""),
    HOPPER: ("tensor_sm90", ""),
    COMMON: ("tensor_sm100", "one_cta"),
}
CP_A = '"r"(tmem + SFA + 4 * j), "l"(matrix_desc(base + 2 * TILE + 512 * j'
MMA_A = '"l"(matrix_desc(base + 32 * j, 16, 1024, 2))'
COMMIT = 'asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem(&%s)) : "memory");'
ROUND = 'cvt.rn.satfinite.e2m1x2.f32 b, %1, %2;'

# (what, file, text, replacement)
FAULTS = [
    # Tensor memory: allocation, columns, quadrants.
    ("too few columns allocated", ONE, "COLUMNS = 256", "COLUMNS = 128"),
    ("columns not a power of two", ONE, "COLUMNS = 256", "COLUMNS = 160"),
    ("dealloc left out", ONE, 'asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(COLUMNS));', ""),
    ("dealloc of another size", ONE, '::"r"(tmem), "r"(COLUMNS));\n', '::"r"(tmem), "r"(COLUMNS / 2));\n'),
    ("scale columns over the accumulator", ONE, "SFA = 128", "SFA = 124"),
    ("SFA and SFB columns overlap", ONE, "SFB = 144", "SFB = 140"),
    ("wrong lane quadrant in the epilogue", ONE, "quad = warp % 4", "quad = warp - 2"),
    ("epilogue one column late", ONE, "((uint32_t)(32 * quad) << 16) + c)", "((uint32_t)(32 * quad) << 16) + c + 1)"),
    ("mixed cta_group", ONE, "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];\" ::\"r\"(smem(&done))",
     "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];\" ::\"r\"(smem(&done))"),
    # Order of asynchronous work.
    ("wait::ld left out", ONE, "      wait_ld();\n", ""),
    ("fence::after_thread_sync left out before the epilogue", ONE, "mbar_wait(smem(&done), 0);\n    fence_after();", "mbar_wait(smem(&done), 0);"),
    ("fence::before_thread_sync left out after the epilogue", ONE, "    fence_before();\n  }\n  __syncthreads();", "  }\n  __syncthreads();"),
    ("dealloc not ordered after the epilogue", ONE, "  __syncthreads();\n  if (warp == 0) {\n    fence_after();", "  if (warp == 0) {\n    fence_after();"),
    ("epilogue does not wait for the MMAs", ONE, "mbar_wait(smem(&done), 0);", ""),
    ("producer does not wait for the stage", ONE, "if (kb >= STAGES) mbar_wait(smem(&empty[s]), (kb / STAGES - 1) & 1);", ""),
    ("producer waits for the wrong phase", ONE, "(kb / STAGES - 1) & 1", "(kb / STAGES) & 1"),
    ("issuer waits for the wrong phase", ONE, "mbar_wait(smem(&full[s]), (kb / STAGES) & 1)", "mbar_wait(smem(&full[s]), 0)"),
    ("issuer does not wait for the data", ONE, "      mbar_wait(smem(&full[s]), (kb / STAGES) & 1);\n", ""),
    ("stage released by no commit", ONE, COMMIT.replace("%s", "empty[s]"), ""),
    ("last commit left out", ONE, COMMIT.replace("%s", "done"), ""),
    ("barrier after setup left out", ONE, "  fence_before();\n  __syncthreads();\n  fence_after();", "  fence_before();\n  fence_after();"),
    ("expected bytes 16 short", ONE, "mbar_expect(bar, STAGE)", "mbar_expect(bar, STAGE - 16)"),
    ("expected bytes 2048 too many", ONE, "mbar_expect(bar, STAGE)", "mbar_expect(bar, STAGE + 2048)"),
    ("barrier expects two arrivals", ONE, "mbar_init(smem(&full[s]), 1)", "mbar_init(smem(&full[s]), 2)"),
    ("MMA issued by the whole warp", ONE, "warp == 1 && elect()", "warp == 1"),
    # Instruction descriptor.
    ("idesc: reserved bit 0", ONE, "(1u << 7) | (1u << 10)", "1u | (1u << 7) | (1u << 10)"),
    ("idesc: type of A", ONE, "(1u << 7) | (1u << 10)", "(5u << 7) | (1u << 10)"),
    ("idesc: B transposed", ONE, "(1u << 7) | (1u << 10)", "(1u << 7) | (1u << 10) | (1u << 16)"),
    ("idesc: UE8M0 scales", ONE, "(1u << 7) | (1u << 10)", "(1u << 7) | (1u << 10) | (1u << 23)"),
    ("idesc: scale id 1", ONE, "(1u << 7) | (1u << 10)", "(1u << 7) | (1u << 10) | (1u << 29)"),
    ("idesc: half of N", ONE, "(128u >> 3) << 17", "(64u >> 3) << 17"),
    ("idesc: M of the f16 table", ONE, "(128u >> 7) << 27", "(128u >> 4) << 27"),
    # Matrix descriptors.
    ("descriptor: version bit left out", COMMON, " | (1ull << 46)", ""),
    ("descriptor: reserved bit 53", COMMON, "(1ull << 46)", "(1ull << 46) | (1ull << 53)"),
    ("descriptor: swizzle 64 B", ONE, MMA_A, MMA_A.replace("1024, 2", "1024, 4")),
    ("descriptor: no swizzle", ONE, MMA_A, MMA_A.replace("1024, 2", "1024, 0")),
    ("descriptor: stride of half a pattern", ONE, MMA_A, MMA_A.replace("1024, 2", "512, 2")),
    ("descriptor: stride of two patterns", ONE, MMA_A, MMA_A.replace("1024, 2", "2048, 2")),
    ("K advances by 16 bytes", ONE, MMA_A, MMA_A.replace("32 * j", "16 * j")),
    ("K does not advance in A", ONE, MMA_A, MMA_A.replace("base + 32 * j", "base")),
    ("B read from A's tile", ONE, "matrix_desc(base + TILE + 32 * j", "matrix_desc(base + 32 * j"),
    # Scales.
    ("cp: wrong tile of the step", ONE, CP_A, CP_A.replace("512 * j", "256 * j")),
    ("cp: stride offset 0", ONE, "matrix_desc(base + 2 * TILE + 512 * j, 16, 128, 0)", "matrix_desc(base + 2 * TILE + 512 * j, 16, 0, 0)"),
    ("cp: lane offset in the address", ONE, CP_A, CP_A.replace("tmem + SFA + 4 * j", "tmem + SFA + 4 * j + (32 << 16)")),
    ("scales of the previous step", ONE, '"r"(tmem + SFA + 4 * j), "r"(tmem + SFB', '"r"(tmem + SFA + 4 * (j & 2)), "r"(tmem + SFB'),
    ("SFA and SFB exchanged", ONE, '"r"(tmem + SFA + 4 * j), "r"(tmem + SFB + 4 * j), "r"(accumulate)', '"r"(tmem + SFB + 4 * j), "r"(tmem + SFA + 4 * j), "r"(accumulate)'),
    ("scales of another row block", ONE, "(size_t)blockIdx.x * kblocks + kb) * SCALES", "(size_t)blockIdx.y * kblocks + kb) * SCALES"),
    # Accumulation, coordinates, tails.
    ("first step accumulates", ONE, "accumulate = kb | j", "accumulate = 1"),
    ("each stage starts anew", ONE, "accumulate = kb | j", "accumulate = j"),
    ("coordinates exchanged", ONE, "tma_load(base, &map_a, kb * 128, row0, bar)", "tma_load(base, &map_a, row0, kb * 128, bar)"),
    ("coordinate in elements instead of bytes", ONE, "tma_load(base, &map_a, kb * 128", "tma_load(base, &map_a, kb * 256"),
    ("rows past the end stored", ONE, "row < m && col0 + c + i < n", "col0 + c + i < n"),
    ("columns past the end stored", ONE, "row < m && col0 + c + i < n", "row < m"),
    # Pairs.
    ("pair: commit reaches one CTA only", PAIR, '"h"((uint16_t)3)', '"h"((uint16_t)1)'),
    ("pair: commit to a CTA that is not there", PAIR, '"h"((uint16_t)3)', '"h"((uint16_t)7)'),
    ("pair: bytes signalled to the own barrier", PAIR, "bar & 0xFEFFFFFF", "bar"),
    ("pair: leader expects its own bytes only", PAIR, "mbar_expect(bar, 2 * STAGE)", "mbar_expect(bar, STAGE)"),
    ("pair: both CTAs load the same half of B", PAIR, "col0 + 64 * rank", "col0"),
    ("pair: M of one CTA", PAIR, "(256u >> 7) << 27", "(128u >> 7) << 27"),
    ("pair: both CTAs issue", PAIR, "warp == 1 && rank == 0 && elect()", "warp == 1 && elect()"),
    ("pair: SFB of the wrong block", PAIR, "&map_sfb, 0, (blockIdx.y", "&map_sfb, 0, (blockIdx.x"),
    ("pair: cluster barrier after setup left out", PAIR, "  __syncthreads();\n  cluster_sync();\n  fence_after();\n  const", "  __syncthreads();\n  fence_after();\n  const"),
    # Conversions.
    ("e2m1x2 operands exchanged", CONVERT, ROUND, ROUND.replace("%1, %2", "%2, %1")),
    ("e4m3x2 operands exchanged", CONVERT, '"=h"(e4m3) : "f"(v[2 * i + 1]), "f"(v[2 * i])', '"=h"(e4m3) : "f"(v[2 * i]), "f"(v[2 * i + 1])'),
    ("ue8m0x2 rounds down", CONVERT, "cvt.rp.satfinite.ue8m0x2", "cvt.rz.satfinite.ue8m0x2"),
    ("stochastic operands in memory order", CONVERT, "{%1, %2, %3, %4}, %5;\" : \"=h\"(codes)", "{%4, %3, %2, %1}, %5;\" : \"=h\"(codes)"),
    ("random word of another group", CONVERT, "r = random[4 * t + i]", "r = random[4 * t + (i ^ 1)]"),
    # Warp-wide block-scaled MMA.
    ("warp: scales from the wrong lanes of a quad", WARP, "row0 + 16 * warp + g + 8 * (t & 1)", "row0 + 16 * warp + g + 8 * (t >> 1)"),
    ("warp: B registers exchanged", WARP, "fb[2 * j], fb[2 * j + 1]", "fb[2 * j + 1], fb[2 * j]"),
    ("warp: scales of rows g only", WARP, "row0 + 16 * warp + g + 8 * (t & 1)", "row0 + 16 * warp + g"),
    ("warp: wrong scale word of the tile", WARP, "row % 128 / 32 * 4", "row % 128 / 32"),
    ("warp: scales of the first step", WARP, "(size_t)step * 512", "(size_t)(step & ~1) * 512"),
    ("warp: ldmatrix chunks exchanged", WARP, "16 * (lane / 16)])", "16 * (1 - lane / 16)])"),
    ("warp: last stage not waited for", WARP, "cp.async.wait_group 1;", "cp.async.wait_group 2;"),
    ("warp: barrier before use left out", WARP, "    __syncthreads();\n    uint32_t fa[4]", "    uint32_t fa[4]"),
    ("warp: barrier after use left out", WARP, "step, k));\n    __syncthreads();", "step, k));"),
    ("warp: no zero fill of missing rows", WARP, "const uint32_t bytes = exists ? 16 : 0;", "const uint32_t bytes = 16; exists = true;"),
    ("warp: accumulator columns exchanged", WARP, "2 * t + i % 2", "2 * t + 1 - i % 2"),
    # Hopper.
    ("hopper: fence.proxy.async left out", HOPPER, "  fence_async();\n", ""),
    ("hopper: wgmma.fence left out", HOPPER, 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', ""),
    ("hopper: wait_group 1", HOPPER, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
    ("hopper: commit_group left out", HOPPER, 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");', ""),
    ("hopper: descriptor of 64-byte swizzle", HOPPER, "(1ull << 62)", "(2ull << 62)"),
    ("hopper: descriptor with Blackwell's bit 46", HOPPER, "(1ull << 62)", "(1ull << 62) | (1ull << 46)"),
    ("hopper: B not transposed", HOPPER, "p, 1, 1, 1;}", "p, 1, 1, 0;}"),
    ("hopper: A negated", HOPPER, ", %32, %33, p, 1, 1, 0, 0;}", ", %32, %33, p, -1, 1, 0, 0;}"),
    ("hopper: K of transposed B advances by a row", HOPPER, "desc(b + 2048 * j", "desc(b + 1024 * j"),
    ("hopper: swizzle of the result off by one bit", HOPPER, "(((col / 8) ^ (row & 7)) * 16)", "(((col / 8) ^ (row & 3)) * 16)"),
    ("hopper: swizzle of the fragments left out", HOPPER, "((chunk ^ (row & 7)) * 16)", "(chunk * 16)"),
    ("hopper: stage released by one warpgroup only", HOPPER, "mbar_init(smem(&empty[s]), 8)", "mbar_init(smem(&empty[s]), 4)"),
    ("hopper: result written over a stage in use", HOPPER, '  asm volatile("bar.sync 1, 256;" ::: "memory");\n', ""),
    ("hopper: store not ordered after the other warps", HOPPER, 'asm volatile("bar.sync %0, 128;" ::"r"(2 + wg) : "memory");', ""),
    ("hopper: barrier with the wrong count", HOPPER, "bar.sync 1, 256;", "bar.sync 1, 384;"),
    ("hopper: second warpgroup reads the first's rows", HOPPER, "+ s * STAGE + wg * 64 * 128", "+ s * STAGE"),
]


HEAD = """\
# Mutation check of the emulator

`python3 tests/emulator/mutate.py --table FILE` plants one fault at a time in the kernels of
`kernels/` and runs their tests on the emulator with several schedules. Last run: {count} faults, {caught}
caught. "Wrong result" means that the strict machine had nothing to object to, but a comparison
bit for bit with the hardware model failed.

"""


def build(binary):
    """Path of a test binary."""
    out = subprocess.run(
        ["cargo", "test", "--manifest-path", str(HERE / "Cargo.toml"), "--test", binary, "--no-run"],
        text=True, stderr=subprocess.PIPE, check=True).stderr
    return os.path.abspath(re.search(r"\((.*%s-[0-9a-f]+)\)" % binary, out).group(1))


def run(path, test, kernels, seed):
    """None when the tests pass, else what named the fault."""
    env = dict(os.environ, NVFP4_EMU_KERNELS=str(kernels), NVFP4_EMU_SEED=str(seed), RUST_BACKTRACE="0")
    command = [path, "--nocapture", "--test-threads", "1"] + ([test] if test else [])
    try:
        p = subprocess.run(command, cwd=HERE, env=env, text=True, capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "no end within 300 s"
    text = p.stdout + p.stderr
    if "skipped " in text:
        sys.exit("mutate.py needs nvcc: " + re.search(r"skipped .*", text).group(0))
    if p.returncode == 0:
        if "1 passed" not in text:
            sys.exit(f"{path} {test}: no test ran")
        return None
    said = re.search(r"^emulator: (.*)", text, re.M)
    if said:
        return said.group(1)
    if "nvcc" in text and "error" in text:
        sys.exit("the fault does not compile:\n" + text)
    wrong = re.search(r"(row \d+ column \d+|element \d+)", text)
    return f"wrong result at {wrong.group(0)}" if wrong else "wrong result"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only faults whose name contains this")
    parser.add_argument("--seeds", type=int, default=4, help="schedules to try for each fault")
    parser.add_argument("--table", help="write the table (Markdown) here")
    parser.add_argument("--library", action="store_true", help="only the library's kernels")
    parser.add_argument("--test-kernels", action="store_true", help="only those of kernels/")
    options = parser.parse_args()
    rows = [] if options.library else test_kernels(options)
    rows += [] if options.test_kernels else mutate_library.check(options)
    survivors = sum(said == "SURVIVED" for _, _, said in rows)
    if options.table:
        short = lambda s: s.split(" (needed:")[0].replace("|", "\\|")[:150]
        lines = [] if options.library else HEAD.format(count=len(rows), caught=len(rows) - survivors).splitlines()
        lines += ["| fault | kernel | named by |", "|---|---|---|"]
        lines += [f"| {n} | {f} | {short(s)} |" for n, f, s in rows]
        Path(options.table).write_text("\n".join(lines) + "\n")
    print(f"{len(rows) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


def test_kernels(options):
    """(fault, file, what named it) for the kernels of kernels/."""
    binaries = {b: build(b) for b, _ in set(RUN.values())}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "kernels"
        shutil.copytree(HERE / "kernels", copy)
        for binary, test in sorted(set(RUN.values())):
            for seed in range(options.seeds):
                said = run(binaries[binary], test, copy, seed)
                if said:
                    sys.exit(f"{binary} {test} fails without a fault (seed {seed}): {said}")
        for name, file, old, new in FAULTS:
            if options.only not in name:
                continue
            source = (HERE / "kernels" / file).read_text()
            if source.count(old) != 1:
                sys.exit(f"'{name}': the text occurs {source.count(old)} times in {file}")
            (copy / file).write_text(source.replace(old, new))
            binary, test = RUN[file]
            said = next((s for s in (run(binaries[binary], test, copy, k) for k in range(options.seeds)) if s), None)
            (copy / file).write_text(source)
            said = said or "SURVIVED"
            rows.append((name, file, said))
            print(f"{'caught  ' if said != 'SURVIVED' else 'SURVIVED'} {name}: {said}", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
