"""`recombine train`, and the flags it shares with `recombine reproduce`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from pydantic import TypeAdapter, ValidationError

from recombine.cli.options import MORE, SomePath, StorePath, Whole
from recombine.cli.sweep import given_flags, located, read_sweep, specs_from, with_spec_flags
from recombine.cli.tables import Column, field_text, write_summary, write_table
from recombine.console import console, counted, paragraph, say
from recombine.errors import InvalidValue, from_pydantic, listed
from recombine.specs import RunSpec
from recombine.store import Store, store_path, summarize
from recombine.store.names import MARKER
from recombine.sweep import train as train_specs
from recombine.sweep.executors import CHECKPOINT_SECONDS
from recombine.sweep.local import Check
from recombine.tasks import ArrayTask
from recombine.training import DEFAULT_PRECISION, DEVICES, program_of, resolve_device

RARE = Group.create_ordered(f"{MORE} execution")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExecutorFlags:
    """Flags that set where to train and where to store runs."""

    device: Annotated[str | None, Parameter(help=f"Device to train on: {listed(DEVICES)}. Default: auto.")] = None
    store: StorePath = None
    members: Whole | None = None
    """Maximum number of models trained together. Default: depends on the device."""
    processes: Whole | None = None
    """Worker processes on a CPU. Default: one per core for reproduce, none for train."""
    scheduler: str | None = None
    """Address (tcp://HOST:PORT) or scheduler file of a Dask cluster whose workers have access to the same store."""

    def default_precision(self) -> str:
        """Return the precision for the device; with a scheduler and `auto`, assume workers without GPUs."""
        kind = self.device or "auto"
        kind = resolve_device(kind).type if self.scheduler is None else kind
        return DEFAULT_PRECISION["cuda" if kind == "cuda" else "cpu"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingFlags(ExecutorFlags):
    """Flags that set where and how to train; a sweep file can set the same fields outside its grids."""

    memory: Annotated[float | None, Parameter(group=RARE)] = None
    """GPU memory limit in GiB. Default: all free memory."""
    checkpoint: Annotated[float | None, Parameter(group=RARE)] = None
    """Seconds between checkpoints. Default: 30."""

    def over(self, file: dict[str, Any], name: str) -> TrainingFlags:
        """Return the settings of a sweep file, overridden by these flags."""
        try:
            settings = TypeAdapter(TrainingFlags).validate_python(file)
        except ValidationError as error:
            raise located(name, from_pydantic(error, ())) from None
        return replace(settings, **{name: value for name, value in vars(self).items() if value is not None})

    def train(self, specs: list[RunSpec], check: Check) -> None:
        """Train specs with a progress bar, and print a table unless there are too many runs."""
        runs = train_specs(
            specs, self.store, device=self.device or "auto", members=self.members, processes=self.processes,
            checkpoint_seconds=CHECKPOINT_SECONDS if self.checkpoint is None else self.checkpoint, memory=self.memory,
            scheduler=self.scheduler, check=check, progress=True,
        )  # fmt: skip
        if len(runs) <= 5000:
            write_summary(console(), summarize(runs))
        tasks = {(spec.task.holdout, spec.task.grid, spec.task.holdout_summary): spec.task for spec in specs}
        if len(tasks) > 8:
            say(f"{len(tasks)} hold-outs")
        else:
            for task in tasks.values():
                paragraph(f"hold-out {field_text(task.holdout.model_dump(mode='json'))}: {task.holdout_summary}")
        data = [task for task in tasks.values() if isinstance(task, ArrayTask) and task.coverage]
        for coverage in dict.fromkeys(str(task.coverage) for task in data):
            paragraph(f"data: {coverage}")
        say(f"{counted(len(runs), 'run')} in {store_path(self.store)}; 'recombine runs list' shows more")


@with_spec_flags
def train(
    file: SomePath | None = None,
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
    check: Annotated[Check | None, Parameter(group=RARE)] = None,
    **values: Any,
) -> None:
    """Train every combination of values with every seed, and print a table.

    Parameters
    ----------
    file
        Sweep file (TOML, YAML or JSON) with flag names as keys.
    dry_run
        Only print what would be trained.
    check
        Check all files of completed runs and retrain damaged ones (bytes, default without FILE), or trust them (names).
    """
    flags = given_flags(values)
    grids: dict[str, dict[str, list[str]]] = {"": {}}
    if file is not None:
        grids, others = read_sweep(file, [field.name for field in fields(TrainingFlags)])
        settings = settings.over(others, file.name)
    specs: dict[str, RunSpec] = {}
    for where, grid in grids.items():
        if flags.keys() & {"epochs", "steps"}:  # either flag replaces both in the file
            grid = {name: values for name, values in grid.items() if name not in ("epochs", "steps")}
        try:
            specs |= {
                spec.digest: spec for spec in specs_from({"precision": [settings.default_precision()], **grid, **flags})
            }
        except InvalidValue as error:
            typed_here = {name.split(".")[0] for name in flags}
            in_file = where and error.field.split(".")[0] not in typed_here
            raise (located(where, error) if in_file else error) from None
    if dry_run or file is not None:
        _describe(list(specs.values()), store_path(settings.store), whole=dry_run)
    if not dry_run:
        settings.train(list(specs.values()), check or ("bytes" if file is None else "names"))


def _describe(specs: list[RunSpec], folder: Path, *, whole: bool) -> None:
    """Print how many runs there are, how many are in the store, and which of them train together."""
    stored = set(Store(folder, create=False).keys()) if (folder / MARKER).exists() else set()
    groups: dict[object, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(program_of(spec), []).append(spec)
    missing = [[spec for spec in alike if spec.digest not in stored] for alike in groups.values()]
    if whole:
        first = [alike[0] for alike in groups.values()]
        encodings = [dict.fromkeys(spec.task.encoding.kind for spec in alike) for alike in groups.values()]
        done = [len(alike) - len(rest) for alike, rest in zip(groups.values(), missing, strict=True)]
        columns = [
            Column("decoder", [field_text(spec.decoder.model_dump(mode="json")) for spec in first], "left"),
            Column("encodings", [listed(kinds) for kinds in encodings], "left"),
            Column("precision", [spec.recipe.precision for spec in first], "left"),
            Column("runs", [str(len(alike)) for alike in groups.values()]),
            Column("in the store", [str(count) for count in done]),
            Column("steps to train", [str(sum(spec.total_steps for spec in rest)) for rest in missing]),
        ]
        write_table(console(), columns)
    sizes = Counter(len(alike) for alike in groups.values())
    shapes = listed(f"{number} of {counted(size, 'run')}" for size, number in sizes.items())
    to_train = sum(len(rest) for rest in missing)
    groups_text = f"{counted(len(groups), 'group')} that train together ({shapes})"
    say(f"{counted(len(specs), 'run')} in {groups_text}: {len(specs) - to_train} in {folder}, {to_train} to train")
