#!/usr/bin/env python3
"""Trains a Llama-style language model in 4 bits, on documentation text.

    python3 examples/torch_gpt/corpus.py --out corpus.xz
    python3 examples/torch_gpt.py --corpus corpus.xz --recipe nvfp4 --layers mlp --out out/gpt

Parameters and gradients are bf16, the optimizer keeps f32 master weights, as NVFP4 pretraining does. On a GPU a step is one
CUDA graph. Every run of one seed starts from the same weights and sees the same tokens in the same order.
torch_gpt/ablate.py makes the runs of docs/measured.md.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "torch_gpt"))
import data  # noqa: E402
import model as gpt  # noqa: E402
import plot  # noqa: E402
import recipes  # noqa: E402
import torch  # noqa: E402
import train  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=pathlib.Path, required=True, help="a file of torch_gpt/corpus.py")
    parser.add_argument("--recipe", choices=recipes.RECIPES, default="nvfp4")
    parser.add_argument("--layers", choices=recipes.LAYERS, default="mlp", help="which linear layers are quantized")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--tokens-per-step", type=int, default=16384)
    parser.add_argument("--rate", type=float, default=8e-4, help="peak learning rate")
    parser.add_argument("--depth", type=int, default=12, help="blocks")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=2304)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--held-out-batches", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None,
                        help="compile the memory-bound pieces (default: on a GPU)")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/gpt"), help="logs, checkpoints and the plot")
    parser.add_argument("--save-every", type=int, default=500, help="steps between checkpoints; 0: none")
    parser.add_argument("--resume", action="store_true", help="go on from the run's checkpoint in --out")
    o = parser.parse_args()
    corpus = data.Corpus(o.corpus)
    shape = gpt.Shape(corpus.vocabulary, o.depth, o.width, o.heads, o.hidden, o.length)
    run = train.Run(o.recipe, o.layers, o.seed, o.steps, o.tokens_per_step, o.rate, min(100, o.steps // 4), shape, o.held_out_batches)
    if o.compile or (o.compile is None and o.device.startswith("cuda")):
        gpt.compile_pieces()
    o.out.mkdir(parents=True, exist_ok=True)
    record = train.train(run, corpus, o.device, o.out, o.resume, o.save_every)
    step, loss = record["held_out"][-1]
    speed = "" if record["step_ms"] is None else f", {record['step_ms']:.1f} ms a step"
    print(f"{run.name}: {record['parameters'] / 1e6:.1f} M parameters, held-out loss {loss:.4f} nats a token "
          f"({loss / corpus.bytes_per_token:.4f} a byte) after {step} steps{speed}")  # fmt: skip
    print(plot.curves(sorted(o.out.glob("*.jsonl")), o.out / "loss.svg"))


if __name__ == "__main__":
    main()
