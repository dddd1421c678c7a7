"""The schedule of kills of `benchmarks.cluster` on Ray Tune, with unlimited retries and a resumed experiment.

A worker is the process of a trial. The scheduler is Ray's `gcs_server`: without it the local cluster ends, so the
driver is restarted and resumes. A driver's own cluster ends with the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import ray
from ray import tune
from tests.sweep.cluster import work_of

from benchmarks.cluster import _finished, row, train_plain
from recombine.specs import RunSpec

NAME = "storm"


def trial(settings: dict) -> None:
    """Train a run as a trial; a file names its process meanwhile."""
    config = settings["run"]
    mark = Path(config["pids"]) / str(os.getpid())
    mark.touch()
    error = train_plain(config["text"], config["steps"])
    (Path(config["results"]) / config["key"]).write_text(str(error))
    mark.unlink()
    tune.report({"error": error})


def drive(folder: Path, workers: int) -> None:
    """Start or resume the experiment."""
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
    texts = json.loads((folder / "specs").read_text())
    shared = {"pids": str(folder / "pids"), "results": str(folder / "store"), "steps": str(folder / "steps")}
    grid = [{"key": RunSpec.from_json(text).digest, "text": text, **shared} for text in texts]
    path = str(folder / "ray" / NAME)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trial, resume_unfinished=True, restart_errored=True)
    else:
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"run": tune.grid_search(grid)},
            run_config=tune.RunConfig(
                name=NAME, storage_path=str(folder / "ray"), verbose=0,
                failure_config=tune.FailureConfig(max_failures=-1),
            ),
        )  # fmt: skip
    tuner.fit()


def measured_ray(
    specs: Sequence[RunSpec], events: list[tuple[float, str]], words: argparse.Namespace, folder: Path
) -> dict:
    """Run Ray Tune under the schedule of kills and return its row of the table."""
    for name in ("pids", "store", "ray"):
        (folder / name).mkdir()
    steps = folder / "steps"
    steps.touch()
    (folder / "specs").write_text(json.dumps([spec.to_json() for spec in specs]))
    began, by_hand, kills = time.monotonic(), 0, 0
    family: set[psutil.Process] = set()
    driver = _driver(folder, words.workers)
    while _finished(folder / "store") < words.runs and time.monotonic() - began < words.patience:
        if (
            events
            and work_of(steps).steps >= events[0][0] * words.runs * words.steps
            and _kill(events[0][1], driver, folder)
        ):
            kills += 1
            if events.pop(0)[1] == "driver":
                driver.wait()
                driver = _driver(folder, words.workers)
        if driver.poll() is not None and _finished(folder / "store") < words.runs:
            by_hand += 1
            driver = _driver(folder, words.workers)
        family |= _family(driver)
        time.sleep(0.05)
    with suppress(subprocess.TimeoutExpired):
        driver.wait(60)
    driver.kill()
    for process in family:  # some of Ray's processes outlive a killed driver
        with suppress(psutil.Error):
            process.kill()
    return row("Ray Tune", kills, by_hand, words, folder, time.monotonic() - began)


def _driver(folder: Path, workers: int) -> subprocess.Popen:
    with open(folder / "log", "a") as log:
        command = [sys.executable, "-m", "benchmarks.cluster_ray", str(folder), str(workers)]
        return subprocess.Popen(command, stdout=log, stderr=log)


def _family(driver: subprocess.Popen) -> set[psutil.Process]:
    """Return all processes that a driver has started."""
    with suppress(psutil.Error):
        return set(psutil.Process(driver.pid).children(recursive=True))
    return set()


def _kill(victim: str, driver: subprocess.Popen, folder: Path) -> bool:
    """Kill the driver, a trial's process or the cluster's server; return False if there is none right now."""
    if victim == "driver":
        driver.kill()
        return True
    with suppress(psutil.Error):
        family = _family(driver)
        if victim == "scheduler":
            victims = [child for child in family if "gcs_server" in child.name()]
        else:
            marked = {int(name) for name in os.listdir(folder / "pids")}
            victims = [child for child in family if child.pid in marked]
        if victims:
            (folder / "pids" / str(victims[0].pid)).unlink(missing_ok=True)
            victims[0].send_signal(signal.SIGKILL)
            return True
    return False


if __name__ == "__main__":
    drive(Path(sys.argv[1]), int(sys.argv[2]))
