"""The index: what is in a store, quickly.

SQLite in write-ahead mode. It is a cache of the run folders and nothing more, so it never stops anything: where it is
locked, unreadable or on a full disk, the store reads the folders. Every row carries a checksum; an index with a row
that fails it, with another schema, or that SQLite calls damaged is put aside whole and made again from the folders.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from recombine.errors import StoreError
from recombine.files import delete
from recombine.store import rows
from recombine.store.locks import Lock
from recombine.store.query import Condition
from recombine.store.rows import SCHEMA, Damaged, Row

BUSY_SECONDS = 2.0
"""How long to wait for another process that has the index locked."""
REST_SECONDS = 60.0
"""How long an index that could not be written is left alone."""
SUFFIXES = ("", "-wal", "-shm", "-journal")
ASIDE = ".damaged"
PASSING = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}  # fmt: skip
"""Refusals that are not damage."""
T = TypeVar("T")


class Index:
    """Rows of the finished runs; every method does what it can and raises nothing. Without a path there is none."""

    def __init__(self, path: Path | None, lock_path: Path) -> None:
        self.path, self.lock_path = path or Path(), lock_path
        self._is_kept = path is not None
        self._rest_until = 0.0

    def heads(self) -> dict[str, tuple[float, str]]:
        """Finish times and stamps by key; empty where the index cannot be used."""
        return self._used(rows.heads, "ro") or {}

    def summaries(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Summaries by key, for those keys that the index has."""
        keys = list(keys)
        return (self._used(lambda connection: rows.summaries(connection, keys), "ro") or {}) if keys else {}

    def some(self, count: int) -> list[dict[str, Any]]:
        """A few summaries, whichever; none where the index cannot be used."""
        return self._used(lambda connection: rows.some(connection, count), "ro") or []

    def meeting(self, condition: Condition) -> set[str] | None:
        """Keys of rows, as `heads` has checked them, that meet a condition; None where the index cannot be used."""
        return self._used(lambda connection: rows.meeting(connection, condition), "ro")

    def update(self, changed: Iterable[Row], gone: Iterable[str] = ()) -> None:
        """Add or replace rows, and remove those of runs that are gone."""
        changed, gone = list(changed), list(gone)
        if (changed or gone) and time.monotonic() >= self._rest_until:
            written = self._used(lambda connection: rows.write(connection, changed, gone), "rwc")
            self._rest_until = 0.0 if written else time.monotonic() + REST_SECONDS

    def _used(self, use: Callable[[sqlite3.Connection], T], mode: str) -> T | None:
        """What a use of the index gives; None where it cannot be used, after a damaged one was put aside."""
        for last in (
            (mode == "ro", True) if self._is_kept else ()
        ):  # what was put aside has nothing to read, and a new one can be written
            try:
                if not self._is_regular():
                    raise Damaged
                with self._connected(mode) as connection:
                    return use(connection)
            except OSError:
                return None
            except (Damaged, sqlite3.Error, ValueError, OverflowError) as error:
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
            empty = empty or 0 < version < SCHEMA
            if empty and writes:
                rows.create(connection)
            elif empty:
                raise FileNotFoundError(self.path)
            elif version != SCHEMA:
                raise Damaged
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
                    rows.summaries(connection, rows.heads(connection))
                    return True
        except (Damaged, sqlite3.Error, OSError, ValueError, OverflowError) as error:
            return _is_passing(error)
        return False


def _is_passing(error: Exception) -> bool:
    """Whether an error says that the index cannot be used now, and nothing about what is in it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in PASSING
