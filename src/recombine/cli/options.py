"""Options that several commands have, each described once; other names of flags; files that can be written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from recombine.errors import InvalidValue
from recombine.files import one_line_errors

SHORT = {"decoder.width": "width", "decoder.depth": "depth", "training.samples": "samples"}
"""Dotted flags that everybody uses, by a short name."""


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """The number that was typed, where the parser would round a fraction."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be an integer, got {tokens[0].value!r}") from None


def _path(_: Any, tokens: Sequence[Token]) -> Path:
    """The path that was typed; nothing is not the current folder."""
    if not tokens[0].value:
        raise ValueError("must be a path, got nothing")
    return Path(tokens[0].value)


Whole = Annotated[int, Parameter(converter=_whole)]
SomePath = Annotated[Path, Parameter(converter=_path)]
StorePath = Annotated[
    SomePath | None,
    Parameter(name="--store", help="Directory of runs. Default: $RECOMBINE_STORE or ./runs.", show_default=False),
]
ResultsPath = Annotated[SomePath, Parameter(name="--from", help="Folder written by reproduce.")]


def require_file(path: Path, field: str) -> None:
    """Refuse a file that cannot be written, or whose folder does not exist."""
    if path.is_dir():
        raise InvalidValue(field, str(path), "a file, not a directory")
    with one_line_errors(path, field):
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except FileNotFoundError:
            raise InvalidValue(field, str(path), "a file in an existing folder") from None
