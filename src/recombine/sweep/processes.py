"""Train what is not trained yet, in several processes of one thread each.

A step of a small network hardly fills two cores, so several processes with one thread each train more runs than one
process with several threads. The store's locks divide the work, so a worker is an ordinary sweep over all that is
missing, and the parent only adds up what workers report. Each run has one thread, so its bits do not depend on how many
processes there are.

A worker that notes a signal, a message of its parent or its parent's end (the pipe between them closes) writes a
checkpoint between two steps and ends. When one dies, its locks are free and the others take its runs.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import signal
import sys
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from recombine.errors import Interrupted, InvalidValue, RecombineError, listed
from recombine.sweep.interrupts import SIGNALS, Interruptions
from recombine.sweep.local import POLL_SECONDS, STOPPED, Sweep
from recombine.sweep.progress import Progress
from recombine.sweep.worker import Report, not_importable, run_worker

UNGUARDED = 78
"""Exit code of a worker whose script trains while it is imported."""
GUARDED = 'a script that does its own work under `if __name__ == "__main__":`, since new processes import it'
LEAVE_SECONDS = 10.0
"""How long a worker that has sent its last message may take to end."""


def train_in_processes(sweep: Sweep, processes: int) -> None:
    """Finish a sweep with so many processes, or as many as there are runs to train; a single one is this one."""
    sweep.begin()
    count, threads = min(processes, len(sweep.pending)), torch.get_num_threads()
    if count < 2:
        torch.set_num_threads(1)
        try:
            with Interruptions() as interruptions:
                return sweep.work(interruptions)
        finally:
            torch.set_num_threads(threads)
    _check_importable(sweep, count)
    with Interruptions() as interruptions:
        workers = _Workers(sweep)
        try:
            workers.start(count)
            workers.follow(interruptions)
        finally:
            workers.close()
    return None


def _check_importable(sweep: Sweep, count: int) -> None:
    """Refuse what a new process cannot import: it begins with the script that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # this is such a process, at its beginning
        sys.exit(UNGUARDED)
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is not None and not Path(script).exists():
        raise InvalidValue("processes", count, f"1, or a script in a file: new processes import it, not {script}")
    try:
        pickle.dumps(list(sweep.pending.values()))
    except Exception as error:
        raise not_importable(error) from error


class _Workers:
    """The worker processes, by the parent's end of the pipe to each."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.children: dict[Any, Any] = {}
        self.reports: dict[Any, Report] = {}
        self.failure: Exception | None = None

    def start(self, count: int) -> None:
        """Start workers with signals blocked, since Ctrl-C goes to all; each unblocks them once it can note one."""
        resource_tracker.ensure_running()  # the first start would, and it unblocks signals
        context, sweep = multiprocessing.get_context("spawn"), self.sweep
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                work = (theirs, sweep.store, sweep.members, sweep.checkpoint_seconds)
                child = context.Process(target=run_worker, args=work, daemon=True)
                child.start()
                theirs.close()
                self.children[ours] = child
        except OSError as error:
            raise InvalidValue("processes", count, f"as many as can be started ({error.strerror})") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def follow(self, interruptions: Interruptions) -> None:
        """Take reports until the last worker has ended; by then all is in the store, or there is an error to raise."""
        open_pipes, stopping, sweep = set(self.children), False, self.sweep
        while open_pipes:
            readable = wait(open_pipes, POLL_SECONDS)
            open_pipes -= {ours for ours in readable if not self._receive(ours)}
            if readable:
                sweep.watch(self._progress())
            if not stopping and (interruptions.noted or not isinstance(self.failure, Interrupted | None)):
                stopping = True
                for ours in open_pipes:
                    if ours not in self.reports:  # still importing: nothing to keep
                        self.children[ours].kill()
                    with suppress(OSError):
                        ours.send("stop")
        for child in self.children.values():
            child.join(LEAVE_SECONDS)
        sweep.serve_finished()  # also what a killed worker could not report
        if sweep.pending:
            raise self.failure or (Interrupted(STOPPED) if interruptions.noted else self._ended_early())

    def _ended_early(self) -> RecombineError:
        """The error for workers that have all ended with runs left to train."""
        codes = [child.exitcode for child in self.children.values()]
        killed = all(code < 0 for code in codes)
        if UNGUARDED in codes or not (self.reports or killed):
            reason = "" if UNGUARDED in codes else f" (they ended at once, with exit codes {listed(codes)})"
            return InvalidValue("processes", len(codes), f"1, or {GUARDED}{reason}")
        return RecombineError(f"processes: all ended with runs left to train (exit codes {listed(codes)})")

    def _receive(self, ours: Any) -> bool:
        """Take all messages of a worker; false when it is gone."""
        try:
            while ours.poll():
                self._note(ours, ours.recv())
        except (EOFError, OSError):  # perhaps in the middle of a message
            if ours in self.reports:
                self.reports[ours] = Report(steps_done=self.reports[ours].steps_done)
            return False
        return True

    def _note(self, ours: Any, message: Any) -> None:
        """Take note of a report, or of the error that a worker ends with."""
        if ours not in self.reports:  # its first message: it is ready
            ours.send(list(self.sweep.pending.values()))
        if isinstance(message, Report):
            self.reports[ours] = message
            for key in message.finished:
                if key in self.sweep.pending:
                    self.sweep.serve(key)
        elif isinstance(self.failure, Interrupted | None):
            kind, arguments, fields = message
            self.failure = kind.__new__(kind, *arguments)
            vars(self.failure).update(fields)

    def _progress(self) -> Progress:
        """Where the sweep stands, by the workers' newest reports."""
        sweep = self.sweep
        current = [report for report in self.reports.values() if any(key in sweep.pending for key in report.keys)]
        errors = [report.error for report in current for _ in report.keys if not math.isnan(report.error)]
        return Progress(
            runs=sweep.runs,
            finished=len(sweep.finished),
            members=sum(len(report.keys) for report in current),
            steps_done=sum(report.steps_done for report in self.reports.values()),
            steps_left=sweep.steps_pending - sum(report.steps for report in current),
            error=sum(errors) / len(errors) if errors else math.nan,
        )

    def close(self) -> None:
        """End every worker; after an orderly end they are gone already."""
        for ours, child in self.children.items():
            child.kill()
            child.join()
            ours.close()
