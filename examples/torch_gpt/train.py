"""One training run: the step (one CUDA graph on a GPU), held-out loss, the log, saving and going on."""

import dataclasses
import json
import time

import model as gpt
import numpy as np
import optimizer as optim
import recipes
import torch

try:
    from tqdm import tqdm
except ImportError:  # a progress bar is all it is for
    tqdm = None


@dataclasses.dataclass
class Run:
    """What a run is; everything that changes its losses."""

    recipe: str = "bf16"
    layers: str = "mlp"
    seed: int = 0
    steps: int = 1500
    tokens_per_step: int = 16384
    rate: float = 8e-4
    warmup: int = 100
    shape: gpt.Shape = dataclasses.field(default_factory=gpt.Shape)
    held_out_batches: int = 16
    held_out_every: int = 500
    stop: int = 0  # end after so many steps of the schedule; 0: all
    draw: int = 0  # seed of PyTorch's own random bits, which only `fakequant` uses

    def __post_init__(self):
        if self.tokens_per_step % self.shape.length:
            raise ValueError(f"{self.tokens_per_step} tokens a step are not whole sequences of {self.shape.length}")

    @property
    def name(self):
        where = "" if self.recipe == "bf16" else f"-{self.layers}"
        return f"{self.recipe}{where}-seed{self.seed}" + (f"-first{self.stop}" if self.stop else "") + (f"-draw{self.draw}" if self.draw else "")


