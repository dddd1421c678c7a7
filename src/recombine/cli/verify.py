"""`recombine verify`: is every file of a folder as it was written? Nothing here imports torch."""

from __future__ import annotations

from collections import Counter

from recombine.cli.options import SomePath
from recombine.console import say
from recombine.errors import InvalidValue, StoreError
from recombine.manifest import LIST, Manifest
from recombine.store import Store
from recombine.store.names import MARKER, is_key

WHOLE, DAMAGED, UNREADABLE = 0, 1, 2
"""Exit codes: all is well, something differs, something could not be read."""


def verify(folder: SomePath, /) -> int:
    """Compare every file of a results folder or a store with its manifest; exit with 1 if any differs.

    Parameters
    ----------
    folder
        Folder written by reproduce, or directory of runs.
    """
    manifest = Manifest(folder)
    names, is_store = manifest.names() if folder.is_dir() else [], (folder / MARKER).is_file()
    if not (names or is_store):
        raise InvalidValue("folder", str(folder), "a folder written by 'recombine reproduce', or a directory of runs")
    codes = [_verify_results(manifest, names)] if names else []
    if is_store:
        codes.append(_verify_store(Store(folder, create=False)))
    return DAMAGED if DAMAGED in codes else max(codes)


def _verify_store(store: Store) -> int:
    """Print what is wrong with each run and checkpoint, and go on."""
    checked = 0
    kinds: Counter[str] = Counter()
    for name, problems in store.verify():
        checked += is_key(name)
        kinds.update({problem.kind for problem in problems})
        for problem in problems:
            say(f"{name} {problem}" if problem.kind != "stray" else f"{problem}")
    again = "; damaged runs are trained again when they are next needed" if kinds["damage"] else ""
    return _summed_up(checked, kinds["damage"], kinds["unreadable"], again)


def _verify_results(manifest: Manifest, names: list[str]) -> int:
    """Print what is wrong with each file, and go on."""
    damaged = unreadable = 0
    for name in names:
        try:
            problem = manifest.problem(name)
            damaged += problem is not None
        except StoreError as error:
            problem = f"cannot be read: {error}"
            unreadable += 1
        if problem:
            drawn = name.startswith("figures/") or name in ("claims.json", "index.html")
            command = f"report {manifest.folder}" if drawn else "reproduce"
            say(f"{name}: {problem}; 'recombine {command}' makes {'everything' if name == LIST else 'it'} again")
    return _summed_up(len(names), damaged, unreadable)


def _summed_up(checked: int, damaged: int, unreadable: int, note: str = "") -> int:
    """Print how much was checked; the exit code."""
    unread = f", {unreadable} could not be read" if unreadable else ""
    say(f"{checked} checked, {damaged} damaged{unread}{note}")
    return DAMAGED if damaged else UNREADABLE if unreadable else WHOLE
