"""Work lost and repeated when processes of a cluster are killed, for recombine, plain Dask futures and Ray Tune.

    python -m benchmarks.cluster --runs 24 --steps 400 --kills 6

All three get the same schedule of kills: workers at equal intervals, the scheduler once in the middle, then the driver
once. Killed workers and schedulers are restarted, as a cluster manager would do. A driver that gives up is restarted
too, which counts as a manual start. Steps of all processes are counted; those beyond the steps of all runs were
repeated. The plain script writes each result to disk as it arrives and, when restarted, submits only missing runs. Tune
retries failed trials indefinitely and resumes its experiment; without `ray`, its row is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.sweep.cluster import Cluster, is_alive, kill, work_of

from recombine.specs import Recipe, RunSpec
from recombine.store import Store
from recombine.tasks import BumpTask

CHECKPOINT = 0.5
"""Seconds between recombine's checkpoints."""


def specs_of(runs: int, steps: int) -> list[RunSpec]:
    """Return small runs that take about a second each."""
    task = BumpTask(size=8, training="draws:50")
    return RunSpec(task=task, decoder="mlp:width=8:depth=2", recipe=Recipe(steps=steps, batch=16)).seeds(range(runs))


def train_plain(text: str, steps_path: str) -> float:
    """Train a run from start to end, as a plain script would, and return its last training error."""
    import torch

    from recombine.training import Ensemble, State, fit

    torch.set_num_threads(1)
    ensemble = Ensemble([RunSpec.from_json(text)], torch.device("cpu"))
    state = State.stack([ensemble.fresh(0)], torch.device("cpu"))
    before, began = 0, time.monotonic()
    for _ in fit(ensemble, state):
        with open(steps_path, "a") as file:
            file.write(f"{int(state.step.sum()) - before} {time.monotonic() - began}\n")
        before, began = int(state.step.sum()), time.monotonic()
    return float(state.errors[0][-1])


def plain_driver(order: dict) -> int:
    """Submit runs without a result as Dask futures, and keep each result as it arrives."""
    from distributed import Client, as_completed

    results = Path(order["store"])
    results.mkdir(exist_ok=True)
    texts = {RunSpec.from_json(json.dumps(spec)).digest: json.dumps(spec) for spec in order["specs"]}
    missing = {key: text for key, text in texts.items() if not (results / key).exists()}
    client = Client(scheduler_file=order["scheduler"], timeout=60)
    futures = {client.submit(train_plain, text, order["steps"], pure=False): key for key, text in missing.items()}
    for future in as_completed(futures):
        (results / futures[future]).write_text(str(future.result()))
    return 0


def measured(name: str, kind: str, words: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one method under the schedule of kills and return its row of the table."""
    specs, store, steps = specs_of(words.runs, words.steps), folder / "store", folder / "steps"
    steps.touch()
    cluster = Cluster(folder / "cluster", workers=words.workers, steps=steps)
    began, by_hand, kills = time.monotonic(), 0, 0
    try:
        cluster.start()
        settings = {"kind": kind, "checkpoint": CHECKPOINT}
        driver = cluster.drive(store, specs, **settings)
        events = schedule(words)
        while _finished(store) < words.runs and time.monotonic() - began < words.patience:
            cluster.keep()
            if events and work_of(steps).steps >= events[0][0] * words.runs * words.steps:
                victim = events.pop(0)[1]
                kills += 1
                if victim == "driver":
                    kill(driver)
                    driver = cluster.drive(store, specs, **settings)
                elif victim == "scheduler":
                    kill(cluster.scheduler)
                    cluster.until(lambda: not is_alive(cluster.scheduler))
                    cluster.start_scheduler()
                else:
                    kill(cluster.workers[kills % words.workers])
            if not is_alive(driver) and _finished(store) < words.runs:
                by_hand += 1
                driver = cluster.drive(store, specs, **settings)
            time.sleep(0.02)
        cluster.until(lambda: not is_alive(driver), 60)
    finally:
        cluster.close()
    return row(name, kills, by_hand, words, folder, time.monotonic() - began)


def row(name: str, kills: int, by_hand: int, words: argparse.Namespace, folder: Path, seconds: float) -> dict[str, Any]:
    """Return a method's row of the table."""
    work, needed = work_of(folder / "steps"), words.runs * words.steps
    return {
        "name": name, "kills": kills, "lost": words.runs - _finished(folder / "store"), "by hand": by_hand,
        "repeated": (work.steps - needed) / words.steps, "per kill": work.repeated(needed) / max(kills, 1),
        "longest": work.longest, "seconds": seconds,
    }  # fmt: skip


def schedule(words: argparse.Namespace) -> list[tuple[float, str]]:
    """Return the kills: the share of all steps at which each happens, and which process it hits."""
    workers = [((number + 1) / (words.kills + 1), "worker") for number in range(words.kills)]
    return sorted([*workers, (0.5, "scheduler"), (0.7, "driver")])


def _finished(store: Path) -> int:
    """Return the number of runs in a store, or of results of a script."""
    if (store / "runs").exists():
        return len(Store(store).keys())
    return len(os.listdir(store)) if store.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--kills", type=int, default=6, help="number of workers to kill")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--patience", type=float, default=900, help="seconds after which a method is given up")
    words = parser.parse_args()
    ways = {"recombine": "driver", "Dask futures": "benchmarks.cluster:plain_driver"}
    rows = []
    for name, kind in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(name, kind, words, Path(folder)))
    try:
        from benchmarks.cluster_ray import measured_ray

        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured_ray(specs_of(words.runs, words.steps), schedule(words), words, Path(folder)))
    except ImportError:
        print("Ray Tune: skipped, ray is not installed")
    table = Table("method", "kills", "runs lost", "manual starts", "repeated, runs", "repeated, s per kill", "seconds")
    for own in rows:
        table.add_row(
            own["name"], str(own["kills"]), str(own["lost"]), str(own["by hand"]), f"{own['repeated']:.2f}",
            f"{own['per kill']:.2f}", f"{own['seconds']:.0f}",
        )  # fmt: skip
    Console().print(table)
    limit = CHECKPOINT + rows[0]["longest"]
    print(f"recombine may repeat {limit:.2f} s per kill: {CHECKPOINT} s between checkpoints, plus one span of steps")
    holds = rows[0]["lost"] == 0 and rows[0]["per kill"] <= limit
    print("holds" if holds else "FAILS")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
