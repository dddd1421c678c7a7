"""Time a model by the number of members that train together, at the published recipe.

    python -m benchmarks.members --device cuda --members 1 8 32 --precision tf32 bf16

Prints one table; times are of one run and one machine, ratios are to the first row. `--steps` shortens the recipe and
scales the times up to its full length.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import torch
from rich.console import Console
from rich.table import Table

from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpTask
from recombine.training import Ensemble, device_name, resolve_device
from recombine.training.fit import LONGEST_SPAN, Stepper

PUBLISHED_STEPS = 3150


def seconds_a_model(spec: RunSpec, members: int, device: torch.device, steps: int, way: str) -> tuple[float, float]:
    """Seconds that one model of the ensemble takes, and the time to set up, in seconds."""
    began = time.perf_counter()
    ensemble = Ensemble(spec.seeds(range(members)), device)
    if way != "default":
        ensemble.batched = way == "batched"
    stepper = Stepper(ensemble, ensemble.initial())
    stepper.advance(2)
    ready = time.perf_counter()
    left = steps
    while left:
        span = min(left, LONGEST_SPAN)
        stepper.advance(span)
        left -= span
    took = time.perf_counter() - ready
    return took / steps * PUBLISHED_STEPS / members, ready - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", nargs="+", default=["float32"])
    parser.add_argument("--steps", type=int, default=20, help="steps to time; the published recipe has 3150")
    parser.add_argument("--decoder", default="cnn")
    parser.add_argument("--way", nargs="+", default=["default"], choices=["default", "turn", "batched"])
    parser.add_argument("--size", type=int, default=28)
    words = parser.parse_args()
    device = resolve_device(words.device)
    table = Table(
        "precision", "way", "members", "s a model", "ratio", "set-up s", title=f"{words.decoder}, {device_name(device)}"
    )
    first = None
    for precision in words.precision:
        spec = RunSpec(task=BumpTask(size=words.size), decoder=words.decoder, recipe=Recipe(precision=precision))
        for way, members in product(words.way, words.members):
            seconds, setup = seconds_a_model(spec, members, device, words.steps, way)
            first = first or seconds
            table.add_row(precision, way, str(members), f"{seconds:.3f}", f"{first / seconds:.2f}", f"{setup:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
