"""The plain training loop: one network of torch's own layers, a DataLoader with workers, eager steps, `loss.item()`.

Also the same network's step as a CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from recombine.decoders import CNN, DenoisingDecoder, Interface, Transformer
from recombine.decoders.tokens import PixelTokens
from recombine.specs import RunSpec

WORKERS = 2
WARM_UP_STEPS = 3


def plain_module(spec: RunSpec) -> nn.Module:
    """Return the spec's network built from torch's own layers; most decoders already are."""
    if isinstance(spec.decoder, CNN):
        return PublishedCNN(spec.decoder, spec.interface)
    if isinstance(spec.decoder, Transformer):
        return PublishedTransformer(spec.decoder, spec.interface)
    return spec.module()


class PublishedCNN(nn.Module):
    """Transposed convolutions, starting from one pixel."""

    def __init__(self, decoder: CNN, interface: Interface) -> None:
        super().__init__()
        *transposed, last = decoder.convolutions(interface)
        layers = [layer for block in transposed for layer in (nn.ConvTranspose2d(*block), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Conv2d(*last))
        self.image_shape = interface.image_shape

    def forward(self, codes: Tensor) -> Tensor:
        image = self.layers(codes[:, :, None, None])
        if image.shape[-2:] != self.image_shape:
            image = functional.interpolate(image, size=self.image_shape)
        return cast(Tensor, image).squeeze(1)


class PublishedTransformer(nn.Module):
    """torch's encoder layers over pixel tokens, without dropout."""

    def __init__(self, decoder: Transformer, interface: Interface) -> None:
        super().__init__()
        self.tokens = PixelTokens(interface, decoder.width)
        layer = nn.TransformerEncoderLayer(
            decoder.width, decoder.heads, decoder.feedforward, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, decoder.depth)
        self.read = nn.Linear(decoder.width, 1)
        self.image_shape = interface.image_shape

    def forward(self, codes: Tensor) -> Tensor:
        values = self.read(self.layers(self.tokens(codes)))
        return cast(Tensor, values).view(-1, *self.image_shape)


def plain_loss(module: nn.Module, spec: RunSpec, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the recipe's loss for one network."""
    is_denoiser = isinstance(module, DenoisingDecoder)
    noisy = (targets, torch.randn_like(targets), torch.rand_like(targets[:, 0, 0])) if is_denoiser else ()
    loss = functional.mse_loss(module(inputs, *noisy), targets)
    for penalty in spec.penalties:
        loss = loss + penalty.weight * penalty.loss(module, inputs, spec.task.code_sizes, None)
    return loss


def first_batch(spec: RunSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a batch of the spec's examples."""
    examples = spec.task.examples(spec.task.training_values(spec.seed)[: spec.recipe.batch])
    return examples.inputs.to(device), examples.targets.to(device)


class PlainLoop:
    """The usual training loop for a spec."""

    def __init__(self, spec: RunSpec, device: torch.device, workers: int = WORKERS) -> None:
        self.spec, self.device = spec, device
        values = spec.task.training_values(spec.seed)
        examples = spec.task.examples(values)
        self.module = plain_module(spec).to(device)
        self.optimiser = torch.optim.AdamW(
            self.module.parameters(), lr=spec.recipe.lr, weight_decay=spec.recipe.weight_decay
        )
        self.steps_per_epoch = spec.recipe.steps_per_epoch(len(values))
        self.steps = spec.total_steps
        self.loader = DataLoader(
            TensorDataset(examples.inputs, examples.targets), batch_size=spec.recipe.batch, shuffle=True,
            num_workers=workers, persistent_workers=workers > 0,
        )  # fmt: skip

    def steps_of_an_epoch(self) -> Iterator[float]:
        """Train for one epoch, and yield the loss of each step."""
        for inputs, targets in self.loader:
            self.optimiser.zero_grad()
            loss = plain_loss(self.module, self.spec, inputs.to(self.device), targets.to(self.device))
            loss.backward()
            self.optimiser.step()
            yield loss.item()

    def epoch(self) -> float:
        """Train for one epoch, and return the mean loss."""
        return sum(self.steps_of_an_epoch()) / self.steps_per_epoch

    def seconds(self, steps: int) -> float:
        """Return the seconds of a whole training, extrapolated from at least `steps` steps after a warm-up."""
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
    """Return the seconds of a whole training of one network whose step is a CUDA graph, with torch's AdamW."""
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
    return took / steps * spec.total_steps
