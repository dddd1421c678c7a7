"""A directory of runs that loses nothing.

    recombine.json          says that this is a store, and its format
    index.sqlite            a cache of what is below, for listing
    runs/KEY/               a finished run: spec, result, weights, arrays, and a manifest with their digests
    checkpoints/KEY.DIGEST  the newest state of an unfinished run; the name tells what its content must be
    locks/KEY               locked while a process trains that run
    damaged/                finished runs whose bytes changed, put aside
    tmp/                    runs being written

A run's folder appears by one rename, complete. A run is served only if every byte is what its manifest says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recombine.checks import given_path
from recombine.errors import InvalidValue, StoreError, listed
from recombine.files import digest_of, explained, flush_directory, write
from recombine.store.arrays import pack, unpack
from recombine.store.index import Index
from recombine.store.locks import Lock
from recombine.store.run import ARRAYS, MANIFEST, RESULT, SPEC, WEIGHTS, Run, manifest_text

FORMAT = 1
MARKER = "recombine.json"
INDEX = "index.sqlite"
FOLDERS = ("runs", "checkpoints", "locks", "damaged", "tmp")
DEFAULT_STORE = "runs"
VARIABLE = "RECOMBINE_STORE"
SPARE = 16_000_000
"""Bytes that are to stay free on the store's disk."""


def store_path(path: str | os.PathLike[str] | None = None) -> Path:
    """The path given, or `RECOMBINE_STORE`, or `./runs`."""
    given = path if path is not None and not (isinstance(path, str) and not path) else None
    return given_path("store", os.environ.get(VARIABLE) or DEFAULT_STORE if given is None else given)


