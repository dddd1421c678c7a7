"""Today's way: one network, a DataLoader with workers, eager steps, `loss.item()`; and its step as a CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, TensorDataset

from recombine.benchmark.published import first_batch, plain_loss, plain_module
from recombine.specs import RunSpec
from recombine.training import steps_of, steps_per_epoch, total_steps

WORKERS = 2
WARM_UP_STEPS = 3


class PlainLoop:
    """The loop of a spec, as one would write it."""

    def __init__(self, spec: RunSpec, device: torch.device, workers: int = WORKERS) -> None:
        self.spec, self.device = spec, device
        values = spec.task.training_values(spec.seed)
        examples = spec.task.examples(values)
        self.module = plain_module(spec).to(device)
        self.optimiser = torch.optim.AdamW(
            self.module.parameters(), lr=spec.recipe.lr, weight_decay=spec.recipe.weight_decay
        )
        self.steps_per_epoch = steps_per_epoch(spec.recipe, len(values))
        self.steps = total_steps(spec.recipe, len(values))
        self.loader = DataLoader(
            TensorDataset(examples.inputs, examples.targets), batch_size=spec.recipe.batch, shuffle=True,
            num_workers=workers, persistent_workers=workers > 0,
        )  # fmt: skip

    def steps_of_an_epoch(self) -> Iterator[float]:
        """One pass over the training set, step by step; each one's loss."""
        for inputs, targets in self.loader:
            self.optimiser.zero_grad()
            loss = plain_loss(self.module, self.spec, inputs.to(self.device), targets.to(self.device))
            loss.backward()
            self.optimiser.step()
            yield loss.item()

    def epoch(self) -> float:
        """One pass over the training set; the mean loss."""
        return sum(self.steps_of_an_epoch()) / self.steps_per_epoch

    def seconds(self, steps: int) -> float:
        """Seconds that a whole training takes, from at least `steps` steps after the first ones."""
        began, done, warm = time.perf_counter(), 0, min(WARM_UP_STEPS, self.steps_per_epoch - 1)
        while done - warm < steps:
            for _ in self.steps_of_an_epoch():
                done += 1
                if done == warm:
                    began = time.perf_counter()
                if done - warm == steps:
                    break
        return (time.perf_counter() - began) / (done - warm) * self.steps


def graphed_seconds(spec: RunSpec, device: torch.device, steps: int) -> float:
    """Seconds that a whole training of one network takes when its step is a CUDA graph, with torch's own AdamW."""
    module = plain_module(spec).to(device)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=spec.recipe.lr, weight_decay=spec.recipe.weight_decay, fused=True, capturable=True
    )
    inputs, targets = first_batch(spec, device)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        plain_loss(module, spec, inputs, targets).backward()
        optimiser.step()

    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        graph.replay()
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    return took / steps * steps_of(spec)
