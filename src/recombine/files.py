"""Read regular files, and write files atomically.

A file is written under a temporary name, flushed, then renamed. It is locked meanwhile, so that files left behind by a
killed process can be distinguished from files that another process is writing. Operating-system errors are turned into
one-line messages.
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

from recombine.errors import InvalidValue, StoreError, reason_of

if TYPE_CHECKING:
    import numpy

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Error numbers of file systems without file locks."""
ALLOWED = (
    ({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}, "a directory on a disk that is not full"),
    ({errno.EACCES, errno.EPERM, errno.EROFS}, "a path that can be read and written"),
    ({errno.ENOTDIR, errno.EEXIST, errno.EISDIR}, "a directory, or a path where one can be made"),
    (NO_LOCKS, "a directory on a file system with file locks"),
)
"""Description of allowed paths, by error number."""
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+(-[0-9a-f]+)?")
"""Names of temporary files: `.NAME.PROCESS-RANDOM`."""
OWN_FILES = {
    "page": rb'<!doctype html>.{,200}<meta name="generator" content="recombine">',
    "figure": rb"\x89PNG.{,99}Software\0recombine|<\?xml .{,2000}<dc:title>recombine</dc:title>",
    "table": rb"key,status,[^\n]*,finished\r?\n|PAR1.*ood_over_blank",
    "list of verdicts": rb'\{(\n "\w+": "[a-z ]+",?)*\n?\}\n\Z',
    "record of AUROCs": rb'\{\n "networks": "[^\n]*\n "numbers": ',
}
"""How files that this package writes to a user's path begin, by kind."""
OWN_FOLDERS = {
    "digests.json": b"", "provenance.json": rb'\{.*"recombine": "', "diagnosis.nc": rb"\x89HDF",
    "comparison.nc": rb"\x89HDF", "config.json": rb'\{.*"model_type": "recombine"',
}  # fmt: skip
"""Files by which a folder of this package is recognised (results, also with a lost list of digests; a diagnosis; a
comparison; a hub folder), and how they begin."""
OTHERWISE = "(or use --overwrite, in Python overwrite=True)"
BEGINNING = 2**16
"""Number of bytes in which a file is recognised, at both ends, since Parquet names its columns in the end."""


class NotRegular(OSError):
    """Raised for a path that is not a regular file but a folder, link, pipe or device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


@contextmanager
def one_line_errors(path: Path, field: str = "store") -> Iterator[None]:
    """Turn operating-system errors into one-line messages about the field that holds the path."""
    try:
        yield
    except NotRegular:
        raise StoreError(f"{field} must be a regular file, got {str(path)!r}") from None
    except OSError as error:
        allowed = next((words for numbers, words in ALLOWED if error.errno in numbers), "a usable path")
        raise StoreError(f"{field} must be {allowed}, got {str(path)!r} ({error.strerror or error})") from None


def open_regular(path: Path, *, follow: bool = False) -> int:
    """Open a regular file for reading, without blocking on a pipe; links are followed only with `follow`."""
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
    """Return the content of a regular file; raise `OSError` if it cannot be read."""
    with os.fdopen(open_regular(path, follow=follow), "rb") as file:
        return file.read()


def read_given(path: Path, field: str) -> bytes:
    """Return the content of a user-specified file, following links."""
    try:
        return read(path, follow=True)
    except OSError as error:
        raise InvalidValue(field, str(path), f"a readable file ({error.strerror})") from None


def read_array(path: Path, field: str) -> numpy.ndarray:
    """Return the array in a `.npy` file, in native byte order."""
    import numpy

    content = io.BytesIO(read_given(path, field))
    try:
        array = numpy.load(content, allow_pickle=False)
    except Exception as error:  # numpy evaluates the header as Python, which may raise anything
        reason = reason_of(error)
        if "allow_pickle" in reason:  # numpy's message suggests loading it unsafely
            reason = "it contains Python objects, or is not an array"
        raise InvalidValue(field, str(path), f"an intact .npy file ({reason})") from error
    if not isinstance(array, numpy.ndarray):
        raise InvalidValue(field, str(path), "a .npy file with one array, not an .npz archive")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def parsed_json(content: bytes | str) -> Any:
    """Parse JSON; raise `ValueError` if it is invalid or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write(path: Path, content: bytes | Iterable[memoryview], field: str = "store") -> None:
    """Write a file atomically; the content may be given in pieces."""
    parts = [content] if isinstance(content, bytes) else content
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
    """Write files to a new folder; all are written before the first is flushed, which is faster."""
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
    """Create and lock a file, making sure that it still exists once the lock is held."""
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
        os.close(descriptor)  # another process deleted it as abandoned before it was locked


def remove_abandoned(folder: Path, ours: Callable[[str], bool]) -> None:
    """Delete temporary files left in a folder by killed processes, if `ours` accepts their final names."""
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = TEMPORARY.fullmatch(path.name)
            if match is None or not ours(match["name"]):
                continue
            with suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while it is being written
                path.unlink()


def require_folder(path: Path, field: str, overwrite: bool = False) -> None:
    """Raise unless a folder is new, empty or written by this package, and can be written; it is not created yet."""
    if not (overwrite or is_own_folder(path, field)):
        raise InvalidValue(field, str(path), f"a new or empty folder, or one written by recombine {OTHERWISE}")
    with one_line_errors(path, field):
        existing = path.absolute()
        while not _exists(existing):
            existing = existing.parent
        with tempfile.TemporaryFile(dir=existing):
            pass


def require_own(path: Path, field: str, kind: str, overwrite: bool) -> None:
    """Raise if there is a file that this package did not write, unless it may be overwritten; an empty one may."""
    if not overwrite and os.path.lexists(path) and not _begins(path, rb"\Z|" + OWN_FILES[kind]):
        raise InvalidValue(field, str(path), f"a new file or a {kind} written by recombine {OTHERWISE}")


def is_own_folder(path: Path, field: str) -> bool:
    """Return whether a folder was written by this package, or has no files but hidden ones, or does not exist."""
    with one_line_errors(path, field):
        names = [name for name in os.listdir(path) if not name.startswith(".")] if _exists(path) else []
    return not names or any(_begins(path / name, OWN_FOLDERS[name]) for name in names if name in OWN_FOLDERS)


def _exists(path: Path) -> bool:
    """Return whether a path exists; raise `OSError` if it cannot."""
    with suppress(FileNotFoundError):
        os.lstat(path)
        return True
    return False


def _begins(path: Path, pattern: bytes) -> bool:
    with suppress(OSError), os.fdopen(open_regular(path, follow=True), "rb") as file:
        content = file.read(BEGINNING)
        file.seek(max(len(content), file.seek(0, os.SEEK_END) - BEGINNING))
        return re.match(pattern, content + file.read(), re.DOTALL) is not None
    return False


def cache_folder() -> Path:
    """Return the cache folder: `RECOMBINE_CACHE`, or the user's default cache folder."""
    from platformdirs import user_cache_path

    named = os.environ.get("RECOMBINE_CACHE")
    return (Path(named) if named else user_cache_path("recombine")).absolute()


def entries(folder: Path) -> list[str]:
    """Return the sorted names in a folder, or an empty list if it does not exist."""
    with one_line_errors(folder), suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def delete(path: Path) -> None:
    """Delete a file, a link or a folder."""
    with one_line_errors(path), suppress(FileNotFoundError):  # another process may have deleted it
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()


def flush_directory(path: Path) -> None:
    """Flush a directory, so that renames in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
