"""The index: what is in a store, quickly.

SQLite in write-ahead mode. It is a cache of the run folders and nothing more, so it never stops anything: where it is
locked, unreadable or on a full disk, the store reads the folders. Every row carries a checksum; an index with a row
that fails it, with another schema, or that SQLite calls damaged is put aside whole and made again from the folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from recombine.errors import StoreError
from recombine.files import delete, parsed_json
from recombine.keys import with_present_names
from recombine.store.locks import Lock

BUSY_SECONDS = 2.0
"""How long to wait for another process that has the index locked."""
REST_SECONDS = 60.0
"""How long an index that could not be written is left alone."""
SCHEMA = 4
"""Raised when rows are written in another way; tables of an earlier one are made again from the folders."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
ASIDE = ".damaged"
PASSING = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip
"""Refusals that are not damage."""
T = TypeVar("T")

TABLES = ("heads", "summaries")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS heads (key TEXT PRIMARY KEY, finished REAL, stamp TEXT, digest TEXT, seal TEXT)",
    "CREATE TABLE IF NOT EXISTS summaries (key TEXT PRIMARY KEY, summary TEXT NOT NULL)",
    f"PRAGMA user_version={SCHEMA}",
)


class Row(NamedTuple):
    """What the index knows of a finished run."""

    key: str
    finished: float
    stamp: str
    """Of the run's folder when it was read: another folder under this key, from another machine, has another one."""
    summary: dict[str, Any]


class _Damaged(Exception):
    """The index does not say what was written."""


