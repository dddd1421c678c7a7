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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recombine.cli.flags import parse_seeds, spec_flags, specs_from
from recombine.cli.options import SHORT
from recombine.errors import InvalidValue, listed, nearest, typed
from recombine.files import read_given
from recombine.specs import RunSpec

SETTINGS: dict[str, tuple[type, ...]] = {
    "store": (str,), "device": (str,), "processes": (int,), "members": (int,), "memory": (int, float),
    "checkpoint": (int, float), "scheduler": (str,), "scheduler_file": (str,),
}  # fmt: skip
"""What a file may say beside its grids, as the flags of that name do."""
WORDS = {str: "a text", int: "a whole number", float: "a number"}
MOST_RUNS = 1_000_000
MOST_BYTES = 10_000_000


@dataclass(frozen=True)
class Grid:
    """One grid of a file: values by flag, and seeds."""

    where: str
    """File and number, for messages."""
    flags: Mapping[str, list[str]]
    seeds: list[int]


@dataclass(frozen=True)
class SweepFile:
    """What a sweep file says."""

    grids: list[Grid]
    settings: Mapping[str, Any]

    def specs(self, usual: Mapping[str, list[str]]) -> list[RunSpec]:
        """The specs of all grids, each once, with usual values for flags that a grid does not have."""
        specs: dict[str, RunSpec] = {}
        for grid in self.grids:
            try:
                for spec in specs_from({**usual, **grid.flags}, grid.seeds):
                    specs.setdefault(spec.digest, spec)
            except InvalidValue as error:
                raise InvalidValue(f"{grid.where}{error.field}", error.value, error.allowed) from None
        return list(specs.values())


def read_sweep(path: Path) -> SweepFile:
    """The grids and settings of a file; a mistake in it is one line with the file, the field and what is allowed."""
    table = _table(path)
    settings = {name.replace("-", "_"): value for name, value in table.items() if name not in ("grid", "seeds")}
    for name, value in settings.items():
        if name not in SETTINGS:
            known = [*SETTINGS, "seeds", "grid"]
            raise InvalidValue(f"{path.name}: {name}", value, f"{_nearest(name, known)}; runs are in [[grid]]")
        if not isinstance(value, SETTINGS[name]) or isinstance(value, bool):
            raise InvalidValue(f"{path.name}: {name}", value, WORDS[SETTINGS[name][-1]])
    grids = table.get("grid", [])
    grids = [grids] if isinstance(grids, dict) else grids
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) for grid in grids):
        raise InvalidValue(f"{path.name}: grid", table.get("grid"), "one or several tables, as [[grid]]")
    read = []
    for number, grid in enumerate(grids, 1):
        where = f"{path.name}: " if len(grids) == 1 else f"{path.name}: grid {number}: "
        read.append(_grid(where, grid, table.get("seeds")))
    return SweepFile(read, settings)


def _table(path: Path) -> dict[str, Any]:
    """The file's content."""
    content = read_given(path, "file")
    if len(content) > MOST_BYTES:
        raise InvalidValue("file", str(path), f"a file of at most {MOST_BYTES // 1_000_000} MB")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidValue("file", str(path), f"a TOML file in UTF-8 ({' '.join(reason.split())[:120]})") from None


def _grid(where: str, table: Mapping[str, Any], usual_seeds: Any) -> Grid:
    names = {name: flag.name for flag in spec_flags() for name in (flag.name, flag.name.replace("_", "-"))}
    names |= {short: name for name, short in SHORT.items()}
    flags: dict[str, list[str]] = {}
    for name, value in _flattened(table).items():
        if name == "seeds":
            continue
        if name not in names:
            raise InvalidValue(f"{where}{name}", value, _nearest(name, [*names, "seeds"]))
        if names[name] in flags:
            raise InvalidValue(f"{where}{name}", value, f"one name for a flag: {names[name]} is the same one")
        flags[names[name]] = _values(f"{where}{name}", value)
    try:
        seeds = parse_seeds(_seed_words(f"{where}seeds", table.get("seeds", usual_seeds)))
    except InvalidValue as error:
        raise InvalidValue(f"{where}seeds", error.value, error.allowed) from None
    count = math.prod(len(values) for values in flags.values()) * len(seeds)
    if count > MOST_RUNS:
        raise InvalidValue(f"{where}grid", f"{count} runs", f"at most {MOST_RUNS}")
    return Grid(where, flags, seeds)


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted name, however they were written: `decoder.width = 8`, `decoder = {width = 8}`."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and value and not prefix:
            flat |= _flattened(value, f"{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _values(field: str, value: Any) -> list[str]:
    """The words that a flag would be given."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InvalidValue(field, value, "at least one value")
    return [_word(field, value) for value in values]


def _word(field: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str | int | float | list) for part in parts):
        raise InvalidValue(field, value, "a text, a number, true or false, or a list of them")
    return typed(value)


def _seed_words(field: str, value: Any) -> list[str] | None:
    """Seeds as the flag takes them: a number of them or a text; a list is of the seeds themselves."""
    if value is None:
        return None
    if isinstance(value, list) and value and all(isinstance(seed, int) for seed in value):
        return [",".join(str(seed) for seed in value) + ("," if len(value) == 1 else "")]
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidValue(field, value, 'a number of seeds (8), a range ("0..31") or a list ([3, 5, 9])')
    return [str(value)]


def _nearest(name: str, known: list[str]) -> str:
    return nearest(name, known) or f"a flag of 'recombine train', or {listed(known[-1:])}"
