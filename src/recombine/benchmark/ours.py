"""The engine's own time."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from typing import Any

import torch

from recombine.specs import RunSpec
from recombine.training import Ensemble
from recombine.training.fit import LONGEST_SPAN, Stepper


@dataclass(frozen=True)
class Timed:
    """One ensemble."""

    seconds: float
    """A model's whole training: steps times the time of a step, shared among members."""
    step: float
    """Seconds of a step of all members."""
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
    began, left = time.perf_counter(), steps
    while left:
        span = min(left, LONGEST_SPAN)
        stepper.advance(span)
        left -= span
    step = (time.perf_counter() - began) / steps
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return Timed(step * ensemble.totals[0] / members, step, setup, peak)


def timed_in_processes(spec: RunSpec, processes: int, steps: int) -> Timed:
    """The same on a CPU, in so many processes of one thread each, all at once: how sweeps run there."""
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
