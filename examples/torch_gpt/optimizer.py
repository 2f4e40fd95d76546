"""AdamW with f32 master weights for bf16 parameters, and the learning-rate schedule: what NVFP4 pretraining runs use."""

import math

import torch


class MasterAdamW:
    """The model's parameters are bf16 and so are its gradients; the optimizer keeps an f32 copy of each parameter.

    Weight decay applies to matrices other than the embedding. `step` needs no value on the host, so it can be captured in
    a CUDA graph; the learning rate is the tensor `rate`.
    """

    def __init__(self, model, weight_decay=0.1, clip=1.0):
        named = list(model.named_parameters())
        self.parameters = [p for _, p in named]
        self.masters = [p.detach().float().clone() for p in self.parameters]
        for p, master in zip(self.parameters, self.masters):
            p.data = master.to(torch.bfloat16)
        device = self.masters[0].device
        self.clip = clip
        self.rate = torch.zeros((), device=device)
        decays = [m for (name, p), m in zip(named, self.masters) if p.ndim == 2 and "embedding" not in name]
        others = [m for (name, p), m in zip(named, self.masters) if not (p.ndim == 2 and "embedding" not in name)]
        cuda = device.type == "cuda"
        self.adam = torch.optim.AdamW(
            [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=self.rate, betas=(0.9, 0.95), eps=1e-8, fused=cuda, capturable=cuda,
        )  # fmt: skip
        for master in self.masters:
            master.grad = torch.zeros_like(master)

    def step(self):
        """One update from the parameters' gradients, clipped to the norm `clip`; the norm before."""
        gradients = [m.grad for m in self.masters]
        torch._foreach_copy_(gradients, [p.grad for p in self.parameters])
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, torch.clamp(self.clip / (norm + 1e-6), max=1.0))
        self.adam.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)
        return norm

    def state_dict(self):
        return {"masters": self.masters, "adam": self.adam.state_dict()}

    def load_state_dict(self, state):
        with torch.no_grad():
            torch._foreach_copy_(self.masters, [m.to(self.rate.device) for m in state["masters"]])
            torch._foreach_copy_(self.parameters, self.masters)
        self.adam.load_state_dict(state["adam"])
        for group in self.adam.param_groups:
            group["lr"] = self.rate  # the tensor that this object fills, not the loaded copy


def schedule(steps, peak, warmup):
    """Learning rate of each step: linear warm-up, then a cosine to a tenth of the peak."""
    rates = []
    for step in range(steps):
        if step < warmup:
            rates.append(peak * (step + 1) / warmup)
        else:
            done = (step - warmup) / max(1, steps - warmup)
            rates.append(peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done))))
    return rates
