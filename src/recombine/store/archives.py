"""Runs in one file, to send or to keep: a plain tar with the files of each run under its key.

An archive is read by a stranger's rules: nothing is taken from it before every entry of it was checked, entry by entry
and byte by byte, as a store checks its runs. An entry that is none of a run's files, a link, a second copy, a run with
a byte that changed: the whole archive is refused in one line, and nothing is written. Files are never unpacked under
names that the archive gives.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import InvalidValue, reason_of
from recombine.files import CHUNK, NotRegular, open_regular, parsed_json, write_parts
from recombine.store.names import is_key
from recombine.store.run import FILES, MANIFEST, RESULT, SPEC, Run, is_result, manifest_text, spec_key

if TYPE_CHECKING:
    from recombine.store.store import Store

FIELD = "archive"
WHAT = "a file that 'recombine runs export FILE.tar' wrote"
NAMES = (MANIFEST, *FILES)
SMALL = 1 << 24
"""Most bytes of a file that is parsed, not only copied."""
BROKEN = (tarfile.TarError, EOFError, ValueError, OverflowError, IndexError, MemoryError, RecursionError)
"""What a damaged archive makes a reader raise."""


@dataclass(frozen=True)
class _Entries:
    """A run's entries in an archive, by name."""

    key: str
    archive: tarfile.TarFile
    members: dict[str, tarfile.TarInfo]
    digests: dict[str, str]
    """Of the files as they were checked."""

    def content(self, name: str) -> bytes:
        """A file of the run, as it was checked."""
        file = self.archive.extractfile(self.members[name])
        content = b"" if file is None else file.read()
        if self.digests.get(name, hashlib.sha256(content).hexdigest()) != hashlib.sha256(content).hexdigest():
            raise ValueError(f"{self.key}/{name} changed while it was read")
        return content


def write_archive(path: Path, runs: Iterable[Run]) -> None:
    """Write runs into one file, which holds all of them or does not exist.

    Parameters
    ----------
    path
        Where to.
    runs
        Whole runs; one that is damaged is refused.
    """
    write_parts(path, _tar(runs), "to")


def _tar(runs: Iterable[Run]) -> Iterator[bytes]:
    """The bytes of an archive, run by run: the same runs always give the same bytes."""
    for run in runs:
        contents = {name: run.content(name) for name in FILES}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        contents = {MANIFEST: manifest_text(run.key, digests).encode(), **contents}
        for name, content in contents.items():
            head = tarfile.TarInfo(f"{run.key}/{name}")
            head.size, head.mode = len(content), 0o644
            yield head.tobuf(tarfile.USTAR_FORMAT)
            yield content
            yield bytes(-len(content) % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def read_archive(path: Path, store: Store) -> list[str]:
    """Add an archive's runs to a store, after all of it was checked.

    Parameters
    ----------
    path
        The archive.
    store
        Where its runs go; those that are there already stay as they are.

    Returns
    -------
    list of str
        Keys of all runs in the archive.
    """
    with _opened(path) as archive:
        runs = _runs(path, archive)
        for run in runs:
            _check(path, run)
        for run in runs:
            store.adopt(run)
    return [run.key for run in runs]


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive, without the ways to read one that decompress or follow links."""
    try:
        descriptor = open_regular(path, follow=True)
    except OSError as error:
        reason = error.strerror if isinstance(error, NotRegular) else os.strerror(error.errno or 0)
        raise InvalidValue(FIELD, str(path), f"{WHAT} ({reason})") from None
    with os.fdopen(descriptor, "rb") as file:
        try:
            with tarfile.TarFile(fileobj=file, mode="r", format=tarfile.USTAR_FORMAT) as archive:
                yield archive
        except BROKEN as error:
            raise _refused(path, reason_of(error)) from None
        except OSError as error:
            raise _refused(path, error.strerror or "unreadable") from None


def _refused(path: Path, reason: str) -> InvalidValue:
    return InvalidValue(FIELD, str(path), f"{WHAT} ({reason})")


def _runs(path: Path, archive: tarfile.TarFile) -> list[_Entries]:
    """The runs of an archive, all of whose entries are files of runs, each once."""
    runs: dict[str, _Entries] = {}
    while (member := archive.next()) is not None:
        key, slash, name = member.name.partition("/")
        if not (slash and is_key(key) and name in NAMES) or not member.isreg() or member.issparse():
            raise _refused(path, f"{member.name[:100]!r} is no file of a run")
        if member.pax_headers or (name in (MANIFEST, SPEC, RESULT) and member.size > SMALL):
            raise _refused(path, f"{member.name!r} is not as it was written")
        members = runs.setdefault(key, _Entries(key, archive, {}, {})).members
        if name in members:
            raise _refused(path, f"{member.name!r} is there twice")
        members[name] = member
        archive.members = []  # type: ignore[attr-defined]  # which would keep every entry
    if not runs:
        raise _refused(path, "there is no run in it")
    return list(runs.values())


def _check(path: Path, run: _Entries) -> None:
    """Refuse a run of which a byte is not what its manifest says, or that is another run than its name says."""
    if missing := [name for name in NAMES if name not in run.members]:
        raise _refused(path, f"{run.key}/{missing[0]} is missing")
    run.digests.update({name: _digest(run, name) for name in FILES})
    if run.content(MANIFEST) != manifest_text(run.key, run.digests).encode():
        raise _refused(path, f"{run.key} is not as it was written")
    if spec_key(run.content(SPEC)) != run.key or not is_result(parsed_json(run.content(RESULT))):
        raise _refused(path, f"{run.key} is another run than its name says")


def _digest(run: _Entries, name: str) -> str:
    digest, file = hashlib.sha256(), run.archive.extractfile(run.members[name])
    while file is not None and (part := file.read(CHUNK)):
        digest.update(part)
    return digest.hexdigest()
