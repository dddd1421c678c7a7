"""The index: one SQLite table with a row per finished run, so that a listing need not open every folder.

It is a cache of the run folders and nothing more. Each listing compares it with the names and time stamps of the
folders and reads only those that it does not have. Whenever it is in doubt (another schema, a checksum that fails, any
error of SQLite's, files beside it) it is deleted and made again; where it cannot be written, the folders are read.

`journal_mode=MEMORY` keeps it a single file: a process that is killed while writing may spoil it, which the checksums
find. Training adds to it only if nobody else is writing it at that moment: the next listing adds what is missing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from recombine.errors import StoreError
from recombine.files import one_line_errors
from recombine.store.names import INDEX, INDEX_FILES, is_key
from recombine.store.run import SCORES, Run, flattened

BUSY_SECONDS = 5.0
"""How long to wait for another process that is writing the index."""
TOGETHER = 1000
"""Runs that are read from their folders, and written to the index, at a time."""
COLUMNS = ("status", "seed", "finished", *SCORES)
SCHEMA = "CREATE TABLE runs (key TEXT PRIMARY KEY, stamp TEXT, own TEXT, settings TEXT, checksum INTEGER)"


class Row(NamedTuple):
    """What the index knows of a finished run."""

    key: str
    stamp: str
    """Of the run's folder when it was read: another folder under this key, from another machine, has another one."""
    own: str
    """Status, seed, time of finishing and scores (`COLUMNS`): a JSON list without its brackets, so that those of all
    runs can be parsed as one list."""
    settings: str
    """The other fields of the spec by their dotted names, as JSON: runs that differ only in their seed share them."""

    def checksum(self, settings: int | None = None) -> int:
        """SQLite does not notice a changed byte in a value; that of the settings may be known already."""
        start = _checksum(self.settings) if settings is None else settings
        return _checksum(f"{self.key}\0{self.stamp}\0{self.own}", start)


def rows_of(store: Path) -> tuple[list[Row], list[str]]:
    """A row per finished run, from the index, which is brought up to date; and keys of runs that cannot be read."""
    stamps = _stamps(store)
    known = _read(store)
    rows = {key: row for key, row in known.items() if stamps.get(key) == row.stamp}
    gone = known.keys() - rows.keys()
    missing = sorted(stamps.keys() - rows.keys())
    for start in range(0, len(missing), TOGETHER):
        runs = [Run(key, store / "runs" / key) for key in missing[start : start + TOGETHER]]
        new = [row for run in runs if (row := _row(run))]
        _write(store, new, gone)
        gone = set()
        rows |= {row.key: row for row in new}
    if gone:
        _write(store, [], gone)
    return [rows[key] for key in sorted(rows)], [key for key in missing if key not in rows]


def add(store: Path, run: Run) -> None:
    """Add a run that was just saved, unless that would take time."""
    if row := _row(run):
        _write(store, [row], [], wait=False)


def _stamps(store: Path) -> dict[str, str]:
    """What tells the folder of each run from another one in its place."""
    folder, stamps = store / "runs", {}
    with one_line_errors(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if is_key(entry.name):
                with suppress(FileNotFoundError):  # another process has removed it meanwhile
                    stamps[entry.name] = _stamp(entry.stat(follow_symlinks=False))
    return stamps


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_mtime_ns}"


def _row(run: Run) -> Row | None:
    """What the index keeps of a run; none of one that cannot be read."""
    try:
        result, spec = run.result, flattened(run.spec_fields)
        finished, scores = float(result["provenance"]["finished"]), [result["scores"][name] for name in SCORES]
        own = [result["status"], spec.pop("seed", None), finished, *scores]
        return Row(run.key, _stamp(os.lstat(run.path)), json.dumps(own)[1:-1], json.dumps(spec))
    except (StoreError, OSError, ValueError, KeyError, TypeError):
        return None


def _checksum(text: str, start: int = 0) -> int:
    return zlib.crc32(str(text).encode(errors="replace"), start)


def _read(store: Path) -> dict[str, Row]:
    """Rows by key; none where the index cannot be used."""
    rows, shared = {}, dict[str, tuple[str, int]]()
    try:
        with _connected(store, "ro") as connection:
            for key, stamp, own, text, checksum in connection.execute("SELECT * FROM runs"):
                if (known := shared.get(text)) is None:
                    known = shared[text] = text, _checksum(text)
                settings, start = known  # one object for all runs that share them
                row = rows[key] = Row(key, stamp, own, settings)
                if row.checksum(start) != checksum:
                    raise sqlite3.DatabaseError("a row that changed")
        return rows
    except (sqlite3.Error, ValueError, OverflowError):
        with suppress(OSError):
            _delete(store)
    except OSError:
        pass
    return {}


def _write(store: Path, rows: Iterable[Row], gone: Iterable[str], wait: bool = True) -> None:
    """Add or replace rows, and remove those of runs that are gone, if that can be done."""
    with suppress(sqlite3.Error, OSError), _connected(store, "rwc", wait) as connection:
        connection.executemany("DELETE FROM runs WHERE key = ?", [(key,) for key in gone])
        values = [(*row, row.checksum()) for row in rows]
        connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", values)


@contextmanager
def _connected(store: Path, mode: str, wait: bool = True) -> Iterator[sqlite3.Connection]:
    """A connection in a transaction to an index of this schema; a writer makes the table in an empty file."""
    path = store / INDEX
    if any(os.path.lexists(store / name) for name in INDEX_FILES[1:]) or not _is_regular(path):
        _delete(store)  # what lies beside it would be played into it; a link would lead out of the store
    if mode == "ro" and not path.exists():
        raise FileNotFoundError(path)
    timeout = BUSY_SECONDS if wait else 0.0
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)) as connection:
        if mode != "ro":
            connection.execute("PRAGMA journal_mode=MEMORY")
            connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN" if mode == "ro" else "BEGIN IMMEDIATE")
        schema = [text for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        if not schema and mode != "ro":
            connection.execute(SCHEMA)
        elif schema != [SCHEMA]:
            raise sqlite3.DatabaseError("another schema")
        yield connection
        connection.execute("COMMIT")


def _is_regular(path: Path) -> bool:
    """Whether there is a regular file at a path, or nothing."""
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return True


def _delete(store: Path) -> None:
    """Delete the index and what lies beside it; a folder in its place stays, and there is no index then."""
    for name in INDEX_FILES:
        (store / name).unlink(missing_ok=True)
