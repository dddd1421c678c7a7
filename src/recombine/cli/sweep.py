"""`recombine sweep FILE`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.cli.grids import read_sweep
from recombine.cli.listing import field_text
from recombine.cli.options import SomePath
from recombine.cli.tables import Column, Holds, write_table
from recombine.cli.train import TrainingFlags
from recombine.console import console, counted, say
from recombine.errors import StoreError, listed
from recombine.specs import RunSpec
from recombine.store import Store, store_path
from recombine.store.names import MARKER
from recombine.sweep.local import Check
from recombine.training import program_of


def sweep(
    file: Annotated[SomePath, Parameter(help="A TOML file with one or several [[grid]].")],
    /,
    *,
    dry_run: Annotated[bool, Parameter(help="Only say what would be trained.", negative=())] = False,
    training: TrainingFlags = TrainingFlags(),  # noqa: B008
    check: Check = "names",
) -> None:
    """Train the runs of a sweep file, and print a table.

    Parameters
    ----------
    check
        How completed runs are checked: "bytes" reads every file and trains damaged runs again; "names" trusts them.
    """
    content = read_sweep(file)
    typed = {name: value for name, value in vars(training).items() if value is not None}
    if typed.keys() & {"scheduler", "scheduler_file"}:  # either takes the place of the file's
        typed = {"scheduler": None, "scheduler_file": None, **typed}
    settings = replace(content.settings, **typed)
    specs = content.specs(settings.spec_flags())
    _describe(specs, store_path(settings.store), whole=dry_run)
    if not dry_run:
        settings.train(specs, check)


def _describe(specs: list[RunSpec], folder: Path, *, whole: bool) -> None:
    """How many runs there are, how many of them are in the store, and which can train together."""
    stored = _stored(folder)
    groups: dict[object, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(program_of(spec), []).append(spec)
    done = {program: sum(spec.digest in stored for spec in alike) for program, alike in groups.items()}
    total = sum(done.values())
    if whole:
        first = [alike[0] for alike in groups.values()]
        columns = [
            Column("decoder", [field_text(spec.decoder.model_dump(mode="json")) for spec in first], Holds.NAMES),
            Column(
                "encodings",
                [_encodings(alike) for alike in groups.values()],
                Holds.NAMES,
            ),
            Column("precision", [spec.recipe.precision for spec in first], Holds.NAMES),
            Column("runs", [str(len(alike)) for alike in groups.values()]),
            Column("in the store", [str(count) for count in done.values()]),
            Column("steps to train", [str(_steps(alike, stored)) for alike in groups.values()]),
        ]
        write_table(console(), columns)
    sizes = Counter(len(alike) for alike in groups.values())
    shapes = listed(f"{number} of {counted(size, 'run')}" for size, number in sizes.items())
    groups_text = f"{counted(len(groups), 'group')} of one program ({shapes})"
    say(f"{counted(len(specs), 'run')} in {groups_text}: {total} in {folder}, {len(specs) - total} to train")


def _encodings(specs: list[RunSpec]) -> str:
    return listed(dict.fromkeys(spec.task.encoding.kind for spec in specs))


def _steps(specs: list[RunSpec], stored: set[str]) -> int:
    return sum(spec.total_steps for spec in specs if spec.digest not in stored)


def _stored(folder: Path) -> set[str]:
    """Keys of the finished runs of a store, which need not exist yet."""
    try:
        return set(Store(folder, create=False).keys())
    except StoreError:
        if (folder / MARKER).exists():
            raise
        return set()
