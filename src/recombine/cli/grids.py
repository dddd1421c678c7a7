"""Sweep files: grids of runs in TOML, by the names of `train`'s flags. Reading one runs no code.

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
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from recombine.cli.flags import parse_seeds, spec_flags, specs_from
from recombine.cli.options import SHORT
from recombine.cli.train import TrainingFlags
from recombine.errors import InvalidValue, from_pydantic, listed, nearest, typed
from recombine.files import read_given
from recombine.specs import RunSpec

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
