"""Loss curves of several runs in one picture."""

import json
import pathlib


def read(path):
    """(name, losses) of a log."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[0]["name"], [line["loss"] for line in lines if "loss" in line]


def smoothed(losses, window=50):
    """Running mean over the last `window` steps."""
    out, total = [], 0.0
    for i, loss in enumerate(losses):
        total += loss - (losses[i - window] if i >= window else 0.0)
        out.append(total / min(i + 1, window))
    return out


def curves(logs, path, base="bf16"):
    """Draws the losses, and below them each run's distance from the mean of the `base` runs; a line that says where."""
    try:
        import matplotlib
    except ImportError:
        return "no plot: matplotlib is not installed"
    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "nvfp4"
    runs = dict(read(log) if isinstance(log, pathlib.Path) else (log["name"], log["losses"]) for log in logs)
    bases = [smoothed(losses) for name, losses in runs.items() if name.startswith(base)]
    figure, (upper, lower) = pyplot.subplots(2, 1, figsize=(8, 8), sharex=True, height_ratios=(2, 1))
    for name, losses in runs.items():
        at = range(0, len(losses), max(1, len(losses) // 150))
        smooth = smoothed(losses)
        style = {"color": "black", "linestyle": "--" if "seed1" in name else "-"} if name.startswith(base) else {}
        (line,) = upper.plot([i + 1 for i in at], [smooth[i] for i in at], label=name, linewidth=1, **style)
        if bases:
            steps = [i for i in at if i < min(map(len, bases))]
            gap = [100 * (smooth[i] * len(bases) / sum(b[i] for b in bases) - 1) for i in steps]
            lower.plot([i + 1 for i in steps], gap, color=line.get_color(), linestyle=line.get_linestyle(), linewidth=1)
    upper.set_ylabel("training loss, nats a token (mean of 50 steps)")
    upper.set_yscale("log")
    upper.legend(fontsize=8)
    lower.set_ylabel(f"% above the mean of {base}")
    lower.set_ylim(-2, 5)
    lower.set_xlabel("step")
    for axes in (upper, lower):
        axes.grid(alpha=0.3, which="both")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return f"plot: {path}"
