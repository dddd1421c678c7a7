"""Where training stands: a bar in a notebook or a terminal, elsewhere a line per tenth and per study.

The command line and `recombine.train` share it. In a terminal it is on standard error, and so are the lines.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

from rich.console import RenderableType
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from recombine.screen import console, counted, is_terminal, visible, write_error
from recombine.sweep.notebook import NotebookBar, in_notebook
from recombine.sweep.progress import Progress, Shown, Watch, WorkerProgress

SPEED_SECONDS = 30.0
"""The time left follows the speed over about this long."""
LINE_SECONDS = 1.0
"""Least time between two lines, so that a training of a moment says nothing."""
TENTHS = 10
WAITING = "waiting for another process"
WAITING_SECONDS = 3.0


MOST_WORKERS = 12
"""Workers of a cluster that have a line each below the bar."""


class _Bar(Bar):
    """A bar with a line for each worker of a cluster below it."""

    workers: tuple[WorkerProgress, ...] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.workers is None:
            return
        busy = [worker for worker in self.workers if worker.members]
        for worker in busy[:MOST_WORKERS]:
            share = f"step {worker.steps_done} of {worker.steps}" if worker.steps else "starting"
            yield Text(visible(f"  {worker.name}: {counted(worker.members, 'member')}, {share}"))
        more = f"{len(busy) - MOST_WORKERS} more at work, " if len(busy) > MOST_WORKERS else ""
        yield Text(f"  {more}{len(self.workers) - len(busy)} of {counted(len(self.workers), 'worker')} idle")


class TrainingBar:
    """Shows where a sweep stands."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.notebook = NotebookBar(clock) if in_notebook() else None
        self.watched = self.notebook is None and is_terminal(sys.stderr)
        self.bar = _Bar(
            TextColumn("{task.fields[runs]} runs", markup=False),
            BarColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(),
            console=console(stderr=True),
            disable=not self.watched,
            transient=True,
            speed_estimate_period=SPEED_SECONDS,
        )
        self.task = self.bar.add_task("steps", total=None, runs="0", detail="starting")
        self.clock = clock
        self.began = self.last_line = clock()
        self.sweep_began, self.sweep_done, self.tenth = self.began, 0, 0
        self.last: Progress | None = None
        self.idle_since: float | None = None
        """Since when others train all that is left; infinity once that was said."""

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.watched:  # some versions of rich end a bar that was never shown with an empty line
            self.bar.stop()
        if self.notebook is not None:
            self.notebook.stop()

    def say(self, line: str) -> None:
        """Write a line: above the bar, or with the time that has passed."""
        if self.watched or self.notebook is not None:
            self.say_above(line)
        else:
            self.last_line = self.clock()
            write_error(f"{duration(self.last_line - self.began)}: {line}")

    def say_above(self, line: str) -> None:
        """Write a line above the bar; where there is none it is left out."""
        if self.watched:
            self.bar.console.print(visible(line))
        elif self.notebook is not None:
            print(visible(line))

    def complete(self) -> None:
        """Show that all is trained, where the last state stays: a sweep reports while it trains, not when it has."""
        if self.last is not None and self.notebook is not None:
            last = self.last
            total = last.steps_done + last.steps_left
            self(replace(last, finished=last.runs, members=0, steps_done=total, steps_left=0))

    def __call__(self, progress: Progress) -> None:
        """Take note of new progress."""
        self.last = progress
        if progress.steps_done < self.sweep_done:  # a further sweep of the same command
            self.sweep_began, self.tenth = self.clock(), 0
        self.sweep_done = progress.steps_done
        if self.watched or self.notebook is not None:
            self._update(progress)
        else:
            self._count_tenths(progress)
            self._mention_waiting(progress)

    def _update(self, progress: Progress) -> None:
        rate = progress.steps_done / max(self.clock() - self.sweep_began, 1e-9)
        pace = f"{counted(progress.members, 'member')} · {rate:.0f} steps/s{_error(progress, ' · ')}"
        waiting = _waiting(progress) if progress.steps_left else ""
        detail = (pace if progress.members else waiting) + _failed(progress, " · ")
        runs, total = f"{progress.finished}/{progress.runs}", progress.steps_done + progress.steps_left
        if self.notebook is not None:
            self.notebook.show(runs, progress.steps_done, total, detail + self._time_left(progress))
            return
        self.bar.workers = progress.workers
        self.bar.update(self.task, total=total, completed=progress.steps_done, runs=runs, detail=detail)

    def _time_left(self, progress: Progress) -> str:
        """How long the rest takes at the speed so far."""
        if not progress.steps_done or not progress.steps_left:
            return ""
        left = (self.clock() - self.sweep_began) * progress.steps_left / progress.steps_done
        return f" · about {duration(left)} left"

    def _count_tenths(self, progress: Progress) -> None:
        total = progress.steps_done + progress.steps_left
        tenth = TENTHS * progress.steps_done // total if total else 0  # nothing was to be trained
        now = self.clock()
        if tenth <= self.tenth or now - self.last_line < LINE_SECONDS:
            return
        self.tenth = tenth
        left = (now - self.sweep_began) * progress.steps_left / progress.steps_done
        more = f", about {duration(left)} left{_error(progress, ', ')}" if progress.steps_left else ""
        stored, runs = progress.finished + progress.failed, counted(progress.runs, "run")
        is_storing = not progress.steps_left and stored < progress.runs
        done = f"storing the last of {runs}" if is_storing else f"{progress.finished} of {runs}"
        done += _failed(progress, ", ")
        self.say(f"trained {100 * tenth // TENTHS} %, {done}{_at_work(progress)}{more}")

    def _mention_waiting(self, progress: Progress) -> None:
        """Say once that others are training, when that has lasted longer than processes take to begin."""
        now = self.clock()
        if progress.members or not progress.steps_left:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = now
        elif now - self.idle_since >= WAITING_SECONDS:
            self.say(_waiting(progress))
            self.idle_since = math.inf


def bar_for(progress: Shown, watch: Watch | None) -> TrainingBar | None:
    """The bar that a call of `train` shows: with `auto` where somebody sees it, and no other function watches."""
    if progress == "auto":
        progress = watch is None and (in_notebook() or is_terminal(sys.stderr))
    return TrainingBar() if progress else None


def _error(progress: Progress, before: str) -> str:
    return "" if math.isnan(progress.error) else f"{before}MSE {progress.error:.1e}"


def _waiting(progress: Progress) -> str:
    return WAITING if progress.workers is None else "waiting for workers"


def _at_work(progress: Progress) -> str:
    if progress.workers is None:
        return ""
    busy = sum(worker.members > 0 for worker in progress.workers)
    return f", {busy} of {counted(len(progress.workers), 'worker')} at work"


def _failed(progress: Progress, before: str) -> str:
    return f"{before}{progress.failed} failed" if progress.failed else ""


def duration(seconds: float) -> str:
    """`12 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
