"""The folder that compiled kernels are kept in: the user's alone, or not used.

What is loaded from here runs as the user. So the folder, the folder of each build in it and their files must belong to
the user and be writable by nobody else, whatever the umask was, and everything inside is reached through descriptors
that were checked, never through a link. A build appears complete, by one rename; one that is damaged counts as absent.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recombine.files import NO_LOCKS

LIBRARY, DIGEST = "kernels.so", "sha256"
UNFINISHED = re.compile(r"compiling-[0-9a-f]{16}")
EARLIER = re.compile(r"tmp[a-z0-9_]{8}")
"""Folders of compiles, as now and as earlier versions named them."""
EARLIER_SECONDS = 600
"""An earlier version gives up on its compiler before that, and takes no lock."""
POLL_SECONDS = 0.05
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Untrusted(Exception):
    """Something that others may have written."""


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the cache folder, which is made where there is none."""
    _make(path)
    descriptor = os.open(path, FOLDER)
    try:
        _require_private(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """Make the folder and what is missing above it, for the user alone under any umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, 0o700)
            os.chmod(folder, 0o700)


def _require_private(descriptor: int, path: Path | str) -> None:
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        raise Untrusted(f"{path} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(f"{path} can be written to by others; 'chmod go-w' changes that, once its content is known")


def whole_library(folder: int, build: str) -> int | None:
    """A descriptor of a build's library, every byte of which is as it was compiled; none if there is no such build."""
    try:
        inside = os.open(build, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return None
    try:
        _require_private(inside, build)
        digest = _read(_opened_file(DIGEST, inside))
        library = _opened_file(LIBRARY, inside)
        if hashlib.sha256(_read(os.dup(library))).hexdigest().encode() == digest:
            return library
        os.close(library)
    except (OSError, Untrusted):
        pass
    finally:
        os.close(inside)
    return None


def _opened_file(name: str, folder: int) -> int:
    descriptor = os.open(name, FILE, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Untrusted(f"{name} is not a regular file")
        _require_private(descriptor, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@contextmanager
def unfinished(folder: int) -> Iterator[str]:
    """The name of a new folder in the cache for what a compiler writes, removed at the end."""
    name = f"compiling-{secrets.token_hex(8)}"
    os.mkdir(name, 0o700, dir_fd=folder)
    try:
        os.chmod(name, 0o700, dir_fd=folder)
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def keep(folder: int, work: str, build: str) -> None:
    """Move a build, in which a compiler left its library, from an unfinished folder to where it is looked for."""
    inside = os.open(f"{work}/{build}", FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        with os.fdopen(os.open(LIBRARY, FILE, dir_fd=inside), "rb") as library:
            os.fchmod(library.fileno(), 0o700)
            os.fsync(library.fileno())
            content = library.read()
        created = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(DIGEST, created, 0o600, dir_fd=inside), "wb") as digest:
            os.fchmod(digest.fileno(), 0o600)
            digest.write(hashlib.sha256(content).hexdigest().encode())
            digest.flush()
            os.fsync(digest.fileno())
        os.fsync(inside)
    finally:
        os.close(inside)
    _remove(folder, build)
    os.rename(f"{work}/{build}", build, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    """Delete what has this name, be it a folder, a file or a link."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


@contextmanager
def locked(folder: int, seconds: float) -> Iterator[bool]:
    """Hold the cache's lock; false when another process kept it for so long, or the file system has no locks."""
    try:
        yield _lock(folder, time.monotonic() + seconds)
    finally:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)


def _lock(folder: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in {*NO_LOCKS, errno.EBADF} or time.monotonic() >= deadline:  # EBADF: folders over NFS
                return False
            time.sleep(POLL_SECONDS)


def remove_unfinished(folder: int) -> None:
    """Delete what killed compiles left; for the holder of the lock, which no compile of this version is without."""
    for name in os.listdir(folder):
        if UNFINISHED.fullmatch(name) or (EARLIER.fullmatch(name) and _is_earlier(folder, name)):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)


def has_unfinished(folder: int) -> bool:
    """Whether compiles are under way, or were killed."""
    return any(UNFINISHED.fullmatch(name) or EARLIER.fullmatch(name) for name in os.listdir(folder))


def _is_earlier(folder: int, name: str) -> bool:
    """Whether this is what an earlier version leaves, and long abandoned: the folder may hold files of the user's."""
    try:
        inside = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return False
    try:
        age = time.time() - os.fstat(inside).st_mtime
        return age > EARLIER_SECONDS and set(os.listdir(inside)) <= {"made"}
    except OSError:
        return False
    finally:
        os.close(inside)
