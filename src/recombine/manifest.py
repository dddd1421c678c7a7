"""Manifests: the SHA-256 of every file in a folder, checked whenever a file is read.

A run's `manifest.json` is written once, with the run. Files in a results folder are replaced one by one, so its
`digests.json` lists all digests that a file may have: the new digest is added, the file is written, then the old digest
is removed. If a process is killed in between, the file's digest is still listed. `null` means that the file may be
absent. Both manifests end with their own digest. Digests detect accidental changes, not tampering (docs/trust.md).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
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
"""Files that this package writes into a results folder."""
OPTIONAL = ("index.html",)
"""Files that users may delete: nothing reads them, and `recombine report` recreates them."""

Contents = tuple[str | None, ...]
"""Possible digests of a file; None if it may be absent."""


class Differs(Exception):
    """Raised when a file does not match its manifest; the message says how."""


def checked(path: Path, digests: Collection[str | None] | None = None, *, follow: bool = False) -> bytes:
    """Return the content of a file; raise `Differs` unless it is regular and has one of the digests, if given."""
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
    """Return a run's manifest."""
    fields = {"files": dict(sorted(files.items())), "key": key}
    seal = hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**fields, "seal": seal}, separators=(",", ":"))


def list_text(files: Mapping[str, Contents]) -> str:
    """Return a results folder's manifest, one line per file."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(files[name])}" for name in sorted(files))
    body = f'{{"files": {{\n{lines}\n}},\n'
    return f'{body}"seal": "{hashlib.sha256(body.encode()).hexdigest()}"}}\n'


class Manifest:
    """The manifest of a results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._updating = False

    def listed(self) -> dict[str, Contents]:
        """Return the possible digests of each file; raise `Differs` if the manifest is missing or damaged."""
        with one_line_errors(self.folder / LIST, "from"):
            text = checked(self.folder / LIST, follow=True).decode(errors="replace")
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            files = {name: tuple(contents) for name, contents in parsed_json(text)["files"].items()}
            if text == list_text(files) and all(OURS.fullmatch(name) for name in files):
                return files
        raise Differs("not as it was written")

    def is_present(self, name: str) -> bool:
        """Return whether a file or link with this name exists."""
        with one_line_errors(self.folder / name, "from"), suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(self.folder / name)
            return True
        return False

    def required(self) -> list[str]:
        """Return the files that must exist, or an empty list without a valid manifest."""
        with suppress(Differs):
            return [name for name, contents in self.listed().items() if None not in contents]
        return []

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it was never written; raise `Differs` if it is damaged."""
        if not self.is_present(name) and name not in self.required():
            return None
        with one_line_errors(self.folder / name, "from"):
            try:
                return self._checked(name)
            except Differs:  # it may have been replaced after the manifest was read
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
        """Return all files that are or should be listed, or only the manifest if it is missing or damaged."""
        with one_line_errors(self.folder, "from"):
            folders = [self.folder / part for part in FOLDERS if (self.folder / part).is_dir()]
            paths = [str(path.relative_to(self.folder)) for folder in folders for path in folder.iterdir()]
        present = [name for name in paths if OURS.fullmatch(name)]
        try:
            return sorted({*self.listed(), *present})
        except Differs as error:
            return [LIST] if present or str(error) != MISSING else []

    def problem(self, name: str) -> str | None:
        """Return how a file is damaged, or None if it is intact."""
        try:
            if name == LIST:
                self.listed()
            else:
                self.read(name)
        except Differs as error:
            return str(error)
        return None

    def replace(self, contents: Mapping[str, bytes | None]) -> None:
        """Write files; None deletes a file."""
        self.update(lambda: contents)

    def update(self, contents: Callable[[], Mapping[str, bytes | None]]) -> None:
        """Write the files returned by a function; no other process can write while the function reads other files."""
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
                raise InvalidValue("file", name, "a file that belongs in a results folder")
        _refuse_links(self.folder)
        try:
            before = self.listed()
        except Differs:
            before = {}
        after: dict[str, Contents] = {}
        for name, content in contents.items():
            digest = None if content is None else hashlib.sha256(content).hexdigest()
            after[name] = (None, digest) if digest and name in OPTIONAL else (digest,)
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
    """Write files to a folder; in a results folder or one of its subfolders, add them to the manifest."""
    for root in (folder, folder.parent):
        names = {str((folder / name).relative_to(root)): content for name, content in contents.items()}
        if Manifest(root).is_present(LIST) and all(OURS.fullmatch(name) for name in names):
            Manifest(root).replace(names)
            return
    with one_line_errors(folder, "out"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write(folder / name, content, "out")


def remove_temporaries(folder: Path) -> None:
    """Delete temporary files left in a results folder by killed processes."""
    _refuse_links(folder)
    for part in FOLDERS:

        def is_ours(name: str, part: str = part) -> bool:
            path = f"{part}/{name}" if part else name
            return path == LIST or OURS.fullmatch(path) is not None

        remove_abandoned(folder / part, is_ours)


def _refuse_links(folder: Path) -> None:
    """Raise if a subfolder is a link, so that nothing is written or deleted through a link."""
    for part in filter(None, FOLDERS):
        if (folder / part).is_symlink():
            raise InvalidValue("out", str(folder), f"a folder whose {part!r} is not a link")


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Lock the folder itself, which leaves no file behind, if the file system supports locks."""
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
