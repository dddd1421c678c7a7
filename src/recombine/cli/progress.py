"""A progress bar for training: members, steps a second, error and time left; silent when nobody watches."""

from __future__ import annotations

import math
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from recombine.sweep import Progress


class TrainingBar:
    """Shows where a sweep stands, on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self.bar = Bar(
            TextColumn("[bold]training"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.runs = self.bar.add_task("runs", total=None, detail="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Take note of new progress."""
        all_steps = progress.steps_done + progress.steps_left
        done = progress.steps_done / all_steps if all_steps else 0.0
        elapsed = self.bar.tasks[0].elapsed or 0.0
        rate = progress.steps_done / elapsed if elapsed else 0.0
        error = "" if math.isnan(progress.error) else f" · MSE {progress.error:.2e}"
        if progress.members:
            detail = f"{progress.members} member{'s'[: progress.members != 1]} · {rate:.0f} steps/s{error}"
        else:
            detail = "waiting for another process"
        self.bar.update(self.runs, total=progress.runs, completed=progress.finished, detail=detail)
        self.fraction = done
