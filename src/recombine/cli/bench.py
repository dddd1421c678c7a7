"""`recombine bench`: how fast, side by side with a plain loop and the machine's limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from recombine.cli.tables import console
from recombine.errors import InvalidValue, listed
from recombine.files import explained
from recombine.files import write as write_file
from recombine.report.verdicts import marked_blocks, with_blocks


def bench(
    *what: str,
    device: str = "auto",
    precision: str | None = None,
    steps: int | None = None,
    processes: int | None = None,
    out: Path | None = None,
    source: Annotated[list[Path] | None, Parameter(name="--from", negative=())] = None,
    write: Annotated[list[Path] | None, Parameter(negative=())] = None,
) -> None:
    """Time the engine beside a plain loop and the machine's limits, in one run; or write documents from such runs.

    Parameters
    ----------
    what
        Any of: engine, members, growth, geometry, store, precision. Default: all but precision, which trains whole
        networks.
    device
        auto, cpu or cuda.
    precision
        float32, tf32 (GPU) or bf16. Default: float32 on a CPU, bf16 on a GPU.
    steps
        Steps that are timed; times are scaled to whole trainings.
    processes
        One-thread processes on a CPU. Default: one a core.
    out
        File for the record (JSON); its parts are added to what is there.
    source
        A record to write documents from, instead of measuring; may be given several times.
    write
        A document whose marked blocks (engine_NAME, … with the record's name) are written anew; a picture NAME.svg
        and NAME.png goes beside it, into images.
    """
    if source is None:
        record, name = _measured(what, device, precision, steps, processes, out), out.stem if out else "now"
        records = {name: record}
    else:
        if what:
            raise InvalidValue("what", " ".join(what), "nothing together with --from")
        records = {path.stem: _read(path) for path in source}
    for path in write or []:
        _write(path, records)


def _measured(
    what: tuple[str, ...], device: str, precision: str | None, steps: int | None, processes: int | None,
    out: Path | None,
) -> dict[str, Any]:  # fmt: skip
    from recombine.benchmark import PARTS, USUAL, measure
    from recombine.training import check_precision, resolve_device

    place = resolve_device(device)
    for field, value in (("steps", steps), ("processes", processes)):
        if value is not None and value < 1:
            raise InvalidValue(field, value, "at least 1")
    for part in what:
        if part not in PARTS:
            raise InvalidValue("what", part, listed(PARTS))
    if precision is not None:
        if precision not in ("float32", "tf32", "bf16"):
            raise InvalidValue("precision", precision, "float32, tf32, bf16")
        check_precision(precision, place)
    before = _read(out) if out is not None and out.exists() else {}
    printer = console()
    found = measure(
        place, what or USUAL, precision=precision, steps=steps, processes=processes,
        say=lambda line: printer.print(line, highlight=False, markup=False, soft_wrap=True),
    )  # fmt: skip
    record = {**before, **found}
    if "engine" in found:
        printer.print(_table(found))
    if out is not None:
        with explained(out.parent, "out"):
            out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, json.dumps(record, indent=1).encode(), "out")
        printer.print(f"record: {out}", highlight=False, soft_wrap=True)
    return record


def _table(record: Mapping[str, Any]) -> Table:
    from recombine.benchmark.page import percent

    table = Table("", "together", "plain s", "ours s", "faster", "of the peak", "over the floor", title="a model")
    for row in record["engine"]:
        table.add_row(
            row["case"], str(row["members"]), f"{row['plain']:.3g}", f"{row['ours']:.3g}", f"{row['ratio']:.3g}",
            percent(row["share"]), f"{row['gap']:.2g}",
        )  # fmt: skip
    return table


def _read(path: Path) -> dict[str, Any]:
    with explained(path, "from"):
        text = path.read_text()
    try:
        record = json.loads(text)
        if not isinstance(record, dict) or "provenance" not in record:
            raise ValueError
    except ValueError:
        raise InvalidValue("from", str(path), "a record written by 'recombine bench --out'") from None
    return record


def _write(path: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    from recombine.benchmark import performance_blocks
    from recombine.figures.performance import performance_figure
    from recombine.report.drawing import save_drawn

    blocks: dict[str, str] = {}
    for name, record in records.items():
        blocks |= performance_blocks(record, name)
    with explained(path, "write"):
        text = path.read_text()
    names = marked_blocks(text)
    if not names or any(name not in blocks for name in names):
        raise InvalidValue("write", str(path), f"a file with marked blocks, named among {listed(blocks)}")
    for name, record in records.items():
        if "engine" in record:
            save_drawn(performance_figure(record), path.parent / "images", f"performance_{name}")
    write_file(path, with_blocks(text, blocks).encode(), "write")
