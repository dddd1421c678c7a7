"""Today's way: one network, a DataLoader with workers, eager steps, `loss.item()`; and its step as a CUDA graph."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from recombine.decoders import StagedDecoder
from recombine.specs import RunSpec

WORKERS = 2
WARM_UP_STEPS = 3


class PlainLoop:
    """The loop of a spec, as one would write it."""

    def __init__(self, spec: RunSpec, device: torch.device, workers: int = WORKERS) -> None:
        self.spec, self.device = spec, device
        values = spec.task.training_values(spec.seed)
        examples = spec.task.examples(values)
        self.module = spec.module().to(device)
        self.optimiser = torch.optim.AdamW(
            self.module.parameters(), lr=spec.recipe.lr, weight_decay=spec.recipe.weight_decay
        )
        self.steps_per_epoch = -(-len(values) // spec.recipe.batch)
        self.steps = spec.recipe.steps or self.steps_per_epoch * (spec.recipe.epochs or 0)
        self.loader = DataLoader(
            TensorDataset(examples.inputs, examples.targets), batch_size=spec.recipe.batch, shuffle=True,
            num_workers=workers, persistent_workers=workers > 0,
        )  # fmt: skip

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Squared error and what the recipe weighs in."""
        return plain_loss(self.module, self.spec, inputs, targets)

    def epoch(self) -> float:
        """One pass over the training set; the mean loss."""
        total = 0.0
        for inputs, targets in self.loader:
            self.optimiser.zero_grad()
            loss = self.loss(inputs.to(self.device), targets.to(self.device))
            loss.backward()
            self.optimiser.step()
            total += loss.item()
        return total / self.steps_per_epoch

    def seconds(self, steps: int) -> float:
        """Seconds that a whole training takes, from at least `steps` steps after a first epoch."""
        self.epoch()
        epochs = -(-steps // self.steps_per_epoch)
        began = time.perf_counter()
        for _ in range(epochs):
            self.epoch()
        return (time.perf_counter() - began) / (epochs * self.steps_per_epoch) * self.steps


def plain_loss(module: StagedDecoder, spec: RunSpec, inputs: Tensor, targets: Tensor) -> Tensor:
    """The recipe's loss of one network."""
    loss = nn.functional.mse_loss(module(inputs), targets)
    if spec.decoder.penalised:
        penalties = module.penalties()
        loss = loss + spec.recipe.entropy * penalties["entropy"] + spec.recipe.variance * penalties["variance"]
    return loss


def graphed_seconds(spec: RunSpec, device: torch.device, steps: int) -> float:
    """Seconds that a whole training of one network takes when its step is a CUDA graph, with torch's own AdamW."""
    module = spec.module().to(device)
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=spec.recipe.lr, weight_decay=spec.recipe.weight_decay, fused=True, capturable=True
    )
    values = spec.task.training_values(spec.seed)
    examples = spec.task.examples(values[: spec.recipe.batch])
    inputs, targets = (part.to(device) for part in examples)

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
    total = spec.recipe.steps or -(-len(values) // spec.recipe.batch) * (spec.recipe.epochs or 0)
    return took / steps * total
