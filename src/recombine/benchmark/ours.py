"""The engine's own time."""

from __future__ import annotations

import time
from dataclasses import dataclass

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
    """Bytes of device memory at the most (GPU only)."""


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
