"""Compiling the kernels: once a machine and version, with the machine's own C++ compiler, kept in the user's cache.

`RECOMBINE_KERNELS=0` does without, `CXX` names a compiler, `RECOMBINE_CACHE` another folder than `~/.cache/recombine`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
LONGEST_SECONDS = 300
"""A compiler that takes longer is not waited for."""


class NotBuilt(Exception):
    """There are no kernels, and why."""


def available() -> bool:
    """Whether the kernels are compiled, or can be: the first call compiles them."""
    return why_not() is None


def why_not() -> str | None:
    """Why there are no kernels on this machine; None where there are."""
    try:
        library()
    except NotBuilt as error:
        return str(error)
    return None


def library() -> ctypes.CDLL:
    """The compiled kernels."""
    found = _found()
    if isinstance(found, NotBuilt):
        raise found
    return found


@cache
def _found() -> ctypes.CDLL | NotBuilt:
    try:
        return _built()
    except NotBuilt as error:
        return error
    except (OSError, subprocess.SubprocessError) as error:
        return NotBuilt(f"{type(error).__name__}: {error}")


def _built() -> ctypes.CDLL:
    if os.environ.get("RECOMBINE_KERNELS") == "0":
        raise NotBuilt("RECOMBINE_KERNELS=0 says so")
    named = os.environ.get("CXX")
    compilers = filter(None, map(shutil.which, [named] if named else COMPILERS))
    compiler = next(compilers, None)
    if compiler is None:
        raise NotBuilt(f"no C++ compiler ({named or ', '.join(COMPILERS)})")
    path = _folder() / f"kernels-{_digest(compiler)}.so"
    if not path.exists():
        _compile(compiler, path)
    return ctypes.CDLL(str(path))


def _compile(compiler: str, path: Path) -> None:
    """Compile to a file of its own first: another process may be doing the same."""
    sources = [str(source) for source in _sources() if source.suffix == ".cpp"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "kernels.so"
        command = [compiler, *FLAGS, *sources, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
            raise NotBuilt(f"{Path(compiler).name} failed: {lines[0]}")
        made.replace(path)


def _folder() -> Path:
    named, shared = os.environ.get("RECOMBINE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(named) if named else (Path(shared) if shared else Path.home() / ".cache") / "recombine"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sources() -> list[Path]:
    return sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))


def _digest(compiler: str) -> str:
    """Of sources, flags, compiler and processor: machines of several kinds may share a cache."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=LONGEST_SECONDS).stdout
    parts = [*(path.read_text() for path in _sources()), *FLAGS, compiler, version, _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What `-march=native` depends on."""
    described = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        told = ("flags", "Features", "model name", "CPU part")
        described += sorted({line for line in cpuinfo.read_text().splitlines() if line.startswith(told)})
    return "\n".join(described)
