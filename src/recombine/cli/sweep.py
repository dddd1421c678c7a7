"""`recombine sweep FILE`: grids of runs in TOML, by the names of `train`'s flags. Reading a file runs no code.

store = "runs"                  # optional: store, device, processes, members, memory, checkpoint,
device = "cpu"                  # scheduler or scheduler_file
seeds = "0..31"                 # of every grid without seeds of its own

[[grid]]                        # all combinations; several grids are joined
encoding = ["bump", "rate"]
width = [16, 32]
holdout = "center:6:22"
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import TypeAdapter, ValidationError

from recombine.cli.options import SHORT, SomePath
from recombine.cli.tables import Column, Holds, field_text, write_table
from recombine.cli.train import TrainingFlags, parse_seeds, spec_flags, specs_from
from recombine.console import console, counted, say
from recombine.errors import InvalidValue, StoreError, from_pydantic, listed, nearest, typed
from recombine.files import read_given
from recombine.specs import RunSpec
from recombine.store import Store, store_path
from recombine.store.names import MARKER
from recombine.sweep.local import Check
from recombine.training import program_of

MOST_RUNS = 1_000_000


@dataclass(frozen=True)
class SweepFile:
    """What a sweep file says."""

    name: str
    grids: list[tuple[dict[str, list[str]], list[int]]]
    """Of each grid, values by flag and seeds."""
    settings: TrainingFlags

    def specs(self, usual: Mapping[str, list[str]]) -> list[RunSpec]:
        """The specs of all grids, each once, with usual values for flags that a grid does not have."""
        specs: dict[str, RunSpec] = {}
        for number, (flags, seeds) in enumerate(self.grids, 1):
            try:
                specs |= {spec.digest: spec for spec in specs_from({**usual, **flags}, seeds)}
            except InvalidValue as error:
                raise _located(f"{self.name}: grid {number}", error) from None
        return list(specs.values())


def read_sweep(path: Path) -> SweepFile:
    """The grids and settings of a file; a mistake in it is one line with the file, the field and what it must be."""
    content = read_given(path, "file")
    try:
        table = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidValue("file", str(path), f"a TOML file in UTF-8 ({' '.join(str(error).split())[:120]})") from None
    given = {name.replace("-", "_"): value for name, value in table.items() if name not in ("grid", "seeds")}
    tables = table.get("grid", [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not (isinstance(tables, list) and tables and all(isinstance(grid, dict) for grid in tables)):
        raise InvalidValue(f"{path.name}: grid", table.get("grid"), "one or several tables, as [[grid]]")
    grids, where = [], path.name
    try:
        settings = _settings(given)
        for number, grid in enumerate(tables, 1):
            where = f"{path.name}: grid {number}"
            grids.append(_grid({"seeds": table.get("seeds", 1), **grid}))
    except InvalidValue as error:
        raise _located(where, error) from None
    return SweepFile(path.name, grids, settings)


def _settings(given: dict[str, Any]) -> TrainingFlags:
    names = [field.name for field in fields(TrainingFlags)]
    if unknown := [name for name in given if name not in names]:
        raise InvalidValue("field", unknown[0], f"one of {listed(names)}")
    try:
        return TypeAdapter(TrainingFlags).validate_python(given)
    except ValidationError as error:
        raise from_pydantic(error, names) from None


def _located(where: str, error: InvalidValue) -> InvalidValue:
    return InvalidValue(f"{where}: {error.field}", error.value, error.allowed)


def _grid(table: dict[str, Any]) -> tuple[dict[str, list[str]], list[int]]:
    names = {name: flag.name for flag in spec_flags() for name in (flag.name, flag.name.replace("_", "-"))}
    names |= {short: name for name, short in SHORT.items()}
    seeds = parse_seeds([typed(table.pop("seeds"))])  # a list is of the seeds themselves
    flags: dict[str, list[str]] = {}
    for name, value in _flattened(table).items():
        if name not in names:
            raise InvalidValue("flag", name, nearest(name, names) or "one of 'recombine train'")
        if names[name] in flags:
            raise InvalidValue(name, value, f"left out, since {names[name]} is the same flag")
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(own, str | int | float | list) for own in values):
            raise InvalidValue(name, value, "a string, a number, true or false, or a list of them")
        flags[names[name]] = [own if isinstance(own, str) else typed(own) for own in values]
    count = math.prod(len(values) for values in flags.values()) * len(seeds)
    if count > MOST_RUNS:
        raise InvalidValue("grid", f"{count} runs", f"at most {MOST_RUNS} runs")
    return flags, seeds


def _flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted name, however they were written: `decoder.width = 8`, `decoder = {width = 8}`."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{own}": part for own, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


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
    given = {name: value for name, value in vars(training).items() if value is not None}
    if given.keys() & {"scheduler", "scheduler_file"}:  # either takes the place of the file's
        given = {"scheduler": None, "scheduler_file": None, **given}
    settings = replace(content.settings, **given)
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
        encodings = [dict.fromkeys(spec.task.encoding.kind for spec in alike) for alike in groups.values()]
        missing = [[spec for spec in alike if spec.digest not in stored] for alike in groups.values()]
        columns = [
            Column("decoder", [field_text(spec.decoder.model_dump(mode="json")) for spec in first], Holds.NAMES),
            Column("encodings", [listed(kinds) for kinds in encodings], Holds.NAMES),
            Column("precision", [spec.recipe.precision for spec in first], Holds.NAMES),
            Column("runs", [str(len(alike)) for alike in groups.values()]),
            Column("in the store", [str(count) for count in done.values()]),
            Column("steps to train", [str(sum(spec.total_steps for spec in alike)) for alike in missing]),
        ]
        write_table(console(), columns)
    sizes = Counter(len(alike) for alike in groups.values())
    shapes = listed(f"{number} of {counted(size, 'run')}" for size, number in sizes.items())
    groups_text = f"{counted(len(groups), 'group')} of one program ({shapes})"
    say(f"{counted(len(specs), 'run')} in {groups_text}: {total} in {folder}, {len(specs) - total} to train")


def _stored(folder: Path) -> set[str]:
    """Keys of the finished runs of a store, which need not exist yet."""
    try:
        return set(Store(folder, create=False).keys())
    except StoreError:
        if (folder / MARKER).exists():
            raise
        return set()
