"""A directory of runs that loses nothing.

    recombine.json          says that this is a store, and its format
    index.tsv               a cache of what is below, for listing
    runs/KEY/               a finished run: spec, result, weights, arrays, and a manifest with their digests
    checkpoints/KEY         the newest state of an unfinished run
    locks/KEY               locked while a process trains that run
    damaged/                finished runs whose bytes changed, put aside
    tmp/                    runs being written

A run's folder appears by one rename, complete. A run is served only if every byte is what its manifest says, and its
spec and revision are those that its key is made of. Nothing is read, written or deleted through a link inside a store,
and nothing is deleted whose name this package does not make.
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

from recombine.errors import InvalidValue, StoreError, StoreFull, listed
from recombine.files import delete, entries, fill_folder, flush_directory, one_line_errors, remove_abandoned
from recombine.manifest import manifest_text
from recombine.store import index
from recombine.store.names import FOLDERS, INDEX, INDEX_FILES, MARKER, final_name, is_key, key_of, open_folder, unusable
from recombine.store.run import ARRAYS, FILES, MANIFEST, RESULT, SPEC, WEIGHTS, Problem, Run, pack, spec_key, stray
from recombine.store.unfinished import Checkpoints, Lock

if TYPE_CHECKING:
    import pandas

DEFAULT_STORE = "runs"
VARIABLE = "RECOMBINE_STORE"
SPARE = 16_000_000
"""Bytes that are to stay free on the store's disk."""


def store_path(path: str | os.PathLike[str] | None = None) -> Path:
    """The path given, or `RECOMBINE_STORE`, or `./runs`."""
    return Path(path or os.environ.get(VARIABLE) or DEFAULT_STORE)


