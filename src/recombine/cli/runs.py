"""`recombine runs` and `recombine verify`: manage stored runs and check files. Does not import torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from recombine.cli.options import HELP, Overwrite, SomePath, StorePath, Whole, require_file
from recombine.cli.tables import HEADINGS, Column, score_text, train_command, write_table
from recombine.console import console, counted, paragraph, say, visible
from recombine.errors import InvalidValue, StoreError, listed, shortened, typed
from recombine.files import one_line_errors, require_folder, write
from recombine.keys import REVISION
from recombine.manifest import LIST, Manifest
from recombine.store import Problem, Run, Store, flattened
from recombine.store.names import MARKER, is_key

if TYPE_CHECKING:
    import pandas

DAMAGED, UNREADABLE = 1, 2  # exit codes
KEY_DIGITS, FEW = 10, 4
"""Number of digits of a key to show, and maximum number of keys in a message."""
TABLES = (".csv", ".parquet")

app = App(name="runs", help="List, show, prune and export stored runs.", help_format="plaintext", help_flags=HELP)

Switch = Annotated[bool, Parameter(negative=(), show_default=False)]
Where = Annotated[
    str | None,
    Parameter(
        help="Select runs by an expression, e.g. \"encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9\". It may "
        "use train's flag names, score names, comparisons, and the operators and, or, not and in.",
    ),
]


@app.command(name="list")
def list_runs(
    *, where: Where = None, newest: Whole = 100, everything: Annotated[Switch, Parameter(name="--all")] = False,
    store: StorePath = None,
) -> int:  # fmt: skip
    """List finished runs, oldest first, with their scores and differing settings, and report how many are unfinished.

    Parameters
    ----------
    newest
        Maximum number of runs to list; older ones are left out.
    everything
        List all runs.
    """
    if newest < 1:
        raise InvalidValue("newest", newest, "at least 1")
    opened = Store(store, create=False)
    shown = opened.table(where, None if everything else newest)
    matching, unreadable = shown.attrs["matching"], shown.attrs["unreadable"]
    if len(shown):
        _write_listing(shown)
    if len(shown) < matching:
        say(f"the newest {len(shown)} of {matching}; --all lists all, --where selects")
    unfinished = opened.unfinished()
    tail = f", {len(unfinished)} unfinished ({_some(unfinished)})" if unfinished else ""
    count = counted(shown.attrs["finished"], "finished run")
    say(f"{count if where is None else f'{matching} of {count}'} in {opened.path}{tail}")
    if not unreadable:
        return 0
    say(f"cannot be listed: {_some(unreadable)}; 'recombine verify {opened.path}' says why")
    try:
        return DAMAGED if any(opened.run(key).damage() for key in unreadable) else UNREADABLE
    except StoreError:
        return UNREADABLE


def _write_listing(table: pandas.DataFrame) -> None:
    """Write a table of scores and of the fields in which runs differ, and the shared fields below it."""
    from recombine.store.table import short_name

    fields = [name for name in table if name not in (*HEADINGS, "finished")]
    # Fields that exist only for some kinds are redundant, since the kind is shown.
    kinds_differ = any(name.endswith("kind") and table[name].nunique() > 1 for name in fields)
    columns, common = [Column("key", [key[:KEY_DIGITS] for key in table.index], "left")], []
    for name in fields:
        cells = [_cell(value) for value in table[name]]
        if table[name].nunique(dropna=kinds_differ) > 1:
            columns.append(Column(short_name(name), cells, "left"))
        elif len(set(cells)) == 1 and cells[0] not in ("–", "false"):
            common.append(f"{short_name(name)}={cells[0]}")
    columns += [Column(head, [score_text(name, v) for v in table[name]]) for name, head in HEADINGS.items()]
    write_table(console(), columns)
    paragraph(f"\n{'this run' if len(table) == 1 else 'all of them'}: {', '.join(common)}")


def _cell(value: Any) -> str:
    """Return a value as text; pandas turns integers into floats where some are missing."""
    if value is None or value != value:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else shortened(typed(value), 40)


def _some(keys: Sequence[str]) -> str:
    """Return the first few keys, shortened."""
    return ", ".join(key[:KEY_DIGITS] for key in keys[:FEW]) + (", …" if len(keys) > FEW else "")


@app.command
def show(run: str, /, *, store: StorePath = None) -> None:
    """Show one run: spec, scores, provenance, and the command that reproduces it.

    Parameters
    ----------
    run
        Key of the run, or a unique prefix of it.
    """
    stored = Store(store, create=False)[run]
    if problems := stored.damage():
        raise InvalidValue("run", stored.key, f"a run with undamaged files ({problems[0]})")
    say(f"{stored.key} {stored.status} after {counted(stored.result['steps'], 'step')}")
    spec, provenance = stored.spec_fields, dict(stored.result["provenance"])
    for name in {"started", "finished"} & set(provenance):
        provenance[name] = datetime.fromtimestamp(provenance[name]).isoformat(" ", "seconds")
    sections = {"spec": flattened(spec), "scores": _scores(stored), "provenance": provenance}
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
    """Return scores as text, with 95 % intervals if only a sample of the grid was evaluated."""
    errors = run.standard_errors
    texts = {name: None if v is None else f"{v:.5g}" for name, v in run.result["scores"].items()}
    if "points" not in run.result:
        return texts
    shown = {name: text and f"{text} ± {1.96 * errors[name]:.2g}" for name, text in texts.items()}
    return {**shown, "points": f"{run.result['points']} drawn at random; ± is a 95 % interval"}


@app.command
def prune(
    *runs: str, unfinished: Switch = False, diverged: Switch = False, dry_run: Switch = False, store: StorePath = None,
) -> None:  # fmt: skip
    """Delete damaged and partially written files, plus any runs given as arguments.

    Parameters
    ----------
    runs
        Keys (or unique prefixes of keys) of finished runs to delete.
    unfinished
        Also delete the checkpoints of unfinished runs.
    diverged
        Also delete runs whose loss became infinite or NaN.
    dry_run
        Only print what would be deleted.
    """
    opened = Store(Store(store, create=False).path)  # recreates empty folders, which copying a store may lose
    keys = {opened[run].key for run in runs}
    if diverged:  # the index is only a cache, so check the run itself
        keys |= {key for key in opened.table("status == 'diverged'").index if opened.run(key).status == "diverged"}
    leftovers = sorted(opened.leftovers("tmp", "checkpoints", "damaged"))
    checkpoints = opened.unfinished() if unfinished else []
    items = [("leftover", key, str(path), partial(opened.delete_leftover, key, path)) for key, path in leftovers]
    items += [("run", key, f"run {key}", partial(opened.remove, key)) for key in sorted(keys)]
    items += [
        ("checkpoint", key, f"checkpoint of {key}", partial(opened.discard_checkpoint, key)) for key in checkpoints
    ]
    verb, counts = "would delete" if dry_run else "deleted", Counter[str]()
    for kind, key, name, delete in items:
        done = not opened.is_busy(key) if dry_run else delete()
        counts[kind] += done
        say(f"{verb if done else 'kept, in use:'} {name}")
    say(f"{verb} {', '.join(counted(counts[kind], kind) for kind in ('leftover', 'run', 'checkpoint'))}")


@app.command
def export(
    to: SomePath, /, *runs: str, where: Where = None, layout: Literal["store", "huggingface"] = "store",
    overwrite: Overwrite = False, store: StorePath = None,
) -> None:  # fmt: skip
    """Copy runs to another store (a directory), or write their specs and scores as a table (.csv, .parquet).

    With --layout huggingface, write one run as model.safetensors, config.json and a model card.

    Parameters
    ----------
    to
        Where to write: a new directory, a store, or a file ending in .csv or .parquet.
    runs
        Keys (or unique prefixes of keys) of the runs. Default: all runs.
    layout
        Layout of the directory: a store, or (huggingface) a single run that recombine.from_pretrained can load.
    """
    is_table = (to.suffix or to.name) in TABLES
    if to.suffix and not (is_table or layout == "huggingface" or to.is_dir()):
        raise InvalidValue("to", str(to), f"a directory, or a file ending in {listed(TABLES)}")
    if is_table:
        require_file(to, "to", "table", overwrite)
    if is_table and layout != "store":
        raise InvalidValue("to", str(to), f"a directory for layout {layout}")
    opened = Store(store, create=False)
    with one_line_errors(to, "to"):
        if to.exists() and to.samefile(opened.path):
            raise InvalidValue("to", str(to), "a directory other than the store")
    table = opened.table(where)
    keys = [opened[run].key for run in runs]
    if unreadable := [key for key in table.attrs["unreadable"] if key in keys or not keys]:
        raise InvalidValue("run", unreadable[0], "a run that can be read")
    if keys:
        table = table.loc[table.index.isin(keys)]
    if not len(table):
        field, value = ("where", where) if where else ("store", str(opened.path))
        raise InvalidValue(field, value, f"{'true of' if where else 'a directory with'} at least one run to export")
    if is_table:
        from recombine.store.table import PARQUET, parquet

        write(to, parquet(table) if to.suffix == PARQUET else table.to_csv().encode(), "to")
    elif layout == "huggingface":
        if len(table) != 1:
            raise InvalidValue("runs", len(table), "one run, since a hub folder holds one model")
        require_folder(to, "to", overwrite)
        opened.run(table.index[0]).save_pretrained(to, overwrite=True)
    else:
        for key in table.index:  # before the other store is created
            if problems := opened.run(key).damage():
                raise InvalidValue("run", key, f"a run with undamaged files ({problems[0]})")
        try:
            other = Store(to)
        except StoreError as error:  # name this argument instead
            raise StoreError(str(error).replace("store", "to", 1)) from None
        for key in table.index:
            other.adopt(opened.run(key))
    say(f"{counted(len(table), 'run')} exported to {to}")


def verify(folder: SomePath, /) -> int:
    """Check the files of a results folder or store against its manifest; exit with status 1 if any differ.

    Parameters
    ----------
    folder
        Folder written by reproduce, or a store.
    """
    manifest = Manifest(folder)
    names, is_store = manifest.names() if folder.is_dir() else [], (folder / MARKER).is_file()
    if not (names or is_store):
        raise InvalidValue("folder", str(folder), "a folder written by 'recombine reproduce', or a directory of runs")
    checked, kinds = len(names), Counter[str]()
    in_store = Store(folder, create=False).verify() if is_store else ()
    for name, problems in chain(_results(manifest, names), in_store):
        checked += is_key(name)
        kinds.update({problem.kind for problem in problems})
        for problem in problems:
            say(f"{problem}" if problem.kind == "stray" else f"{name}: {problem}")
    unread = f", {kinds['unreadable']} could not be read" if kinds["unreadable"] else ""
    again = "; damaged runs are trained again when they are next needed" if is_store and kinds["damage"] else ""
    say(f"{checked} checked, {kinds['damage']} damaged{unread}{again}")
    return DAMAGED if kinds["damage"] else UNREADABLE if kinds["unreadable"] else 0


def _results(manifest: Manifest, names: list[str]) -> Iterator[tuple[str, list[Problem]]]:
    """Yield each damaged or unreadable file of a results folder, and how to restore it."""
    for name in names:
        drawn = name.startswith("figures/") or name in ("claims.json", "index.html")
        command = f"report {manifest.folder}" if drawn else "reproduce"
        again = f"'recombine {command}' recreates {'everything' if name == LIST else 'it'}"
        try:
            if problem := manifest.problem(name):
                yield name, [Problem(f"{problem}; {again}")]
        except StoreError as error:
            yield name, [Problem(f"cannot be read: {error}; {again}", "unreadable")]
