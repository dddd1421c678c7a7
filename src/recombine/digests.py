"""Digests of the files of a results folder, so that none is read that is not as it was written.

`digests.json` lists every file with the contents that it may have, and ends with a digest of itself. A file is replaced
in three steps: its new digest is added to the list, the file is written, the old digest is taken off the list. A call
that is killed between any two of them leaves a file with a content that is listed. `null` in the list is a file that is
not there. Digests find accidents; who changes a file on purpose can change the list too (docs/trust.md).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from recombine.errors import InvalidValue
from recombine.files import (
    NO_LOCKS,
    NotRegular,
    digest_of,
    is_present,
    one_line_errors,
    parsed_json,
    read,
    remove_abandoned,
    write,
)

LIST = "digests.json"
MISSING = "missing"
FOLDERS = ("", "data", "figures")
OURS = re.compile(
    r"(provenance|runs|criteria|claims)\.json|index\.html|explorer\.safetensors|data/\w+\.nc|figures/\w+\.(png|svg)",
    re.ASCII,
)
"""Files of a results folder that this package writes."""
OPTIONAL = ("index.html",)
"""Files that may be deleted, as `recombine report` writes them again and nothing reads them."""

Contents = tuple[str | None, ...]
"""What a file may contain: digests, and none where it may be absent."""


class Differs(Exception):
    """A file is not as it was written, and how."""


class Digests:
    """The list of a folder's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._updating = False

    def listed(self) -> dict[str, Contents]:
        """What each file may contain; `Differs` where the list is missing or damaged."""
        with one_line_errors(self.folder / LIST, "from"):
            try:
                text = read(self.folder / LIST, follow=True).decode(errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                raise Differs(MISSING) from None
            except NotRegular:
                raise Differs("not a regular file") from None
        try:
            files = {name: tuple(contents) for name, contents in parsed_json(text)["files"].items()}
            if text == list_text(files) and all(OURS.fullmatch(name) for name in files):
                return files
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise Differs("not as it was written")

    def is_present(self, name: str) -> bool:
        """Whether there is something under a name, whole or not."""
        with one_line_errors(self.folder / name, "from"):
            return is_present(self.folder / name)

    def required(self) -> list[str]:
        """Files that must be there; none are known where there is no list."""
        try:
            return [name for name, contents in self.listed().items() if None not in contents]
        except Differs:
            return []

    def read(self, name: str) -> bytes:
        """A file's content, if it is as it was written; `Differs` otherwise."""
        with one_line_errors(self.folder / name, "from"):
            try:
                return self._checked(name)
            except Differs:  # perhaps it was replaced between our looking at the list and at the file
                if self._updating:
                    raise
                with _locked(self.folder, fcntl.LOCK_SH):
                    return self._checked(name)

    def _checked(self, name: str) -> bytes:
        try:
            files = self.listed()
        except Differs as error:
            remedy = f"; 'recombine verify {self.folder} --adopt' makes one for results of an earlier version"
            raise Differs(f"{LIST} is {error}{remedy if str(error) == MISSING else ''}") from None
        try:
            content = read(self.folder / name, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            raise Differs(MISSING) from None
        except NotRegular:
            raise Differs("not a regular file") from None
        if name not in files:
            raise Differs(f"not listed in {LIST}")
        if hashlib.sha256(content).hexdigest() not in files[name]:
            raise Differs("content changed")
        return content

    def names(self) -> list[str]:
        """Every file that is listed or should be; the list itself where it is not as it should be."""
        present = _present(self.folder)
        try:
            return sorted({*self.listed(), *present})
        except Differs as error:
            return [LIST] if present or str(error) != MISSING else []

    def problem(self, name: str) -> str | None:
        """What is wrong with a file, if anything is."""
        try:
            if name == LIST:
                self.listed()
            elif self.is_present(name) or name in self.required():
                self.read(name)
        except Differs as error:
            return str(error)
        return None

    def replace(self, contents: Mapping[str, bytes | None]) -> None:
        """Write files, or delete those whose content is none."""
        self.update(lambda: contents)

    def update(self, contents: Callable[[], Mapping[str, bytes | None]]) -> None:
        """Write what a function says, which may read the files as they are now: no other command writes meanwhile."""
        with one_line_errors(self.folder, "out"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder, fcntl.LOCK_EX):
                self._updating = True
                try:
                    self._replace(contents())
                finally:
                    self._updating = False

    def _replace(self, contents: Mapping[str, bytes | None]) -> None:
        for name in contents:
            if not OURS.fullmatch(name):
                raise InvalidValue("file", name, "a file of a results folder")
        _refuse_links(self.folder)
        try:
            before = self.listed()
        except Differs:
            before = {}
        after = {name: _contents_after(name, content) for name, content in contents.items()}
        either = {name: (*before.get(name, (None,)), *after[name]) for name in contents}
        self._write_list(before | {name: tuple(dict.fromkeys(both)) for name, both in either.items()})
        for name, content in contents.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write(path, content, "out")
        self._write_list({name: kept for name, kept in (before | after).items() if kept != (None,)})

    def adopt(self) -> int:
        """List the files that are there as they are now, where there is no list; return how many."""
        if self.is_present(LIST):
            raise InvalidValue("adopt", str(self.folder), f"a folder without {LIST}")
        with one_line_errors(self.folder, "adopt"), _locked(self.folder, fcntl.LOCK_EX):
            names = _present(self.folder)
            self._write_list({name: _allowed(name, digest_of(self.folder / name)) for name in names})
        return len(names)

    def _write_list(self, files: Mapping[str, Contents]) -> None:
        write(self.folder / LIST, list_text(files).encode(), "out")


def list_text(files: Mapping[str, Contents]) -> str:
    """The one way to write a list, a line per file, with a digest of itself at the end."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(files[name])}" for name in sorted(files))
    body = f'{{"files": {{\n{lines}\n}},\n'
    return f'{body}"seal": "{hashlib.sha256(body.encode()).hexdigest()}"}}\n'


def write_into(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, and list them where it is, or lies in, a results folder."""
    for root in (folder, folder.parent):
        names = {str((folder / name).relative_to(root)): content for name, content in contents.items()}
        if Digests(root).is_present(LIST) and all(OURS.fullmatch(name) for name in names):
            return Digests(root).replace(names)
    with one_line_errors(folder, "out"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write(folder / name, content, "out")
    return None


def remove_temporaries(folder: Path) -> None:
    """Delete what killed processes left of files that they were writing into a results folder."""
    _refuse_links(folder)
    for part in FOLDERS:
        prefix = f"{part}/" if part else ""
        remove_abandoned(folder / part, lambda name, prefix=prefix: _is_ours(prefix + name))  # type: ignore[misc]


def _refuse_links(folder: Path) -> None:
    """Refuse a results folder whose own folders are links: nothing is written or deleted through one."""
    for part in filter(None, FOLDERS):
        if (folder / part).is_symlink():
            raise InvalidValue("out", str(folder), f"a folder whose {part!r} is a folder, not a link")


def _is_ours(name: str) -> bool:
    return name == LIST or OURS.fullmatch(name) is not None


def _present(folder: Path) -> list[str]:
    """Files of ours in a folder, listed or not."""
    with one_line_errors(folder, "from"):
        paths = [path for part in FOLDERS if (folder / part).is_dir() for path in (folder / part).iterdir()]
    names = [str(path.relative_to(folder)) for path in paths]
    return sorted(name for name in names if OURS.fullmatch(name))


def _contents_after(name: str, content: bytes | None) -> Contents:
    return (None,) if content is None else _allowed(name, hashlib.sha256(content).hexdigest())


def _allowed(name: str, digest: str) -> Contents:
    return (None, digest) if name in OPTIONAL else (digest,)


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Hold a lock on the folder itself, which leaves no file behind; where there are no locks, go without."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, kind)
        except OSError as error:
            if error.errno not in {*NO_LOCKS, errno.EBADF}:  # EBADF: folders over NFS
                raise
        yield
    finally:
        os.close(descriptor)
