"""Stopping between steps, never inside one.

A step that is torn in the middle leaves weights and moments that belong to no step. So while training, the first
interruption (Ctrl-C, or a request to terminate) is only noted; the sweep looks after each span of steps, writes a
checkpoint and stops. A second one stops at once.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping(Protocol):
    """Says whether training is to stop."""

    @property
    def noted(self) -> bool:
        """Whether somebody asked for it."""
        ...


class Interruptions:
    """Context that notes interruptions. Outside the main thread, which gets all signals, it does nothing."""

    def __init__(self) -> None:
        self.noted = False
        """Whether there was one."""
        self._before: dict[int, Any] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
