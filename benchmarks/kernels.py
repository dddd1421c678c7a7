"""Speed-up from our own kernels: the same engine with and without them, alternately in one run.

Each row is a recipe and a kernel: the time of a step with all kernels, the time without that one, and their ratio. The
last row of a recipe is without any kernel.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.cases import CASES, CPU_CASES, Case
from benchmarks.timing import seconds_per_step
from recombine import kernels
from recombine.training import Ensemble
from recombine.training.fit import Stepper

USED = {
    "CNN depth 4": ("network", "adamw"),
    "CNN, quick preset": ("network", "adamw"),
    "low-rank": ("narrow", "adamw"),
    "MLP": ("adamw",),
    "spatial broadcast": ("network", "adamw"),
    "coordinate MLP": ("tokens", "adamw"),
    "transformer depth 3": ("tokens", "attention", "adamw"),
}
"""Kernels that are used to train each recipe."""
ROUNDS = 5
"""Number of alternating rounds: the speed of a shared machine varies over time."""
ALL = "all"


def compare_kernels(
    device: torch.device, precision: str, steps: int, say: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Time a step with and without each kernel.

    Parameters
    ----------
    device
        A CPU, where one network trains on one thread, or a GPU, where the case's members train together.
    precision
        Numerical precision.
    steps
        Steps per timing.
    say
        Called with a line for every result.

    Returns
    -------
    One row per recipe and kernel, and one without any: `case`, `kernel`, `with`, `without` and `ratio`.
    """
    rows = []
    for name, used in USED.items():
        if device.type == "cpu" and name not in CPU_CASES:
            continue
        ways: dict[str, list[float]] = {way: [] for way in ("", *used, ALL)}
        with _one_thread(device):
            steppers = {way: _stepper(CASES[name], device, precision, way) for way in ways}
            for _ in range(ROUNDS):
                for way, seconds in ways.items():
                    with _without(way):
                        seconds.append(seconds_per_step(steppers[way], steps))
        fast = statistics.median(ways.pop(""))
        for kernel, seconds in ways.items():
            slow = statistics.median(seconds)
            say(f"{name}: {1e3 * fast:.3g} ms per step, without {kernel} {1e3 * slow:.3g} ms, {slow / fast:.2f} times")
            rows.append({"case": name, "kernel": kernel, "with": fast, "without": slow, "ratio": slow / fast})
    return rows


def _stepper(case: Case, device: torch.device, precision: str, way: str) -> Stepper:
    """Return an ensemble after its first steps, which choose the kernels on a GPU."""
    members = case.members if device.type == "cuda" else 1
    with _without(way):
        ensemble = Ensemble(case.spec(precision).seeds(range(members)), device)
        stepper = Stepper(ensemble, ensemble.initial())
        stepper.advance(2)
    return stepper


def _without(way: str) -> contextlib.AbstractContextManager[None]:
    """Return a context with all kernels (""), without one, or without any."""
    if not way:
        return contextlib.nullcontext()
    return kernels.without() if way == ALL else kernels.without(way)


@contextlib.contextmanager
def _one_thread(device: torch.device) -> Iterator[None]:
    """Use one thread on a CPU, as sweeps do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if device.type == "cpu" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
