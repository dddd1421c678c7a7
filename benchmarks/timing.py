"""Timing of the engine, measured limits of the machine, and the minimum operations and bytes of a step."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.plain import first_batch, plain_loss
from recombine.specs import RunSpec
from recombine.training import Ensemble
from recombine.training.devices import arithmetic
from recombine.training.fit import LONGEST_SPAN, Stepper

SIDE = {"cuda": 8192, "cpu": 2048}
COPIED_BYTES = {"cuda": 2**32, "cpu": 2**28}
WIDTHS = {"float32": 4, "tf32": 4, "bf16": 2}
"""Bytes per number in each precision."""
OPTIMISER_BYTES = 28
"""AdamW, per parameter in float32: reads gradient, weight and two moments, and writes the last three."""
ACTIVATION_PASSES = 4
"""A stage's values are written once and read in the backward pass, and so are their gradients."""


@dataclass(frozen=True)
class Timed:
    """Timing of one ensemble."""

    seconds: float
    """Seconds of a whole training per model: steps times the time of a step, divided by the number of members."""
    step: float
    """Seconds per step of all members."""
    setup: float
    peak: int
    """Peak bytes of device memory (GPU only)."""


def timed(spec: RunSpec, members: int, device: torch.device, steps: int) -> Timed:
    """Time `steps` steps of an ensemble."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    ensemble = Ensemble(spec.seeds(range(members)), device)
    stepper = Stepper(ensemble, ensemble.initial())
    stepper.advance(2)
    setup = time.perf_counter() - began
    step = seconds_per_step(stepper, steps)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return Timed(step * ensemble.totals[0] / members, step, setup, peak)


def seconds_per_step(stepper: Stepper, steps: int) -> float:
    """Return the seconds per step of all members, over some steps."""
    began, left = time.perf_counter(), steps
    while left:
        span = min(left, LONGEST_SPAN)
        stepper.advance(span)
        left -= span
    return (time.perf_counter() - began) / steps


def timed_in_processes(spec: RunSpec, processes: int, steps: int) -> Timed:
    """Time steps on a CPU in several single-threaded processes at once, which is how sweeps run there."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(processes) as pool:
        start = manager.Barrier(processes)
        results = pool.starmap(_alone, [(spec.to_json(), steps, start)] * processes)
    step = sum(one.step for one in results) / len(results)
    seconds = sum(one.seconds for one in results) / len(results) / processes
    return Timed(seconds, step, max(one.setup for one in results), 0)


def _alone(spec: str, steps: int, start: Any) -> Timed:
    torch.set_num_threads(1)
    read = RunSpec.from_json(spec)
    timed(read, 1, torch.device("cpu"), 1)
    start.wait()
    return timed(read, 1, torch.device("cpu"), steps)


def median_seconds(action: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Return the median time of an action, after two warm-up calls."""
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def product_rate(device: torch.device, precision: str) -> float:
    """Return the operations per second of a large matrix product of random numbers."""
    side = SIDE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.randn(2, side, side, device=device).to(dtype)
    with arithmetic(precision):
        return 2 * side**3 / median_seconds(lambda: left @ right, device)


def copy_rate(device: torch.device) -> float:
    """Return the bytes per second, read and written, of a large copy."""
    source = torch.ones(COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES[device.type] / median_seconds(lambda: target.copy_(source), device)


@dataclass(frozen=True)
class Work:
    """Minimum work of one step of one network."""

    operations: int
    moved: int
    """Bytes read and written."""

    def floor(self, product: float, copy: float) -> float:
        """Return the minimum seconds at given rates."""
        return max(self.operations / product, self.moved / copy)


def work_of(spec: RunSpec) -> Work:
    """Count the work of a step of the decoder's module, on the meta device."""
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
