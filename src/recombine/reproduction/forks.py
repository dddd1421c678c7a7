"""Call functions in forks of this process, as many at once as there are cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any


def in_forks(
    jobs: Mapping[str, Callable[[], Any]], count: int, begin: Callable[[str], None] = lambda name: None
) -> Generator[tuple[str, Any]]:
    """Yield the name and the result of every function as it finishes; each is called in a fork, `count` at once.

    Forks share imported modules and decoded Datasets, which take new processes seconds each, and matplotlib may only be
    used by one thread of a process. One function, or one at a time, is called in this process. A function that fails is
    called again here, where its error can be traced.
    """
    count = min(count, len(jobs))
    waiting, running = list(jobs), dict[Any, tuple[str, Any]]()
    try:
        while waiting or running:
            while waiting and len(running) < count:
                name = waiting.pop(0)
                begin(name)
                if count > 1:
                    ours, child = _started(jobs[name])
                    running[ours] = name, child
                else:
                    yield name, jobs[name]()
            ready: list[Any] = wait(running) if running else []  # it would wait for ever for nothing
            for ours in ready:
                name, child = running.pop(ours)
                try:
                    result = ours.recv()
                except (EOFError, OSError):  # in the middle of a result
                    result = jobs[name]()
                child.join()
                yield name, result
    finally:
        for _, child in running.values():
            child.kill()
            child.join()


def _started(job: Callable[[], Any]) -> tuple[Connection, Any]:
    """Call a function in a fork of this process; return the connection from which its result can be read."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(job, theirs), daemon=True)
    with warnings.catch_warnings():  # of Python 3.12 on, about threads, such as that of a progress bar
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    return ours, child


def _send(job: Callable[[], Any], theirs: Connection) -> None:
    """Send the result of a function to the parent process, or nothing if it fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends its children
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not a progress bar's, whose lock may be held for ever
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()  # if the parent is killed
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # GNU's OpenMP hangs in a fork of a process that has used several threads
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.switch_backend("agg")
    with suppress(Exception):
        theirs.send(job())
