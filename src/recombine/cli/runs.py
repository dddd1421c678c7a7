"""`recombine runs`: look after a store. Nothing here imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from cyclopts import App, Parameter

from recombine.checks import whole_number
from recombine.cli.exports import export_runs, import_runs, require_whole
from recombine.cli.listing import Row, difference, matching, train_command
from recombine.cli.options import StorePath, Where, Whole
from recombine.cli.tables import HEADINGS, INDENT, Column, Holds, score_text, write_fields, write_table
from recombine.console import console, counted, paragraph, say
from recombine.errors import StoreError, typed
from recombine.keys import REVISION
from recombine.store import Listing, Run, Store, flattened
from recombine.store.names import is_key

TWO_SIDED = 1.96
"""Standard errors to either side of a 95 % interval."""

app = App(
    name="runs",
    help="List, query, show, verify, prune, export and import the runs of a store.",
    help_format="plaintext",
)
app.command(export_runs, name="export")
app.command(import_runs, name="import")

Switch = Annotated[bool, Parameter(negative=(), show_default=False)]
FOUND_WRONG, MISUSED = 1, 2
KEY_DIGITS, FEW = 10, 4
"""How much of a key is listed, and how many of the keys that have no row."""
IN_USE = "kept, it is in use:"
NEWEST = 100
"""Runs that are listed where nothing else is asked for."""


@app.command(name="list")
def list_runs(
    *, where: Where = None, newest: Whole = NEWEST, everything: Annotated[Switch, Parameter(name="--all")] = False,
    store: StorePath = None,
) -> int:  # fmt: skip
    """List the finished runs, oldest first: in what they differ, and their scores; and the unfinished ones.

    Parameters
    ----------
    newest
        Most runs that are listed, the newest of all or of those that meet the conditions.
    everything
        List all of them.
    """
    whole_number("newest", newest)
    opened = Store(store, create=False)
    listing = opened.listing(None if everything or where else newest)
    chosen = matching([(row.key, row.summary) for row in listing.rows], where)
    matched = len(chosen) if where else None
    return _say_listing(opened, listing, chosen if everything else chosen[-newest:], matched)


@app.command
def query(
    expression: str, /, *, newest: Whole = NEWEST, everything: Annotated[Switch, Parameter(name="--all")] = False,
    store: StorePath = None,
) -> int:  # fmt: skip
    """List the finished runs that meet an expression, oldest first.

    Parameters
    ----------
    expression
        As "encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9": names of the flags of train and of scores, and,
        or, not, comparisons, in.
    newest
        Most runs that are listed, the newest.
    everything
        List all of them.
    """
    whole_number("newest", newest)
    opened = Store(store, create=False)
    listing = opened.listing(None if everything else newest, expression)
    return _say_listing(opened, listing, [(row.key, row.summary) for row in listing.rows], listing.met)


def _say_listing(store: Store, listing: Listing, chosen: Sequence[Row], matched: int | None) -> int:
    """Write runs, of how many they are the newest, and what could not be listed; the exit code."""
    if chosen:
        _write_listing(chosen)
    if len(chosen) < (listing.total if matched is None else matched):
        least = listing.total if matched is None else matched
        say(f"the newest {len(chosen)} of {least}; --all lists all, 'recombine runs query' chooses")
    unfinished = store.unfinished()
    tail = f", {len(unfinished)} unfinished ({_some(unfinished)})" if unfinished else ""
    count = counted(listing.total, "finished run")
    say(f"{count if matched is None else f'{matched} of {count}'} in {store.path}{tail}")
    if listing.unreadable:
        say(f"cannot be listed: {_some(listing.unreadable)}; 'recombine runs verify' says why")
    return _code(store, listing.unreadable)


def _code(store: Store, unlisted: Sequence[str]) -> int:
    """The exit code of a listing without some runs: they are damaged, or could not be read."""
    try:
        return FOUND_WRONG if any(store.run(key).damage() for key in unlisted) else MISUSED if unlisted else 0
    except StoreError:
        return MISUSED


def _write_listing(rows: Sequence[Row]) -> None:
    """Write the fields in which runs differ, their scores, and what is common to all."""
    differing, common = difference(rows)
    columns = [Column("key", [key[:KEY_DIGITS] for key, _ in rows], Holds.NAMES)]
    columns += [Column(name, cells, Holds.NAMES) for name, cells in differing.items()]
    for name, heading in HEADINGS.items():
        columns.append(Column(heading, [score_text(name, summary["scores"][name]) for _, summary in rows]))
    write_table(console(), columns)
    same = ", ".join(f"{name}={value}" for name, value in common.items())
    paragraph(f"\n{'this run' if len(rows) == 1 else 'all of them'}: {same}")


def _some(keys: Sequence[str]) -> str:
    """The first few keys."""
    return ", ".join(key[:KEY_DIGITS] for key in keys[:FEW]) + (", …" if len(keys) > FEW else "")


@app.command
def show(run: str, /, *, store: StorePath = None) -> None:
    """Show one run: spec, scores, provenance, and the command that trains it.

    Parameters
    ----------
    run
        Its key, or the first digits of it.
    """
    stored = Store(store, create=False).resolve(run)
    require_whole(stored)
    say(f"{stored.key} {stored.status} after {counted(stored.result['steps'], 'step')}")
    spec = stored.spec_fields
    sections = {
        "spec": flattened(spec),
        "scores": _scores(stored),
        "provenance": _readable(stored.result["provenance"]),
    }
    for title, fields in sections.items():
        say(f"\n{title}")
        write_fields(console(), {name: typed(value) for name, value in fields.items()}, INDENT)
    if command := train_command({"status": stored.status, "spec": spec}):
        say(f"\ntrained by{_other_revision(spec)}: {command}")
    say(f"files: {stored.path}")


def _scores(run: Run) -> dict[str, str | None]:
    """Scores, with the 95 % interval of those that come from some of a grid's points."""
    errors = run.standard_errors
    texts = {name: None if v is None else f"{v:.5g}" for name, v in run.result["scores"].items()}
    if "points" not in run.result:
        return texts
    shown = {name: text and f"{text} ± {TWO_SIDED * errors[name]:.2g}" for name, text in texts.items()}
    return {**shown, "points": f"{run.result['points']} drawn at random; ± is a 95 % interval"}


