"""Files: read only where they are regular files, written whole or not at all.

Every file of a user's or of a store goes through here. A file is written under a temporary name, flushed, then renamed;
while it is written its writer holds the kernel's lock on it, so that what a killed process left behind can be told
from what another process is writing. Whatever the operating system refuses becomes one line.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InvalidValue, StoreError, StoreFull, reason_of

if TYPE_CHECKING:
    import numpy

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Error numbers of a file system that has no file locks."""
ALLOWED = (
    (FULL, "a directory on a disk with room left"),
    ({errno.EACCES, errno.EPERM, errno.EROFS}, "a path that can be read and written"),
    ({errno.ENOTDIR, errno.EEXIST, errno.EISDIR}, "a directory, or a path where one can be made"),
    (NO_LOCKS, "a directory on a file system with file locks"),
)
"""What a path must be, by the operating system's reason to refuse it."""
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+(-[0-9a-f]+)?")
"""Names under which files are written: `.NAME.PROCESS-RANDOM`."""


class NotRegular(OSError):
    """A path that is not a regular file: a folder, a link, a pipe, a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def one_line_errors(path: Path, field: str = "store") -> Iterator[None]:
    """Turn the operating system's refusals into one line about the field that gave the path."""
    try:
        yield
    except NotRegular:
        raise StoreError(f"{field} must be a regular file, got {str(path)!r}") from None
    except OSError as error:
        allowed = next((words for numbers, words in ALLOWED if error.errno in numbers), "a path that exists and works")
        reason = os.strerror(error.errno) if error.errno else str(error)
        kind = StoreFull if error.errno in FULL else StoreError
        raise kind(f"{field} must be {allowed}, got {str(path)!r} ({reason})") from None


def open_regular(path: Path, *, follow: bool = False) -> int:
    """A descriptor for reading a regular file; never waits for a pipe, and follows a link only if `follow` says so."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK, errno.ENXIO}:  # a link; a socket
            raise NotRegular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    return descriptor


def read(path: Path, *, follow: bool = False) -> bytes:
    """All of a regular file; `OSError` otherwise."""
    with os.fdopen(open_regular(path, follow=follow), "rb") as file:
        return file.read()


def read_given(path: Path, field: str) -> bytes:
    """All of a file that a user named, through links too; what is wrong with it is one line about the field."""
    try:
        return read(path, follow=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and not isinstance(error, NotRegular) else error.strerror
        raise InvalidValue(field, str(path), f"a readable file ({reason})") from None


def read_array(path: Path, field: str) -> numpy.ndarray:
    """The one array of a `.npy` file, in this machine's byte order."""
    import numpy

    try:
        array = numpy.load(io.BytesIO(read_given(path, field)), allow_pickle=False)
    except InvalidValue:
        raise
    except Exception as error:  # numpy parses the header as Python: syntax, memory, recursion may all go wrong there
        reason = reason_of(error)
        if "allow_pickle" in reason:  # numpy's advice to load it unsafely
            reason = "it holds Python objects, or something else than an array"
        raise InvalidValue(field, str(path), f"a whole .npy file ({reason})") from error
    if not isinstance(array, numpy.ndarray):
        raise InvalidValue(field, str(path), "a .npy file with one array, not an .npz archive")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_numbers(array: numpy.ndarray, field: str) -> numpy.ndarray:
    """The array as finite float64 numbers, which hold whole numbers, extended precision and truth values alike."""
    import numpy

    if array.dtype.kind not in "biuf":
        raise InvalidValue(field, f"an array of {array.dtype}", "an array of real numbers")
    with numpy.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
        numbers = numpy.ascontiguousarray(array, dtype=numpy.float64)
    if not numpy.isfinite(numbers).all():
        raise InvalidValue(field, "NaN or infinity", "finite numbers only")
    return numbers.reshape(array.shape)  # `ascontiguousarray` gives a lone number an axis


def parsed_json(content: bytes | str) -> Any:
    """The value of a JSON text; `ValueError` for anything else, however deep."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write(path: Path, content: bytes, field: str = "store") -> None:
    """Write a file so that it holds all of the content or does not exist."""
    write_parts(path, [content], field)


def write_parts(path: Path, parts: Iterable[bytes | memoryview], field: str = "store") -> None:
    """Write a file, part by part, so that it holds all of them or does not exist."""
    with one_line_errors(path, field):
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with os.fdopen(_created(temporary), "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        flush_directory(path.parent)


def fill_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files of a new folder that nobody reads yet, and flush them: all are written before the first flush,
    so that a disk takes them together."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with ExitStack() as files:
        opened = []
        for name, content in contents.items():
            file = files.enter_context(os.fdopen(os.open(folder / name, flags, 0o666), "wb"))
            file.write(content)
            file.flush()
            opened.append(file)
        for file in opened:
            os.fsync(file.fileno())
    flush_directory(folder)


def _created(path: Path) -> int:
    """A descriptor of a new file under the kernel's lock, still there once the lock is held."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # somebody took it for abandoned before we had the lock


def remove_abandoned(folder: Path, ours: Callable[[str], bool]) -> None:
    """Delete temporary files in a folder that killed processes left; what cannot be deleted stays.

    `ours` says which final names are this package's.
    """
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = TEMPORARY.fullmatch(path.name)
            if match is not None and ours(match["name"]):
                with suppress(OSError):
                    _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    """Delete a file that nobody is writing; its writer, if there is one after all, sees that it is gone."""
    descriptor = open_regular(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while it is being written
        path.unlink()
    finally:
        os.close(descriptor)


def require_folder(path: Path, field: str) -> None:
    """Make a folder and try to write there."""
    with one_line_errors(path, field):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


def cache_folder() -> Path:
    """The user's cache folder for this package; `RECOMBINE_CACHE` names another."""
    from platformdirs import user_cache_path

    named = os.environ.get("RECOMBINE_CACHE")
    return (Path(named) if named else user_cache_path("recombine")).absolute()


def entries(folder: Path) -> list[str]:
    """Names in a folder, in order; none where there is no folder."""
    with one_line_errors(folder):
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def delete(path: Path) -> None:
    """Delete a file, a link itself, or a folder with what is in it."""
    with one_line_errors(path):
        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:  # another process was first
            pass


def flush_directory(path: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
