"""Files and folders that a command will write: refused before the work rather than after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from recombine.errors import InvalidValue, listed
from recombine.files import one_line_errors, read_given


def require_folder(path: Path, field: str) -> None:
    """Make a folder and try to write there."""
    with one_line_errors(path, field):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


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


def marked_document(path: Path, blocks: Iterable[str]) -> str:
    """The text of a document that has marks for blocks, all of them among these."""
    from recombine.reproduction.report.verdicts import (
        marked_blocks,  # with the drawing of figures, which not every command needs
    )

    try:
        text = read_given(path, "write").decode()
    except UnicodeDecodeError:
        raise InvalidValue("write", str(path), "a text file in UTF-8") from None
    names, known = marked_blocks(text), list(blocks)
    if not names or any(name not in known for name in names):
        raise InvalidValue("write", str(path), f"a file with marked blocks, named among {listed(known)}")
    require_file(path, "write")
    return text