class Index:
    """Rows of the finished runs; every method does what it can and raises nothing. Without a path there is none."""

    def __init__(self, path: Path | None, lock_path: Path) -> None:
        self.path, self.lock_path = path or Path(), lock_path
        self._is_kept = path is not None
        self._rest_until = 0.0

    def heads(self) -> dict[str, tuple[float, str]]:
        """Finish times and stamps by key; empty where the index cannot be used."""
        return self._used(_heads, "ro") or {}

    def summaries(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Summaries by key, for those keys that the index has."""
        keys = list(keys)
        return (self._used(lambda connection: _summaries(connection, keys), "ro") or {}) if keys else {}

    def some(self, count: int) -> list[dict[str, Any]]:
        """A few summaries, whichever; none where the index cannot be used."""
        return self._used(lambda connection: _some(connection, count), "ro") or []

    def meeting(self, condition: str, values: Mapping[str, Any]) -> set[str] | None:
        """Keys of the rows that meet a condition (`query.Query.sql`); None where the index cannot be used."""
        return self._used(lambda connection: _meeting(connection, condition, values), "ro")

    def update(self, rows: Iterable[Row], gone: Iterable[str] = ()) -> None:
        """Add or replace rows, and remove those of runs that are gone."""
        rows, keys = list(rows), [(key,) for key in gone]
        if (rows or keys) and time.monotonic() >= self._rest_until:
            written = self._used(lambda connection: _write(connection, rows, keys), "rwc")
            self._rest_until = 0.0 if written else time.monotonic() + REST_SECONDS

    def _used(self, use: Callable[[sqlite3.Connection], T], mode: str) -> T | None:
        """What a use of the index gives; None where it cannot be used, after a damaged one was put aside."""
        for last in (
            (mode == "ro", True) if self._is_kept else ()
        ):  # what was put aside has nothing to read, and a new one can be written
            try:
                if not self._is_regular():
                    raise _Damaged
                with self._connected(mode) as connection:
                    return use(connection)
            except OSError:
                return None
            except (_Damaged, sqlite3.Error, ValueError, OverflowError) as error:
                if _is_passing(error):
                    return None
                if not self._put_aside() or last:
                    return None
        return None

    def _is_regular(self) -> bool:
        """Whether what is there are files, not links or folders."""
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(f"{self.path}{suffix}").st_mode):
                    return False
        return True

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction; tables are made where a writer meets an empty file."""
        writes = mode != "ro"
        with closing(self._opened(mode)) as connection:
            if writes:
                connection.execute("PRAGMA synchronous=OFF")  # what a power cut spoils is found, and made again
                with suppress(sqlite3.OperationalError):  # another process is doing it
                    connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            empty = not version and not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if 0 < version < SCHEMA:
                empty = True
                for name in TABLES if writes else ():
                    connection.execute(f"DROP TABLE IF EXISTS {name}")
            if empty and writes:
                for statement in _TABLES:
                    connection.execute(statement)
            elif empty:
                raise FileNotFoundError(self.path)
            elif version != SCHEMA:
                raise _Damaged
            yield connection
            connection.execute("COMMIT")

    def _opened(self, mode: str) -> sqlite3.Connection:
        """A connection; to a file that nobody is writing and nobody may write, one that makes no files beside it."""
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        if mode == "ro":
            try:
                connection.execute("PRAGMA user_version").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                if not self.path.exists() or Path(f"{self.path}-wal").exists():
                    raise
                connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
        return connection

    def _put_aside(self) -> bool:
        """Move a damaged index away, one process at a time, unless another one has done so meanwhile."""
        lock = Lock(self.lock_path)
        try:
            if not lock.acquire(wait=False):
                return False
            if not self._is_sound():
                for suffix in SUFFIXES:
                    here, aside = Path(f"{self.path}{suffix}"), Path(f"{self.path}{suffix}{ASIDE}")
                    if os.path.lexists(here):
                        delete(aside)
                        os.replace(here, aside)
            return True
        except (OSError, StoreError):
            return False
        finally:
            lock.release()

    def _is_sound(self) -> bool:
        """Whether every row says what was written."""
        try:
            if self._is_regular():
                with self._connected("ro") as connection:
                    _summaries(connection, list(_heads(connection)))
                    return True
        except (_Damaged, sqlite3.Error, OSError, ValueError, OverflowError) as error:
            return _is_passing(error)
        return False


def _is_passing(error: Exception) -> bool:
    """Whether an error says that the index cannot be used now, and nothing about what is in it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in PASSING


def _heads(connection: sqlite3.Connection) -> dict[str, tuple[float, str]]:
    heads = {}
    for *head, seal in connection.execute("SELECT key, finished, stamp, digest, seal FROM heads"):
        if seal != row_seal(*head):
            raise _Damaged
        key, finished, stamp, _ = head
        heads[key] = finished, stamp
    return heads


def _some(connection: sqlite3.Connection, count: int) -> list[dict[str, Any]]:
    texts = connection.execute(
        "SELECT digest, summary FROM heads JOIN summaries USING (key) LIMIT ?", (count,)
    ).fetchall()
    if any(digest != text_digest(text) for digest, text in texts):
        raise _Damaged
    return [parsed_json(text) for _, text in texts]


def _meeting(connection: sqlite3.Connection, condition: str, values: Mapping[str, Any]) -> set[str]:
    """Every row is compared with its digest, as one that changed could hide a run."""
    met = set()
    text = f"SELECT key, digest, summary, {condition} FROM heads JOIN summaries USING (key)"
    for key, digest, summary, is_met in connection.execute(text, values):
        if digest != text_digest(summary):
            raise _Damaged
        if is_met:
            met.add(key)
    return met


def _summaries(connection: sqlite3.Connection, keys: list[str]) -> dict[str, dict[str, Any]]:
    query = "SELECT key, finished, stamp, digest, seal, summary FROM heads JOIN summaries USING (key) WHERE key = ?"
    summaries = {}
    for key in keys:
        row = connection.execute(query, (key,)).fetchone()
        if row is None:
            raise _Damaged
        *head, seal, text = row
        if seal != row_seal(*head) or head[-1] != text_digest(text):
            raise _Damaged
        summary = parsed_json(text)
        summaries[key] = {**summary, "spec": with_present_names(summary["spec"])}
    return summaries


def _write(connection: sqlite3.Connection, rows: list[Row], gone: list[tuple[str]]) -> bool:
    texts = {row.key: json.dumps(row.summary) for row in rows}
    heads = [(row.key, row.finished, row.stamp, text_digest(texts[row.key])) for row in rows]
    sealed = [(*head, row_seal(*head)) for head in heads]
    connection.executemany("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?)", sealed)
    connection.executemany("INSERT OR REPLACE INTO summaries VALUES (?, ?)", texts.items())
    for table in TABLES:
        connection.executemany(f"DELETE FROM {table} WHERE key = ?", gone)
    return True


def text_digest(text: object) -> str:
    """The digest of a summary, as its row carries it."""
    return hashlib.sha256(str(text).encode(errors="replace")).hexdigest()


def row_seal(key: object, finished: object, stamp: object, digest: object) -> str:
    """The checksum of a row."""
    return hashlib.sha256(f"{key}\0{finished!r}\0{stamp}\0{digest}".encode(errors="replace")).hexdigest()
