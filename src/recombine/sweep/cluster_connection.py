"""A driver's connection to a Dask cluster: tasks go out, reports and ends of tasks come in, and it may be lost."""

from __future__ import annotations

import queue as queues
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from recombine.errors import RecombineError, reason_of
from recombine.keys import DIGEST_LENGTH
from recombine.sweep.cluster_task import Task, by_value
from recombine.sweep.scheduler import Scheduler, abandon, distributed

ANSWER_SECONDS = 10.0
"""How long a scheduler may take to answer before it counts as lost."""
Message = tuple[int, Mapping[str, Any] | None]
"""The number of a task: with a report, or with nothing when it has ended."""


class Lost(Exception):
    """The scheduler does not answer, or is another one than before."""


class Connection:
    """A client of a scheduler, with what workers send.

    Parameters
    ----------
    scheduler
        Where it is.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.token = secrets.token_hex(DIGEST_LENGTH // 2)
        """Names the driver: to workers, and by a lock in its store."""
        self.id = f"recombine-{self.token}"
        self.client = scheduler.connected()
        self._listen()

    def _listen(self) -> None:
        """Begin with an empty inbox, which no task of an earlier connection fills."""
        self.scheduler_id = ""
        self.inbox: queues.SimpleQueue[Message] = queues.SimpleQueue()
        inbox = self.inbox
        self.client.subscribe_topic(self.id, lambda event: inbox.put((event[1]["task"], event[1])))

    @property
    def is_open(self) -> bool:
        """Whether the scheduler was there a moment ago."""
        return bool(self.client.status == "running")

    def identity(self) -> Mapping[str, Any]:
        """What the scheduler says of itself and its workers."""
        if not self.is_open:
            raise Lost
        try:
            identity = self.client.sync(self.client.scheduler.identity, callback_timeout=ANSWER_SECONDS)
        except (OSError, RuntimeError) as error:
            raise Lost from error
        if identity["id"] != (self.scheduler_id or identity["id"]):  # it was started again meanwhile
            raise Lost
        self.scheduler_id = identity["id"]
        return dict(identity)

    def submit(self, task: Task, address: str, resources: Mapping[str, float] | None) -> Any:
        """Send a task to one worker and no other; the future of its outcome."""
        dumps = distributed().protocol.pickle.dumps  # with classes of a script by value
        try:
            future = self.client.submit(
                by_value("run_packed"), dumps(task), key=f"{self.id}-{task.number}", workers=[address],
                allow_other_workers=False, pure=False, retries=0, resources=resources,
            )  # fmt: skip
        except Exception as error:
            if not self.is_open:
                raise Lost from error
            raise RecombineError(f"specs: they cannot be sent to a worker ({reason_of(error)})") from error
        inbox = self.inbox
        future.add_done_callback(lambda future: inbox.put((task.number, None)))
        return future

    def messages(self, seconds: float) -> Iterator[Message]:
        """What has come from workers; so long is waited for the first."""
        with suppress(queues.Empty):
            yield self.inbox.get(timeout=seconds) if seconds else self.inbox.get_nowait()
            while True:
                yield self.inbox.get_nowait()

    def request_stop(self, addresses: Iterable[str]) -> None:
        """Ask workers' processes to stop this driver's tasks; those that do not answer are not waited for."""
        workers = list(addresses)

        def ask() -> None:
            with suppress(Exception):
                self.client.run(by_value("request_stop"), self.id, workers=workers, on_error="ignore")

        if workers:
            Thread(target=ask, daemon=True).start()

    def find_again(self, waiting: Callable[[], None]) -> None:
        """Wait for a scheduler that was lost; `waiting` is called in between and may raise."""
        abandon(self.client)
        self.client = self.scheduler.reached_again(waiting)
        self._listen()

    def close(self) -> None:
        """Leave the cluster."""
        abandon(self.client)


def cancel(future: Any) -> None:
    """Let a task be forgotten, if it is not too late."""
    with suppress(Exception):
        future.cancel(force=True)
