"""`recombine compare`: remedies side by side."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

from recombine.cli.options import Overwrite, SomePath
from recombine.cli.sweep import base_from, given_flags, parse_seeds, with_spec_flags
from recombine.cli.tables import Column, write_table
from recombine.cli.train import TrainingFlags
from recombine.console import console, paragraph, say
from recombine.files import require_folder
from recombine.manifest import write_into
from recombine.netcdf import encoded
from recombine.remedies import REMEDIES

SEEDS = "32"
NEEDS_LOW_RANK = ("entropy", "variance")
"""Penalties of one decoder, which the remedy low_rank brings along."""


@partial(with_spec_flags, seeds=SEEDS, remedies="one for each flag")
def compare(
    *,
    out: SomePath | None = None,
    page: bool = True,
    overwrite: Overwrite = False,
    settings: TrainingFlags = TrainingFlags(),  # noqa: B008
    **values: Any,
) -> None:
    """Train a base with each remedy over many seeds, and print a table.

    Parameters
    ----------
    out
        Folder for the Dataset (comparison.nc), the table (comparison.csv), the figure and an explorer page.
    page
        Whether to write the page, with one decoder per remedy.
    """
    if out is not None:
        require_folder(out, "out", overwrite)
    flags = given_flags(values)
    remedies = flags.pop("remedy", [name for name in REMEDIES if name not in NEEDS_LOW_RANK])
    seeds = parse_seeds(flags.pop("seeds", [SEEDS]))
    base = base_from({"precision": [settings.default_precision()], **flags})
    from recombine.comparison import FEWEST
    from recombine.comparison import compare as engine
    from recombine.diagnosis.outcome import RULE, UNLEARNT

    result = engine(
        base, remedies, seeds, settings.store, device=settings.device or "auto", members=settings.members,
        processes=settings.processes, memory=settings.memory, scheduler=settings.scheduler, progress=True,
    )  # fmt: skip
    left = ("remedy", "compose", "knows", "from")
    cells = result.cells().items()
    write_table(console(), [Column(name, own, "left" if name in left else "right") for name, own in cells])
    task = base.task
    paragraph(f"task {task.kind}; {task.holdout_summary}")
    paragraph(f"compose: number of seeds; {RULE}. Right: as in the accuracy. Errors: relative to a blank output's")
    if UNLEARNT in result.outcomes:
        say(f"{UNLEARNT}: such networks say nothing about composing; try training for longer (--epochs, --steps)")
    if len(seeds) < FEWEST:
        say(f"no intervals, since they need at least {FEWEST} seeds")
    if out is not None:
        picture = io.BytesIO()
        result.draw().savefig(picture, dpi=200)
        data = encoded(result.data)  # first, as it marks the folder
        csv = result.table().to_csv(index=False).encode()
        write_into(out, {"comparison.nc": data, "comparison.csv": csv, "comparison.png": picture.getvalue()})
        if page:
            result.explore().save(out / "page.html", overwrite=True)
        say(f"comparison: {out}")
