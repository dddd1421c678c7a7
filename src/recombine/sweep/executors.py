"""Train what is not trained yet, in this process (`local`), in several (`processes`), or on a Dask cluster (`cluster`).

>>> runs = train(RunSpec(decoder="cnn:width=16").seeds(range(4)), store="runs")

Finished runs are served from the store. Unfinished ones go on from their checkpoints to the same bits. Several
processes may work on one store: a run that another one is training is waited for, never trained twice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from recombine.errors import InvalidValue, listed
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.sweep.local import Check, Sweep
from recombine.sweep.processes import train_in_processes
from recombine.sweep.progress import Progress, Say, Shown, TrainingBar, Watch
from recombine.training import DEVICES, check_precision, resolve_device, within

MEMBERS_TOGETHER = {"cpu": 1, "cuda": 128}
"""Members of one program. On a CPU members train in turn anyway, and one at a time finishes the first one soonest; on a
GPU more than this are hardly faster."""
CHECKPOINT_SECONDS = 30.0


def train(
    specs: Iterable[RunSpec] | RunSpec,
    store: Store | str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    members: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Watch | None = None,
    processes: int | None = None,
    memory: float | None = None,
    check: Check = "bytes",
    scheduler: Any = None,
    say: Say | None = None,
    progress: Shown = "auto",
) -> list[Run]:
    """The finished runs of all specs, in their order; what is missing in the store is trained.

    Parameters
    ----------
    specs
        The runs to train, or a single one.
    store
        Where runs are kept: a store or its path. Default: `RECOMBINE_STORE`, or `./runs`.
    device
        `auto`, `cpu` or `cuda`.
    members
        On a GPU, how many members train together at most. Default: 128.
    checkpoint_seconds
        Seconds between checkpoints.
    watch
        A function that is called with the `Progress` as it changes.
    processes
        On a CPU, train with so many processes of one thread each, to the same bits for any number of them. A script
        that trains with several does its own work under `if __name__ == "__main__":`.
    memory
        On a GPU, the GiB that members may take together. Default: what is free. Members that do not fit are trained
        after the others.
    check
        How runs that are in the store already are looked at: `bytes` reads every file of each, and trains again what
        is damaged; `names` takes them for whole, which for 100 000 runs takes a second instead of minutes. What is
        read from a run later is compared with what was written in either case.
    scheduler
        Train on a Dask cluster, whose workers see the store at the same path: the scheduler's address
        (`tcp://HOST:PORT`), the path of a scheduler file, or a `distributed.Client`. Where workers have a resource
        `GPU`, these train, ensembles of up to `members`; else each task is one run with one thread.
    say
        A function that is called with a line when a scheduler is lost or a run is put aside. Default: the line is
        logged.
    progress
        Whether to show a bar. `auto`: in a notebook, and in a terminal on standard error, unless `watch` is given.
        True: there too, and elsewhere a line per tenth on standard error.

    Returns
    -------
    list of Run
        One per spec.

    Raises
    ------
    RunsFailed
        On a cluster, if runs failed again and again, after all others have finished.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> with TemporaryDirectory() as store:
    ...     runs = rc.train(spec.seeds(range(2)), store)
    ...     again = rc.train(spec.seeds(range(2)), store)  # served, not trained
    >>> [run.status for run in runs], runs[0].key == again[0].key
    (['done', 'done'], True)
    """
    specs = [specs] if isinstance(specs, RunSpec) else list(specs)
    least = {"members": (members, 1), "processes": (processes, 1), "checkpoint_seconds": (checkpoint_seconds, 0)}
    for name, (value, smallest) in least.items():
        if value is not None and not value >= smallest:
            raise InvalidValue(name, value, f"at least {smallest}")
    if device not in DEVICES:
        raise InvalidValue("device", device, f"one of {listed(DEVICES)}")
    workers_device = torch.device("cpu" if device == "cpu" else "cuda")  # at best: which one it has a worker knows
    hardware = resolve_device(device) if scheduler is None else workers_device
    for spec in specs:
        check_precision(spec.recipe.precision, hardware)
    if memory is not None and not (memory > 0 and hardware.type == "cuda"):
        raise InvalidValue("memory", memory, "above 0, and given only with a GPU")
    if processes is not None and (scheduler is not None or hardware.type != "cpu"):
        raise InvalidValue("processes", processes, "given only with a CPU and without a scheduler")
    store = store if isinstance(store, Store) else Store(store)
    members = members or MEMBERS_TOGETHER[hardware.type]
    if scheduler is not None:
        hardware = torch.device("cpu")  # of this process, which trains nothing
    with _watched(progress, watch, say) as (watch, say):
        sweep = Sweep(specs, store, hardware, members, checkpoint_seconds, watch, memory, check)
        if scheduler is not None:
            from recombine.sweep.cluster import train_on_cluster

            train_on_cluster(sweep, scheduler, device, say)
        elif processes is None:
            with within(memory, hardware):
                sweep.run()
        else:
            train_in_processes(sweep, processes)
    return [sweep.finished[spec.digest] for spec in specs]


@contextmanager
def _watched(progress: Shown, watch: Watch | None, say: Say | None) -> Iterator[tuple[Watch | None, Say]]:
    """Who hears where the sweep stands: the caller, and a bar if one is shown."""
    bar = TrainingBar() if progress else None
    if bar is None or (progress == "auto" and not (bar.shown and watch is None)):
        yield watch, say or logging.getLogger(__name__).warning
        return

    def both(now: Progress) -> None:
        bar(now)
        if watch is not None:
            watch(now)

    with bar:
        yield both, say or bar.say