class Trainer:
    """Holds the model, its optimizer and the position in the data of one run."""

    def __init__(self, run, corpus, device):
        self.run, self.device = run, torch.device(device)
        torch.manual_seed(run.draw)
        model = gpt.GPT(run.shape)
        model.initialise(run.seed)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.model = model.to(self.device)
        self.context = recipes.apply(self.model, run.recipe, run.layers)
        self.optimizer = optim.MasterAdamW(self.model)
        sequences = run.tokens_per_step // run.shape.length
        # Data, learning rates and losses lie on the device and are indexed there: a step needs nothing from the host.
        place = {"device": self.device}
        self.tokens = torch.from_numpy(corpus.train.astype(np.int32)).to(self.device)
        self.starts = torch.from_numpy(corpus.starts(run.steps, sequences, run.shape.length, run.seed)).to(self.device)
        self.window = torch.arange(run.shape.length + 1, **place)
        self.rates = torch.tensor(optim.schedule(run.steps, run.rate, run.warmup), dtype=torch.float32, **place)
        self.losses = torch.zeros(run.steps, **place)
        self.norms = torch.zeros(run.steps, **place)
        self.at = torch.zeros(1, dtype=torch.int64, **place)
        held_out = corpus.held_out_batches(sequences, run.shape.length, run.held_out_batches)
        self.held_out = torch.from_numpy(held_out).to(self.device)
        self.done, self.graph, self.evaluations = 0, None, []

    def _step(self):
        for parameter in self.optimizer.parameters:
            parameter.grad = None
        starts = self.starts.index_select(0, self.at).view(-1, 1)
        batch = self.tokens[starts + self.window].long()
        self.optimizer.rate.copy_(self.rates.index_select(0, self.at)[0])
        with self.context():
            loss = self.model.loss(batch)
        loss.backward()
        norm = self.optimizer.step()
        self.losses.index_copy_(0, self.at, loss.detach().float().view(1))
        self.norms.index_copy_(0, self.at, norm.view(1))
        self.at += 1

    def step(self):
        """One step. The first three run as they are, the fourth is recorded, and from then on the recording runs."""
        if self.device.type != "cuda":
            self._step()
        elif self.graph is None and self.warm < 3:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step()
            torch.cuda.current_stream().wait_stream(stream)
            self.warm += 1
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self._step()
            self.graph.replay()
        self.done += 1

    warm = 0

    def evaluate(self):
        """Mean nats a token on the held-out part. With gradients on, so that compiled pieces are those of training."""
        total = 0.0
        for batch in self.held_out:
            with self.context():
                total += self.model.loss(batch).detach().double()
        return float(total / len(self.held_out))

    def save(self, path):
        """Everything that the rest of the run depends on, written whole or not at all."""
        state = {
            "run": dataclasses.asdict(self.run), "done": self.done, "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(), "losses": self.losses, "norms": self.norms,
            "evaluations": self.evaluations, "torch": torch.get_rng_state(),
        }  # fmt: skip
        temporary = path.with_suffix(".partial")
        torch.save(state, temporary)
        temporary.replace(path)

    def resume(self, path):
        """Goes on from a file of `save`, which must be of the same run."""
        state = torch.load(path, map_location=self.device, weights_only=False)
        if state["run"] != dataclasses.asdict(self.run):
            raise ValueError(f"{path} is of another run: {state['run']}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done, self.evaluations = state["done"], state["evaluations"]
        self.losses.copy_(state["losses"])
        self.norms.copy_(state["norms"])
        self.at.fill_(self.done)
        torch.set_rng_state(state["torch"].cpu())


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def train(run, corpus, device="cuda", out=None, resume=False, save_every=0, until=None, progress=True):
    """Runs (on) to run.steps; the record: losses of each step, held-out losses, milliseconds a step, memory.

    out: a folder for NAME.jsonl and NAME.pt. until: a time.monotonic() after which the run is saved and None returned.
    """
    trainer = Trainer(run, corpus, device)
    file = out / f"{run.name}.pt" if out else None
    if resume and file and file.exists():
        trainer.resume(file)
    bar = tqdm(total=run.stop or run.steps, initial=trainer.done, desc=run.name, mininterval=2) if tqdm and progress else None
    timed, since = [], None  # (steps, seconds) of undisturbed stretches
    last = run.stop or run.steps
    while trainer.done < last:
        trainer.step()
        if trainer.done % 100 == 0 or trainer.done == last:
            synchronize(trainer.device)
            now = time.monotonic()
            if since and trainer.done - since[0] == 100:
                timed.append(now - since[1])
            if bar:
                bar.set_postfix(loss=f"{float(trainer.losses[trainer.done - 1]):.3f}", refresh=False)
                bar.update(trainer.done - bar.n)
            if trainer.done % run.held_out_every == 0 or trainer.done == last:
                trainer.evaluations.append([trainer.done, trainer.evaluate()])
            if save_every and file and trainer.done % save_every == 0:
                trainer.save(file)
            if until and time.monotonic() > until and trainer.done < last:
                trainer.save(file)
                return None
            since = (trainer.done, time.monotonic())
    if bar:
        bar.close()
    record = {
        "name": run.name, **dataclasses.asdict(run), "parameters": trainer.parameters,
        "losses": [round(x, 5) for x in trainer.losses[:last].tolist()], "norms": [round(x, 4) for x in trainer.norms[:last].tolist()],
        "held_out": trainer.evaluations, "bytes_per_token": corpus.bytes_per_token,
        "step_ms": 1000 * sorted(timed)[len(timed) // 2] / 100 if timed else None,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9 if trainer.device.type == "cuda" else None,
        "device": torch.cuda.get_device_name() if trainer.device.type == "cuda" else "cpu", "torch": torch.__version__,
    }  # fmt: skip
    if out:
        write_log(record, out / f"{run.name}.jsonl")
        if save_every:
            trainer.save(file)
    return record


def write_log(record, path):
    """JSON lines: the run, then each step's loss, then the held-out losses."""
    heads = {k: v for k, v in record.items() if k not in ("losses", "norms", "held_out")}
    lines = [heads, *({"step": i + 1, "loss": x, "gradient_norm": g} for i, (x, g) in enumerate(zip(record["losses"], record["norms"])))]
    lines += [{"step": step, "held_out": loss} for step, loss in record["held_out"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
