"""Build the C++ kernels with the local compiler, once per machine and version, and call them by name.

The environment variable `CXX` sets the compiler, and `RECOMBINE_CACHE` a folder to use instead of `~/.cache/recombine`.
The library runs with the user's rights, so folder and file must belong to the user and not be writable by others. If
the build fails, a warning is written to standard error once per process tree.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from ctypes import POINTER, c_float, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from recombine.files import cache_folder

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
WARNED = "RECOMBINE_KERNELS_SAID"
"""Environment variable that is set once the warning about missing kernels has been printed."""

FLOATS = c_void_p
"""Address of a tensor's data."""
NETWORK = POINTER(c_long)
"""Code length, first size, channels, depth, and for each block whether it doubles the size."""
CHUNK = (c_long,) * 3
"""Range of images, and index of the chunk."""
PLANES = (*(c_long,) * 4, *CHUNK)
"""Input and output channels, rows and columns of images, and the chunk."""
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "sizes": (NETWORK, c_long, POINTER(c_long)),
    "prepare": (NETWORK, FLOATS, FLOATS),
    "forward": (NETWORK, *(FLOATS,) * 5, c_long, *CHUNK),
    "backward": (NETWORK, *(FLOATS,) * 5, c_long, *CHUNK),
    "finish": (NETWORK, *(FLOATS,) * 4, c_long, FLOATS, c_long),
    "narrow": (*(FLOATS,) * 4, *PLANES),
    "narrow_back": (*(FLOATS,) * 5, *PLANES),
    "adamw": (*(FLOATS,) * 4, c_long, *(c_float,) * 7),
}
"""Argument types by name, without the prefix `recombine_`. All functions return void."""


def call(name: str, *arguments: Any) -> None:
    """Call a kernel by name; tensors are passed as addresses (`data_ptr()`) or None."""
    function = getattr(library_or_reason(), f"recombine_{name}")
    if function.argtypes is None:
        function.argtypes, function.restype = SIGNATURES[name], None
    function(*arguments)


@cache
def library_or_reason() -> ctypes.CDLL | str:
    """Return the library, compiled if necessary, or the reason why it is not available."""
    try:
        compiler, folder = find_compiler(), cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"kernels-{_digest(compiler)}.so"
        _require_private(folder)
        with suppress(OSError):  # missing or damaged
            _require_private(path)
            return ctypes.CDLL(str(path))
        _compile(compiler, path)
        return ctypes.CDLL(str(path))
    except RuntimeError as error:
        reason = str(error)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    if not os.environ.get(WARNED):
        os.environ[WARNED] = "1"
        print(f"recombine: compiled kernels are off, training on the CPU is slower ({reason})", file=sys.stderr)
    return reason


def _require_private(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(f"{path} belongs to another user, or others can write to it")


def find_compiler() -> list[str]:
    """Return the compiler command, which may include flags."""
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else [[name] for name in COMPILERS]:
        if path := shutil.which(words[0]):
            return [path, *words[1:]]
    raise RuntimeError(f"no C++ compiler ({shlex.join(named) if named else ', '.join(COMPILERS)})")


def _compile(compiler: list[str], path: Path) -> None:
    """Compile to a temporary file, then rename it, since other processes may be compiling as well."""
    sources = [str(source) for source in _sources() if source.suffix == ".cpp"]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling-") as work:
        target = Path(work) / path.name
        done = _run([*compiler, *FLAGS, *sources, "-o", str(target)])
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
            raise RuntimeError(f"{Path(compiler[0]).name} failed: {lines[0]}")
        target.replace(path)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, umask=0o077)


def _sources() -> list[Path]:
    return sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))


def _digest(compiler: list[str]) -> str:
    """Hash sources, flags and compiler, and its macros, since machines with different processors may share a cache."""
    macros = _run([*compiler, *FLAGS, "-E", "-dM", "-x", "c++", os.devnull]).stdout
    whole = [*(path.read_bytes() for path in _sources()), *(part.encode() for part in (*FLAGS, *compiler, macros))]
    return hashlib.sha256(b"\0".join(whole)).hexdigest()[:16]
