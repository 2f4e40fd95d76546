#!/usr/bin/env python3
"""The training runs of docs/measured.md: which recipe in which layers costs how much loss, against bf16.

    python3 examples/torch_gpt/ablate.py --corpus corpus.xz --out out/ablate --minutes 60

Every finished run is kept in OUT/results.json.gz; the same command goes on after the last one (and inside a run with
--save-every). --table and --plot need no GPU.
"""

import argparse
import gc
import gzip
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import plot  # noqa: E402

# (recipe, layers, seed, steps to stop after or 0, draw of PyTorch's random bits): what is missed most comes first.
RUNS = [
    ("bf16", "mlp", 0, 0, 0),
    ("nvfp4", "mlp", 0, 0, 0),
    ("nvfp4", "mlp", 1, 0, 0),
    ("bf16", "mlp", 1, 0, 0),
    ("fakequant", "mlp", 0, 120, 0),
    ("fakequant", "mlp", 0, 120, 1),
    ("nvfp4_no_sr", "mlp", 0, 0, 0),
    ("nvfp4", "all", 0, 0, 0),
    ("nvfp4_no_rht", "mlp", 0, 0, 0),
    ("nvfp4", "all_but_last4", 0, 0, 0),
    ("fakequant", "mlp", 0, 120, 2),
]


def load(path):
    """{name: record} of a results file; {} when there is none."""
    if not path.exists():
        return {}
    return json.loads(gzip.decompress(path.read_bytes()))


def store(path, results):
    temporary = path.with_suffix(".partial")
    temporary.write_bytes(gzip.compress(json.dumps(results).encode(), mtime=0))
    temporary.replace(path)


def run_all(o, results):
    """Makes the runs that are not in `results` yet, as long as the time allows."""
    import data
    import model as gpt
    import torch
    import train

    end = time.monotonic() + 60 * o.minutes
    corpus = data.Corpus(o.corpus)
    gpt.compile_pieces()
    shape = gpt.Shape(corpus.vocabulary)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    for recipe, layers, seed, stop, draw in RUNS:
        run = train.Run(recipe, layers, seed, o.steps, shape=shape, stop=min(stop, o.steps), draw=draw, rate=o.rate)
        if run.name in results or (o.only and run.name not in o.only):
            continue
        torch.cuda.reset_peak_memory_stats()
        start = time.monotonic()
        record = train.train(run, corpus, "cuda", o.out, resume=True, save_every=o.save_every, until=end, progress=o.progress)
        if record is None:
            print(f"{run.name}: time is up; it goes on from its checkpoint", flush=True)
            return
        results[run.name] = record
        store(o.out / "results.json.gz", results)
        print(f"{run.name}: held-out {record['held_out'][-1][1]:.4f}, {record['step_ms'] or 0:.1f} ms a step, "
              f"{time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
        gc.collect()
        torch.cuda.empty_cache()


def tail(record, window=100):
    """Mean training loss of the last `window` steps."""
    return statistics.fmean(record["losses"][-window:])


def table(results):
    """Markdown: final held-out loss, gap to the bf16 run of the same seed, step time against bf16's."""
    lines = ["| run | held-out loss, nats a token | gap to bf16 of the same seed | last 100 steps | gap | ms a step | of bf16's |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    whole = [r for r in results.values() if not r["stop"]]
    for r in whole:
        base = results.get(f"bf16-seed{r['seed']}")
        if base is None:
            continue
        loss, against = r["held_out"][-1][1], base["held_out"][-1][1]
        lines.append(
            f"| {r['name']} | {loss:.4f} | {100 * (loss / against - 1):+.2f} % | {tail(r):.4f} | "
            f"{100 * (tail(r) / tail(base) - 1):+.2f} % | {r['step_ms']:.1f} | {r['step_ms'] / base['step_ms']:.2f} |"
        )
    return "\n".join(lines + ["", *control(results)])


def control(results):
    """How far plain PyTorch's and the library's nvfp4 are from bf16 over the same steps, in nats; first third left out."""
    fakes = [r for r in results.values() if r["recipe"] == "fakequant"]
    for r in fakes:
        base, ours = (results.get(f"{name}-seed{r['seed']}") for name in ("bf16", f"nvfp4-{r['layers']}"))
        if not base or not ours:
            continue
        steps = range(r["stop"] // 3, r["stop"])
        gaps = [statistics.fmean(x["losses"][i] - base["losses"][i] for i in steps) for x in (r, ours)]
        yield f"steps {steps[0] + 1} to {steps[-1] + 1} above bf16: {r['name']} {gaps[0]:+.5f}, {ours['name']} {gaps[1]:+.5f} nats a token"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/ablate"))
    parser.add_argument("--minutes", type=float, default=60.0, help="start nothing and save what runs after this time")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="names of the runs to make")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--earlier", type=pathlib.Path, nargs="*", default=[], help="results of earlier calls to go on from")
    parser.add_argument("--table", action="store_true", help="only print the table and draw the plot")
    o = parser.parse_args()
    o.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for path in [*o.earlier, o.out / "results.json.gz"]:
        results.update(load(path))
    if not o.table:
        run_all(o, results)
    print(table(results))
    print(plot.curves([r for r in results.values() if not r["stop"]], o.out / "loss.svg"))


if __name__ == "__main__":
    main()
