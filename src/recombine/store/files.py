"""Files that are whole or not there: temporary name, flush, rename.

A failing disk or a full one becomes a `StoreError` with one line.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recombine.errors import StoreError

CHUNK = 1 << 20
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def explained(path: Path, field: str = "store") -> Iterator[None]:
    """Turn the operating system's refusals into one line about the field that gave the path."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            allowed = "a directory on a disk with room left"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            allowed = "a directory that can be read and written"
        elif error.errno in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
            allowed = "a directory, or a path where one can be made"
        else:
            allowed = "a path that exists and works"
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StoreError(f"{field}: {str(path)!r} is not allowed; allowed: {allowed} ({reason})") from None


def write(path: Path, content: bytes, field: str = "store") -> None:
    """Write a file so that it holds all of the content or does not exist."""
    with explained(path, field):
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        flush_directory(path.parent)


def flush_directory(path: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(CHUNK):
            found.update(part)
    return found.hexdigest()


def pack(arrays: Mapping[str, Any]) -> bytes:
    """Numpy arrays as safetensors."""
    import numpy
    from safetensors.numpy import save

    return save({name: numpy.asarray(array, order="C") for name, array in arrays.items()})


def unpack(content: bytes) -> dict[str, Any]:
    """The arrays that `pack` packed."""
    from safetensors.numpy import load

    return load(content)
