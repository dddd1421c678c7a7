"""The store, a directory of runs.

    recombine.json          marks the directory as a store, and contains the format version
    index.tsv               cache for listing runs
    runs/KEY/               a finished run: spec, result, weights, arrays, and a manifest with their digests
    checkpoints/KEY         the latest state of an unfinished run
    locks/KEY               locked while a process trains the run
    damaged/                finished runs that were found to be damaged
    tmp/                    runs being written

A run's folder is complete as soon as it appears, since it is renamed into place. A run is loaded only if every file
matches the manifest, and spec and revision match the key. Links are never followed, and other files never deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, StoreError, listed
from recombine.files import delete, entries, fill_folder, flush_directory, one_line_errors, remove_abandoned
from recombine.manifest import manifest_text
from recombine.store import index
from recombine.store.names import FOLDERS, INDEX, INDEX_FILES, MARKER, final_name, is_key, key_of, open_folder, pack
from recombine.store.run import ARRAYS, FILES, MANIFEST, RESULT, SPEC, WEIGHTS, Problem, Run, spec_key, stray
from recombine.store.unfinished import Checkpoints, Lock

if TYPE_CHECKING:
    import pandas

SPARE_BYTES = 16_000_000


def store_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the given path, `RECOMBINE_STORE`, or `./runs`."""
    return Path(path or os.environ.get("RECOMBINE_STORE") or "runs")


