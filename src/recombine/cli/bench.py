"""`recombine bench`: how fast, side by side with a plain loop and the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import Parameter

from recombine.benchmark import PARTS, USUAL, measure, performance_blocks
from recombine.benchmark.blocks import WRITERS, percent
from recombine.cli.destinations import marked_document, require_file
from recombine.cli.options import SomePath, Whole
from recombine.cli.tables import Column, Holds, write_table
from recombine.errors import InvalidValue, listed
from recombine.files import parsed_json, read_given
from recombine.files import write as write_file
from recombine.reproduction.report.verdicts import with_blocks
from recombine.screen import console, say
from recombine.specs import Precision
from recombine.training import DEFAULT_PRECISION, DEVICES, check_precision, resolve_device

MEASURED_NOW = "now"
"""Name of a record that is not kept."""
EXTRA = [part for part in PARTS if part not in USUAL]
PRECISIONS = get_args(Precision)
WHAT_HELP = f"Any of: {listed(PARTS)}. Default: all but {listed(EXTRA)}."
USUAL_PRECISION = ", ".join(f"{precision} on {device}" for device, precision in DEFAULT_PRECISION.items())


def bench(
    *what: Annotated[str, Parameter(help=WHAT_HELP)],
    device: Annotated[str | None, Parameter(help=f"{listed(DEVICES)}. Default: auto.")] = None,
    precision: Annotated[str | None, Parameter(help=f"{listed(PRECISIONS)}. Default: {USUAL_PRECISION}.")] = None,
    steps: Whole | None = None,
    processes: Whole | None = None,
    out: SomePath | None = None,
    source: Annotated[list[Path] | None, Parameter(name="--from", negative=())] = None,
    write: Annotated[list[Path] | None, Parameter(negative=())] = None,
) -> None:
    """Time the engine beside a plain loop and the machine's limits, in one run; or write documents from such runs.

    Parameters
    ----------
    steps
        Steps that are timed; times are scaled to whole trainings.
    processes
        One-thread processes on a CPU. Default: one per core.
    out
        File for the record (JSON); its parts are added to what is there.
    source
        A record to write documents from, instead of measuring; may be given several times.
    write
        A document whose marked blocks (engine_NAME, … with the record's name) are written again; a picture NAME.svg
        and NAME.png goes beside it, into images.
    """
    if source is None:
        name = out.stem if out else MEASURED_NOW
        for path in write or []:
            marked_document(path, [f"{part}_{name}" for part in ("machine", *WRITERS)])
        records = {name: _measured(what, device or "auto", precision, steps, processes, out)}
    else:
        measuring = {
            "what": " ".join(what) or None, "device": device, "precision": precision, "steps": steps,
            "processes": processes, "out": out,
        }  # fmt: skip
        for field, value in measuring.items():
            if value is not None:
                raise InvalidValue(field, str(value), "nothing together with --from, which measures nothing")
        records = {path.stem: _read(path) for path in source}
    blocks: dict[str, str] = {}
    for name, record in records.items():
        blocks |= performance_blocks(record, name)
    texts = {path: marked_document(path, blocks) for path in write or []}
    for path, text in texts.items():
        _write(path, text, blocks, records)


def _measured(
    what: tuple[str, ...], device: str, precision: str | None, steps: int | None, processes: int | None,
    out: Path | None,
) -> dict[str, Any]:  # fmt: skip
    hardware = resolve_device(device)
    for field, value in (("steps", steps), ("processes", processes)):
        if value is not None and value < 1:
            raise InvalidValue(field, value, "at least 1")
    for part in what:
        if part not in PARTS:
            raise InvalidValue("what", part, listed(PARTS))
    if precision is not None:
        if precision not in PRECISIONS:
            raise InvalidValue("precision", precision, listed(PRECISIONS))
        check_precision(precision, hardware)
    before: dict[str, Any] = {}
    if out is not None:
        require_file(out, "out", make_folder=True)
        before = _read(out, "out") if out.exists() else {}
    measured = measure(hardware, what or USUAL, precision=precision, steps=steps, processes=processes, say=say)
    if "engine" in measured:
        _write_engine(measured)
    record = {**before, **measured}
    if out is not None:
        write_file(out, json.dumps(record, indent=1).encode(), "out")
        say(f"record: {out}")
    return record


def _write_engine(record: Mapping[str, Any]) -> None:
    rows = record["engine"]
    columns = [
        Column("network", [row["case"] for row in rows], Holds.NAMES),
        Column("together", [str(row["members"]) for row in rows]),
        Column("plain s", [f"{row['plain']:.3g}" for row in rows]),
        Column("ours s", [f"{row['ours']:.3g}" for row in rows]),
        Column("faster", [f"{row['ratio']:.3g}" for row in rows]),
        Column("of the peak", [percent(row["share"]) for row in rows]),
        Column("over the floor", [f"{row['gap']:.2g}" for row in rows]),
    ]
    write_table(console(), columns, "seconds per network")


def _read(path: Path, field: str = "from") -> dict[str, Any]:
    try:
        record = parsed_json(read_given(path, field))
    except ValueError:
        record = None
    if not isinstance(record, dict) or "provenance" not in record:
        raise InvalidValue(field, str(path), "a record written by 'recombine bench --out'")
    return record


def _write(path: Path, text: str, blocks: Mapping[str, str], records: Mapping[str, Mapping[str, Any]]) -> None:
    from recombine.benchmark.figure import performance_figure
    from recombine.reproduction.reporting import save_drawn

    for name, record in records.items():
        if "engine" in record:
            save_drawn(performance_figure(record), path.parent / "images", f"performance_{name}")
    write_file(path, with_blocks(text, blocks).encode(), "write")
