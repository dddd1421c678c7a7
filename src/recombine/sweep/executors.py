"""`train`: train specs in this process (`local`), in several (`processes`), or on a Dask cluster (`cluster`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from recombine.decoders import seeded
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.own_parts import changed_sources, own_parts
from recombine.specs import RunSpec
from recombine.store import Run, Store, store_path
from recombine.store.names import MARKER
from recombine.sweep.local import Check, Sweep
from recombine.sweep.processes import train_in_processes
from recombine.sweep.progress import Progress, Say, Shown, TrainingBar, Watch
from recombine.training import DEVICES, check_precision, resolve_device, within

MEMBERS_TOGETHER = {"cpu": 1, "cuda": 128}
"""Default number of members trained together. On a CPU they train one by one anyway; on a GPU, more hardly helps."""
CHECKPOINT_SECONDS = 30.0
COLLAPSED = 0.9
"""Error on kept combinations, relative to a blank image's, from which a penalised network counts as collapsed."""


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
    """Train all specs that are not in the store yet, and return the finished runs in the order of the specs.

    Unfinished runs continue from their checkpoints, with bit-identical results. Several processes may share a store:
    each waits for runs that another one is training.

    Parameters
    ----------
    specs
        Specs to train, or a single one.
    store
        The store, or its path. Default: `RECOMBINE_STORE`, or `./runs`.
    device
        `auto`, `cpu` or `cuda`.
    members
        Maximum number of members (networks) trained together on a GPU. Default: 128.
    checkpoint_seconds
        Seconds between checkpoints.
    watch
        Function called with the current `Progress`.
    processes
        Number of single-threaded worker processes on a CPU; results do not depend on it. A script that uses several
        must guard its code with `if __name__ == "__main__":`.
    memory
        GPU memory limit in GiB. Default: all free memory. Members that do not fit are trained later.
    check
        How to check completed runs: `bytes` reads every file and retrains damaged runs; `names` only checks that runs
        exist, which takes a second instead of minutes for 100 000 runs. Files are always checked when they are loaded.
    scheduler
        Dask cluster to train on: the scheduler's address (`tcp://HOST:PORT`), the path of a scheduler file, or a
        `distributed.Client`. Workers must find the store at the same path. If some workers have a `GPU` resource, only
        those train, up to `members` runs at once; otherwise each task trains one run with one thread.
    say
        Function called with a message when the scheduler is lost or a run fails. Default: log the message.
    progress
        Whether to show a progress bar. `auto` shows it in a notebook or terminal, unless `watch` is given. True
        always shows it there, and elsewhere prints a line to standard error after every tenth of the work.

    Returns
    -------
    list of Run
        One run per spec.

    Raises
    ------
    RunsFailed
        On a cluster, if runs failed repeatedly, after all others have finished.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> with TemporaryDirectory() as store:
    ...     runs = rc.train(spec.seeds(range(2)), store)
    ...     again = rc.train(spec.seeds(range(2)), store)  # loaded, not trained
    >>> [run.status for run in runs], runs[0].key == again[0].key
    (['done', 'done'], True)
    """
    specs = [specs] if isinstance(specs, RunSpec) else list(specs)
    hardware = checked_hardware(specs, store, device, members, processes, scheduler, memory, checkpoint_seconds)
    store = store if isinstance(store, Store) else Store(store)
    members = members or MEMBERS_TOGETHER[hardware.type]
    if scheduler is not None:
        hardware = torch.device("cpu")  # this process does not train
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
        for warning in _warnings(specs, sweep.finished):
            say(warning)
    return [sweep.finished[spec.digest] for spec in specs]


def checked_hardware(
    specs: Sequence[RunSpec],
    store: Store | str | os.PathLike[str] | None,
    device: str,
    members: int | None,
    processes: int | None,
    scheduler: Any,
    memory: float | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> torch.device:
    """Return the device to train on; raise, before anything is created, if `train` cannot train with its arguments."""
    least = {"members": (members, 1), "processes": (processes, 1), "checkpoint_seconds": (checkpoint_seconds, 0)}
    for name, (value, smallest) in least.items():
        if value is not None and not value >= smallest:
            raise InvalidValue(name, value, f"at least {smallest}")
    if device not in DEVICES:
        raise InvalidValue("device", device, f"one of {listed(DEVICES)}")
    workers_device = torch.device("cpu" if device == "cpu" else "cuda")  # assume a GPU; workers may have none
    hardware = resolve_device(device) if scheduler is None else workers_device
    for spec in specs:
        check_precision(spec.recipe.precision, hardware)
    if memory is not None and not (memory > 0 and hardware.type == "cuda"):
        raise InvalidValue("memory", memory, "above 0, and given only with a GPU")
    if processes is not None and (scheduler is not None or hardware.type != "cpu"):
        raise InvalidValue("processes", processes, "given only with a CPU and without a scheduler")
    if scheduler is not None and not _finished(specs, store):
        from recombine.sweep.cluster import CONNECT_SECONDS, close, connected

        close(connected(scheduler, CONNECT_SECONDS))
    for spec in {(id(own.task), id(own.decoder), id(own.penalties)): own for own in specs}.values():  # not every seed
        if own_parts(spec):
            _require_runnable(spec)
    return hardware


def _finished(specs: Iterable[RunSpec], store: Store | str | os.PathLike[str] | None) -> bool:
    """Return whether all runs are in the store, which is not created."""
    if not isinstance(store, Store):
        if not (store_path(store) / MARKER).exists():
            return False
        store = Store(store)
    return all(spec.digest in store for spec in specs)


def _require_runnable(spec: RunSpec) -> None:
    """Raise unless a user's decoder can be built and maps codes to images (or an encoder, images to codes)."""
    shapes = (2, spec.interface.code_size), (2, *spec.interface.image_shape)
    given, expected = shapes if spec.task.direction == "decode" else shapes[::-1]
    allowed = f"one that maps inputs of shape {given} to outputs of shape {expected}"
    try:
        with seeded(spec.seed), torch.no_grad():
            returned = tuple(spec.module()(torch.zeros(given)).shape)
    except RecombineError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidValue("decoder", str(spec.decoder), f"{allowed} ({reason_of(error)})") from error
    if returned != expected:
        raise InvalidValue("decoder", str(spec.decoder), f"{allowed}, not {returned}")


def _warnings(specs: Iterable[RunSpec], runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield warnings about runs that were trained with other source code, or that a penalty made collapse."""
    changed: dict[str, list[str]] = {}
    collapsed: dict[str, list[bool]] = {}
    for key, spec in {spec.digest: spec for spec in specs}.items():
        if own_parts(spec):
            for source in changed_sources(spec, runs[key].result["provenance"]):
                changed.setdefault(source, []).append(key)
        if spec.penalties:
            name = " + ".join(map(str, spec.penalties))
            collapsed.setdefault(name, []).append(not runs[key].scores["id_over_blank"] < COLLAPSED)
    for source, keys in changed.items():
        yield (
            f"the code of {source} has changed since {len(keys)} of these runs were trained (such as {keys[0]}); set "
            "another `version` in its classes to train them again"
        )
    for name, found in collapsed.items():
        if any(found):
            yield f"{name}: {sum(found)} of {len(found)} runs collapsed: their images are hardly better than blank ones"


@contextmanager
def _watched(progress: Shown, watch: Watch | None, say: Say | None) -> Iterator[tuple[Watch | None, Say]]:
    """Yield functions that report progress and messages to the caller, and to a bar if one is shown."""
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
