"""What is in a store: rows of the index, checked against the folders' names and read from these where it fails."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from recombine.errors import StoreError
from recombine.files import one_line_errors
from recombine.store.names import is_key
from recombine.store.query import Query, places_of, unknown
from recombine.store.rows import Row, keys_in
from recombine.store.run import Run

if TYPE_CHECKING:
    from recombine.store.store import Store


TOGETHER = 1000
"""Runs that are read, and written to the index, at a time."""
SAMPLE = 64
"""Summaries in which the names of a query are looked for first."""


class Listing(NamedTuple):
    """Finished runs as the index knows them."""

    rows: list[Row]
    """Oldest first."""
    total: int
    """Finished runs in the store, listed or not."""
    unreadable: list[str]
    """Names under `runs/` that cannot be listed; `verify` says what is wrong with them."""
    met: int
    """Finished runs that meet the query, listed or not."""


def listing(store: Store, newest: int | None, query: Query | None = None) -> Listing:
    """The finished runs that meet a query, or the newest of them; the index is brought up to date with the folders."""
    heads = store.index.heads()
    stamps = _stamps(store, heads)
    finished = {key: time for key, (time, stamp) in heads.items() if stamps.get(key) == stamp}
    store.index.update([], gone=heads.keys() - stamps.keys())
    rows: dict[str, Row] = {}
    unreadable: list[str] = []
    for some in batched(sorted(stamps.keys() - finished.keys()), TOGETHER):
        read, bad = _read_rows(store, some)
        store.index.update(read.values(), gone=[key for key in some if key in heads and key not in read])
        finished |= {row.key: row.finished for row in read.values()}
        unreadable += bad
        rows = read if not rows and len(read) < TOGETHER else {}  # of many, the index has them
    if query is not None:
        met = _meeting(store, query, finished)
        finished = {key: time for key, time in finished.items() if key in met}
    moments = zip(finished.values(), finished, strict=True)
    chosen = [key for _, key in (sorted(moments) if newest is None else nlargest(newest, moments)[::-1])]
    summaries = store.index.summaries(key for key in chosen if key not in rows)
    rows |= {key: Row(key, finished[key], stamps[key], summary) for key, summary in summaries.items()}
    more, lost = _read_rows(store, [key for key in chosen if key not in rows])  # the index failed meanwhile
    store.index.update(more.values())
    rows |= more
    unreadable += lost
    return Listing(
        [rows[key] for key in chosen if key in rows], len(stamps) - len(unreadable), unreadable, len(finished)
    )


def batched(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    """Keys in lists of at most a size."""
    left = iter(keys)
    while some := list(islice(left, size)):
        yield some


def _meeting(store: Store, query: Query, keys: Collection[str]) -> set[str]:
    """Keys of the runs that meet a query, by the index or, where that cannot be used, by the folders."""
    sample = store.index.some(SAMPLE)
    places = places_of(query.names, sample)
    if len(places) == len(query.names) and (met := store.index.meeting(query.sql(places))) is not None:
        return met
    summaries = store.index.summaries(keys)
    rest, _ = _read_rows(store, [key for key in keys if key not in summaries])
    summaries |= {key: row.summary for key, row in rest.items()}
    places = places_of(query.names, summaries.values())
    if summaries and (missing := [name for name in query.names if name not in places]):
        raise unknown(query, missing, list(summaries.values())[:SAMPLE])
    return keys_in(summaries.items(), query.sql(places)) if summaries else set()


def _stamps(store: Store, known: Collection[str]) -> dict[str, str]:
    """Stamps of the run folders by key; of names that are known to be keys that is not asked again."""
    folder = store.path / "runs"
    with one_line_errors(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {
            entry.name: _stamp(entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name in known or is_key(entry.name)
        }
    return {}


def _stamp(status: os.stat_result) -> str:
    """What tells a folder from another one in its place."""
    return f"{status.st_ino}.{status.st_mtime_ns}"


def _read_rows(store: Store, keys: Iterable[str]) -> tuple[dict[str, Row], list[str]]:
    """Rows read from the folders, and keys of those that cannot be read."""
    rows, unreadable = {}, []
    for key in keys:
        try:
            rows[key] = row(store.run(key))
        except (StoreError, OSError, ValueError, KeyError, TypeError):
            if os.path.lexists(store.run(key).path):  # else it was removed meanwhile
                unreadable.append(key)
    return rows, unreadable


def row(run: Run) -> Row:
    """What the index keeps of a run."""
    result = run.result
    summary = {"status": result["status"], "scores": result["scores"], "spec": run.spec_fields}
    return Row(run.key, float(result["provenance"]["finished"]), _stamp(os.lstat(run.path)), summary)
