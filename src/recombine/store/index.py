"""The index: a text file with one line per finished run, so that listing runs does not open every folder.

It is only a cache: each listing compares it with the time stamps of the run folders and reads the folders missing
from it. Every line has a checksum; if one is wrong, or a run is gone, the file is rewritten. Write errors are ignored.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from recombine.errors import StoreError
from recombine.files import one_line_errors, read, write
from recombine.store.names import INDEX, SCORES, is_key
from recombine.store.run import Run, flattened

TOGETHER = 1000
"""Number of runs read from their folders and added to the index at once."""
COLUMNS = ("status", "seed", "finished", *SCORES)


class Row(NamedTuple):
    """A line of the index."""

    key: str
    stamp: str
    """Inode and time stamp of the run's folder, which change if it is replaced."""
    values: str
    """Status, seed, finishing time and scores (`COLUMNS`), as a JSON list without brackets, so that the lists of all
    runs can be parsed as one."""
    settings: str
    """Other fields of the spec by dotted name, as JSON; the same for runs that differ only in their seed."""


def rows_of(store: Path) -> tuple[list[Row], list[str]]:
    """Update the index; return a row for each finished run, and the keys of runs that cannot be read."""
    folder, known, stamps = store / "runs", _read(store), dict[str, str]()
    with one_line_errors(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_key(entry.name):
                with suppress(FileNotFoundError):  # removed by another process
                    stamps[entry.name] = _stamp(entry.stat(follow_symlinks=False))
    rows = {row.key: row for row in known if row is not None and stamps.get(row.key) == row.stamp}
    if len(rows) < len(known):
        with suppress(StoreError):
            write(store / INDEX, _lines(rows.values()))
    missing = sorted(stamps.keys() - rows.keys())
    for start in range(0, len(missing), TOGETHER):
        runs = [Run(key, folder / key) for key in missing[start : start + TOGETHER]]
        new = [row for run in runs if (row := _row(run))]
        _append(store, new)
        rows |= {row.key: row for row in new}
    return [rows[key] for key in sorted(rows)], [key for key in missing if key not in rows]


def add(store: Path, run: Run) -> None:
    """Add a run to the index."""
    if row := _row(run):
        _append(store, [row])


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_mtime_ns}"


def _row(run: Run) -> Row | None:
    """Return the row of a run, or None if it cannot be read."""
    try:
        result, spec = run.result, flattened(run.spec_fields)
        finished, scores = float(result["provenance"]["finished"]), [result["scores"][name] for name in SCORES]
        values = [result["status"], spec.pop("seed", None), finished, *scores]
        return Row(run.key, _stamp(os.lstat(run.path)), json.dumps(values)[1:-1], json.dumps(spec))
    except (StoreError, OSError, ValueError, KeyError, TypeError):
        return None


def _lines(rows: Iterable[Row]) -> bytes:
    texts = ["\t".join(row).encode() for row in rows]
    return b"".join(b"%08x\t%s\n" % (zlib.crc32(text), text) for text in texts)


def _append(store: Path, rows: Iterable[Row]) -> None:
    """Append rows if possible, after a newline, since a killed process may have left a partial line."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError), os.fdopen(os.open(store / INDEX, flags, 0o666), "ab") as file:
        file.write(b"\n" + _lines(rows))


def _read(store: Path) -> list[Row | None]:
    """Return the rows of the index, with None for a damaged line."""
    try:
        content = read(store / INDEX)
    except FileNotFoundError:
        return []
    except OSError:
        return [None]
    rows: list[Row | None] = []
    for line in filter(None, content.split(b"\n")):
        checksum, _, text = line.partition(b"\t")
        try:
            key, stamp, values, settings = text.decode().split("\t")
            is_valid = checksum == b"%08x" % zlib.crc32(text)
            rows.append(Row(key, stamp, values, sys.intern(settings)) if is_valid else None)  # shared by many runs
        except ValueError:
            rows.append(None)
    return rows
