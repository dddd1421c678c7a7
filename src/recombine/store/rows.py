"""What the index keeps of a run, and how: tables, checksums, and the questions that SQLite answers.

    runs        a finished run: what is its own (status, scores, seed), and which settings it has
    settings    specs without their seed, each once: a sweep has far fewer of them than runs

A row of `runs` carries a checksum of itself; settings are named by the digest of their text. So whoever has read all
`heads` knows that nothing in the index changed since it was written.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from recombine.files import parsed_json
from recombine.keys import with_present_names
from recombine.store.query import Condition

SCHEMA = 5
"""Raised when rows are written in another way; tables of an earlier one are made again from the folders."""
TABLES = ("runs", "settings")
EARLIER_TABLES = ("heads", "summaries")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS runs "
    "(key TEXT PRIMARY KEY, finished REAL, stamp TEXT, settings INTEGER, own TEXT, seal INTEGER)",
    "CREATE TABLE IF NOT EXISTS settings (id INTEGER PRIMARY KEY, text TEXT)",
    f"PRAGMA user_version={SCHEMA}",
)
_COLUMNS = "key, finished, stamp, settings, own, seal"
OWN = "spec.seed"
"""The field of a spec that is a run's own."""


class Row(NamedTuple):
    """What the index knows of a finished run."""

    key: str
    finished: float
    stamp: str
    """Of the run's folder when it was read: another folder under this key, from another machine, has another one."""
    summary: dict[str, Any]


class Damaged(Exception):
    """The index does not say what was written."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, in the place of any of an earlier schema."""
    for name in (*TABLES, *EARLIER_TABLES):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _CREATE:
        connection.execute(statement)


def write(connection: sqlite3.Connection, rows: Iterable[Row], gone: Iterable[str] = ()) -> bool:
    """Add or replace rows, and remove those of runs that are gone."""
    sealed, settings = [], {}
    for row in rows:
        own, text = _divided(row.summary)
        settings[settings_id(text)] = text
        head = (row.key, row.finished, row.stamp, settings_id(text), own)
        sealed.append((*head, row_seal(*head)))
    connection.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", settings.items())
    connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", sealed)
    connection.executemany("DELETE FROM runs WHERE key = ?", [(key,) for key in gone])
    return True


def _divided(summary: Mapping[str, Any]) -> tuple[str, str]:
    """A summary as two texts: what is the run's own, and its settings. The seed keeps its place in them."""
    spec = summary["spec"]
    seed = {"seed": spec["seed"]} if "seed" in spec else {}
    return json.dumps({**summary, "spec": seed}), json.dumps({"spec": {**spec, **dict.fromkeys(seed)}})


def heads(connection: sqlite3.Connection) -> dict[str, tuple[float, str]]:
    """Finish times and stamps by key; every row is compared with its checksum, as one that changed could hide a run."""
    known = {name for name, _ in _settings(connection)}
    rows = {}
    for key, finished, stamp, settings, own, seal in connection.execute(f"SELECT {_COLUMNS} FROM runs"):
        if seal != row_seal(key, finished, stamp, settings, own) or settings not in known:
            raise Damaged
        rows[key] = finished, stamp
    return rows


def _settings(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """All settings by their names, checked."""
    for name, text in connection.execute("SELECT id, text FROM settings"):
        if name != settings_id(text):
            raise Damaged
        yield name, text


def summaries(connection: sqlite3.Connection, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Summaries of runs that the index has."""
    settings: dict[int, dict[str, Any]] = {}
    return {key: _summary(connection, key, settings) for key in keys}


def some(connection: sqlite3.Connection, count: int) -> list[dict[str, Any]]:
    """A few summaries, whichever."""
    keys = [key for (key,) in connection.execute("SELECT key FROM runs LIMIT ?", (count,))]
    return list(summaries(connection, keys).values())


def _summary(connection: sqlite3.Connection, key: str, settings: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """One summary; settings that were read before are not read again."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE key = ?", (key,)).fetchone()
    if row is None or row[-1] != row_seal(*row[:-1]):
        raise Damaged
    name, own = row[3], parsed_json(row[4])
    if name not in settings:
        found = connection.execute("SELECT text FROM settings WHERE id = ?", (name,)).fetchone()
        if found is None or settings_id(found[0]) != name:
            raise Damaged
        settings[name] = with_present_names(parsed_json(found[0])["spec"])
    return {**own, "spec": {**settings[name], **own["spec"]}}


def meeting(connection: sqlite3.Connection, condition: Condition) -> set[str]:
    """Keys of the rows that meet a condition. Settings are evaluated once, not for each of their runs."""
    own = [number for number, place in enumerate(condition.places) if _is_own(place)]
    shared = [number for number in range(len(condition.places)) if number not in own]
    text = (
        f"WITH shared AS (SELECT id {_extracted('text', shared)} FROM settings LIMIT -1) "  # so that it is kept
        f"SELECT key FROM (SELECT runs.key, shared.* {_extracted('own', own)} "
        f"FROM runs CROSS JOIN shared ON shared.id = runs.settings) WHERE {condition.text}"
    )
    paths = {f"p{number}": _path(place) for number, place in enumerate(condition.places)}
    return {key for (key,) in connection.execute(text, {**condition.values, **paths})}


def _is_own(place: str) -> bool:
    return place == OWN or not place.startswith("spec.")


def _extracted(column: str, numbers: Iterable[int]) -> str:
    """Columns with the value and the type of fields."""
    pairs = (f", json_extract({column}, :p{k}) AS f{k}, json_type({column}, :p{k}) AS t{k}" for k in numbers)
    return "".join(pairs)


def _path(place: str) -> str:
    return "$" + "".join(f'."{part}"' for part in place.split("."))


def keys_in(summaries: Iterable[tuple[str, Mapping[str, Any]]], condition: Condition) -> set[str]:
    """Keys of those summaries that meet a condition, where there is no index."""
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        write(connection, (Row(key, 0.0, "", dict(summary)) for key, summary in summaries))
        return meeting(connection, condition)


def settings_id(text: object) -> int:
    """The name of settings: 63 bits of the digest of their text."""
    return int.from_bytes(hashlib.sha256(str(text).encode(errors="replace")).digest()[:8], "big") >> 1


def row_seal(key: object, finished: object, stamp: object, settings: object, own: object) -> int:
    """The checksum of a row."""
    return zlib.crc32(f"{key}\0{finished!r}\0{stamp}\0{settings}\0{own}".encode(errors="replace"))
