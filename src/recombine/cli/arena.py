"""`recombine arena`: every remedy on every task, tuned alike."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from recombine.cli.options import Overwrite, SomePath, Whole
from recombine.cli.tables import Column, write_table
from recombine.cli.train import TrainingFlags
from recombine.console import console, paragraph, say
from recombine.errors import InvalidValue
from recombine.files import parsed_json, read_given, require_folder
from recombine.manifest import write_into

if TYPE_CHECKING:
    from recombine.arena import Protocol

SHORT_SEEDS = 16
"""Fresh seeds of the short arena."""
FILE = "protocol.json"


def arena(
    *,
    task: Annotated[list[str] | None, Parameter(name="--task")] = None,
    remedy: Annotated[list[str] | None, Parameter(name="--remedy")] = None,
    inner: str = "random:fraction=0.1",
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
        Second hold-out of tasks that are not the arena's, by which configurations are chosen.
    full
        Tune everything, and evaluate with all of the protocol's seeds.
    seeds
        Fresh seeds of every chosen configuration. Default: 16, with --full 32.
    register
        Only write the protocol, so that it is known before the networks that it judges.
    out
        Folder for the protocol, the log of tuning, the scores, the table and the figure.
    """
    from recombine.arena import PROTOCOL, Protocol
    from recombine.arena.protocol import BASE

    protocol = PROTOCOL
    for text in task or ():
        if text not in PROTOCOL.tasks:
            protocol = protocol.with_task(text, BASE.replace(task=text), inner)
    protocol = protocol.part(task or (), remedy or ())
    require_folder(out, "out", overwrite or (out / FILE).exists())
    if (out / FILE).exists() and not overwrite:
        registered = Protocol(**parsed_json(read_given(out / FILE, "out")))
        if registered != protocol:
            raise InvalidValue("out", str(out), "a folder of the same protocol, or --overwrite")
    write_into(out, {FILE: protocol.to_json().encode()})
    if register:
        return say(f"protocol: {out / FILE} ({protocol.digest})")
    return _run(protocol, full, seeds, out, settings)


def _run(protocol: Protocol, full: bool, seeds: int | None, out: Path, settings: TrainingFlags) -> None:
    from recombine.arena import compete
    from recombine.training.devices import resolve_device

    result = compete(
        protocol, settings.store, resolve_device(settings.device or "auto"), full=full,
        seeds=seeds or (None if full else SHORT_SEEDS), members=settings.members, memory=settings.memory, progress=True,
    )  # fmt: skip
    table, picture = result.table(), io.BytesIO()
    result.draw().savefig(picture, dpi=200)
    files = {
        "arena.nc": bytes(result.data.to_netcdf(engine="h5netcdf")), "arena.csv": table.to_csv(index=False).encode(),
        "arena.png": picture.getvalue(), "chosen.json": json.dumps(result.chosen, indent=1).encode(),
    }  # fmt: skip
    if result.log is not None:
        files["tuning.csv"] = result.log.to_csv(index=False).encode()
    write_into(out, files)
    shown = table[["task", "remedy", "held out", "95 % low", "95 % high", "compose", "kept", "seconds", "knows"]]
    columns = [
        Column(name, [own if isinstance(own, str) else f"{own:.3f}" for own in shown[name]],
               "left" if name in ("task", "remedy", "knows") else "right")
        for name in shown
    ]  # fmt: skip
    write_table(console(), columns)
    paragraph(
        f"held out, kept: R², 20 % trimmed mean; compose: share of seeds with both at least {protocol.composes:g}"
    )
    say(f"arena: {out}")
