"""What may happen to a file: bits flip, the end is missing, something else lies there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def flip(path: Path, offset: int, bit: int) -> None:
    """Turn one bit over."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def shorten(path: Path, size: int) -> None:
    """Cut a file off."""
    os.truncate(path, size)


def nothing(path: Path) -> None:
    """Leave a file as it is."""


def folder(path: Path) -> None:
    """Put a folder where a file was."""
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    """Put a pipe where a file was: to open it waits for a writer."""
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    """Put a link to a device that never ends where a file was."""
    path.unlink()
    path.symlink_to("/dev/zero")


def dangling(path: Path) -> None:
    """Put a link to nothing where a file was."""
    path.unlink()
    path.symlink_to(path.with_name("nothing"))


def missing(path: Path) -> None:
    """Take a file away."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()


HARMS: dict[str, Callable[..., None]] = {
    harm.__name__: harm for harm in (nothing, flip, shorten, folder, pipe, endless, dangling, missing)
}


Harm = tuple[str] | tuple[str, int] | tuple[str, int, int]


def flips(path: Path) -> list[Harm]:
    """A flip of every byte of a file; the bit goes round."""
    return [("flip", offset, offset * 5 % 8) for offset in range(path.stat().st_size)]


def replacements(path: Path) -> list[Harm]:
    """Everything else that may happen to a file."""
    size = path.stat().st_size
    cuts = [("shorten", kept) for kept in sorted({0, size // 2, max(0, size - 1)}) if kept < size]
    return [*cuts, ("folder",), ("pipe",), ("endless",), ("dangling",), ("missing",)]
