"""The machine's limits, measured: matrix products and copies; and the least a step must do: operations and bytes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from recombine.benchmark.published import first_batch, plain_loss
from recombine.specs import RunSpec
from recombine.training.devices import arithmetic

SIDE = {"cuda": 8192, "cpu": 2048}
COPIED_BYTES = {"cuda": 2**32, "cpu": 2**28}
WIDTHS = {"float32": 4, "tf32": 4, "bf16": 2}
"""Bytes of a number in each precision."""
OPTIMISER_BYTES = 28
"""AdamW, per parameter: gradient, weight and two moments are read, the last three written, in float32."""
ACTIVATION_PASSES = 4
"""A stage's values are written and read again going back, and so is their gradient."""


def median_seconds(action: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median time of an action, after two for warming up."""
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def product_rate(device: torch.device, precision: str) -> float:
    """Operations per second of a large matrix product of random numbers."""
    side = SIDE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, side, side, device=device).to(dtype)
    with arithmetic(precision):
        return 2 * side**3 / median_seconds(lambda: left @ right, device)


def copy_rate(device: torch.device) -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.ones(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES[device.type] / median_seconds(lambda: target.copy_(source), device)


@dataclass(frozen=True)
class Work:
    """The least that one step of one network does."""

    operations: int
    moved: int
    """Bytes."""

    def floor(self, product: float, copy: float) -> float:
        """Seconds, at given rates."""
        return max(self.operations / product, self.moved / copy)


def work_of(spec: RunSpec) -> Work:
    """Counted on a step of the decoder's own module, on no device at all."""
    module = spec.module().to("meta")
    inputs, targets = first_batch(spec, torch.device("meta"))
    with FlopCounterMode(display=False) as counter:
        plain_loss(module, spec, inputs, targets).backward()
    stages = sum(stage.numel() for stage in module.activations(inputs).values())
    parameters = sum(parameter.numel() for parameter in module.parameters())
    width = WIDTHS[spec.recipe.precision]
    return Work(
        counter.get_total_flops(), OPTIMISER_BYTES * parameters + ACTIVATION_PASSES * width * stages
    )  # fmt: skip