class Store:
    """A store, made where there is none unless `create` is false."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = store_path(path)
        self.index = Index(self.path / INDEX, self.path / "locks" / "store")
        self._open(create)

    # -- opening -----------------------------------------------------------------------------------------------

    def _open(self, create: bool) -> None:
        marker = self.path / MARKER
        with explained(self.path):
            if not marker.is_file():
                if not create:
                    raise StoreError(
                        f"store: {str(self.path)!r} is not allowed; allowed: a directory with a store in it"
                    )
                self._refuse_foreign()
                self._create(marker)
            try:
                format_found = json.loads(marker.read_text())["format"]
            except (ValueError, KeyError, TypeError):
                format_found = "unreadable"
            if format_found != FORMAT:
                raise StoreError(
                    f"store: {str(self.path)!r} is not allowed; allowed: a store of format {FORMAT} "
                    f"(this one's is {format_found!r})"
                )
            for name in FOLDERS:
                (self.path / name).mkdir(exist_ok=True)

    def _refuse_foreign(self) -> None:
        if self.path.exists():
            names = sorted(os.listdir(self.path))
            ours = (".", INDEX, MARKER)  # hidden files, and what another process that makes this store may have made
            foreign = [name for name in names if name not in FOLDERS and not name.startswith(ours)]
            if foreign:
                raise StoreError(
                    f"store: {str(self.path)!r} is not allowed; allowed: an empty or new directory, or a store "
                    f"(this one holds {listed(foreign[:3])})"
                )

    def _create(self, marker: Path) -> None:
        for name in FOLDERS:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        with Lock(self.path / "locks" / "store"):
            if not marker.exists():
                self.index.create()
                write(marker, json.dumps({"format": FORMAT}).encode())

    def require_room(self, size: int) -> None:
        """Refuse now, in one line, what would fill the disk later."""
        with explained(self.path):
            free = shutil.disk_usage(self.path).free
        if free < size + SPARE:
            raise StoreError(
                f"store: {str(self.path)!r} is not allowed; allowed: a directory on a disk with "
                f"{(size + SPARE) / 1e6:.0f} MB free ({free / 1e6:.0f} MB are)"
            )

    # -- finished runs -----------------------------------------------------------------------------------------

    def find(self, key: str, *, locked: bool = False) -> Run | None:
        """The finished run, checked byte by byte; a damaged one is put aside and counts as absent.

        `locked` says that the caller holds the run's lock. Without it a damaged run is moved only if nobody is
        working on it, and looked at again first: another process may have trained it anew.
        """
        run = Run(key, self.path / "runs" / key)
        with explained(run.path):
            if not run.path.exists():
                return None
            if not run.problems():
                return run
            if locked:
                return self._put_aside(run)
            lock = self.lock(key)
            if not lock.acquire(wait=False):
                return None
            try:
                return self._put_aside(run)
            finally:
                lock.release()

    def _put_aside(self, run: Run) -> Run | None:
        """Under the run's lock: look again, and move it away if it is damaged indeed."""
        if not run.path.exists():
            return None
        if not run.problems():
            return run
        os.replace(run.path, self.path / "damaged" / f"{run.key}.{time.time_ns()}")
        self.index.drop([run.key])
        return None

    def save(
        self,
        key: str,
        spec_text: str,
        result: Mapping[str, Any],
        weights: Mapping[str, Any],
        arrays: Mapping[str, Any],
    ) -> Run:
        """Add a finished run, all at once, and forget its checkpoint."""
        contents = {
            SPEC: spec_text.encode(),
            RESULT: json.dumps(result, indent=1).encode(),
            WEIGHTS: pack(weights),
            ARRAYS: pack(arrays),
        }
        run = self._placed(key, contents)
        self.forget_checkpoint(key)
        return run

    def adopt(self, run: Run) -> None:
        """Copy a finished run of another store, unless it is here already."""
        with self.lock(run.key):
            if self.find(run.key, locked=True) is None:
                names = (SPEC, RESULT, WEIGHTS, ARRAYS)
                with explained(run.path):
                    contents = {name: (run.path / name).read_bytes() for name in names}
                copy = self._placed(run.key, contents)
                if (copy.path / MANIFEST).read_text() != (run.path / MANIFEST).read_text():
                    self._discard(copy.path)
                    raise StoreError(f"store: {str(run.path)!r} is not allowed; allowed: a run whose files are whole")

    def _placed(self, key: str, contents: Mapping[str, bytes]) -> Run:
        """A run's folder, complete by one rename."""
        folder, run = self.path / "tmp" / f"{key}.{os.getpid()}", Run(key, self.path / "runs" / key)
        with explained(self.path):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                for name, content in contents.items():
                    write(folder / name, content)
                digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
                write(folder / MANIFEST, manifest_text(key, digests).encode())
                os.replace(folder, run.path)
                flush_directory(run.path.parent)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        self.index.put([_row(run)])
        return run

    def runs(self) -> list[Run]:
        """All finished runs, oldest first, unchecked."""
        self.reconcile()
        return [Run(key, self.path / "runs" / key) for key, _ in self.index.rows()]

    def summaries(self) -> list[tuple[str, dict[str, Any]]]:
        """Key, and what `runs list` shows, of every finished run; nothing but the index is read."""
        self.reconcile()
        return self.index.rows()

    def reconcile(self) -> None:
        """Make the index say what the folders say."""
        noted = self.index.keys()  # first: a run that is finished meanwhile is then new, not gone
        with explained(self.path):
            there = set(os.listdir(self.path / "runs"))
        rows = []
        for key in sorted(there - noted):
            with contextlib.suppress(OSError, ValueError, KeyError):
                rows.append(_row(Run(key, self.path / "runs" / key)))
        if rows:
            self.index.put(rows)
        if gone := noted - there:
            self.index.drop(gone)

    def resolve(self, prefix: str) -> Run:
        """The finished run whose key begins so."""
        found = [key for key in sorted(os.listdir(self.path / "runs")) if key.startswith(prefix)] if prefix else []
        if len(found) != 1:
            what = "a key of a finished run" if not found else f"more digits: {listed(found[:4])} all begin so"
            raise InvalidValue("run", prefix, what)
        return Run(found[0], self.path / "runs" / found[0])

    # -- unfinished runs ---------------------------------------------------------------------------------------

    def lock(self, key: str) -> Lock:
        """The lock to hold while training a run."""
        return Lock(self.path / "locks" / key)

    def write_checkpoint(self, key: str, arrays: Mapping[str, Any]) -> None:
        """Keep the newest state of an unfinished run; the one before it is removed after."""
        content = pack(arrays)
        name = f"{key}.{hashlib.sha256(content).hexdigest()}"
        write(self.path / "checkpoints" / name, content)
        for old in self._checkpoints(key):
            if old.name != name:
                old.unlink(missing_ok=True)

    def read_checkpoint(self, key: str) -> dict[str, Any] | None:
        """The newest whole checkpoint; one whose bytes changed is removed."""
        for path in sorted(self._checkpoints(key), key=lambda path: -path.stat().st_mtime_ns):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == path.name.partition(".")[2]:
                return unpack(content)
            path.unlink(missing_ok=True)
        return None

    def forget_checkpoint(self, key: str) -> None:
        """Remove what an unfinished run left."""
        for path in self._checkpoints(key):
            path.unlink(missing_ok=True)

    def _checkpoints(self, key: str) -> list[Path]:
        return list((self.path / "checkpoints").glob(f"{key}.*"))

    # -- care --------------------------------------------------------------------------------------------------

    def verify(self) -> Iterator[tuple[str, list[str]]]:
        """Each finished run and each checkpoint with what is wrong with it."""
        for key in sorted(os.listdir(self.path / "runs")):
            run = Run(key, self.path / "runs" / key)
            with explained(run.path):
                problems = run.problems()
            if run.path.exists():  # else it was removed meanwhile
                yield key, problems
        for path in sorted((self.path / "checkpoints").iterdir()):
            if path.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):  # replaced by a newer one meanwhile
                whole = digest_of(path) == path.name.partition(".")[2]
                yield path.name.partition(".")[0], [] if whole else ["checkpoint: content changed"]

    def unfinished(self) -> list[str]:
        """Keys with a checkpoint and no finished run."""
        keys = {path.name.partition(".")[0] for path in (self.path / "checkpoints").iterdir() if path.name[0] != "."}
        return sorted(key for key in keys if not (self.path / "runs" / key).exists())

    def leftovers(self) -> list[Path]:
        """What no run needs: unfinished writes of dead processes, damaged runs, checkpoints of finished ones."""
        found = [*(self.path / "damaged").iterdir()]
        found += [path for path in (self.path / "tmp").iterdir() if not self._busy(path.name.partition(".")[0])]
        for path in (self.path / "checkpoints").iterdir():
            key = path.name.removeprefix(".").partition(".")[0]
            half_written, finished = path.name.startswith("."), (self.path / "runs" / key).exists()
            if (half_written or finished) and not self._busy(key):
                found.append(path)
        return sorted(found)

    def _busy(self, key: str) -> bool:
        lock = self.lock(key)
        free = lock.acquire(wait=False)
        lock.release()
        return not free

    def discard_checkpoint(self, key: str) -> bool:
        """Delete what an unfinished run left; False if somebody is training it."""
        lock = self.lock(key)
        if not lock.acquire(wait=False):
            return False
        self.forget_checkpoint(key)
        lock.release()
        return True

    def remove(self, key: str) -> bool:
        """Delete a finished run; False if somebody is working on it."""
        lock = self.lock(key)
        if not lock.acquire(wait=False):
            return False
        try:
            self._discard(self.path / "runs" / key)
            self.forget_checkpoint(key)
            self.index.drop([key])
        finally:
            lock.release()
        return True

    def _discard(self, path: Path) -> None:
        """Delete a folder so that no half of it is ever seen under its own name."""
        with explained(path):
            away = self.path / "tmp" / f"{path.name}.gone.{time.time_ns()}"
            os.replace(path, away)
            shutil.rmtree(away)


def _row(run: Run) -> tuple[str, float, dict[str, Any]]:
    result = run.result
    summary = {"status": result["status"], "scores": result["scores"], "spec": json.loads(run.spec_text)}
    return run.key, float(result["provenance"]["finished"]), summary
