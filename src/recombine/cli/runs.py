"""`recombine runs` and `recombine verify`: the runs of a store, and whether files are whole. Nothing imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from recombine.cli.options import HELP, SomePath, StorePath, Whole, require_file
from recombine.cli.tables import HEADINGS, Column, Holds, score_text, train_command, write_table
from recombine.console import console, counted, paragraph, say, visible
from recombine.errors import InvalidValue, StoreError, listed, shortened, typed
from recombine.files import one_line_errors, write
from recombine.keys import REVISION
from recombine.manifest import LIST, Manifest
from recombine.store import Run, Store, flattened
from recombine.store.names import MARKER, is_key

if TYPE_CHECKING:
    import pandas

TWO_SIDED = 1.96
"""Standard errors to either side of a 95 % interval."""
FOUND_WRONG, MISUSED = 1, 2
"""Exit codes: something differs, something could not be read."""
KEY_DIGITS, FEW = 10, 4
"""How much of a key is listed, and how many of the keys that have no row."""
LONGEST_CELL = 40
IN_USE = "kept, it is in use:"
NEWEST = 100
"""Runs that are listed by default."""
TABLES = (".csv", ".parquet")

app = App(
    name="runs", help="List, show, prune and export the runs of a store.", help_format="plaintext", help_flags=HELP
)

Switch = Annotated[bool, Parameter(negative=(), show_default=False)]
Where = Annotated[
    str | None,
    Parameter(
        help="Only runs that meet an expression, as \"encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9\": "
        "names of the flags of train and of scores; and, or, not, in, comparisons.",
    ),
]


@app.command(name="list")
def list_runs(
    *, where: Where = None, newest: Whole = NEWEST, everything: Annotated[Switch, Parameter(name="--all")] = False,
    store: StorePath = None,
) -> int:  # fmt: skip
    """List the finished runs, oldest first, with the fields in which they differ and their scores; and the unfinished.

    Parameters
    ----------
    newest
        Maximum number of runs that are listed, the newest ones.
    everything
        List all of them.
    """
    from recombine.store.table import selected

    if newest < 1:
        raise InvalidValue("newest", newest, "at least 1")
    opened = Store(store, create=False)
    table = opened.table()
    unreadable = table.attrs["unreadable"]
    met = table if where is None else selected(table, where)
    shown = met if everything else met.tail(newest)
    if len(shown):
        _write_listing(shown)
    if len(shown) < len(met):
        say(f"the newest {len(shown)} of {len(met)}; --all lists all, --where selects")
    unfinished = opened.unfinished()
    tail = f", {len(unfinished)} unfinished ({_some(unfinished)})" if unfinished else ""
    count = counted(len(table), "finished run")
    say(f"{count if where is None else f'{len(met)} of {count}'} in {opened.path}{tail}")
    if unreadable:
        say(f"cannot be listed: {_some(unreadable)}; 'recombine verify {opened.path}' says why")
    return _code(opened, unreadable)


def _code(store: Store, unlisted: Sequence[str]) -> int:
    """The exit code of a listing without some runs: they are damaged, or could not be read."""
    try:
        return FOUND_WRONG if any(store.run(key).damage() for key in unlisted) else MISUSED if unlisted else 0
    except StoreError:
        return MISUSED


def _write_listing(table: pandas.DataFrame) -> None:
    """Write the fields in which runs differ, their scores, and what is common to all."""
    from recombine.store.table import short_name

    fields = [name for name in table if name not in (*HEADINGS, "finished")]
    # A field that only some kinds have says no more than the kind does.
    kinds_differ = any(name.endswith("kind") and table[name].nunique() > 1 for name in fields)
    columns, common = [Column("key", [key[:KEY_DIGITS] for key in table.index], Holds.NAMES)], []
    for name in fields:
        cells = [_cell(value) for value in table[name]]
        if table[name].nunique(dropna=kinds_differ) > 1:
            columns.append(Column(short_name(name), cells, Holds.NAMES))
        elif len(set(cells)) == 1 and cells[0] not in ("–", "false"):
            common.append(f"{short_name(name)}={cells[0]}")
    columns += [Column(head, [score_text(name, v) for v in table[name]]) for name, head in HEADINGS.items()]
    write_table(console(), columns)
    paragraph(f"\n{'this run' if len(table) == 1 else 'all of them'}: {', '.join(common)}")


def _cell(value: Any) -> str:
    """A field's value; integers of a column in which some are missing come as floats."""
    if value is None or value != value:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else shortened(typed(value), LONGEST_CELL)


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
    stored = Store(store, create=False)[run]
    if problems := stored.damage():
        raise InvalidValue("run", stored.key, f"a run whose files are whole ({problems[0]})")
    say(f"{stored.key} {stored.status} after {counted(stored.result['steps'], 'step')}")
    spec = stored.spec_fields
    sections = {
        "spec": flattened(spec),
        "scores": _scores(stored),
        "provenance": _readable(stored.result["provenance"]),
    }
    for title, fields in sections.items():
        say(f"\n{title}")
        grid = Table.grid(padding=(0, 2))
        for name, value in fields.items():
            grid.add_row(f"  {name}", Text(visible(typed(value)), overflow="fold"))
        console().print(grid)
    if command := train_command(spec):
        revision = spec.get("revision", REVISION)
        other = "" if revision == REVISION else f" revision {revision} of the code (the current one is {REVISION})"
        say(f"\ntrained by{other}: {command}")
    say(f"files: {stored.path}")


