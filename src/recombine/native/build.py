"""Compiling the kernels: once a machine and version, with the machine's own C++ compiler, kept in the user's cache.

`RECOMBINE_KERNELS=0` does without, `CXX` names a compiler, `RECOMBINE_CACHE` another folder than `~/.cache/recombine`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from recombine.accelerated import wanted

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
LONGEST_SECONDS = 300
"""A compiler that takes longer is not waited for."""
LIBRARY, DIGEST = "kernels.so", "sha256"


class NotBuilt(Exception):
    """There are no kernels, and why."""


def available() -> bool:
    """Whether the kernels are compiled, or can be: the first call compiles them."""
    return why_not() is None


def why_not() -> str | None:
    """Why there are no kernels on this machine; None where there are."""
    found = _found()
    return found if isinstance(found, str) else None


def library() -> ctypes.CDLL:
    """The compiled kernels."""
    found = _found()
    if isinstance(found, str):
        raise NotBuilt(found)
    return found


@cache
def _found() -> ctypes.CDLL | str:
    """The kernels, or why there are none: whatever is wrong with compiler, cache or machine, torch does without."""
    try:
        return _built()
    except NotBuilt as error:
        return str(error)
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _built() -> ctypes.CDLL:
    if not wanted():
        raise NotBuilt("RECOMBINE_KERNELS says so")
    compiler = _compiler()
    place = _folder() / f"kernels-{_digest(compiler)}"
    if not _sound(place):
        shutil.rmtree(place, ignore_errors=True)
        _compile(compiler, place)
    return ctypes.CDLL(str(place / LIBRARY))


def _compiler() -> list[str]:
    """The command, perhaps with words of its own."""
    named = os.environ.get("CXX")
    for words in [shlex.split(named)] if named else [[name] for name in COMPILERS]:
        if path := shutil.which(words[0]):
            return [path, *words[1:]]
    raise NotBuilt(f"no C++ compiler ({named or ', '.join(COMPILERS)})")


def _sound(place: Path) -> bool:
    """Whether what is there is what was compiled."""
    try:
        return hashlib.sha256((place / LIBRARY).read_bytes()).hexdigest() == (place / DIGEST).read_text()
    except OSError:
        return False


def _compile(compiler: list[str], place: Path) -> None:
    """Compile into a folder that appears complete, by one rename; another process may be doing the same."""
    sources = [str(source) for source in _sources() if source.suffix == ".cpp"]
    with tempfile.TemporaryDirectory(dir=place.parent) as parent:
        made = Path(parent) / "made"
        made.mkdir()
        done = _run([*compiler, *FLAGS, *sources, "-o", str(made / LIBRARY)])
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
            raise NotBuilt(f"{Path(compiler[0]).name} failed: {lines[0]}")
        (made / DIGEST).write_text(hashlib.sha256((made / LIBRARY).read_bytes()).hexdigest())
        for name in (LIBRARY, DIGEST):
            with (made / name).open("rb") as file:
                os.fsync(file.fileno())
        try:
            made.rename(place)
        except OSError:
            if not _sound(place):  # otherwise the other process was first
                raise


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LONGEST_SECONDS)


def _folder() -> Path:
    named, shared = os.environ.get("RECOMBINE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(named) if named else (Path(shared) if shared else Path.home() / ".cache") / "recombine"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sources() -> list[Path]:
    return sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))


def _digest(compiler: list[str]) -> str:
    """Of sources, flags, compiler and processor: machines of several kinds may share a cache."""
    parts = [*FLAGS, *compiler, _run([*compiler, "--version"]).stdout, _processor()]
    whole = [*(path.read_bytes() for path in _sources()), *(part.encode(errors="replace") for part in parts)]
    return hashlib.sha256(b"\0".join(whole)).hexdigest()[:16]


def _processor() -> str:
    """What `-march=native` depends on."""
    described = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        told = ("flags", "Features", "model name", "CPU part")
        lines = cpuinfo.read_text(errors="replace").splitlines()
        described += sorted({line for line in lines if line.startswith(told)})
    return "\n".join(described)
