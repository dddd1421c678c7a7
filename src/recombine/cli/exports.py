"""`recombine runs export` and `import`: runs as a store, an archive or a table. Nothing here imports torch."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Literal

from recombine.cli.destinations import require_file
from recombine.cli.listing import matching
from recombine.cli.options import SomePath, StorePath, Where
from recombine.console import counted, say
from recombine.errors import InvalidValue, StoreError, listed
from recombine.files import one_line_errors, write
from recombine.store import Run, Store, flattened
from recombine.store.archives import read_archive, write_archive
from recombine.store.loading import parquet

ARCHIVE = ".tar"
TABLES = (".csv", ".json", ".parquet")
OTHERS = (".xlsx", ".xls", ".tsv", ".txt", ".nc", ".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst")
"""Endings that look like a file of a kind that is not written."""


def export_runs(
    to: SomePath, /, *runs: str, where: Where = None, query: str | None = None,
    layout: Literal["store", "huggingface"] = "store", store: StorePath = None,
) -> None:  # fmt: skip
    """Copy runs to a new store (a directory) or an archive (.tar), or their specs and scores to a table.

    Or one run to a directory in the layout of the Hugging Face hub: model.safetensors, config.json and a model card.

    Parameters
    ----------
    to
        What to write: a directory that does not exist yet or is a store; a file ending in .tar, which "recombine runs
        import" reads; or a table, ending in .csv, .json or .parquet.
    runs
        Keys, or first digits; all runs if none is given.
    query
        Only runs that meet an expression, as for "recombine runs query".
    layout
        Of a directory: a store, or huggingface for one run, which recombine.from_pretrained loads.
    """
    is_file = to.suffix in (*TABLES, ARCHIVE)
    if is_file and layout != "store":
        raise InvalidValue("to", str(to), f"a directory for layout {layout}")
    if is_file:
        require_file(to, "to")
    elif to.suffix in OTHERS:
        raise InvalidValue("to", str(to), f"a directory, or a file ending in {listed([ARCHIVE, *TABLES])}")
    opened = Store(store, create=False)
    with one_line_errors(to, "to"):
        if to.exists() and to.samefile(opened.path):
            raise InvalidValue("to", str(to), "another directory than the store's own")
    chosen = [opened.resolve(run) for run in runs] or opened.runs()
    if where:
        kept = {key for key, _ in matching(opened.summaries(), where)}
        chosen = [run for run in chosen if run.key in kept]
    if query is not None:
        met = {row.key for row in opened.listing(where=query).rows}
        chosen = [run for run in chosen if run.key in met]
    for run in chosen:
        require_whole(run)
    if layout == "huggingface":
        _require_one(chosen).save_pretrained(to)
    elif to.suffix == ARCHIVE:
        write_archive(to, sorted(chosen, key=lambda run: run.key))
    elif is_file:
        _write_table(to, chosen)
    else:
        other = _store_to_fill(to)
        for run in chosen:
            other.adopt(run)
    say(f"{counted(len(chosen), 'run')} exported to {to}")


def import_runs(archive: SomePath, /, *, store: StorePath = None) -> None:
    """Add the runs of an archive to a store, after every byte of it was checked; those that are there already stay.

    Parameters
    ----------
    archive
        A file that "recombine runs export FILE.tar" wrote.
    """
    opened = Store(store)
    before = set(opened.keys())
    keys = read_archive(archive, opened)
    there = len(before.intersection(keys))
    known = f" ({there} were there already)" if there else ""
    say(f"{counted(len(keys), 'run')} imported into {opened.path}{known}")


def _require_one(runs: list[Run]) -> Run:
    if len(runs) != 1:
        raise InvalidValue("runs", len(runs), "one run, as a folder of the hub holds one model")
    return runs[0]


def _store_to_fill(to: Path) -> Store:
    """The store at a path, made where there is none; refusals name this argument."""
    try:
        return Store(to)
    except StoreError as error:
        raise StoreError(f"to: {str(error).removeprefix('store: ')}") from None


def require_whole(run: Run) -> None:
    """Refuse a run that is damaged."""
    if problems := run.problems():
        raise InvalidValue("run", run.key, f"a run whose files are whole ({problems[0]})")


def _write_table(to: Path, runs: list[Run]) -> None:
    """Specs and scores, by key: the same runs always give the same file."""
    rows = [
        {"key": run.key, "status": run.status, **flattened(run.spec_fields), **run.result["scores"]}
        for run in sorted(runs, key=lambda run: run.key)
    ]
    if to.suffix == ".parquet":
        import pandas

        write(to, parquet(pandas.DataFrame(rows), index=False), "to")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    if to.suffix == ".json":
        json.dump(rows, text, indent=1)
    else:
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows(rows)
    write(to, text.getvalue().encode(), "to")
