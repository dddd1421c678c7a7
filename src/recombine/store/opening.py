"""Opening a store: only where there is one, or where nothing else is."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from recombine.errors import StoreError, listed
from recombine.files import TEMPORARY, one_line_errors, parsed_json, read, write
from recombine.store.names import FOLDERS, MARKER

FORMAT = 1


def refusal(path: Path, allowed: str) -> StoreError:
    """The error of a path that cannot be used as a store."""
    return StoreError(f"store must be {allowed}, got {str(path)!r}")


def open_folder(path: Path, create: bool) -> None:
    """Make sure that a path is a store, which `create` may make; nothing is written otherwise."""
    with one_line_errors(path):
        try:
            content = read(path / MARKER)
        except FileNotFoundError:
            if not create:
                raise refusal(path, "a directory with a store in it") from None
            _mark(path)
            content = read(path / MARKER)
        try:
            format_here = parsed_json(content)["format"]
        except (ValueError, KeyError, TypeError):
            format_here = "unreadable"
        if format_here != FORMAT:
            raise refusal(path, f"a store of format {FORMAT} (this one's is {format_here!r})")
        for name in FOLDERS:
            _require_folder(path, name, create)


def _mark(path: Path) -> None:
    """Mark a new or empty directory as a store, before anything else is put there."""
    path.mkdir(parents=True, exist_ok=True)
    foreign = [name for name in sorted(os.listdir(path)) if not is_marker(name)]
    if foreign and not (path / MARKER).exists():  # else another process was first
        raise refusal(path, f"an empty or new directory, or a store (this one holds {listed(foreign[:3])})")
    write(path / MARKER, json.dumps({"format": FORMAT}).encode())


def is_marker(name: str) -> bool:
    """Whether a name is the marker's, or that of one being written."""
    match = TEMPORARY.fullmatch(name)
    return name == MARKER or (match is not None and match["name"] == MARKER)


def _require_folder(path: Path, name: str, create: bool) -> None:
    """Refuse a folder of a store that is a link or a file; make one that is missing, if `create` says so."""
    folder = path / name
    if create:
        with suppress(FileExistsError):
            folder.mkdir()
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise refusal(path, f"a store whose {name!r} is a folder, not a link or a file")
