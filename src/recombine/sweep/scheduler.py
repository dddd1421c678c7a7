"""Where a Dask scheduler is, and how to reach it again after it was lost."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from recombine.errors import InvalidValue, RecombineError, reason_of
from recombine.files import parsed_json, read_given

CONNECT_SECONDS = 10.0
"""How long the first connection may take."""
RETRY_SECONDS = 2.0
"""How long an attempt to reach a lost scheduler may take."""
PAUSE_SECONDS = 0.5
ADDRESS = "an address as tcp://HOST:PORT, the file of 'dask scheduler --scheduler-file', or a distributed.Client"
FILE = "a file that 'dask scheduler --scheduler-file' wrote"
INSTALL = "scheduler: Dask is not installed; 'pip install distributed' installs it, here and on the workers"


def distributed() -> Any:
    """Dask's package, imported when it is needed."""
    try:
        import distributed
    except ImportError:
        raise RecombineError(INSTALL) from None
    return distributed


class Scheduler:
    """A scheduler that may be lost and come back.

    Parameters
    ----------
    where
        Its address, the path of a scheduler file, or a `distributed.Client` that is connected to it.
    """

    def __init__(self, where: Any) -> None:
        package = distributed()
        self.where, self.security = where, None
        self.path: Path | None = None
        if isinstance(where, package.Client):
            self.where, self.security = where.scheduler.address, where.security
            self.path = Path(where.scheduler_file) if where.scheduler_file else None
        elif isinstance(where, os.PathLike) or (isinstance(where, str) and where and "://" not in where):
            self.path = Path(where)
        elif not isinstance(where, str) or not where.partition("://")[2]:
            raise InvalidValue("scheduler", where, ADDRESS)
        self.address()

    def __str__(self) -> str:
        return str(self.path or self.where)

    def address(self) -> str:
        """Its present address; a scheduler file is read again each time."""
        if self.path is None:
            return str(self.where)
        text = read_given(self.path, "scheduler_file")
        try:
            content = parsed_json(text)
        except ValueError:
            content = None
        address = content.get("address") if isinstance(content, dict) else None
        if not isinstance(address, str) or "://" not in address:
            raise InvalidValue("scheduler_file", str(self.path), FILE)
        return address

    def connected(self, timeout: float | None = None) -> Any:
        """A client of our own; an error of one line where there is no scheduler."""
        address, timeout = self.address(), timeout or CONNECT_SECONDS
        try:
            return distributed().Client(address, timeout=timeout, security=self.security, set_as_default=False)
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            field = "scheduler" if self.path is None else "scheduler_file"
            reason = reason_of(_first_cause(error))
            raise InvalidValue(field, str(self), f"one whose scheduler answers at {address} ({reason})") from None

    def reached_again(self, waiting: Callable[[], None]) -> Any:
        """A client of a scheduler that was lost, once it is back; `waiting` is called in between and may raise."""
        while True:
            waiting()
            began = time.monotonic()
            with suppress(InvalidValue):  # also a file that is just being written
                return self.connected(RETRY_SECONDS)
            time.sleep(max(0.0, PAUSE_SECONDS - (time.monotonic() - began)))


def _first_cause(error: BaseException) -> BaseException:
    """The operating system's own error behind a library's, if there is one."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def abandon(client: Any) -> None:
    """Close a client without waiting for a scheduler that does not answer."""

    def close() -> None:
        with suppress(Exception):
            client.close(timeout=1)

    thread = Thread(target=close, daemon=True)
    thread.start()
    thread.join(2.0)


@contextmanager
def quiet() -> Iterator[None]:
    """Dask's own messages on lost connections are left out: what they mean for the sweep is said by the driver."""
    names = ("distributed.client", "distributed.core", "distributed.comm", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
