"""The index: what is in a store, quickly.

SQLite in write-ahead mode. It is a cache of the run folders and nothing more: a row too few or too many is mended
from the folders, and a damaged index is put aside and made again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from recombine.errors import StoreError
from recombine.store.locks import Lock

BUSY_SECONDS = 60.0
"""How long a writer waits for another one."""
T = TypeVar("T")

_TABLE = "CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, finished REAL NOT NULL, summary TEXT NOT NULL)"


class Index:
    """Rows `(key, finish time, summary)` of the finished runs."""

    def __init__(self, path: Path, lock_path: Path) -> None:
        self.path, self.lock_path = path, lock_path

    def create(self) -> None:
        """Make the file and switch it to write-ahead mode, once; two processes doing this at once would collide."""
        try:
            with self._connected() as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        allowed = f"a directory where an index can be read and written ({error})"
        return StoreError(f"store: {str(self.path)!r} is not allowed; allowed: {allowed}")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as connection, connection:
            yield connection

    def _mended(self, use: Callable[[sqlite3.Connection], T]) -> T:
        """Use the index; if it is damaged, put it aside, make a new one and use that.

        One process mends at a time, and looks again whether another one has mended it meanwhile.
        """
        try:
            return self._used(use)
        except sqlite3.Error:
            with Lock(self.lock_path):
                try:
                    return self._used(use)
                except sqlite3.OperationalError as error:
                    if "no such table" not in str(error):
                        raise self._unusable(error) from None
                except sqlite3.DatabaseError:
                    self._put_aside()
                self.create()
                try:
                    return self._used(use)
                except sqlite3.Error as error:
                    raise self._unusable(error) from None

    def _used(self, use: Callable[[sqlite3.Connection], T]) -> T:
        with self._connected() as connection:
            return use(connection)

    def _put_aside(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            damaged = self.path.with_name(self.path.name + suffix)
            with suppress(FileNotFoundError):
                os.replace(damaged, damaged.with_name(damaged.name + ".damaged"))

    def keys(self) -> set[str]:
        """The keys that have a row."""
        return self._mended(lambda connection: {key for (key,) in connection.execute("SELECT key FROM runs")})

    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """Keys and summaries, oldest first."""
        query = "SELECT key, summary FROM runs ORDER BY finished, key"
        rows = self._mended(lambda connection: connection.execute(query).fetchall())
        return [(key, json.loads(summary)) for key, summary in rows]

    def put(self, rows: Iterable[tuple[str, float, dict[str, Any]]]) -> None:
        """Add rows or replace them."""
        packed = [(key, finished, json.dumps(summary)) for key, finished, summary in rows]
        self._mended(lambda connection: connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", packed))

    def drop(self, keys: Iterable[str]) -> None:
        """Remove rows."""
        packed = [(key,) for key in keys]
        self._mended(lambda connection: connection.executemany("DELETE FROM runs WHERE key = ?", packed))
