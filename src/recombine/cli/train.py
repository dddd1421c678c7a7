"""`recombine train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.cli.flags import parse_seeds, specs_from, with_spec_flags
from recombine.cli.listing import field_text
from recombine.cli.options import SchedulerAddress, SchedulerFile, StorePath, Whole, chosen_scheduler
from recombine.cli.tables import write_summary
from recombine.errors import listed
from recombine.screen import console, counted, paragraph, say
from recombine.specs import RunSpec
from recombine.store import store_path, summarize
from recombine.sweep import train as train_specs
from recombine.sweep.executors import CHECKPOINT_SECONDS
from recombine.sweep.local import Check
from recombine.sweep.progress import TrainingBar
from recombine.training import DEFAULT_PRECISION, resolve_device
from recombine.training.devices import DEVICES

MOST_SUMMARISED = 5000
"""Runs that are read again for a table."""
MOST_HOLDOUTS = 8
"""Hold-outs that have a line each."""


Device = Annotated[str, Parameter(help=f"{listed(DEVICES)}.")]
Members = Annotated[
    Whole | None, Parameter(help="Maximum number of models trained together. Default: by device.", show_default=False)
]  # fmt: skip
Memory = Annotated[
    float | None, Parameter(help="GPU memory limit in GiB. Default: all that is free.", show_default=False)
]  # fmt: skip
Processes = Annotated[
    Whole | None,
    Parameter(
        help="Number of single-threaded worker processes, on a CPU. Default: this process, with all threads.",
        show_default=False,
    ),
]


@with_spec_flags
def train(
    flags: dict[str, list[str]],
    *,
    seeds: Annotated[
        list[str] | None,
        Parameter(help="How many (8), a range with both ends (0..31) or a list (3,5,9).", negative=()),
    ] = None,
    device: Device = "auto",
    store: StorePath = None,
    members: Members = None,
    memory: Memory = None,
    checkpoint: Annotated[float, Parameter(help="Seconds between checkpoints.")] = CHECKPOINT_SECONDS,
    processes: Processes = None,
    scheduler: SchedulerAddress = None,
    scheduler_file: SchedulerFile = None,
) -> None:
    """Train every combination of the flags' values with every seed, and print a table."""
    cluster = chosen_scheduler(scheduler, scheduler_file)
    specs = specs_from({**usual_flags(device, cluster), **flags}, parse_seeds(seeds))
    train_and_show(
        specs, store, device=device, members=members, memory=memory, checkpoint=checkpoint, processes=processes,
        scheduler=cluster,
    )  # fmt: skip


def usual_flags(device: str, cluster: object) -> dict[str, list[str]]:
    """Flags that depend on where is trained; what a cluster's workers have is known to `device` only."""
    kind = resolve_device(device).type if cluster is None else "cuda" if device == "cuda" else "cpu"
    return {"precision": [DEFAULT_PRECISION[kind]]}


def train_and_show(
    specs: list[RunSpec],
    store: Path | None,
    *,
    device: str,
    members: int | None,
    memory: float | None,
    checkpoint: float,
    processes: int | None,
    scheduler: str | Path | None,
    check: Check = "bytes",
) -> None:
    """Train specs, with a bar, and print a table, unless there are too many runs for one."""
    with TrainingBar() as bar:
        runs = train_specs(
            specs, store, device=device, members=members, checkpoint_seconds=checkpoint, watch=bar, processes=processes,
            memory=memory, scheduler=scheduler, say=bar.say, check=check,
        )  # fmt: skip
    if len(runs) <= MOST_SUMMARISED:
        write_summary(console(), summarize(runs))
    for line in _holdout_lines(specs):
        paragraph(line)
    say(f"{counted(len(runs), 'run')} in {store_path(store)}; 'recombine runs list' shows more")


def _holdout_lines(specs: list[RunSpec]) -> list[str]:
    """What each hold-out keeps, once for each grid that it was used on; only how many there are, if they are many."""
    tasks = {(spec.task.holdout, spec.task.grid, spec.task.holdout_summary): spec.task for spec in specs}
    if len(tasks) > MOST_HOLDOUTS:
        return [f"{len(tasks)} hold-outs"]
    texts = {task: field_text(task.holdout.model_dump(mode="json")) for task in tasks.values()}
    return [f"hold-out {text}: {task.holdout_summary}" for task, text in texts.items()]
