"""`recombine verify`: is every file of a folder as it was written? Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path

from recombine.cli.options import SomePath
from recombine.console import say
from recombine.digests import LIST, Digests
from recombine.errors import InvalidValue, StoreError
from recombine.store.names import MARKER

WHOLE, DAMAGED, UNREADABLE = 0, 1, 2
"""Exit codes: all is well, something differs, something could not be read."""


def verify(folder: SomePath, /, *, adopt: bool = False) -> int:
    """Compare every file with its digest, of a results folder or a store; exit with 1 if any differs.

    Parameters
    ----------
    folder
        Folder written by reproduce, or directory of runs.
    adopt
        Write digests of results of an earlier version, which has none: they are taken as they are now.
    """
    digests = Digests(folder)
    names, is_store = digests.names() if folder.is_dir() else [], (folder / MARKER).is_file()
    if not (names or is_store):
        raise InvalidValue("folder", str(folder), "a folder written by 'recombine reproduce', or a directory of runs")
    if adopt and is_store:
        raise InvalidValue(
            "adopt", str(folder), "a folder written by 'recombine reproduce': a store has digests of its own"
        )
    if adopt:
        count = digests.adopt()
        say(f"{LIST}: lists {count} files of {folder} as they are now; whether they are whole is not known")
        return WHOLE
    codes = [_verify_results(digests, names)] if names else []
    if is_store:
        from recombine.cli import runs

        codes.append(runs.verify(store=folder))
    return DAMAGED if DAMAGED in codes else max(codes)


def _verify_results(digests: Digests, names: list[str]) -> int:
    """Say what is wrong with each file, and go on."""
    damaged = unreadable = 0
    for name in names:
        try:
            problem = digests.problem(name)
            damaged += problem is not None
        except StoreError as error:
            problem = f"cannot be read: {error}"
            unreadable += 1
        if problem:
            say(f"{name}: {problem}{_remedy(digests.folder, name)}")
    tail = f", {unreadable} cannot be read" if unreadable else ""
    say(f"{len(names)} checked, {damaged} damaged{tail}")
    return DAMAGED if damaged else UNREADABLE if unreadable else WHOLE


def _remedy(folder: Path, name: str) -> str:
    """What makes a file again."""
    if name == LIST and not (folder / LIST).exists():
        return (
            f": nothing can be checked; 'recombine verify {folder} --adopt' makes one for results of an earlier version"
        )
    if name == LIST:
        return "; 'recombine reproduce' makes everything again"
    drawn = name.startswith("figures/") or name in ("claims.json", "index.html")
    return f"; 'recombine {f'report {folder}' if drawn else 'reproduce'}' makes it again"
