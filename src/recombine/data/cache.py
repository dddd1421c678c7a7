"""What is known of data files from one command to the next: identities, unpacked images and where data lie.

In the user's cache folder (`RECOMBINE_CACHE` names another), below `data`:

- `FILE.json` of a file as it was seen, by path, size and time of change: its identity;
- `IDENTITY.pixels`: images that cannot be read row by row where they are (compressed archives, folders of pictures),
  unpacked once, as plain bytes;
- `IDENTITY.json`: where data with this identity were last opened, so that stored runs find them again.

Everything here can be deleted at any time: it is made again from the file.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from recombine.data.labelled import Identity
from recombine.data.pixels import FilePixels, Pixels
from recombine.data.source import Source
from recombine.errors import InvalidValue, RecombineError
from recombine.files import cache_folder, one_line_errors, parsed_json, read, remove_abandoned, write, write_parts
from recombine.keys import json_digest

SUFFIX = ".pixels"
IN_MEMORY = 2**26
"""Bytes of images up to which compressed ones are kept in memory instead of being unpacked to a file."""
SPARE = 2**28
"""Bytes of a disk that stay free."""
NOTABLE = 2**26
"""Bytes whose reading takes long enough to say so."""


def folder() -> Path:
    """The cache's own folder."""
    return cache_folder() / "data"


def seen_as(paths: list[Path]) -> str:
    """A name for files as they are now: where, how long, last changed when."""
    states = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError as error:
            raise InvalidValue("data", str(path), f"a readable file ({error.strerror})") from None
        states.append([os.path.realpath(path), state.st_size, state.st_mtime_ns])
    return json_digest({"files": states})


def known(name: str) -> dict[str, Any]:
    """A record of the cache; empty where there is none that can be read."""
    with suppress(OSError, ValueError):
        record = parsed_json(read(folder() / f"{name}.json"))
        if isinstance(record, dict):
            return record
    return {}


def keep(name: str, record: dict[str, Any]) -> None:
    """Write a record where it is new; a cache that cannot be written is done without."""
    from recombine.keys import canonical_json

    if known(name) != record:
        with suppress(OSError, RecombineError):
            _make_folder()
            write(folder() / f"{name}.json", canonical_json(record).encode(), "data")


def pixels_of(source: Source, seen: str) -> tuple[Pixels, str, float]:
    """The images of a file, where they lie or in memory, with their identity and largest number."""
    record = known(seen)
    digest, largest = record.get("digest"), record.get("largest")
    if isinstance(digest, str) and digest.isalnum() and isinstance(largest, int | float):
        pixels = _available(source, digest)
        if pixels is not None:
            return pixels, digest, float(largest)
    identity = Identity(source)
    pixels = _read(source, identity)
    keep(seen, {"digest": identity.digest, "largest": identity.largest})
    return pixels, identity.digest, identity.largest


def _available(source: Source, digest: str) -> Pixels | None:
    """Images whose identity is known, if they can be read row by row."""
    assert source.path is not None
    if source.offset is not None:
        return FilePixels(source.path, source.offset, source.shape, source.dtype)
    unpacked = folder() / f"{digest}{SUFFIX}"
    with suppress(OSError):
        if unpacked.stat().st_size == source.nbytes and source.nbytes > IN_MEMORY:
            return FilePixels(unpacked, 0, source.shape, source.dtype)
    return None


def _read(source: Source, identity: Identity) -> Pixels:
    """Images that are read for the first time: all of them, once."""
    import numpy as np

    assert source.path is not None
    if source.offset is not None:
        _say(source, f"reading {source.path} once, to know it again")
        pixels = FilePixels(source.path, source.offset, source.shape, source.dtype)
        for block in pixels.blocks():
            identity.add(block)
        return pixels
    if source.nbytes <= IN_MEMORY:
        blocks = []
        for block in source.blocks():
            identity.add(block)
            blocks.append(block)
        return Pixels(np.concatenate(blocks))
    return _unpacked(source, identity)


def _unpacked(source: Source, identity: Identity) -> Pixels:
    """Images in a file of the cache, where they can be read row by row."""
    _require_room(source)
    _say(source, f"unpacking {source.path} once, to {folder()}")

    def parts() -> Iterator[memoryview]:
        for block in source.blocks():
            identity.add(block)
            yield block.data

    assert source.path is not None
    arriving = folder() / f"{seen_as([source.path])}{SUFFIX}"
    write_parts(arriving, parts(), "data")
    unpacked = folder() / f"{identity.digest}{SUFFIX}"
    with one_line_errors(unpacked, "data"):
        os.replace(arriving, unpacked)
    return FilePixels(unpacked, 0, source.shape, source.dtype)


def _require_room(source: Source) -> None:
    """Refuse what the disk cannot hold, before anything is written."""
    _make_folder()
    remove_abandoned(folder(), lambda name: name.endswith(SUFFIX))
    free = shutil.disk_usage(folder()).free
    if source.nbytes + SPARE > free:
        sizes = f"{source.nbytes / 2**30:.1f} GiB of images, {free / 2**30:.1f} free in {folder()}"
        raise InvalidValue("data", str(source.path), f"what fits the disk ({sizes}; RECOMBINE_CACHE names another)")


def _make_folder() -> None:
    with one_line_errors(folder(), "data"):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)


def _say(source: Source, line: str) -> None:
    """One line on standard error before what takes a while."""
    if source.nbytes >= NOTABLE and sys.stderr is not None:
        print(f"data: {line} ({source.nbytes / 1e9:.1f} GB)", file=sys.stderr, flush=True)
