"""Training members on a CPU one after the other, as the engine does, compared with batching them.

    python -m benchmarks.ways --members 8

Ratios are within one run on one machine. `benchmarks.performance` compares the engine with a plain loop.
"""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.cases import CASES, Case
from recombine.training import Ensemble
from recombine.training.fit import Stepper

DEFAULT_CASES = ("CNN depth 4", "CNN, quick preset", "MLP", "low-rank")


def seconds_per_step(case: Case, members: int, steps: int, batched: bool) -> float:
    """Return the seconds per step of one member."""
    ensemble = Ensemble(case.spec("float32").seeds(range(members)), torch.device("cpu"))
    ensemble.batched = batched
    stepper = Stepper(ensemble, ensemble.initial())
    stepper.advance(1)
    began = time.perf_counter()
    stepper.advance(steps)
    return (time.perf_counter() - began) / steps / members


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--case", nargs="+", default=DEFAULT_CASES, choices=list(CASES))
    words = parser.parse_args()
    columns = ("", "one by one, ms per step", "batched, ms per step", "speed-up of batching")
    table = Table(*columns, title="one member on a CPU")
    for name in words.case:
        turn, batched = (seconds_per_step(CASES[name], words.members, words.steps, way) for way in (False, True))
        table.add_row(name, f"{1e3 * turn:.3g}", f"{1e3 * batched:.3g}", f"{turn / batched:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
