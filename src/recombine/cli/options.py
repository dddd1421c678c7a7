"""Options shared by several commands, and the check that an output file can be written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from recombine.errors import InvalidValue
from recombine.files import one_line_errors, require_own

HELP_ALL = "--help-all"
HELP = ("--help", "-h", HELP_ALL)
MORE = "More:"
"""First word in the titles of panels shown only by --help-all."""


def _whole(_: Any, tokens: Sequence[Token]) -> int:
    """Return an integer; cyclopts would round a fraction."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be an integer, got {tokens[0].value!r}") from None


def _path(_: Any, tokens: Sequence[Token]) -> Path:
    """Return a path; reject an empty one, which would mean the current folder."""
    if not tokens[0].value:
        raise ValueError("a path must not be empty")
    return Path(tokens[0].value)


Whole = Annotated[int, Parameter(converter=_whole)]
SomePath = Annotated[Path, Parameter(converter=_path)]
StorePath = Annotated[
    SomePath | None,
    Parameter(name="--store", help="Folder of stored runs. Default: $RECOMBINE_STORE or ./runs.", show_default=False),
]
ResultsPath = Annotated[SomePath, Parameter(name="--from", help="Folder written by reproduce.")]
Overwrite = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Also overwrite files that recombine did not write.")
]


def require_file(path: Path, field: str, kind: str = "", overwrite: bool = True) -> None:
    """Raise unless the file can be written, its folder exists, and it is new or of this kind, or may be overwritten."""
    if path.is_dir():
        raise InvalidValue(field, str(path), "a file, not a directory")
    with one_line_errors(path, field):
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except FileNotFoundError:
            raise InvalidValue(field, str(path), "a file in an existing folder") from None
    require_own(path, field, kind, overwrite)