class Store:
    """A store, made where there is none unless `create` is false; then nothing is written by opening it.

    A store is a collection of its finished runs: `len(store)`, `for run in store`, `store["3f2a"]`.

    Parameters
    ----------
    path
        Its folder. Default: `RECOMBINE_STORE`, or `./runs`.
    create
        Whether to make one where there is none.

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
        self.checkpoints = Checkpoints(self.path / "checkpoints", self.path / "damaged")
        open_folder(self.path, create)

    def require_room(self, size: int) -> None:
        """Refuse now, in one line, what would fill the disk later."""
        with one_line_errors(self.path):
            free = shutil.disk_usage(self.path).free
        if free < size + SPARE:
            needed = f"{(size + SPARE) / 1e6:.0f} MB free (it has {free / 1e6:.0f} MB)"
            raise StoreFull(str(unusable(self.path, f"on a disk with {needed}")))

    # -- finished runs -----------------------------------------------------------------------------------------

    def run(self, key: str) -> Run:
        """The run with this key, finished or not."""
        return Run(key, self.path / "runs" / key)

    def find(self, key: str, *, locked: bool = False) -> Run | None:
        """The finished run, checked byte by byte; a damaged one is put aside and counts as absent.

        `locked` says that the caller holds the run's lock. Without it a damaged run is moved only if nobody is
        working on it, and only if it is still damaged then: another process may have trained it meanwhile.
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
            return None  # another process has put it aside meanwhile

    def _put_aside(self, run: Run) -> Run | None:
        """Under the run's lock: the run if it is whole after all; otherwise it is moved away."""
        if not run.damage():
            return run
        with one_line_errors(run.path):
            os.replace(run.path, self.path / "damaged" / f"{run.key}.{time.time_ns()}")
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
        if spec_key(spec_text.encode()) != key:
            raise InvalidValue("key", key, f"{spec_key(spec_text.encode())}, the key of this spec")
        contents = {
            SPEC: spec_text.encode(),
            RESULT: json.dumps(result, indent=1).encode(),
            WEIGHTS: pack(weights),
            ARRAYS: pack(arrays),
        }
        run = self._placed(key, contents)
        with suppress(StoreError):  # the run is safe; a checkpoint that stays is removed by the next sweep
            self.checkpoints.forget(key)
        return run

    def adopt(self, run: Run) -> None:
        """Copy a finished run of another store, unless it is here already."""
        with self.lock(run.key):
            if self.find(run.key, locked=True) is None:
                self._placed(run.key, {name: run.content(name) for name in FILES})

    def _placed(self, key: str, contents: Mapping[str, bytes]) -> Run:
        """A run's folder, complete by one rename."""
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
        """Delete a finished run; False if a process is working on it."""
        run, away = self.run(key), self.path / "tmp" / f"{key}.gone.{time.time_ns()}"
        with self._locked(key) as free:
            if free:
                with one_line_errors(run.path):  # so that no half of it is ever seen under its own name
                    os.replace(run.path, away)
                delete(away)
                self.checkpoints.forget(key)
        return free

    # -- listing -----------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Keys of the finished runs."""
        return [name for name in entries(self.path / "runs") if is_key(name)]

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[Run]:
        """All finished runs, oldest first; those that cannot be read come last."""
        table = self.table()
        return (self.run(key) for key in [*table.index, *table.attrs["unreadable"]])

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and is_key(key) and os.path.lexists(self.run(key).path)

    def __getitem__(self, prefix: str) -> Run:
        """The finished run whose key begins so."""
        matching = [key for key in self.keys() if key.startswith(prefix)] if prefix else []
        if len(matching) != 1:
            several = f"; it is the start of {listed(matching[:4])}" if matching else ""
            raise InvalidValue("run", prefix, f"the key of one finished run, or its first digits{several}")
        return self.run(matching[0])

    def table(self, where: str | None = None) -> pandas.DataFrame:
        """The finished runs that can be read, one row each, oldest first, with keys as index.

        Parameters
        ----------
        where
            An expression over columns that selects runs, as `encoding == 'bump' and depth >= 4 and ood_accuracy > 0.9`.
            Default: all runs.

        Returns
        -------
        pandas.DataFrame
            `status`, every field of the spec by its dotted name (`task.encoding.kind`, `decoder.depth`, `recipe.lr`),
            scores, and `finished`. `attrs["unreadable"]` are the keys of runs that cannot be read.
        """
        from recombine.store.table import selected, table_of

        rows, unreadable = index.rows_of(self.path)
        table = table_of(rows)
        table.attrs["unreadable"] = unreadable
        return table if where is None else selected(table, where)

    # -- unfinished runs ---------------------------------------------------------------------------------------

    def lock(self, key: str) -> Lock:
        """The lock to hold while training a run."""
        return Lock(self.path / "locks" / key)

    @contextmanager
    def _locked(self, key: str) -> Iterator[bool]:
        """Hold a run's lock if nobody else does, and say so."""
        lock = self.lock(key)
        try:
            yield lock.acquire(wait=False)
        finally:
            lock.release()

    def is_busy(self, key: str) -> bool:
        """Whether a process holds a run's lock."""
        with self._locked(key) as free:
            return not free

    def unfinished(self) -> list[str]:
        """Keys with a checkpoint and no finished run."""
        return [key for key in self.checkpoints if not os.path.lexists(self.run(key).path)]

    def discard_checkpoint(self, key: str) -> bool:
        """Delete what an unfinished run left; False if a process is training it."""
        with self._locked(key) as free:
            if free:
                self.checkpoints.forget(key)
        return free

    # -- maintenance -------------------------------------------------------------------------------------------

    def verify(self) -> Iterator[tuple[str, list[Problem]]]:
        """Each finished run and each checkpoint with what is wrong with it, and every entry that is none of ours."""
        for folder in FOLDERS:
            try:
                names = entries(self.path / folder)
            except StoreError as error:
                yield folder, [Problem(str(error), "unreadable")]
                continue
            for name in names:
                key = key_of(folder, name)
                if key is not None and (name != key or folder == "locks"):
                    continue  # being written or used now, or left by a killed process: the next sweep removes it
                try:
                    problems = [stray(name)] if key is None else self._problems(folder, key)
                except StoreError as error:
                    problems = [Problem(str(error), "unreadable")]
                if os.path.lexists(self.path / folder / name):  # else it was removed meanwhile
                    yield name, problems
        for name in entries(self.path):
            if final_name(name) not in (*FOLDERS, *INDEX_FILES, MARKER):
                yield name, [stray(name)]

    def _problems(self, folder: str, key: str) -> list[Problem]:
        return self.run(key).problems() if folder == "runs" else self.checkpoints.problems(key)

    def leftovers(self, *folders: str) -> list[tuple[str, Path]]:
        """What no run needs in some folders, each with its run's key: half-written runs and checkpoints, checkpoints of
        finished runs, and damaged runs. Somebody may be at work on it."""
        paths = [self.path / folder / name for folder in folders for name in entries(self.path / folder)]
        found = [(key, path) for path in paths if (key := key_of(path.parent.name, path.name)) is not None]
        return [(key, path) for key, path in found if not self._is_needed(path)]

    def _is_needed(self, path: Path) -> bool:
        """Whether something is the checkpoint of a run that is not finished."""
        return path.parent.name == "checkpoints" and is_key(path.name) and path.name not in self

    def delete_leftover(self, key: str, path: Path) -> bool:
        """Delete a leftover under its run's lock; False if somebody holds that."""
        with self._locked(key) as free:
            if free and not self._is_needed(path):  # its run may have been removed meanwhile
                delete(path)
        return free

    def clean(self) -> None:
        """Remove what killed processes left, as far as that can be done: this never stops a sweep."""
        remove_abandoned(self.path, lambda name: name in (MARKER, INDEX))
        with suppress(StoreError):
            for key, path in self.leftovers("tmp", "checkpoints"):
                with suppress(StoreError):
                    self.delete_leftover(key, path)
            for name in entries(self.path / "locks"):
                if key_of("locks", name):
                    self.is_busy(name)  # taking and releasing a free lock removes its file
