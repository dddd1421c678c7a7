"""Show a sweep's progress as a bar in a terminal or notebook, and elsewhere as a line after every tenth of the work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from recombine.console import console, counted, visible, write_error


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep.

    Parameters
    ----------
    runs
        Number of runs in the sweep.
    finished
        Number of finished runs.
    members
        Number of members currently training.
    steps_done
        Steps taken by all members, not counting runs that were already in the store.
    steps_left
        Number of remaining steps.
    error
        Mean training error of the members currently training; NaN if unknown.
    failed
        Number of failed runs.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> seen = []
    >>> with TemporaryDirectory() as store:
    ...     runs = rc.train(spec, store, watch=seen.append)
    >>> seen[0].runs, seen[0].members, seen[0].failed
    (1, 1, 0)
    """

    runs: int
    finished: int
    members: int
    steps_done: int
    steps_left: int
    error: float
    failed: int = 0


Say = Callable[[str], None]
Watch = Callable[[Progress], None]
Shown = bool | Literal["auto"]


class TrainingBar:
    """A progress bar for a sweep."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        screen = console(stderr=True)
        self.shown = screen.is_terminal or screen.is_jupyter
        self.bar = Bar(
            TextColumn("{task.fields[runs]} runs", markup=False),
            BarColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(),
            console=screen,
            disable=not self.shown,
            transient=not screen.is_jupyter,  # a notebook keeps the last state
            speed_estimate_period=30.0,
        )
        self.task = self.bar.add_task("steps", total=None, runs="0", detail="starting")
        self.clock = clock
        self.began = self.last_line = self.sweep_began = clock()
        self.last: Progress | None = None
        self.tenth = 0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.shown:  # some versions of rich print an empty line at the end of a bar that was never shown
            if kind is None and self.last is not None:  # a sweep does not report its end
                total = self.last.steps_done + self.last.steps_left
                self(replace(self.last, finished=self.last.runs, members=0, steps_done=total, steps_left=0))
            self.bar.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar, or with the elapsed time if there is no bar."""
        if self.shown:
            self.say_above(line)
        else:
            self.last_line = self.clock()
            write_error(f"{duration(self.last_line - self.began)}: {line}")

    def say_above(self, line: str) -> None:
        """Print a line above the bar, if there is one."""
        if self.shown:
            self.bar.console.print(visible(line))

    def __call__(self, progress: Progress) -> None:
        if self.last is not None and progress.steps_done < self.last.steps_done:  # the command's next sweep
            self.sweep_began, self.tenth = self.clock(), 0
        self.last = progress
        if not self.shown:
            self._write_tenth(progress)
            return
        rate = progress.steps_done / max(self.clock() - self.sweep_began, 1e-9)
        parts = [counted(progress.members, "member"), f"{rate:.0f} steps/s", *_notes(progress)]
        if not progress.members:
            parts = ["waiting"] * bool(progress.steps_left)
        self.bar.update(
            self.task,
            total=progress.steps_done + progress.steps_left,
            completed=progress.steps_done,
            runs=f"{progress.finished}/{progress.runs}",
            detail=" · ".join(parts),
        )

    def _write_tenth(self, progress: Progress) -> None:
        """Print a line when another tenth of the steps is done."""
        total, now = progress.steps_done + progress.steps_left, self.clock()
        tenth = 10 * progress.steps_done // total if total else 0
        if tenth <= self.tenth or now - self.last_line < 1:  # second, so that a short sweep prints no line
            return
        self.tenth = tenth
        left = (now - self.sweep_began) * progress.steps_left / progress.steps_done
        parts = [f"trained {10 * tenth} %", f"{progress.finished} of {counted(progress.runs, 'run')}"]
        if progress.steps_left:
            parts += [f"about {duration(left)} left"]
        self.say(", ".join([*parts, *_notes(progress)]))


def _notes(progress: Progress) -> list[str]:
    error = [] if math.isnan(progress.error) else [f"MSE {progress.error:.1e}"]
    return [*error, *([f"{progress.failed} failed"] if progress.failed else [])]


def duration(seconds: float) -> str:
    """Return a duration as text: `12 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
