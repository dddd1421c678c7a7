"""Train what is not trained yet, on the workers of a Dask cluster.

The store is the truth and the cluster is disposable. The driver is its own queue: each worker has at most one task of
it, pinned there and never repeated by Dask. So when a worker dies only its own task is suspect (`queue`), and when the
scheduler is lost nothing else is: what was in flight goes back to the queue, a task that is still running somewhere
holds its runs' locks, and what it finishes is found in the store. Drivers may share a store, a cluster, or both.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any, NoReturn

import torch

from recombine.errors import NAMED_FAILURES, Interrupted, InvalidValue, RecombineError, RunsFailed, reason_of
from recombine.sweep.cluster_connection import ANSWER_SECONDS, Connection, Lost, cancel
from recombine.sweep.cluster_outcomes import Outcomes
from recombine.sweep.cluster_task import Task
from recombine.sweep.cluster_workers import Flight, Worker, is_elsewhere, listed_workers
from recombine.sweep.interrupts import Interruptions
from recombine.sweep.local import POLL_SECONDS, STOPPED, Sweep
from recombine.sweep.progress import Progress, Say
from recombine.sweep.scheduler import Scheduler, quiet
from recombine.training import check_precision, program_of

LOOK_SECONDS = 0.5
"""Between two looks at which workers there are; longer where there are thousands."""
LEAVE_SECONDS = 60.0
"""How long tasks may take to write their checkpoints when the driver is stopped."""
REPORT_SECONDS = 1.0
REPORTS = 500
"""Reports of all workers together in a second, at most."""
QUIET_SECONDS = 10.0
"""After so long without a word from a task, the store is asked."""
IDLE_SECONDS = 5.0
"""After so long without a worker, that is said."""


def train_on_cluster(sweep: Sweep, scheduler: Scheduler, device: str, say: Say) -> None:
    """Finish a sweep on a cluster; runs that fail are put aside, and raised once everything else is in the store."""
    sweep.begin()
    if not sweep.pending:
        return
    with quiet(), Interruptions() as interruptions:
        driver = _Driver(sweep, scheduler, device, say)
        try:
            driver.run(interruptions)
        finally:
            driver.close()
    sweep.serve_finished()  # another driver may have had more luck
    if failed := {key: reason for key, reason in driver.queue.failed.items() if key in sweep.pending}:
        error = RunsFailed(failed, sweep.runs)
        for key in list(failed)[:NAMED_FAILURES]:
            error.add_note(f"run {key}: {driver.outcomes.traces.get(key, failed[key])}")
        raise error


class _Driver:
    """One call of `train_on_cluster`."""

    def __init__(self, sweep: Sweep, scheduler: Scheduler, device: str, say: Say) -> None:
        self.sweep, self.scheduler, self.device, self.say = sweep, scheduler, device, say
        self.workers: dict[str, Worker] = {}
        self.outcomes = Outcomes(sweep, self.workers, say)
        self.queue, self.sizes = self.outcomes.queue, self.outcomes.sizes
        self.gpu_only = {program_of(spec) for spec in sweep.pending.values() if _needs_gpu(spec)}
        self.flights: dict[int, Worker] = {}
        self.numbers, self.taken = 0, 0
        self.looked, self.idle_since = -math.inf, time.monotonic()
        self.connection = Connection(scheduler)
        self.lock = sweep.store.lock(self.connection.token)

    # -- the loop ----------------------------------------------------------------------------------------------

    def run(self, interruptions: Interruptions) -> None:
        """Send tasks and take what comes back until nothing is left."""
        self.lock.acquire()  # by its file workers know that their store is this one
        self._watch()
        while self.outcomes.left:
            if interruptions.noted:
                self._stop()
            try:
                self._look()
                self._send()
                self._receive(POLL_SECONDS)
            except Lost:
                self._find_again(interruptions)
            self._watch()

    def _look(self) -> None:
        """See which workers there are; a task whose worker is gone has failed."""
        now = time.monotonic()
        if now - self.looked < max(LOOK_SECONDS, len(self.workers) / 1000):
            return
        self.looked = now
        present = listed_workers(self.connection.identity())
        self._receive(0.0)  # what a worker has done before it went
        for address, worker in list(self.workers.items()):
            if address not in present or present[address].process != worker.process:
                del self.workers[address]
                if worker.flight is not None:
                    self._died(worker)
            else:
                worker.status = present[address].status
        for address, worker in present.items():
            self.workers.setdefault(address, worker)
        for worker in list(self.flights.values()):
            self._look_up(worker, now)
        self._require_workers(now)

    def _look_up(self, worker: Worker, now: float) -> None:
        """Look for the runs of a quiet task in the store: the word that it is over may be lost, or days late.

        Dask's own deadlines are of the wall clock: where that is set back, what a worker sends waits for as long.
        """
        flight = worker.flight
        if flight is None or now - flight.heard < QUIET_SECONDS:
            return
        flight.heard = now
        if not self.outcomes.unfinished(flight.keys):
            cancel(self._landed(worker).future)

    def _require_workers(self, now: float) -> None:
        """Say that there are none; or that there are, and none of them can be used."""
        unusable = [worker for worker in self.workers.values() if worker.unusable]
        if unusable and len(unusable) == len(self.workers) and not self.flights:
            raise RecombineError(f"workers: none can be used ({unusable[0].address}: {unusable[0].unusable})")
        if len(self.workers) > len(unusable):
            self.idle_since = now
        elif now - self.idle_since >= IDLE_SECONDS:
            self.outcomes.say_once(f"scheduler {self.scheduler}: waiting for workers")

    def _send(self) -> None:
        """Give every free worker a task."""
        now = time.monotonic()
        for key in self.queue.wake(now):
            self.outcomes.serve(key)
        free = [worker for worker in self.workers.values() if worker.is_free(now)]
        for worker in free if len(self.queue) > len(self.queue.delayed) else ():
            gpu = worker.takes_ensembles(self.device)
            alike = max(
                1, sum(other.takes_ensembles(self.device) == gpu for other in (free if gpu else self.workers.values()))
            )
            keys = self.queue.take(
                lambda program, waiting, gpu=gpu, alike=alike: self.sizes.of(program, waiting, gpu=gpu, workers=alike),  # type: ignore[misc]
                worker.place,
                lambda avoided: is_elsewhere(self.workers.values(), avoided),
                lambda program, gpu=gpu: gpu or program not in self.gpu_only,  # type: ignore[misc]
            )
            if keys:
                self._submit(worker, keys)

    def _submit(self, worker: Worker, keys: list[str]) -> None:
        sweep, gpu = self.sweep, worker.takes_ensembles(self.device)
        self.numbers += 1
        task = Task(
            self.connection.id, self.numbers, str(sweep.store.path.absolute()), self.connection.token,
            tuple(sweep.pending[key] for key in keys), "cuda" if gpu else "cpu", len(keys) if gpu else 1,
            sweep.checkpoint_seconds, sweep.memory, max(REPORT_SECONDS, len(self.workers) / REPORTS),
        )  # fmt: skip
        worker.flight = Flight(task.number, keys, sum(sweep.steps[key] for key in keys))
        self.flights[task.number] = worker
        resources = {"GPU": 1.0} if gpu and worker.gpus >= 1 else None
        worker.flight.future = self.connection.submit(task, worker.address, resources)

    def _receive(self, seconds: float) -> None:
        """Take what has come from workers; wait so long for the first."""
        for number, message in self.connection.messages(seconds):
            worker = self.flights.get(number)
            if worker is None or worker.flight is None:
                continue
            if message is None:
                self._ended(worker)
            else:
                worker.flight.note(message)
                self.outcomes.note_versions(worker, message)

    def _landed(self, worker: Worker) -> Flight:
        """The task of a worker, which has it no longer."""
        flight, worker.flight = worker.flight, None
        assert flight is not None
        del self.flights[flight.number]
        self.taken += flight.taken
        return flight

    def _ended(self, worker: Worker) -> None:
        """A task is over, one way or the other."""
        assert worker.flight is not None
        future = worker.flight.future
        if future.status in ("cancelled", "lost"):
            raise Lost
        try:
            error = future.exception(timeout=ANSWER_SECONDS) if future.status == "error" else None
            outcome = None if error else future.result(timeout=ANSWER_SECONDS)
        except Exception as failure:  # it was lost on the way: the store knows
            if not self.connection.is_open:
                raise Lost from failure
            return self.outcomes.note_unknown(self._landed(worker).keys)
        if outcome is not None:
            flight = self._landed(worker)
            self.taken += outcome.steps - flight.taken
            return self.outcomes.note(worker, flight.keys, outcome, gpu=worker.takes_ensembles(self.device))
        if type(error).__name__ == "KilledWorker":
            return self._died(worker)
        return self.outcomes.note_unusable(worker, self._landed(worker).keys, reason_of(error))

    def _died(self, worker: Worker) -> None:
        """A worker is gone, and its task with it."""
        flight = self._landed(worker)
        cancel(flight.future)
        self.outcomes.note_death(worker, flight.keys, begun=flight.begun)

    # -- scheduler and driver ------------------------------------------------------------------------------------

    def _find_again(self, interruptions: Interruptions) -> None:
        """Wait for a scheduler that was lost; nobody is to blame for what was in flight."""
        self.say(f"scheduler {self.scheduler}: lost; waiting for it to come back, {self.outcomes.left} runs are left")
        for worker in list(self.flights.values()):
            self.outcomes.put_back(self._landed(worker).keys)
        self.workers.clear()

        def waiting() -> None:
            self._watch()
            if interruptions.noted:
                raise Interrupted(STOPPED)

        self.connection.find_again(waiting)
        self.looked, self.idle_since = -math.inf, time.monotonic()
        self.outcomes.said.clear()
        self.say(f"scheduler {self.scheduler}: back, going on")

    def _stop(self) -> NoReturn:
        """Let all tasks write checkpoints, then stop."""
        self._request_stop()
        for worker in list(self.flights.values()):
            if worker.flight is not None and not worker.flight.begun:  # it waits for another driver's task
                cancel(self._landed(worker).future)
        deadline = time.monotonic() + LEAVE_SECONDS
        with suppress(Lost):
            while self.flights and time.monotonic() < deadline:
                self._look()
                self._receive(POLL_SECONDS)
        raise Interrupted(STOPPED)

    def _request_stop(self) -> None:
        self.connection.request_stop(worker.address for worker in self.flights.values())

    def close(self) -> None:
        """Leave the cluster; after an error, tasks that still run are asked to stop."""
        self.lock.release()
        if self.flights:
            self._request_stop()
            time.sleep(POLL_SECONDS)
        self.connection.close()

    # -- for whoever watches -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        sweep = self.sweep
        flights = [worker.flight for worker in self.flights.values() if worker.flight is not None]
        errors = [flight.error for flight in flights if not math.isnan(flight.error)]
        sweep.watch(
            Progress(
                runs=sweep.runs,
                finished=len(sweep.finished),
                members=sum(flight.members for flight in flights),
                steps_done=self.taken + sum(flight.taken for flight in flights),
                steps_left=sweep.steps_pending - sum(flight.steps_done for flight in flights),
                error=sum(errors) / len(errors) if errors else math.nan,
                failed=len(self.queue.failed),
                workers=tuple(worker.progress for worker in self.workers.values()),
            )
        )


def _needs_gpu(spec: Any) -> bool:
    """Whether a CPU cannot train a spec."""
    try:
        check_precision(spec.recipe.precision, torch.device("cpu"))
    except InvalidValue:
        return True
    return False
