"""Names of the files and folders in a store, and how to open one. Only files with these names are ever deleted."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from recombine.errors import StoreError, listed
from recombine.files import TEMPORARY, one_line_errors, parsed_json, read, write
from recombine.keys import DIGEST_LENGTH

MARKER = "recombine.json"
FORMAT = 1
INDEX = "index.tsv"
INDEX_FILES = (INDEX, *(f"index.sqlite{suffix}" for suffix in ("", "-wal", "-shm", "-journal")))
"""Files of the index, including those of earlier versions."""
FOLDERS = ("runs", "checkpoints", "locks", "damaged", "tmp")

SCORES = ("id_mse", "ood_mse", "id_over_blank", "ood_over_blank", "id_accuracy", "ood_accuracy")
"""Scores of every run; null if a region is empty."""

_KEY = rf"[0-9a-f]{{{DIGEST_LENGTH}}}"
_MADE = {
    "runs": re.compile(rf"(?P<key>{_KEY})"),
    "tmp": re.compile(rf"(?P<key>{_KEY})\.(gone\.)?\d+"),
    "damaged": re.compile(rf"(?P<key>{_KEY})\.\d+"),
    "checkpoints": re.compile(rf"(?P<dot>\.)?(?P<key>{_KEY})(?(dot)\.\d+(-[0-9a-f]+)?)"),
    "locks": re.compile(rf"(?P<key>{_KEY})"),
}


def is_key(name: str) -> bool:
    """Return whether a name is the key of a run."""
    return key_of("runs", name) is not None


def key_of(folder: str, name: str) -> str | None:
    """Return the key of the run that a file or folder belongs to, or None if this package did not create it."""
    match = _MADE[folder].fullmatch(name)
    return match["key"] if match else None


def final_name(name: str) -> str:
    """Return the final name of a file, given its final or temporary name."""
    match = TEMPORARY.fullmatch(name)
    return name if match is None else match["name"]


def unusable(path: Path, required: str) -> StoreError:
    """Return an error about a path that cannot be used as a store."""
    return StoreError(f"store must be {required}, got {str(path)!r}")


def open_folder(path: Path, create: bool) -> None:
    """Check that a path is a store, or create one; without `create`, nothing is written."""
    with one_line_errors(path):
        try:
            content = read(path / MARKER)
        except FileNotFoundError:
            if not create:
                raise unusable(path, "an existing store") from None
            path.mkdir(parents=True, exist_ok=True)
            foreign = [name for name in sorted(os.listdir(path)) if final_name(name) != MARKER]
            if foreign and not (path / MARKER).exists():  # otherwise another process has just created the store
                required = f"an empty or new directory, or a store (it contains {listed(foreign[:3])})"
                raise unusable(path, required) from None
            write(path / MARKER, json.dumps({"format": FORMAT}).encode())
            content = read(path / MARKER)
        try:
            format_here = parsed_json(content)["format"]
        except (ValueError, KeyError, TypeError):
            format_here = "unreadable"
        if format_here != FORMAT:
            raise unusable(path, f"a store with format {FORMAT} (its format is {format_here!r})")
        for name in FOLDERS:
            if create:
                with suppress(FileExistsError):
                    (path / name).mkdir()
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(os.lstat(path / name).st_mode):
                    raise unusable(path, f"a store whose {name!r} is a folder, not a link or a file")


def pack(arrays: Mapping[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return numpy arrays in safetensors format, with metadata in the header."""
    import numpy
    from safetensors.numpy import save

    return save({name: numpy.asarray(array, order="C") for name, array in arrays.items()}, metadata)


def unpack(content: bytes) -> dict[str, Any]:
    """Return the arrays of a safetensors file."""
    from safetensors.numpy import load

    return load(content)
