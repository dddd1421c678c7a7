"""`recombine runs`: look after a store. Nothing here imports torch."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from recombine.cli.tables import HEADINGS, console
from recombine.errors import InvalidValue
from recombine.files import delete as delete_leftover
from recombine.files import write
from recombine.store import Run, Store, flattened
from recombine.store.names import is_key

app = App(name="runs", help="List, show, verify, prune and export the runs of a store.", help_format="plaintext")

StorePath = Annotated[
    Path | None, Parameter(name="--store", help="Directory of runs. Default: $RECOMBINE_STORE or ./runs.")
]
FOUND_WRONG, MISUSED = 1, 2
OTHER_TABLES = (".xlsx", ".xls", ".tsv", ".txt", ".parquet", ".nc", ".zip", ".tar", ".gz")
"""Endings that look like a file of a kind `export` does not write."""


@app.command(name="list")
def list_runs(*, store: StorePath = None) -> None:
    """List the finished runs, oldest first, and the unfinished ones."""
    place = Store(store, create=False)
    listing = place.listing()
    rows = [(row.key, row.summary) for row in listing.rows]
    out = console()
    table = Table()
    for heading in (
        "key",
        "status",
        "decoder",
        "encoding",
        "holdout",
        "training",
        "seed",
        *HEADINGS.values(),
    ):
        table.add_column(heading, justify="right" if heading in HEADINGS.values() else "left", no_wrap=True)
    for key, summary in rows:
        spec = summary["spec"]
        parts = [
            _short(spec["decoder"]),
            *(_short(spec["task"][n]) for n in ("encoding", "holdout", "training")),
        ]
        table.add_row(key[:10], summary["status"], *parts, str(spec["seed"]), *_score_cells(summary["scores"]))
    if rows:
        out.print(table)
    unfinished = place.unfinished()
    tail = f", {len(unfinished)} unfinished ({', '.join(key[:10] for key in unfinished[:4])})" if unfinished else ""
    out.print(f"{listing.total} finished runs in {place.path}{tail}", highlight=False)
    if listing.unreadable:
        some = ", ".join(key[:10] for key in listing.unreadable[:4])
        out.print(f"cannot be listed: {some}; 'recombine runs verify' says why", highlight=False)


@app.command
def show(run: str, /, *, store: StorePath = None) -> None:
    """Show one run: spec, scores, provenance.

    Parameters
    ----------
    run
        Its key, or the first digits of it.
    """
    found = Store(store, create=False).resolve(run)
    _require_whole(found)
    out = console()
    out.print(f"[bold]{found.key}[/bold] {found.status} after {found.result['steps']} steps", highlight=False)
    sections = {
        "spec": flattened(json.loads(found.spec_text)),
        "scores": {name: f"{value:.5g}" for name, value in found.scores.items()},
        "provenance": _readable(found.result["provenance"]),
    }
    for title, fields in sections.items():
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in fields.items():
            table.add_row(name, str(value))
        out.print(table)
    out.print(f"files: {found.path}", highlight=False)


@app.command
def verify(*, store: StorePath = None) -> int:
    """Compare every byte with what was written; exit with 1 if any differs."""
    place = Store(store, create=False)
    out, checked = console(), 0
    kinds: Counter[str] = Counter()
    for name, problems in place.verify():
        checked += is_key(name)
        kinds.update({problem.kind for problem in problems})
        for problem in problems:
            out.print(f"{name} {problem}" if problem.kind != "stray" else f"{problem}", highlight=False, markup=False)
    kept = "; what is damaged is trained again when it is next asked for" if kinds["damage"] else ""
    unread = f", {kinds['unreadable']} could not be read" if kinds["unreadable"] else ""
    out.print(f"{checked} checked, {kinds['damage']} damaged{unread}{kept}", highlight=False)
    return FOUND_WRONG if kinds["damage"] else MISUSED if kinds["unreadable"] else 0


@app.command
def prune(
    *runs: str,
    unfinished: bool = False,
    diverged: bool = False,
    dry_run: bool = False,
    store: StorePath = None,
) -> None:
    """Delete what no run needs (damaged and half-written files), and what is named.

    Parameters
    ----------
    runs
        Keys, or first digits, of finished runs to delete.
    unfinished
        Also delete the checkpoints of unfinished runs.
    diverged
        Also delete runs whose loss stopped being a finite number.
    dry_run
        Only say what would be deleted.
    """
    place = Store(store, create=False)
    keys = {place.resolve(run).key for run in runs}
    if diverged:
        keys |= {key for key, summary in place.summaries() if summary["status"] == "diverged"}
    paths = place.leftovers()
    loose = place.unfinished() if unfinished else []
    out = console()
    verb = "would delete" if dry_run else "deleted"
    for path in paths:
        if not dry_run:
            delete_leftover(path)
        out.print(f"{verb} {path}", highlight=False)
    counts = {"run": 0, "checkpoint of": 0}
    for key in [*sorted(keys), *loose]:
        what, delete = ("run", place.remove) if key in keys else ("checkpoint of", place.discard_checkpoint)
        done = dry_run or delete(key)
        counts[what] += done
        out.print(f"{verb if done else 'kept, it is in use:'} {what} {key}", highlight=False)
    out.print(
        f"{verb} {len(paths)} leftovers, {counts['run']} runs, {counts['checkpoint of']} checkpoints", highlight=False
    )


@app.command
def export(to: Path, /, *runs: str, store: StorePath = None) -> None:
    """Copy runs to a new store (a directory), or their specs and scores to a table (.csv or .json).

    Parameters
    ----------
    to
        Where to: a directory that does not exist yet or is a store, or a file ending in .csv or .json.
    runs
        Keys, or first digits; all runs if none is given.
    """
    place = Store(store, create=False)
    chosen = [place.resolve(run) for run in runs] or place.runs()
    for run in chosen:
        _require_whole(run)
    if to.suffix in (".csv", ".json"):
        _write_table(to, chosen)
    elif to.suffix in OTHER_TABLES:
        raise InvalidValue("to", str(to), "a directory, or a file ending in .csv or .json")
    else:
        there = Store(to)
        for run in chosen:
            there.adopt(run)
    console().print(f"{len(chosen)} runs exported to {to}", highlight=False)


def _require_whole(run: Run) -> None:
    if problems := run.problems():
        raise InvalidValue("run", run.key, f"a run whose files are whole ({problems[0]})")


def _write_table(to: Path, runs: list[Run]) -> None:
    rows = [
        {"key": run.key, "status": run.status, **flattened(json.loads(run.spec_text)), **run.result["scores"]}
        for run in runs
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    if to.suffix == ".json":
        json.dump(rows, text, indent=1)
    else:
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows(rows)
    write(to, text.getvalue().encode(), "to")


def _short(part: dict[str, Any]) -> str:
    """A part of a spec as `name:value:value`, without what is not set."""
    values = [value for name, value in part.items() if name != "kind" and value is not None]
    text = ":".join(str(value) for value in [part["kind"], *values])
    return text if len(text) <= 24 else text[:23] + "…"


def _score_cells(scores: dict[str, float | None]) -> list[str]:
    cells = []
    for name in HEADINGS:
        value = scores[name]
        text = "–" if value is None else f"{100 * value:.1f} %" if name.endswith("accuracy") else f"{value:.3g}"
        cells.append(text)
    return cells


def _readable(provenance: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(value).isoformat(" ", "seconds") if name in ("started", "finished") else value
        for name, value in provenance.items()
    }
