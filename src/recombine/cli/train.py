"""`recombine train`, and the flags that it shares with `recombine sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.cli.flags import parse_seeds, specs_from, with_spec_flags
from recombine.cli.options import SchedulerAddress, SchedulerFile, StorePath, Whole, chosen_scheduler
from recombine.cli.tables import field_text, write_summary
from recombine.console import console, counted, paragraph, say
from recombine.errors import listed
from recombine.specs import RunSpec
from recombine.store import store_path, summarize
from recombine.sweep import train as train_specs
from recombine.sweep.executors import CHECKPOINT_SECONDS
from recombine.sweep.local import Check
from recombine.training import DEFAULT_PRECISION, DEVICES, resolve_device

MOST_SUMMARISED = 5000
"""Runs that are read again for a table."""
MOST_HOLDOUTS = 8
"""Hold-outs that have a line each."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """Where and how runs are trained; a sweep file has the same fields beside its grids."""

    device: Annotated[str | None, Parameter(help=f"{listed(DEVICES)}. Default: auto.")] = None
    store: StorePath = None
    members: Annotated[
        Whole | None, Parameter(help="Maximum number of models trained together. Default: by device.")
    ] = None
    memory: Annotated[float | None, Parameter(help="GPU memory limit in GiB. Default: all that is free.")] = None
    checkpoint: Annotated[
        float | None, Parameter(help=f"Seconds between checkpoints. Default: {CHECKPOINT_SECONDS:g}.")
    ] = None
    processes: Annotated[
        Whole | None,
        Parameter(help="Number of single-threaded worker processes, on a CPU. Default: this process, all threads."),
    ] = None
    scheduler: SchedulerAddress = None
    scheduler_file: SchedulerFile = None

    @property
    def cluster(self) -> str | Path | None:
        """Where the scheduler of a cluster is, if one was named."""
        return chosen_scheduler(self.scheduler, self.scheduler_file)

    def spec_flags(self) -> dict[str, list[str]]:
        """Flags of specs whose default depends on the device; what a cluster's workers have only `device` says."""
        device = self.device or "auto"
        kind = resolve_device(device).type if self.cluster is None else "cuda" if device == "cuda" else "cpu"
        return {"precision": [DEFAULT_PRECISION[kind]]}

    def train(self, specs: list[RunSpec], check: Check = "bytes") -> None:
        """Train specs, with a bar, and print a table, unless there are too many runs for one."""
        runs = train_specs(
            specs, self.store, device=self.device or "auto", members=self.members, processes=self.processes,
            checkpoint_seconds=CHECKPOINT_SECONDS if self.checkpoint is None else self.checkpoint, memory=self.memory,
            scheduler=self.cluster, check=check, progress=True,
        )  # fmt: skip
        if len(runs) <= MOST_SUMMARISED:
            write_summary(console(), summarize(runs))
        for line in _holdout_lines(specs):
            paragraph(line)
        say(f"{counted(len(runs), 'run')} in {store_path(self.store)}; 'recombine runs list' shows more")


@with_spec_flags
def train(
    flags: dict[str, list[str]],
    *,
    seeds: Annotated[
        list[str] | None,
        Parameter(help="How many (8), a range with both ends (0..31) or a list (3,5,9).", negative=()),
    ] = None,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
) -> None:
    """Train every combination of the flags' values with every seed, and print a table."""
    settings.train(specs_from({**settings.spec_flags(), **flags}, parse_seeds(seeds)))


def _holdout_lines(specs: list[RunSpec]) -> list[str]:
    """What each hold-out keeps, once for each grid that it was used on; only how many there are, if they are many."""
    tasks = {(spec.task.holdout, spec.task.grid, spec.task.holdout_summary): spec.task for spec in specs}
    if len(tasks) > MOST_HOLDOUTS:
        return [f"{len(tasks)} hold-outs"]
    texts = {task: field_text(task.holdout.model_dump(mode="json")) for task in tasks.values()}
    return [f"hold-out {text}: {task.holdout_summary}" for task, text in texts.items()]