def _scores(run: Run) -> dict[str, str | None]:
    """Scores, with a 95 % interval where only some points of a grid were evaluated."""
    errors = run.standard_errors
    texts = {name: None if v is None else f"{v:.5g}" for name, v in run.result["scores"].items()}
    if "points" not in run.result:
        return texts
    shown = {name: text and f"{text} ± {TWO_SIDED * errors[name]:.2g}" for name, text in texts.items()}
    return {**shown, "points": f"{run.result['points']} drawn at random; ± is a 95 % interval"}


def _readable(provenance: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromtimestamp(value).isoformat(" ", "seconds") if name in ("started", "finished") else value
        for name, value in provenance.items()
    }


@app.command
def prune(
    *runs: str, unfinished: Switch = False, diverged: Switch = False, dry_run: Switch = False, store: StorePath = None,
) -> None:  # fmt: skip
    """Delete what no run needs (damaged and half-written files), and the runs that are named.

    Parameters
    ----------
    runs
        Keys, or first digits, of finished runs to delete.
    unfinished
        Also delete the checkpoints of unfinished runs.
    diverged
        Also delete runs whose loss stopped being a finite number.
    dry_run
        Only print what would be deleted.
    """
    opened = Store(Store(store, create=False).path)  # folders that a copy has lost are made again
    keys = {opened[run].key for run in runs}
    if diverged:  # as the run says itself: the index is only a cache
        keys |= {key for key in opened.table("status == 'diverged'").index if opened.run(key).status == "diverged"}
    leftovers = sorted(opened.leftovers("tmp", "checkpoints", "damaged"))
    checkpoints = opened.unfinished() if unfinished else []
    verb = "would delete" if dry_run else "deleted"
    counts = {"leftover": 0, "run": 0, "checkpoint of": 0}
    for key, path in leftovers:
        done = not opened.is_busy(key) if dry_run else opened.delete_leftover(key, path)
        counts["leftover"] += done
        say(f"{verb if done else IN_USE} {path}")
    for key in [*sorted(keys), *checkpoints]:
        what, delete = ("run", opened.remove) if key in keys else ("checkpoint of", opened.discard_checkpoint)
        done = dry_run or delete(key)
        counts[what] += done
        say(f"{verb if done else IN_USE} {what} {key}")
    deleted = [counted(counts["leftover"], "leftover"), counted(counts["run"], "run")]
    say(f"{verb} {', '.join([*deleted, counted(counts['checkpoint of'], 'checkpoint')])}")


