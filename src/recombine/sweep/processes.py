"""A sweep in several single-threaded processes.

Each worker is an ordinary sweep over all pending runs, which the store's locks divide among them; the parent only adds
up their reports. Each run uses one thread, so its result does not depend on the number of processes.

When a worker receives a signal or a message from the parent, or the parent ends (which closes the pipe), it writes a
checkpoint and exits. If a worker dies, its locks are released and the other workers train its runs.
"""

from __future__ import annotations

import math
import multiprocessing
import pickle
import signal
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from recombine.errors import Interrupted, InvalidValue, RecombineError, listed, reason_of
from recombine.store import Store
from recombine.sweep.local import POLL_SECONDS, SIGNALS, STOPPED, Interruptions, Sweep
from recombine.sweep.progress import Progress

LEAVE_SECONDS = 10.0
"""How long to wait for a worker to exit after its last message."""


def train_in_processes(sweep: Sweep, processes: int) -> None:
    """Finish a sweep with up to this many worker processes, or in the current process if one is enough."""
    sweep.prepare()
    count, threads = min(processes, len(sweep.pending)), torch.get_num_threads()
    with Interruptions() as interruptions:
        if count < 2:
            torch.set_num_threads(1)
            try:
                sweep.work(lambda: interruptions.noted)
            finally:
                torch.set_num_threads(threads)
            return
        workers = _Workers(sweep)
        try:
            workers.start(count)
            workers.follow(interruptions)
        finally:
            workers.close()


def run_worker(parent: Connection, store: Store, members: int, checkpoint_seconds: float) -> None:
    """Train the specs sent by the parent until all are done, the parent says to stop, or the parent ends."""
    torch.set_num_threads(1)
    stopping = threading.Event()
    for number in SIGNALS:  # even repeated ones, since the parent decides whether to stop at once
        signal.signal(number, lambda *_: stopping.set())

    def listen() -> None:
        wait([parent])
        stopping.set()

    def report(message: Progress | Exception) -> None:
        with suppress(OSError):  # the parent is gone, and `listen` will notice
            parent.send(message)

    try:
        report(Progress(runs=0, finished=0, members=0, steps_done=0, steps_left=0, error=math.nan))  # ready
        sweep = Sweep(parent.recv(), store, torch.device("cpu"), members, checkpoint_seconds, report)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=listen, daemon=True).start()
        sweep.prepare()
        sweep.work(stopping.is_set)
        sweep.report()  # the last runs
    except EOFError:
        return  # the parent is gone
    except Exception as error:
        if not isinstance(error, RecombineError):
            error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
            report(error)
        except Exception:  # it cannot be pickled
            report(RecombineError(f"{type(error).__name__} in a worker ({reason_of(error)})"))


class _Workers:
    """The worker processes, keyed by the parent's end of the pipe to each."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.children: dict[Any, Any] = {}
        self.reports: dict[Any, Progress] = {}
        self.failure: Exception | None = None
        self.steps, self.searched = sweep.steps_pending, time.monotonic()

    def start(self, count: int) -> None:
        """Start workers with signals blocked, since Ctrl-C reaches all; each unblocks them after setting handlers."""
        resource_tracker.ensure_running()  # otherwise the first worker starts it, which unblocks signals
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
            raise InvalidValue("processes", count, f"a number that can be started ({error.strerror})") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def follow(self, interruptions: Interruptions) -> None:
        """Receive reports until the last worker has exited; raise if runs are still pending."""
        open_pipes, stopping, sweep = set(self.children), False, self.sweep
        while open_pipes:
            readable = wait(open_pipes, POLL_SECONDS)
            open_pipes -= {ours for ours in readable if not self._receive(ours)}
            if readable:
                self._report()
            if not stopping and (interruptions.noted or not isinstance(self.failure, Interrupted | None)):
                stopping = True
                for ours in open_pipes:
                    if ours not in self.reports:  # still importing, with nothing to save
                        self.children[ours].kill()
                    with suppress(OSError):
                        ours.send("stop")
        for child in self.children.values():
            child.join(LEAVE_SECONDS)
        sweep.serve_finished()
        self._report()
        if sweep.pending:
            codes = listed(child.exitcode for child in self.children.values())
            died = RecombineError(f"all processes exited with runs left to train (exit codes {codes})")
            raise self.failure or (Interrupted(STOPPED) if interruptions.noted else died)

    def _receive(self, ours: Any) -> bool:
        """Receive all messages (progress or an error) from a worker; return False if it has exited."""
        try:
            while ours.poll():
                message = ours.recv()
                if ours not in self.reports:  # ready; sending specs earlier would delay the start of other workers
                    ours.send(list(self.sweep.pending.values()))
                if isinstance(message, Progress):
                    self.reports[ours] = message
                elif isinstance(self.failure, Interrupted | None):
                    self.failure = message
        except (EOFError, OSError):  # possibly in the middle of a message
            if ours in self.reports:
                self.reports[ours] = replace(self.reports[ours], members=0)
            return False
        return True

    def _report(self) -> None:
        """Report progress from the workers' latest messages and, once a second, from the store."""
        sweep, reports = self.sweep, self.reports.values()
        if time.monotonic() - self.searched >= 1:
            sweep.serve_finished()
            self.searched = time.monotonic()
        errors = [report.error for report in reports if report.members and not math.isnan(report.error)]
        done = sum(report.steps_done for report in reports)
        left = max(0, min(self.steps - done, sweep.steps_pending))
        error = sum(errors) / len(errors) if errors else math.nan
        members = sum(report.members for report in reports)
        sweep.report(members=members, steps_done=done, steps_left=left, error=error)

    def close(self) -> None:
        """Kill workers that are still running."""
        for ours, child in self.children.items():
            child.kill()
            child.join()
            ours.close()
