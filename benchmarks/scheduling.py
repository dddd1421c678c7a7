"""Overhead of a Dask task: the same runs on a cluster with one worker and in this process.

python -m benchmarks.scheduling
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

from recombine.specs import Recipe, RunSpec
from recombine.sweep import train
from recombine.tasks import BumpTask

TASKS = 40
WARM = 4
"""Warm-up runs: the worker imports torch with the first."""
MINUTE = 60.0


def main() -> None:
    """Print the seconds per run on a cluster with one worker and in this process, and their difference.

    No two runs can train together, so each is a separate task: sent, trained, saved, returned and checked.
    """
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder) / "here", Path(folder) / "there"
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            train(_specs(WARM, 1), there, device="cpu", scheduler=client, progress=False)
            sent = _timed(_specs(TASKS, 2), there, scheduler=client)
        train(_specs(WARM, 1), here, device="cpu", processes=1, progress=False)
        alone = _timed(_specs(TASKS, 2), here, processes=1)
    cost = max(0.0, sent - alone)
    print(
        f"scheduling: {1e3 * cost:.3g} ms per task ({1e3 * sent:.3g} ms on a cluster, {1e3 * alone:.3g} ms here), "
        f"{100 * cost / MINUTE:.2g} % of an ensemble of one minute"
    )


def _specs(count: int, steps: int) -> list[RunSpec]:
    """Return runs of a step or two, no two of which can train together."""
    task = BumpTask(size=8, training="draws:16")
    recipes = [Recipe(steps=steps, batch=4 + number) for number in range(count)]
    return [RunSpec(task=task, decoder="mlp:width=8:depth=1", recipe=recipe) for recipe in recipes]


def _timed(specs: list[RunSpec], store: Path, **settings: object) -> float:
    began = time.perf_counter()
    train(specs, store, device="cpu", progress=False, **settings)  # type: ignore[arg-type]
    return (time.perf_counter() - began) / len(specs)


if __name__ == "__main__":
    main()
