"""`recombine arena`: every remedy on every task, tuned alike."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from recombine.cli.options import Overwrite, SomePath, Whole, require_file
from recombine.cli.tables import Column, write_table
from recombine.cli.train import TrainingFlags
from recombine.console import console, paragraph, say
from recombine.errors import InvalidValue, listed
from recombine.files import read_given, require_folder
from recombine.files import write as write_file
from recombine.manifest import write_into
from recombine.reproduction.report.verdicts import marked_blocks, with_blocks

if TYPE_CHECKING:
    from recombine.arena import Protocol

SHORT_SEEDS = 16
"""Fresh seeds of the short arena."""


def arena(
    *,
    task: Annotated[list[str] | None, Parameter(name="--task")] = None,
    remedy: Annotated[list[str] | None, Parameter(name="--remedy")] = None,
    inner: str | None = None,
    full: bool = False,
    seeds: Whole | None = None,
    register: bool = False,
    out: SomePath = Path("arena"),
    overwrite: Overwrite = False,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
) -> None:
    """Compare remedies on tasks, each tuned alike on combinations that are not the test's.

    Configurations that are known are not tuned again, except with --full.

    Parameters
    ----------
    task
        Name of a task of the arena, or text of any other task, such as bump:size=12. Default: all of the arena's.
    remedy
        Name of a remedy of the arena, or text of any other, such as one of your own. Default: all of the arena's.
    inner
        Second hold-out of tasks that are not the arena's, by which configurations are chosen. Default: a corner of two
        factors.
    full
        Tune everything, and evaluate with all of the protocol's seeds.
    seeds
        Fresh seeds of every chosen configuration. Default: 16, with --full 32.
    register
        Only write the protocol, so that it is known before the networks that it judges.
    out
        Folder for the protocol, the log of tuning, the scores, the table and the figure.
    """
    from recombine.arena import PROTOCOL, inner_holdout
    from recombine.arena.protocol import BASE, FILE

    protocol = PROTOCOL
    for text in task or ():
        if text not in PROTOCOL.tasks:
            base = BASE.replace(task=text)
            protocol = protocol.with_task(text, base, inner or inner_holdout(base.task))
    protocol = protocol.part(task or (), remedy or ())
    registered = _registered(out, protocol, overwrite)
    if register:
        return say(f"protocol: {out / FILE} ({registered.digest})")
    return _run(registered, protocol, full, seeds, out, settings)


def _registered(out: Path, protocol: Protocol, overwrite: bool) -> Protocol:
    """Return the folder's protocol, which must have the same tasks and remedies, or write this one to a new folder."""
    from recombine.arena.protocol import FILE, Protocol

    file = out / FILE
    require_folder(out, "out", overwrite or file.exists())
    if overwrite or not file.exists():
        write_into(out, {FILE: protocol.to_json().encode()})
        return protocol
    known = Protocol.from_json(read_given(file, "out").decode())
    if known != protocol.replace(tasks=known.tasks | protocol.tasks, remedies=known.remedies | protocol.remedies):
        raise InvalidValue(
            "out", str(out), "a folder whose protocol has these tasks, remedies and rules, or --overwrite"
        )
    return known


def _run(
    registered: Protocol, protocol: Protocol, full: bool, seeds: int | None, out: Path, settings: TrainingFlags
) -> None:
    from recombine.arena import compete
    from recombine.training.devices import resolve_device

    parts = compete(
        protocol, settings.store, resolve_device(settings.device or "auto"), full=full,
        seeds=seeds or (None if full else SHORT_SEEDS), members=settings.members, memory=settings.memory, progress=True,
    )  # fmt: skip
    for part in parts:
        part.save(out)
    write_results(out, out)
    paragraph(
        f"held out, kept: trimmed means of R²; compose: share of seeds with both at least {registered.composes:g}"
    )
    say(f"arena: {out}")


def write_results(folder: Path, out: Path, documents: Sequence[Path] = ()) -> None:
    """Write the table, the figure and what is predicted from them, and update the marked blocks of documents."""
    from recombine.arena import Arena, Evidence
    from recombine.arena.advice import BLOCKS
    from recombine.arena.evidence import EVIDENCE
    from recombine.arena.protocol import FILE, Protocol

    registered = Protocol.from_json(read_given(folder / FILE, "folder").decode())
    result = Arena.open(folder, registered.tasks)
    texts = {path: marked_document(path, BLOCKS) for path in documents}
    table, picture = result.table(), io.BytesIO()
    result.draw().savefig(picture, dpi=200)
    files = {
        "arena.csv": table.to_csv(index=False).encode(), "arena.png": picture.getvalue(),
        "chosen.json": json.dumps(result.chosen, indent=1).encode(),
        EVIDENCE: Evidence.of(result, registered).to_json().encode(),
    }  # fmt: skip
    write_into(out, files)
    columns = [
        Column(name, [own if isinstance(own, str) else f"{own:.3f}" for own in table[name]],
               "left" if name in ("task", "remedy", "knows") else "right")
        for name in ("task", "remedy", "held out", "95 % low", "95 % high", "compose", "kept", "seconds", "knows")
    ]  # fmt: skip
    write_table(console(), columns)
    for path, text in texts.items():
        write_file(path, with_blocks(text, {name: made(result) for name, made in BLOCKS.items()}).encode(), "write")


def marked_document(path: Path, blocks: Iterable[str]) -> str:
    """Return the text of a document, which must contain marked blocks, all with known names."""
    try:
        text = read_given(path, "write").decode()
    except UnicodeDecodeError:
        raise InvalidValue("write", str(path), "a text file in UTF-8") from None
    names, known = marked_blocks(text), list(blocks)
    if not names or any(name not in known for name in names):
        raise InvalidValue("write", str(path), f"a file whose marked blocks are among {listed(known)}")
    require_file(path, "write")
    return text