@app.command
def export(
    to: SomePath, /, *runs: str, where: Where = None, layout: Literal["store", "huggingface"] = "store",
    store: StorePath = None,
) -> None:  # fmt: skip
    """Copy runs to another store (a directory), or write their specs and scores as a table (.csv, .parquet).

    Or one run to a directory in the layout of the Hugging Face hub: model.safetensors, config.json and a model card.

    Parameters
    ----------
    to
        A directory that does not exist yet or is a store; or a file ending in .csv or .parquet.
    runs
        Keys, or first digits. Default: all runs.
    layout
        Of a directory: a store, or huggingface for one run, which recombine.from_pretrained loads.
    """
    if to.suffix and to.suffix not in TABLES and not to.is_dir():
        raise InvalidValue("to", str(to), f"a directory, or a file ending in {listed(TABLES)}")
    is_table = to.suffix in TABLES
    if is_table:
        require_file(to, "to")
    if is_table and layout != "store":
        raise InvalidValue("to", str(to), f"a directory for layout {layout}")
    opened = Store(store, create=False)
    with one_line_errors(to, "to"):
        if to.exists() and to.samefile(opened.path):
            raise InvalidValue("to", str(to), "another directory than the store")
    table = opened.table(where)
    keys = [opened[run].key for run in runs]
    if unreadable := [key for key in table.attrs["unreadable"] if key in keys or not keys]:
        raise InvalidValue("run", unreadable[0], "a run that can be read")
    if keys:
        table = table.loc[table.index.isin(keys)]
    if is_table:
        from recombine.store.table import PARQUET, parquet

        write(to, parquet(table) if to.suffix == PARQUET else table.to_csv().encode(), "to")
    elif layout == "huggingface":
        if len(table) != 1:
            raise InvalidValue("runs", len(table), "one run, as a folder of the hub holds one model")
        opened.run(table.index[0]).save_pretrained(to)
    else:
        _copy([opened.run(key) for key in table.index], to)
    say(f"{counted(len(table), 'run')} exported to {to}")


def _copy(runs: Sequence[Run], to: SomePath) -> None:
    """Copy runs to a store, made where there is none; refusals name this argument."""
    try:
        other = Store(to)
    except StoreError as error:
        raise StoreError(str(error).replace("store", "to", 1)) from None
    for run in runs:
        other.adopt(run)


def verify(folder: SomePath, /) -> int:
    """Compare every file of a results folder or a store with its manifest; exit with 1 if any differs.

    Parameters
    ----------
    folder
        Folder written by reproduce, or directory of runs.
    """
    manifest = Manifest(folder)
    names, is_store = manifest.names() if folder.is_dir() else [], (folder / MARKER).is_file()
    if not (names or is_store):
        raise InvalidValue("folder", str(folder), "a folder written by 'recombine reproduce', or a directory of runs")
    codes = [_verify_results(manifest, names)] if names else []
    if is_store:
        codes.append(_verify_store(Store(folder, create=False)))
    return FOUND_WRONG if FOUND_WRONG in codes else max(codes)


def _verify_store(store: Store) -> int:
    """Print what is wrong with each run and checkpoint, and go on."""
    checked = 0
    kinds: Counter[str] = Counter()
    for name, problems in store.verify():
        checked += is_key(name)
        kinds.update({problem.kind for problem in problems})
        for problem in problems:
            say(f"{name} {problem}" if problem.kind != "stray" else f"{problem}")
    again = "; damaged runs are trained again when they are next needed" if kinds["damage"] else ""
    return _summed_up(checked, kinds["damage"], kinds["unreadable"], again)


def _verify_results(manifest: Manifest, names: list[str]) -> int:
    """Print what is wrong with each file, and go on."""
    damaged = unreadable = 0
    for name in names:
        try:
            problem = manifest.problem(name)
            damaged += problem is not None
        except StoreError as error:
            problem = f"cannot be read: {error}"
            unreadable += 1
        if problem:
            drawn = name.startswith("figures/") or name in ("claims.json", "index.html")
            command = f"report {manifest.folder}" if drawn else "reproduce"
            say(f"{name}: {problem}; 'recombine {command}' makes {'everything' if name == LIST else 'it'} again")
    return _summed_up(len(names), damaged, unreadable)


def _summed_up(checked: int, damaged: int, unreadable: int, note: str = "") -> int:
    """Print how much was checked; the exit code."""
    unread = f", {unreadable} could not be read" if unreadable else ""
    say(f"{checked} checked, {damaged} damaged{unread}{note}")
    return FOUND_WRONG if damaged else MISUSED if unreadable else 0
