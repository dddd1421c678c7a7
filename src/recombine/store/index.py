"""The index: one SQLite table with a row per finished run, so that a listing need not open every folder.

It is a cache of the run folders and nothing more. Each listing compares it with the names and time stamps of the
folders and reads only those that it does not have. Whenever it is in doubt (another schema, a checksum that fails, any
error of SQLite's, files beside it) it is deleted and made again; where it cannot be written, the folders are read.

`journal_mode=MEMORY` keeps it a single file: a process that is killed while writing may spoil it, which the checksums
find. Only listings write it, so that training never waits for it.
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
from recombine.store.run import Run, flattened

BUSY_SECONDS = 5.0
"""How long to wait for another process that is writing the index."""
TOGETHER = 1000
"""Runs that are read from their folders, and written to the index, at a time."""
SCHEMA = "CREATE TABLE runs (key TEXT PRIMARY KEY, stamp TEXT, own TEXT, settings TEXT, checksum INTEGER)"


class Row(NamedTuple):
    """What the index knows of a finished run."""

    key: str
    stamp: str
    """Of the run's folder when it was read: another folder under this key, from another machine, has another one."""
    own: str
    """Status, seed, scores and time of finishing, as JSON."""
    settings: str
    """The other fields of the spec by their dotted names, as JSON: runs that differ only in their seed share them."""

    @property
    def checksum(self) -> int:
        """SQLite does not notice a changed byte in a value."""
        return zlib.crc32("\0".join(map(str, self)).encode(errors="replace"))


def rows_of(store: Path) -> list[Row]:
    """A row per finished run that can be read, from the index, which is brought up to date."""
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
    return list(rows.values())


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
        own = {"status": result["status"], "seed": spec.pop("seed", None), **result["scores"]}
        own["finished"] = float(result["provenance"]["finished"])
        return Row(run.key, _stamp(os.lstat(run.path)), json.dumps(own), json.dumps(spec))
    except (StoreError, OSError, ValueError, KeyError, TypeError):
        return None


def _read(store: Path) -> dict[str, Row]:
    """Rows by key; none where the index cannot be used."""
    rows, shared = {}, dict[str, str]()
    try:
        with _connected(store, "ro") as connection:
            for key, stamp, own, settings, checksum in connection.execute("SELECT * FROM runs"):
                row = rows[key] = Row(key, stamp, own, shared.setdefault(settings, settings))
                if row.checksum != checksum:
                    raise sqlite3.DatabaseError("a row that changed")
        return rows
    except (sqlite3.Error, ValueError, OverflowError):
        with suppress(OSError):
            _delete(store)
    except OSError:
        pass
    return {}


def _write(store: Path, rows: Iterable[Row], gone: Iterable[str]) -> None:
    """Add or replace rows, and remove those of runs that are gone, if that can be done."""
    with suppress(sqlite3.Error, OSError), _connected(store, "rwc") as connection:
        connection.executemany("DELETE FROM runs WHERE key = ?", [(key,) for key in gone])
        values = [(*row, row.checksum) for row in rows]
        connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", values)


@contextmanager
def _connected(store: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection in a transaction to an index of this schema; a writer makes the table in an empty file."""
    path = store / INDEX
    if any(os.path.lexists(store / name) for name in INDEX_FILES[1:]) or not _is_regular(path):
        _delete(store)  # what lies beside it would be played into it; a link would lead out of the store
    if mode == "ro" and not path.exists():
        raise FileNotFoundError(path)
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
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
