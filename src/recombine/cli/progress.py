"""A progress bar for training: runs, members, steps a second, error and time left; silent when nobody watches."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from recombine.sweep import Progress

SPEED_SECONDS = 30.0
"""The time left follows the speed over about this long."""


class TrainingBar:
    """Shows where a sweep stands, on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self.bar = Bar(
            TextColumn("{task.fields[runs]} runs"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
            speed_estimate_period=SPEED_SECONDS,
        )
        self.task = self.bar.add_task("steps", total=None, runs="0", detail="starting")
        self.began = time.perf_counter()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, line: str) -> None:
        """A line above the bar, if somebody watches."""
        if not self.bar.disable:
            self.bar.console.print(line, highlight=False)

    def __call__(self, progress: Progress) -> None:
        """Take note of new progress."""
        rate = progress.steps_done / max(time.perf_counter() - self.began, 1e-9)
        error = "" if math.isnan(progress.error) else f" · MSE {progress.error:.1e}"
        plural = "" if progress.members == 1 else "s"
        self.bar.update(
            self.task,
            total=progress.steps_done + progress.steps_left,
            completed=progress.steps_done,
            runs=f"{progress.finished}/{progress.runs}",
            detail=f"{progress.members} member{plural} · {rate:.0f} steps/s{error}"
            if progress.members
            else "waiting for another process",
        )
