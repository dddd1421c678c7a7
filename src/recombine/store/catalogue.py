"""What is in a store: rows of the index, checked against the folders' names and read from these where it fails."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from recombine.errors import StoreError
from recombine.files import one_line_errors
from recombine.store.index import Row
from recombine.store.names import is_key
from recombine.store.run import Run

if TYPE_CHECKING:
    import pandas

    from recombine.store.store import Store


class Listing(NamedTuple):
    """Finished runs as the index knows them."""

    rows: list[Row]
    """Oldest first."""
    total: int
    """Finished runs in the store, listed or not."""
    unreadable: list[str]
    """Names under `runs/` that cannot be listed; `verify` says what is wrong with them."""


def listing(store: Store, newest: int | None) -> Listing:
    """The finished runs, or the newest of them; the index is brought up to date with the folders."""
    stamps, heads = _stamps(store), store.index.heads()
    known = {key: finished for key, (finished, stamp) in heads.items() if stamps.get(key) == stamp}
    rows, unreadable = _read_rows(store, sorted(stamps.keys() - known.keys()))
    store.index.update(rows.values(), gone=heads.keys() - known.keys() - rows.keys())
    finished = known | {row.key: row.finished for row in rows.values()}
    order = sorted(finished, key=lambda key: (finished[key], key))
    chosen = order if newest is None else order[len(order) - min(newest, len(order)) :]
    summaries = store.index.summaries(key for key in chosen if key not in rows)
    rows |= {key: Row(key, finished[key], stamps[key], summary) for key, summary in summaries.items()}
    more, lost = _read_rows(store, [key for key in chosen if key not in rows])  # the index failed meanwhile
    store.index.update(more.values())
    rows |= more
    unreadable = [*unreadable, *lost]
    return Listing([rows[key] for key in chosen if key in rows], len(stamps) - len(unreadable), unreadable)


def _stamps(store: Store) -> dict[str, str]:
    """Stamps of the run folders by key."""
    folder = store.path / "runs"
    with one_line_errors(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        return {entry.name: _stamp(entry.stat(follow_symlinks=False)) for entry in entries if is_key(entry.name)}
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


def frame(listing: Listing) -> pandas.DataFrame:
    """A listing as a table with a row per run."""
    import pandas

    columns = [
        {
            "status": row.summary["status"],
            **flattened(row.summary["spec"]),
            **row.summary["scores"],
            "finished": pandas.Timestamp(row.finished, unit="s", tz="UTC"),
        }
        for row in listing.rows
    ]
    return pandas.DataFrame(columns, index=pandas.Index([row.key for row in listing.rows], name="key"))


def flattened(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as dotted names."""
    fields: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            fields.update(flattened(value, f"{prefix}{name}."))
        else:
            fields[prefix + name] = value
    return fields