class Store:
    """A collection of finished runs on disk: `len(store)`, `for run in store`, `store["3f2a"]`.

    Parameters
    ----------
    path
        Folder of the store. Default: `RECOMBINE_STORE`, or `./runs`.
    create
        Whether to create a store if there is none; if False, opening a store writes nothing.

    Examples
    --------
    >>> import recombine as rc
    >>> from tempfile import TemporaryDirectory
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="mlp:width=8:depth=1", recipe=rc.Recipe(steps=3))
    >>> with TemporaryDirectory() as folder:
    ...     store = rc.Store(folder)
    ...     runs = rc.train(spec.seeds(range(2)), store)
    ...     size, again = len(store), store[spec.digest]
    >>> size, again.key == spec.digest
    (2, True)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = store_path(path)
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        open_folder(self.path, create)

    def require_room(self, size: int) -> None:
        """Raise if the disk does not have room for `size` more bytes."""
        with one_line_errors(self.path):
            free = shutil.disk_usage(self.path).free
        if free < size + SPARE_BYTES:
            needed = f"{(size + SPARE_BYTES) / 1e6:.0f} MB free (it has {free / 1e6:.0f} MB)"
            raise StoreError(f"store must be on a disk with {needed}, got {str(self.path)!r}")

    def run(self, key: str) -> Run:
        """Return the run with this key, finished or not."""
        return Run(key, self.path / "runs" / key)

    def find(self, key: str, *, locked: bool = False) -> Run | None:
        """Return a finished run, checked byte by byte, or None; a damaged run is moved aside.

        If the caller does not hold the run's lock (`locked`), a damaged run is moved only if no process is working on
        it and it is still damaged once locked, since another process may have retrained it.
        """
        run = self.run(key)
        try:
            if not os.path.lexists(run.path):
                return None
            if not run.damage():
                return run
            if locked:
                return self._put_aside(run)
            with self._locked(key) as free:
                return self._put_aside(run) if free else None
        except StoreError:
            if os.path.lexists(run.path):
                raise
            return None  # moved aside by another process

    def _put_aside(self, run: Run) -> Run | None:
        """Move a damaged run aside, or return it if it is undamaged after all; the caller holds its lock."""
        if not run.damage():
            return run
        with one_line_errors(run.path):
            os.replace(run.path, self.path / "damaged" / f"{run.key}.{time.time_ns()}")
        return None

    def save(
        self, key: str, spec_text: str, result: Mapping[str, Any], weights: Mapping[str, Any],
        arrays: Mapping[str, Any],
    ) -> Run:  # fmt: skip
        """Add a finished run and delete its checkpoint."""
        if spec_key(spec_text.encode()) != key:
            raise InvalidValue("key", key, f"{spec_key(spec_text.encode())}, the key of this spec")
        contents = {
            SPEC: spec_text.encode(),
            RESULT: json.dumps(result, indent=1).encode(),
            WEIGHTS: pack(weights),
            ARRAYS: pack(arrays),
        }
        run = self._placed(key, contents)
        with suppress(StoreError):  # the run is saved, and the next sweep removes the leftover checkpoint
            self.checkpoints.forget(key)
        return run

    def adopt(self, run: Run) -> None:
        """Copy a finished run from another store, unless this store already has it."""
        with self.lock(run.key):
            if self.find(run.key, locked=True) is None:
                self._placed(run.key, {name: run.content(name) for name in FILES})

    def _placed(self, key: str, contents: Mapping[str, bytes]) -> Run:
        """Write a run's folder and rename it into place."""
        folder, run = self.path / "tmp" / f"{key}.{os.getpid()}", self.run(key)
        with one_line_errors(self.path):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
                manifest = manifest_text(key, digests).encode()
                fill_folder(folder, {**contents, MANIFEST: manifest})
                os.replace(folder, run.path)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            flush_directory(run.path.parent)
        index.add(self.path, run)
        return run

    def remove(self, key: str) -> bool:
        """Delete a finished run; return False if a process is working on it."""
        run, away = self.run(key), self.path / "tmp" / f"{key}.gone.{time.time_ns()}"
        with self._locked(key) as free:
            if free:
                with one_line_errors(run.path):  # rename first, so that its key never refers to a partial run
                    os.replace(run.path, away)
                delete(away)
                self.checkpoints.forget(key)
        return free

    def keys(self) -> list[str]:
        """Return the keys of finished runs."""
        return [name for name in entries(self.path / "runs") if is_key(name)]

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[Run]:
        """Iterate over finished runs, oldest first, unreadable ones last."""
        table = self.table()
        return (self.run(key) for key in [*table.index, *table.attrs["unreadable"]])

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and is_key(key) and os.path.lexists(self.run(key).path)

    def __getitem__(self, prefix: str) -> Run:
        """Return the finished run whose key starts with a prefix."""
        matching = [key for key in self.keys() if key.startswith(prefix)] if prefix else []
        if len(matching) != 1:
            several = f" (it matches {listed(matching[:4])})" if matching else ""
            raise InvalidValue("run", prefix, f"the key of one finished run, or a unique prefix of it{several}")
        return self.run(matching[0])

    def table(self, where: str | None = None, newest: int | None = None) -> pandas.DataFrame:
        """Return a DataFrame of the readable finished runs, oldest first, indexed by key.

        Its columns are `status`, every field of the spec by dotted name (`task.encoding.kind`, `decoder.depth`,
        `recipe.lr`), the scores, and `finished`. `attrs` has the numbers of `matching` and of all `finished` runs, and
        the keys of `unreadable` ones.

        Parameters
        ----------
        where
            Expression that selects runs, e.g. `encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9`.
        newest
            Maximum number of rows; older runs are left out. Default: all.
        """
        from recombine.store.table import table_of

        rows, unreadable = index.rows_of(self.path)
        table = table_of(rows, where, newest)
        table.attrs |= {"unreadable": unreadable, "finished": len(rows)}
        return table

    def lock(self, key: str) -> Lock:
        """Return the lock to hold while training a run."""
        return Lock(self.path / "locks" / key)

    @contextmanager
    def _locked(self, key: str) -> Iterator[bool]:
        """Try to hold a run's lock in this context; yield whether it was free."""
        lock = self.lock(key)
        try:
            yield lock.acquire(wait=False)
        finally:
            lock.release()

    def is_busy(self, key: str) -> bool:
        """Return whether a process holds a run's lock."""
        with self._locked(key) as free:
            return not free

    def unfinished(self) -> list[str]:
        """Return the keys of unfinished runs that have a checkpoint."""
        keys = [name for name in entries(self.checkpoints.folder) if is_key(name)]
        return [key for key in keys if not os.path.lexists(self.run(key).path)]

    def discard_checkpoint(self, key: str) -> bool:
        """Delete the checkpoint of a run; return False if a process is training it."""
        with self._locked(key) as free:
            if free:
                self.checkpoints.forget(key)
        return free

    def verify(self) -> Iterator[tuple[str, list[Problem]]]:
        """Yield the problems of each finished run and checkpoint, and of everything that does not belong here."""
        for folder in FOLDERS:
            try:
                names = entries(self.path / folder)
            except StoreError as error:
                yield folder, [Problem(str(error), "unreadable")]
                continue
            for name in names:
                key = key_of(folder, name)
                if key is not None and (name != key or folder == "locks"):
                    continue  # in use, or left behind by a killed process; the next sweep removes it
                try:
                    if key is None:
                        problems = [stray(name)]
                    else:
                        problems = self.run(key).problems() if folder == "runs" else self.checkpoints.problems(key)
                except StoreError as error:
                    problems = [Problem(str(error), "unreadable")]
                if os.path.lexists(self.path / folder / name):  # not removed in the meantime
                    yield name, problems
        for name in entries(self.path):
            if final_name(name) not in (*FOLDERS, *INDEX_FILES, MARKER):
                yield name, [stray(name)]

    def leftovers(self, *folders: str) -> list[tuple[str, Path]]:
        """Return keys and paths of partially written, damaged or obsolete files; some may be in use."""
        paths = [self.path / folder / name for folder in folders for name in entries(self.path / folder)]
        ours = [(key, path) for path in paths if (key := key_of(path.parent.name, path.name)) is not None]
        return [(key, path) for key, path in ours if not self._is_needed(path)]

    def _is_needed(self, path: Path) -> bool:
        """Return whether a path is the checkpoint of an unfinished run."""
        return path.parent.name == "checkpoints" and is_key(path.name) and path.name not in self

    def delete_leftover(self, key: str, path: Path) -> bool:
        """Delete a leftover file or folder; return False if a process is working on its run."""
        with self._locked(key) as free:
            if free and not self._is_needed(path):  # its run may have been removed in the meantime
                delete(path)
        return free

    def clean(self) -> None:
        """Delete what killed processes left behind; errors are ignored, so that they never stop a sweep."""
        remove_abandoned(self.path, lambda name: name in (MARKER, INDEX))
        with suppress(StoreError):
            for key, path in self.leftovers("tmp", "checkpoints"):
                with suppress(StoreError):
                    self.delete_leftover(key, path)
            for name in entries(self.path / "locks"):
                if key_of("locks", name):
                    self.is_busy(name)  # taking and releasing a free lock removes its file
