"""`recombine train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Parameter

from recombine.cli.flags import parse_seeds, specs_from, with_spec_flags
from recombine.cli.progress import TrainingBar
from recombine.cli.tables import console, summary_table
from recombine.errors import InvalidValue
from recombine.store import store_path, summarize
from recombine.sweep import train as train_specs
from recombine.sweep.local import CHECKPOINT_SECONDS
from recombine.training import DEFAULT_PRECISION, resolve_device

T = TypeVar("T")


@with_spec_flags
def train(
    flags: dict[str, list[str]],
    *,
    seeds: Annotated[
        list[str] | None,
        Parameter(help="How many (8), a range with both ends (0..31) or a list (3,5,9).", negative=()),
    ] = None,
    device: Annotated[str, Parameter(help="auto, cpu or cuda.")] = "auto",
    store: Annotated[
        Path | None,
        Parameter(help="Directory of runs. Default: $RECOMBINE_STORE or ./runs.", show_default=False),
    ] = None,
    members: Annotated[
        str | None, Parameter(help="Most members in one program. Default: by device.", show_default=False)
    ] = None,
    memory: Annotated[
        str | None, Parameter(help="Most GiB of a GPU's memory. Default: what is free.", show_default=False)
    ] = None,
    checkpoint: Annotated[str, Parameter(help="Seconds between checkpoints.")] = str(CHECKPOINT_SECONDS),
    processes: Annotated[
        str | None,
        Parameter(
            help="On a CPU, train with so many processes of one thread each. Default: this one, with all threads.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train ensembles; what is trained already is served from the store.

    Every flag may be given several times: all combinations are trained, each with all seeds. Ends with a table.
    Example: recombine train --encoding bump --encoding rate --width 16 --depth 3 --seeds 4
    """
    usual = {"precision": [DEFAULT_PRECISION[resolve_device(device).type]]}
    specs = specs_from({**usual, **flags}, parse_seeds(seeds))
    most = _number("members", members, int, "a whole number from 1 on") if members is not None else None
    room = _number("memory", memory, float, "a number of GiB") if memory is not None else None
    pause = _number("checkpoint", checkpoint, float, "a number of seconds")
    apart = _number("processes", processes, int, "a whole number from 1 on") if processes is not None else None
    with TrainingBar() as bar:
        runs = train_specs(
            specs, store, device=device, members=most, checkpoint_seconds=pause, watch=bar, processes=apart,
            memory=room,
        )  # fmt: skip
    out = console()
    out.print(summary_table(summarize(runs)))
    out.print(f"{len(runs)} runs in {store_path(store)}; 'recombine runs list' lists them", highlight=False)


def _number(field: str, word: str, kind: Callable[[str], T], allowed: str) -> T:
    try:
        return kind(word)
    except ValueError:
        raise InvalidValue(field, word, allowed) from None
