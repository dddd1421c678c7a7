"""`recombine prescribe`: which remedy to use."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from recombine.cli.imports import DECODER, known_part
from recombine.cli.options import SomePath
from recombine.cli.sweep import base_from, given_flags, parse_seeds, with_spec_flags
from recombine.cli.tables import Column, write_table
from recombine.cli.train import TrainingFlags
from recombine.console import console, paragraph
from recombine.errors import InvalidValue

SEEDS = "4"


@partial(with_spec_flags, seeds=SEEDS, remedies="one for each flag")
def prescribe(
    module: str | None = None,
    /,
    *,
    inner: str | None = None,
    arena: SomePath | None = None,
    trial: Annotated[bool, Parameter(negative="--no-trial")] = True,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
    **values: Any,
) -> None:
    """Measure what remedies assume, predict their effects, try the best two, and say what to do.

    Parameters
    ----------
    module
        A function that returns a torch module, as package.module:name, or a decoder's name.
    inner
        Hold-out inside the kept combinations. Default: a corner of two factors.
    arena
        Folder of 'recombine arena', to predict from. Default: this package's.
    trial
        Whether to try the best two remedies.
    """
    flags = given_flags(values)
    remedies = flags.pop("remedy", None)
    seeds = parse_seeds(flags.pop("seeds", [SEEDS]))
    if module is not None:
        if "decoder" in flags:
            raise InvalidValue("decoder", flags["decoder"][0], "omitted, since the decoder is given first")
        flags["decoder"] = [known_part(DECODER, module)]
    base = base_from({"precision": [settings.default_precision()], **flags})
    from recombine.arena.prescription import LEFT_OUT
    from recombine.arena.prescription import prescribe as engine

    result = engine(
        base, remedies, inner=inner, arena=arena, seeds=seeds if trial else [], store=settings.store,
        device=settings.device or "auto", members=settings.members, processes=settings.processes,
        memory=settings.memory, scheduler=settings.scheduler, progress=True,
    )  # fmt: skip
    left, cells = ("remedy", "knows", LEFT_OUT), result.cells().items()
    write_table(console(), [Column(name, own, "left" if name in left else "right") for name, own in cells])
    for sentence in result.sentences:
        paragraph(sentence)
