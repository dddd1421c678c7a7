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
from typing import Any, get_args

import torch

from recombine.checks import items, number, one_of, whole_number
from recombine.errors import InvalidValue
from recombine.specs import RunSpec
from recombine.store import Run, Store
from recombine.store.filesystems import require_shared_locks
from recombine.sweep.local import Check, Sweep
from recombine.sweep.processes import train_in_processes
from recombine.sweep.progress import Progress, Say, Shown, Watch
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
        (`tcp://HOST:PORT`), the path of a scheduler file, or a `distributed.Client`. Workers with a resource `GPU`
        train ensembles, all of them with `device="cuda"`; others train one run at a time, with one thread.
    say
        A function that is called with a line when a scheduler, a worker or a run of a cluster is lost. Default: the
        line is logged.
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
    specs = items("specs", specs, RunSpec, example="specs, as RunSpec(…) or RunSpec(…).seeds(range(4))")
    hardware = resolve_device(device) if scheduler is None else _cluster_device(device, processes)
    for spec in specs:
        check_precision(spec.recipe.precision, hardware)
    if members is not None:
        members = whole_number("members", members)
    checkpoint_seconds = number("checkpoint_seconds", checkpoint_seconds, at_least=0, or_infinity=True)
    if watch is not None and not callable(watch):
        raise InvalidValue("watch", watch, "a function of the Progress")
    if say is not None and not callable(say):
        raise InvalidValue("say", say, "a function of a line of text")
    one_of("check", check, get_args(Check))
    one_of("progress", progress, (True, False, "auto"))
    _check_device_settings(hardware, memory, processes)
    cluster = None if scheduler is None else _cluster(scheduler)
    store = store if isinstance(store, Store) else Store(store)
    members = members or MEMBERS_TOGETHER[hardware.type]
    if cluster is not None:
        require_shared_locks(store.path)
        hardware = torch.device("cpu")  # of this process, which trains nothing
    with _watched(progress, watch, say) as (watch, say):
        sweep = Sweep(specs, store, hardware, members, checkpoint_seconds, watch, memory, check)
        if cluster is not None:
            from recombine.sweep.cluster import train_on_cluster

            train_on_cluster(sweep, cluster, device, say)
        elif processes is None:
            with within(memory, hardware):
                sweep.run()
        else:
            train_in_processes(sweep, processes)
    return [sweep.finished[spec.digest] for spec in specs]


@contextmanager
def _watched(progress: Shown, watch: Watch | None, say: Say | None) -> Iterator[tuple[Watch | None, Say]]:
    """Who hears where the sweep stands: the caller, and a bar if one is shown."""
    from recombine.sweep.bar import bar_for

    bar = bar_for(progress, watch)
    if bar is None:
        yield watch, say or logging.getLogger(__name__).warning
        return

    def both(now: Progress) -> None:
        bar(now)
        if watch is not None:
            watch(now)

    with bar:
        yield both, say or bar.say
        bar.complete()


def _cluster_device(device: str, processes: int | None) -> torch.device:
    """The best device that workers may have: which one each has, it says itself."""
    one_of("device", device, DEVICES)
    if processes is not None:
        raise InvalidValue("processes", processes, "nothing together with a scheduler, whose workers are the processes")
    return torch.device("cpu" if device == "cpu" else "cuda")


def _cluster(where: Any) -> Any:
    """The scheduler that was named; Dask is imported only for it."""
    from recombine.sweep.scheduler import Scheduler

    return Scheduler(where)


def _check_device_settings(hardware: torch.device, memory: float | None, processes: int | None) -> None:
    """Refuse settings that the device does not have."""
    if memory is not None and number("memory", memory, above=0) and hardware.type != "cuda":
        raise InvalidValue("memory", memory, f"device cuda (on {hardware.type} members train in turn)")
    if processes is not None and whole_number("processes", processes) and hardware.type != "cpu":
        raise InvalidValue("processes", processes, f"device cpu (on {hardware.type} one program trains all members)")
