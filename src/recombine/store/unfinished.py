"""What an unfinished run has in a store: a lock while it is trained, and a checkpoint with its newest state.

A lock is the kernel's, on a file: it is gone the moment its holder is, however it died, and it never has to be
judged stale. The file is removed by whoever releases the lock. A process that waited on a file which is gone by then
holds a lock that nobody sees, so it looks again and starts over.

`checkpoints/KEY` is one file, replaced by one rename: a line with a digest of key and content, then the arrays as
safetensors. So a checkpoint whose bytes changed, or that was renamed to another run's, is found and passed over.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from recombine.files import NotRegular, entries, one_line_errors, read, write
from recombine.store.names import is_key
from recombine.store.run import Problem, pack, unpack


class Lock:
    """An exclusive lock on a named file, held until released."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait: bool = True) -> bool:
        """Take the lock; without `wait`, say at once whether it was free."""
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
                if self._is_seen(descriptor):
                    self._descriptor = descriptor
                    return True
                os.close(descriptor)

    def _is_seen(self, descriptor: int) -> bool:
        """Whether the path still names the file that is locked."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.lstat(self.path))
        return False

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):  # a file that stays does no harm
                self.path.unlink()
            with suppress(OSError):  # it is closed all the same
                os.close(descriptor)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Checkpoints:
    """The checkpoints of a store; `aside` is where a folder goes that lies in the place of one."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self.folder, self.aside = folder, aside

    def write(self, key: str, arrays: Mapping[str, Any]) -> None:
        """Keep the newest state of an unfinished run in the place of the one before."""
        content = pack(arrays)
        self._clear(key)
        write(self.folder / key, _seal(key, content) + content)

    def read(self, key: str) -> dict[str, Any] | None:
        """The arrays of a run's checkpoint; none where there is none, or one that is not as it was written."""
        with one_line_errors(self.folder / key):
            content = self._content(key)
        return None if content is None else unpack(content)

    def _content(self, key: str) -> bytes | None:
        try:
            sealed = read(self.folder / key)
        except (FileNotFoundError, NotRegular):
            return None
        line = _seal(key, sealed[SEAL_LENGTH:])
        return sealed[SEAL_LENGTH:] if sealed[:SEAL_LENGTH] == line else None

    def forget(self, key: str) -> None:
        """Remove what an unfinished run left."""
        self._clear(key)
        with one_line_errors(self.folder / key):
            (self.folder / key).unlink(missing_ok=True)

    def _clear(self, key: str) -> None:
        """Put a folder aside, which no file can replace."""
        path = self.folder / key
        with one_line_errors(path):
            if path.is_dir() and not path.is_symlink():
                os.replace(path, self.aside / f"{key}.{time.time_ns()}")

    def __iter__(self) -> Iterator[str]:
        """Keys of the runs that have one."""
        return iter([name for name in entries(self.folder) if is_key(name)])

    def problems(self, name: str) -> list[Problem]:
        """What is wrong with a checkpoint."""
        with one_line_errors(self.folder / name):
            return [] if self._content(name) is not None else [Problem("checkpoint: content changed")]


def _seal(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(key.encode() + b"\n")
    digest.update(content)
    return digest.hexdigest().encode() + b"\n"


SEAL_LENGTH = len(_seal("", b""))
