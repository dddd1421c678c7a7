"""Manifests: the SHA-256 of every file of a folder, so that none is read that is not as it was written.

A run's `manifest.json` is written once, with the run. A results folder's `digests.json` lists every file with the
contents that it may have, as its files are replaced one by one: the new digest is added to the list, the file is
written, the old digest is taken off the list. A call that is killed between any two of these steps leaves a file with
a content that is listed. `null` in the list stands for a file that is absent. Both end with a digest of themselves.
Digests find accidents; whoever changes a file on purpose can change the manifest too (docs/trust.md).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from recombine.errors import InvalidValue
from recombine.files import NO_LOCKS, NotRegular, one_line_errors, parsed_json, read, remove_abandoned, write

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


def checked(path: Path, digests: Collection[str | None] | None = None, *, follow: bool = False) -> bytes:
    """The content of a regular file, with one of these digests where they are given; `Differs` otherwise."""
    try:
        content = read(path, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        raise Differs(MISSING) from None
    except NotRegular:
        raise Differs("not a regular file") from None
    if digests is not None and hashlib.sha256(content).hexdigest() not in digests:
        raise Differs("content changed")
    return content


def manifest_text(key: str, files: Mapping[str, str]) -> str:
    """A run's manifest."""
    fields = {"files": dict(sorted(files.items())), "key": key}
    seal = hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**fields, "seal": seal}, separators=(",", ":"))


def list_text(files: Mapping[str, Contents]) -> str:
    """A results folder's manifest: a line per file."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(files[name])}" for name in sorted(files))
    body = f'{{"files": {{\n{lines}\n}},\n'
    return f'{body}"seal": "{hashlib.sha256(body.encode()).hexdigest()}"}}\n'


class Manifest:
    """The manifest of a results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._updating = False

    def listed(self) -> dict[str, Contents]:
        """What each file may contain; `Differs` where the list is missing or damaged."""
        with one_line_errors(self.folder / LIST, "from"):
            text = checked(self.folder / LIST, follow=True).decode(errors="replace")
        try:
            files = {name: tuple(contents) for name, contents in parsed_json(text)["files"].items()}
            if text == list_text(files) and all(OURS.fullmatch(name) for name in files):
                return files
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise Differs("not as it was written")

    def is_present(self, name: str) -> bool:
        """Whether there is something under a name, whole or not, a link too."""
        with one_line_errors(self.folder / name, "from"):
            try:
                os.lstat(self.folder / name)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

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
            except Differs:  # perhaps it was replaced after the list was read and before the file was
                if self._updating:
                    raise
                with _locked(self.folder, fcntl.LOCK_SH):
                    return self._checked(name)

    def _checked(self, name: str) -> bytes:
        try:
            files = self.listed()
        except Differs as error:
            raise Differs(f"{LIST} is {error}") from None
        if name not in files and self.is_present(name):
            raise Differs(f"not listed in {LIST}")
        return checked(self.folder / name, files.get(name, ()), follow=True)

    def names(self) -> list[str]:
        """Every file that is listed or should be; the list itself where it is not as it should be."""
        with one_line_errors(self.folder, "from"):
            folders = [self.folder / part for part in FOLDERS if (self.folder / part).is_dir()]
            paths = [str(path.relative_to(self.folder)) for folder in folders for path in folder.iterdir()]
        present = [name for name in paths if OURS.fullmatch(name)]
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
        """Write what a function returns; it may read the files, as no other command writes meanwhile."""
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

    def _write_list(self, files: Mapping[str, Contents]) -> None:
        write(self.folder / LIST, list_text(files).encode(), "out")


def write_into(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, and list them where it is, or lies in, a results folder."""
    for root in (folder, folder.parent):
        names = {str((folder / name).relative_to(root)): content for name, content in contents.items()}
        if Manifest(root).is_present(LIST) and all(OURS.fullmatch(name) for name in names):
            return Manifest(root).replace(names)
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


def _contents_after(name: str, content: bytes | None) -> Contents:
    if content is None:
        return (None,)
    digest = hashlib.sha256(content).hexdigest()
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
