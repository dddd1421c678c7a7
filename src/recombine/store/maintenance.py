"""Maintenance of a store: what is wrong with it, and what can be deleted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import StoreError
from recombine.files import delete, entries, remove_abandoned
from recombine.store.names import FOLDERS, INDEX_FILES, MARKER, is_key, is_marker, key_of
from recombine.store.run import Problem, Run, stray

if TYPE_CHECKING:
    from recombine.store.store import Store


def verify(store: Store) -> Iterator[tuple[str, list[Problem]]]:
    """Each finished run and each checkpoint with what is wrong with it, and every entry that is none of ours."""

    def run_problems(name: str) -> list[Problem]:
        return Run(name, store.path / "runs" / name).problems() if is_key(name) else [stray(name)]

    checks: dict[str, Callable[[str], list[Problem]]] = {
        "runs": run_problems,
        "checkpoints": store.checkpoints.problems,
        **dict.fromkeys(("locks", "damaged", "tmp"), lambda name: [stray(name)]),
    }
    for folder, check in checks.items():
        try:
            names = entries(store.path / folder)
        except StoreError as error:
            yield folder, [Problem(str(error), "unreadable")]
            continue
        for name in names:
            passing = folder != "runs" and not is_key(name) and key_of(folder, name) is not None
            if passing or (folder == "locks" and key_of(folder, name)):
                continue  # being written or used now, or left by a killed process: the next sweep removes it
            try:
                problems = check(name)
            except StoreError as error:
                problems = [Problem(str(error), "unreadable")]
            if os.path.lexists(store.path / folder / name):  # else it was removed meanwhile
                yield name, problems
    for name in entries(store.path):
        if name not in (*FOLDERS, *INDEX_FILES) and not is_marker(name):
            yield name, [stray(name)]


def leftovers(store: Store) -> list[Path]:
    """What no run needs: unfinished writes of dead processes, damaged runs, checkpoints of finished ones."""
    damaged = [store.path / "damaged" / name for name in entries(store.path / "damaged") if key_of("damaged", name)]
    return sorted([*(path for path in abandoned(store) if not store.is_busy(_key(path))), *damaged])


def abandoned(store: Store) -> list[Path]:
    """What killed processes left, unless somebody is at work on it: half-written runs and checkpoints, and checkpoints
    of runs that are finished."""
    paths = []
    for folder in ("tmp", "checkpoints"):
        for name in entries(store.path / folder):
            path = store.path / folder / name
            if key_of(folder, name) is not None and not _is_needed(store, path):
                paths.append(path)
    return paths


def _is_needed(store: Store, path: Path) -> bool:
    """Whether something is the checkpoint of a run that is not finished."""
    return path.parent.name == "checkpoints" and is_key(path.name) and path.name not in store


def _key(path: Path) -> str:
    """The run that a leftover belongs to."""
    return key_of(path.parent.name, path.name) or ""


def delete_leftover(store: Store, path: Path) -> bool:
    """Delete a leftover under its run's lock; False if somebody holds that."""
    lock = store.lock(_key(path))
    if not lock.acquire(wait=False):
        return False
    try:
        if not _is_needed(store, path):  # its run may have been removed meanwhile
            delete(path)
        return True
    finally:
        lock.release()


def clean(store: Store) -> None:
    """Remove what killed processes left, as far as that can be done: this never stops a sweep."""
    remove_abandoned(store.path, lambda name: name == MARKER)
    with suppress(StoreError):
        for path in abandoned(store):
            with suppress(StoreError):
                delete_leftover(store, path)
        for name in entries(store.path / "locks"):
            if key_of("locks", name):
                store.is_busy(name)  # taking and releasing a free lock removes its file
