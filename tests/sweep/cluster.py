"""A real Dask cluster on this machine, scheduler and workers as processes, and means to kill them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.small import small_spec

KILLER, RAISER = small_spec("mlp", seed=100), small_spec("mlp", seed=101)
"""Runs that kill their worker, and that raise."""
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
QUIET = {"DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False"}


class Cluster:
    """A scheduler, workers that are started again when they end, as a cluster manager would, and drivers."""

    def __init__(self, folder, workers=2, poison=None, steps=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file, self.audit = self.folder / "scheduler.json", self.folder / "audit"
        self.audit.touch()
        self.poison, self.steps = poison or {}, steps
        self.zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.cluster_zygote"], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **QUIET},
        )  # fmt: skip
        assert self.zygote.stdout.readline() == "ready\n"
        self.scheduler, self.port = 0, 0
        self.extra, self.settings = {}, {}
        """Words for single workers, by number; what every process that is started is to be like."""
        self.workers = dict.fromkeys(range(workers), 0)
        self.drivers = []

    def start(self):
        """Start the scheduler and all workers."""
        self.start_scheduler()
        self.keep()

    def start_scheduler(self):
        """Start the scheduler, again at the same address."""
        self.file.unlink(missing_ok=True)
        words = ["--host", "127.0.0.1", "--port", self.port, "--no-dashboard", "--scheduler-file", self.file]
        self.scheduler = self._begin("scheduler", words=[str(word) for word in words])
        wait_for(self.file.exists)
        wait_for(lambda: self.file.read_text().strip().endswith("}"))
        self.port = int(json.loads(self.file.read_text())["address"].rpartition(":")[2])

    def keep(self, **settings):
        """Start workers in the place of those that have ended."""
        for name, pid in self.workers.items():
            if not is_alive(pid) and is_alive(self.scheduler):
                words = [
                    "--scheduler-file", self.file, "--host", "127.0.0.1", "--nthreads", 1, "--no-nanny",
                    "--no-dashboard", "--local-directory", self.folder, "--name", f"w{name}", *self.extra.get(name, ()),
                ]  # fmt: skip
                self.workers[name] = self._begin("worker", words=[str(word) for word in words], **settings)

    def drive(self, store, specs, *, alone=False, checkpoint=0.1, kind="driver", **settings):
        """Start a driver; its process number."""
        log = str(self.folder / f"driver{len(self.drivers)}")
        driver = self._begin(
            kind, store=str(store), specs=[json.loads(spec.to_json()) for spec in specs], checkpoint=checkpoint,
            scheduler=None if alone else str(self.file), log=log, **settings,
        )  # fmt: skip
        self.drivers.append(driver)
        return driver

    def said(self, number=-1):
        """Lines of a driver, but those about workers that a busy machine starts late."""
        path = self.folder / f"driver{range(len(self.drivers))[number]}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line != "scheduler: waiting for workers"]

    def _begin(self, kind, **order):
        words = {
            "kind": kind, "audit": str(self.audit), "poison": self.poison,
            "log": str(self.folder / kind), "steps": self.steps and str(self.steps),
            **self.settings, **order,
        }  # fmt: skip
        self.zygote.stdin.write(json.dumps(words) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def saves(self):
        """How often each run was saved, and those that were in the store before."""
        lines = [line.split() for line in self.audit.read_text().splitlines()]
        return Counter(key for _, key in lines), [key for word, key in lines if word == "again"]

    def replace_workers(self, **settings):
        """Start other workers in the place of all."""
        pids = list(self.workers.values())
        for pid in pids:
            kill(pid)
        wait_for(lambda: not any(is_alive(pid) for pid in pids))
        self.keep(**settings)

    def until(self, condition, patience=PATIENCE):
        """Keep workers alive until something holds."""

        def holds():
            self.keep()
            return condition()

        wait_for(holds, patience)

    def finish(self, *drivers, patience=PATIENCE):
        """Keep workers alive until drivers have ended."""
        self.until(lambda: not any(is_alive(driver) for driver in drivers), patience)

    def close(self):
        """End everything."""
        for pid in [self.scheduler, *self.workers.values(), *self.drivers]:
            kill(pid)
        self.zygote.stdin.close()
        self.zygote.wait(30)


class Work(NamedTuple):
    """Steps that were trained, and how long they and the longest span between two yields took."""

    steps: int
    seconds: float
    longest: float

    def repeated(self, needed):
        """Seconds of work beyond so many steps."""
        return (self.steps - needed) * self.seconds / max(self.steps, 1)


def work_of(path):
    """What a file with steps and seconds of spans comes to; a line that a kill cut off is left out."""
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    spans = [(int(words[0]), float(words[1])) for words in lines if len(words) == 2]
    return Work(
        sum(steps for steps, _ in spans), sum(own for _, own in spans), max((own for _, own in spans), default=0.0)
    )


def kill(pid, number=signal.SIGKILL):
    """Kill a process, if it is there."""
    if pid and is_alive(pid):
        os.kill(pid, number)


def is_alive(pid):
    """Whether there is such a process."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition, patience=PATIENCE):
    """Wait until something holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