def _other_revision(spec: Mapping[str, Any]) -> str:
    """Which revision of the training code made a run, where that is not this one."""
    revision = spec.get("revision", REVISION)
    return "" if revision == REVISION else f" revision {revision} of the code (this one is {REVISION})"


@app.command
def verify(*, store: StorePath = None) -> int:
    """Compare every byte with what was written; exit with 1 if any differs."""
    opened = Store(store, create=False)
    checked = 0
    kinds: Counter[str] = Counter()
    for name, problems in opened.verify():
        checked += is_key(name)
        kinds.update({problem.kind for problem in problems})
        for problem in problems:
            say(f"{name} {problem}" if problem.kind != "stray" else f"{problem}")
    kept = "; what is damaged is trained again when it is next asked for" if kinds["damage"] else ""
    unread = f", {kinds['unreadable']} could not be read" if kinds["unreadable"] else ""
    say(f"{checked} checked, {kinds['damage']} damaged{unread}{kept}")
    return FOUND_WRONG if kinds["damage"] else MISUSED if kinds["unreadable"] else 0


@app.command
def prune(
    *runs: str,
    unfinished: Switch = False,
    diverged: Switch = False,
    dry_run: Switch = False,
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
    opened = Store(Store(store, create=False).path)  # folders that a copy has lost are made again
    keys = {opened.resolve(run).key for run in runs}
    if diverged:
        diverged_keys = [key for key, summary in opened.summaries() if summary["status"] == "diverged"]
        keys |= {key for key in diverged_keys if opened.run(key).status == "diverged"}
    paths = opened.leftovers()
    checkpoints = opened.unfinished() if unfinished else []
    verb = "would delete" if dry_run else "deleted"
    counts = {"leftover": 0, "run": 0, "checkpoint of": 0}
    for path in paths:
        done = dry_run or opened.delete_leftover(path)
        counts["leftover"] += done
        say(f"{verb if done else IN_USE} {path}")
    for key in [*sorted(keys), *checkpoints]:
        what, delete = ("run", opened.remove) if key in keys else ("checkpoint of", opened.discard_checkpoint)
        done = dry_run or delete(key)
        counts[what] += done
        say(f"{verb if done else IN_USE} {what} {key}")
    deleted = [counted(counts["leftover"], "leftover"), counted(counts["run"], "run")]
    say(f"{verb} {', '.join([*deleted, counted(counts['checkpoint of'], 'checkpoint')])}")


def _readable(provenance: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(value).isoformat(" ", "seconds") if name in ("started", "finished") else value
        for name, value in provenance.items()
    }
