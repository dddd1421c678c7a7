"""`recombine train`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from cyclopts import Parameter

from recombine.cli.flags import parse_seeds, specs_from, with_spec_flags
from recombine.cli.options import StorePath
from recombine.cli.progress import TrainingBar
from recombine.cli.screen import console, counted, say
from recombine.cli.tables import write_summary
from recombine.errors import InvalidValue, listed
from recombine.store import store_path, summarize
from recombine.sweep import train as train_specs
from recombine.sweep.local import CHECKPOINT_SECONDS
from recombine.training import DEFAULT_PRECISION, resolve_device
from recombine.training.devices import DEVICES

T = TypeVar("T")


@with_spec_flags
def train(
    flags: dict[str, list[str]],
    *,
    seeds: Annotated[
        list[str] | None,
        Parameter(help="How many (8), a range with both ends (0..31) or a list (3,5,9).", negative=()),
    ] = None,
    device: Annotated[str, Parameter(help=f"{listed(DEVICES)}.")] = "auto",
    store: StorePath = None,
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
    """Train every combination of the flags' values with every seed, and print a table."""
    usual = {"precision": [DEFAULT_PRECISION[resolve_device(device).type]]}
    specs = specs_from({**usual, **flags}, parse_seeds(seeds))
    together = _number("members", members, int, "a whole number from 1 on") if members is not None else None
    gigabytes = _number("memory", memory, float, "a number of GiB") if memory is not None else None
    seconds = _number("checkpoint", checkpoint, float, "a number of seconds")
    workers = _number("processes", processes, int, "a whole number from 1 on") if processes is not None else None
    with TrainingBar() as bar:
        runs = train_specs(
            specs, store, device=device, members=together, checkpoint_seconds=seconds, watch=bar, processes=workers,
            memory=gigabytes,
        )  # fmt: skip
    write_summary(console(), summarize(runs))
    say(f"{counted(len(runs), 'run')} in {store_path(store)}; 'recombine runs list' shows more")


def _number(field: str, word: str, kind: Callable[[str], T], allowed: str) -> T:
    try:
        return kind(word)
    except ValueError:
        raise InvalidValue(field, word, allowed) from None
