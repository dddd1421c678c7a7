"""A bar in the output of a notebook's cell: HTML that is displayed once and then updated, without widgets."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

UPDATE_SECONDS = 0.2
"""Least time between two updates, each of which is a message to the browser."""


def in_notebook() -> bool:
    """Whether output goes to a notebook: an IPython with a kernel, as Jupyter's and Colab's. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """What `rich.progress.Progress` is in a terminal, as far as a training's bar needs it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.last_update = -UPDATE_SECONDS
        self.handle: Any = None
        self.pending: dict[str, str] | None = None

    def show(self, runs: str, completed: int, total: int, detail: str) -> None:
        """Show where a training stands; nothing is displayed before there is something to train."""
        if not total:
            return
        text = " · ".join(filter(None, (f"{runs} runs", f"{100 * completed // total} %", detail)))
        bar = f'<progress max="{total}" value="{completed}" style="vertical-align: middle"></progress>'
        html = f"<div>{escape(runs)} runs {bar} {escape(detail)}</div>"
        self.pending = {"text/plain": text, "text/html": html}
        if self.clock() - self.last_update >= UPDATE_SECONDS:
            self._display()

    def stop(self) -> None:
        """Show the last state, which stays."""
        if self.pending is not None:
            self._display()

    def _display(self) -> None:
        self.last_update = self.clock()
        if self.handle is None:
            from IPython.display import display

            self.handle = display(self.pending, raw=True, display_id=True)
        elif self.pending is not None:
            self.handle.update(self.pending, raw=True)
        self.pending = None
