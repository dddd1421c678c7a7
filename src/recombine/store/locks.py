"""Who is training what.

A lock is the kernel's, on a file: it is gone the moment its holder is, however it died, and it never has to be
judged stale. The file is removed by whoever releases the lock. A process that waited on a file which is gone by then
holds a lock that nobody sees, so it looks again and starts over.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from recombine.files import one_line_errors


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
