"""examples/torch_gpt: a run that is broken off and resumed ends as the unbroken one, the corpus file, which layers are chosen."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "examples" / "torch_gpt"))
import data  # noqa: E402
import model as gpt  # noqa: E402
import optimizer as optim  # noqa: E402
import recipes  # noqa: E402
import train  # noqa: E402

SHAPE = gpt.Shape(vocabulary=384, layers=6, width=32, heads=2, hidden=48, length=16)


class Corpus:
    """Random tokens in place of a corpus file."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.train, self.held_out = (rng.integers(0, 384, n).astype(np.uint16) for n in (4000, 800))
        self.bytes_per_token = 1.0

    starts, held_out_batches = data.Corpus.starts, data.Corpus.held_out_batches


def run(**changes):
    options = {"recipe": "bf16", "steps": 8, "tokens_per_step": 64, "warmup": 2, "shape": SHAPE, "held_out_batches": 2}
    return train.Run(**{**options, **changes})


def test_resume_equals_an_unbroken_run(tmp_path):
    whole = train.train(run(), Corpus(), "cpu", progress=False)
    assert whole["losses"][-1] < whole["losses"][0]
    first = train.Trainer(run(), Corpus(), "cpu")
    for _ in range(5):
        first.step()
    first.save(tmp_path / f"{run().name}.pt")
    resumed = train.train(run(), Corpus(), "cpu", tmp_path, resume=True, progress=False)
    assert resumed["losses"] == whole["losses"] and resumed["norms"] == whole["norms"]
    assert resumed["held_out"] == whole["held_out"]
    with pytest.raises(ValueError, match="another run"):
        train.Trainer(run(rate=1.0), Corpus(), "cpu").resume(tmp_path / f"{run().name}.pt")


def test_log_lines(tmp_path):
    record = train.train(run(stop=4), Corpus(), "cpu", tmp_path, progress=False)
    lines = [json.loads(line) for line in (tmp_path / "bf16-seed0-first4.jsonl").read_text().splitlines()]
    assert lines[0]["name"] == "bf16-seed0-first4" and lines[0]["recipe"] == "bf16"
    assert [line["loss"] for line in lines if "loss" in line] == record["losses"] and len(record["losses"]) == 4
    assert lines[-1] == {"step": 4, "held_out": record["held_out"][-1][1]}


def test_every_seed_has_its_own_order_of_the_data_and_every_epoch_too():
    corpus = Corpus()
    windows = (len(corpus.train) - 1) // 16
    starts = corpus.starts(3 * windows, 1, 16, 5).reshape(3, windows)
    assert all(sorted(epoch) == list(range(0, 16 * windows, 16)) for epoch in starts.tolist())
    assert not (starts[0] == starts[1]).all() and not (starts[0] == corpus.starts(windows, 1, 16, 6)[:, 0]).all()
    np.testing.assert_array_equal(starts.reshape(-1)[:40], corpus.starts(10, 4, 16, 5).reshape(-1))


def test_chosen_layers():
    names = [name for name, module in gpt.GPT(SHAPE).named_modules() if isinstance(module, torch.nn.Linear)]
    count = {layers: sum(map(recipes.chosen(layers, SHAPE.layers), names)) for layers in recipes.LAYERS}
    assert count == {"mlp": 12, "all": 24, "all_but_last4": 8}
    assert not any(recipes.chosen("all", SHAPE.layers)(name) for name in names if "head" in name)


def test_the_fakequant_recipe_swaps_what_is_chosen():
    model = gpt.GPT(SHAPE)
    recipes.apply(model, "fakequant", "mlp")
    assert sum(type(m).__name__ == "FakeQuantLinear" for m in model.modules()) == 12
    record = train.train(run(recipe="fakequant", steps=3), Corpus(), "cpu", progress=False)
    assert np.isfinite(record["losses"]).all()


def test_master_weights_are_what_is_trained():
    model = gpt.GPT(SHAPE)
    model.initialise(3)
    optimizer = optim.MasterAdamW(model)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    optimizer.rate.fill_(1e-6)  # too small to move a bf16 weight in one step
    before = [m.clone() for m in optimizer.masters]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert all((m != b).all() for m, b in zip(optimizer.masters, before))
    assert all((p == m.bfloat16()).all() for p, m in zip(optimizer.parameters, optimizer.masters))


def test_corpus_file(tmp_path):
    pytest.importorskip("tokenizers")
    out = tmp_path / "corpus.xz"
    command = [sys.executable, ROOT / "examples" / "torch_gpt" / "corpus.py", "--text", ROOT / "docs", "--out", out,
               "--vocabulary", "300", "--held-out", "0.3"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    corpus = data.Corpus(out)
    assert len(corpus.train) > 5000 and len(corpus.held_out) > 500 and corpus.vocabulary == 384
    assert corpus.train.max() < 300 and 1 < corpus.bytes_per_token < 4
