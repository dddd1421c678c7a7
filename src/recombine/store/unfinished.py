"""Locks and checkpoints of unfinished runs.

Locks are kernel file locks, which are released when their process ends. Releasing a lock deletes its file; a process
that was waiting for it then holds a lock on a deleted file, which no other process can see, so it tries again.

`checkpoints/KEY` is a single file, replaced by renaming: a line with a digest of the key and the content, then the
arrays in safetensors format. A checkpoint that is damaged or belongs to another run is ignored.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from recombine.files import NotRegular, one_line_errors, read, write
from recombine.store.names import pack, unpack
from recombine.store.run import Problem


class Lock:
    """An exclusive lock on a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait: bool = True) -> bool:
        """Take the lock; without `wait`, return False if it is not free."""
        with one_line_errors(self.path):
            while True:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    os.close(descriptor)
                    return False
                except BaseException:
                    os.close(descriptor)
                    raise
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), os.lstat(self.path)):  # not deleted yet
                        self._descriptor = descriptor
                        return True
                os.close(descriptor)

    def release(self) -> None:
        """Release the lock, if held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):  # a leftover file does no harm
                self.path.unlink()
            with suppress(OSError):  # it is closed in any case
                os.close(descriptor)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Checkpoints:
    """The checkpoints in a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, key: str, arrays: Mapping[str, Any]) -> None:
        """Replace the checkpoint of a run."""
        content = pack(arrays)
        write(self.folder / key, _seal(key, content) + content)

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the arrays of a run's checkpoint, or None if it is absent or damaged."""
        with one_line_errors(self.folder / key):
            content = self._content(key)
        with suppress(OSError):  # an empty folder in its place, which no file could replace
            (self.folder / key).rmdir()
        return None if content is None else unpack(content)

    def _content(self, key: str) -> bytes | None:
        try:
            sealed = read(self.folder / key)
        except (FileNotFoundError, NotRegular):
            return None
        line = _seal(key, sealed[SEAL_LENGTH:])
        return sealed[SEAL_LENGTH:] if sealed[:SEAL_LENGTH] == line else None

    def forget(self, key: str) -> None:
        """Delete the checkpoint of a run."""
        with one_line_errors(self.folder / key):
            (self.folder / key).unlink(missing_ok=True)

    def problems(self, name: str) -> list[Problem]:
        """Return the problems of a checkpoint."""
        with one_line_errors(self.folder / name):
            return [] if self._content(name) is not None else [Problem("checkpoint: content changed")]


def _seal(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(key.encode() + b"\n")
    digest.update(content)
    return digest.hexdigest().encode() + b"\n"


SEAL_LENGTH = len(_seal("", b""))
