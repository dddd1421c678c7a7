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

from recombine.errors import InvalidValue, StoreError, listed
from recombine.store.files import digest_of, explained, flush_directory, pack, unpack, write
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
    return Path(path or os.environ.get(VARIABLE) or DEFAULT_STORE)


class Store:
    """A store, made where there is none unless `create` is false."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = store_path(path)
        self.index = Index(self.path / INDEX)
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

    def find(self, key: str) -> Run | None:
        """The finished run, checked byte by byte; a damaged one is put aside and counts as absent."""
        run = Run(key, self.path / "runs" / key)
        if not run.path.exists():
            return None
        if run.problems():
            with contextlib.suppress(FileNotFoundError):
                os.replace(run.path, self.path / "damaged" / f"{key}.{time.time_ns()}")
            self.index.drop([key])
            return None
        return run

    def save(
        self,
        key: str,
        spec_text: str,
        result: Mapping[str, Any],
        weights: Mapping[str, Any],
        arrays: Mapping[str, Any],
    ) -> Run:
        """Add a finished run, all at once, and forget its checkpoint."""
        folder = self.path / "tmp" / f"{key}.{os.getpid()}"
        contents = {
            SPEC: spec_text.encode(),
            RESULT: json.dumps(result, indent=1).encode(),
            WEIGHTS: pack(weights),
            ARRAYS: pack(arrays),
        }
        with explained(self.path):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                for name, content in contents.items():
                    write(folder / name, content)
                digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
                write(folder / MANIFEST, manifest_text(key, digests).encode())
                os.replace(folder, self.path / "runs" / key)
                flush_directory(self.path / "runs")
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            run = Run(key, self.path / "runs" / key)
            self.index.put([_row(run)])
            self.forget_checkpoint(key)
        return run

    def adopt(self, run: Run) -> None:
        """Copy a finished run of another store, whole, unless it is here already."""
        with self.lock(run.key), explained(self.path):
            if self.find(run.key) is not None:
                return
            folder = self.path / "tmp" / f"{run.key}.{os.getpid()}"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(run.path, folder)
            os.replace(folder, self.path / "runs" / run.key)
            self.index.put([_row(Run(run.key, self.path / "runs" / run.key))])

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
        with explained(self.path):
            there, noted = set(os.listdir(self.path / "runs")), self.index.keys()
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
            yield key, Run(key, self.path / "runs" / key).problems()
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

    def remove(self, key: str) -> None:
        """Delete a finished run and whatever an unfinished one left."""
        with self.lock(key):
            shutil.rmtree(self.path / "runs" / key, ignore_errors=True)
            self.forget_checkpoint(key)
            self.index.drop([key])


def _row(run: Run) -> tuple[str, float, dict[str, Any]]:
    result = run.result
    summary = {"status": result["status"], "scores": result["scores"], "spec": json.loads(run.spec_text)}
    return run.key, float(result["provenance"]["finished"]), summary
