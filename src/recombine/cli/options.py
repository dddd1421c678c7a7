"""Options that several commands have, each described once, and other names of flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

SHORT = {"decoder.width": "width", "decoder.depth": "depth", "training.samples": "samples"}
"""Dotted flags that everybody uses, by a short name."""
FLAGS = {**SHORT, "checkpoint_seconds": "checkpoint"}
"""What a field is called on the command line, where that differs."""

StorePath = Annotated[
    Path | None,
    Parameter(name="--store", help="Directory of runs. Default: $RECOMBINE_STORE or ./runs.", show_default=False),
]
ResultsPath = Annotated[Path, Parameter(name="--from", help="Folder written by reproduce.")]
