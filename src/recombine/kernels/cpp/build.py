"""Compiling the kernels: once per machine and version, with the machine's own C++ compiler, kept in the user's cache.

`CXX` names a compiler, `RECOMBINE_CACHE` another folder than `~/.cache/recombine`. Where the kernels cannot be built,
standard error says so, once for a process and those that it starts.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from recombine.files import cache_folder
from recombine.kernels.cpp.cache import (
    LIBRARY,
    Untrusted,
    has_unfinished,
    keep,
    locked,
    opened,
    remove_unfinished,
    unfinished,
    whole_library,
)

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
LONGEST_SECONDS = 300
"""A compiler that takes longer is given up."""
WARNED = "RECOMBINE_KERNELS_SAID"
"""Set in the environment once standard error says that there are no kernels."""


class NotBuilt(Exception):
    """There are no kernels, and why."""


def why_not_built() -> str | None:
    """Why there are no kernels on this machine; None where there are, or could be compiled just now."""
    kernels = library_or_reason()
    return kernels if isinstance(kernels, str) else None


def library() -> ctypes.CDLL:
    """The compiled kernels."""
    kernels = library_or_reason()
    if isinstance(kernels, str):
        raise NotBuilt(kernels)
    return kernels


@cache
def library_or_reason() -> ctypes.CDLL | str:
    """The kernels, or why there are none: whatever is wrong with compiler, cache or machine, torch does without."""
    try:
        return _built()
    except (NotBuilt, Untrusted) as error:
        reason = str(error)
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    _warn_once(reason)
    return reason


def _warn_once(reason: str) -> None:
    """One line on standard error, unless this process or one that started it said so already."""
    if os.environ.get(WARNED) or sys.stderr is None:
        return
    os.environ[WARNED] = "1"
    line = " ".join(f"recombine: compiled kernels are off, torch does their work more slowly ({reason})".split())
    with suppress(OSError, ValueError):  # closed, or full
        print(line, file=sys.stderr, flush=True)


def _built() -> ctypes.CDLL:
    compiler, path = find_compiler(), cache_folder()
    build = f"kernels-{_digest(compiler)}"
    with opened(path) as folder:
        if has_unfinished(folder):
            with locked(folder, 0) as ours:
                if ours:
                    remove_unfinished(folder)
        descriptor = whole_library(folder, build)
        if descriptor is None:
            descriptor = _compiled(compiler, folder, path, build)
    return _loaded(descriptor, path / build)


def _loaded(descriptor: int, build: Path) -> ctypes.CDLL:
    """The very file that was checked. It stays open: a number that is used again would name two libraries."""
    checked = Path(f"/proc/self/fd/{descriptor}")
    return ctypes.CDLL(str(checked if checked.exists() else build / LIBRARY))


def find_compiler() -> list[str]:
    """The command, perhaps with words of its own; `CXX` without a word is as good as none."""
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else [[name] for name in COMPILERS]:
        if path := shutil.which(words[0]):
            return [path, *words[1:]]
    raise NotBuilt(f"no C++ compiler ({shlex.join(named) if named else ', '.join(COMPILERS)})")


def compiler_version(compiler: list[str]) -> str:
    """What the compiler says of itself."""
    return _run([*compiler, "--version"]).stdout


def _compiled(compiler: list[str], folder: int, path: Path, build: str) -> int:
    """Compile, unless another process does: then wait, and use its build."""
    with locked(folder, LONGEST_SECONDS) as ours:
        descriptor = whole_library(folder, build)
        if descriptor is not None:
            return descriptor
        if ours:
            remove_unfinished(folder)
        _compile(compiler, folder, path, build)
        descriptor = whole_library(folder, build)
    if descriptor is None:
        raise NotBuilt(f"what was compiled is not in {path}")
    return descriptor


def _compile(compiler: list[str], folder: int, path: Path, build: str) -> None:
    """Compile into a folder that appears complete, by one rename."""
    sources = [str(source) for source in _sources() if source.suffix == ".cpp"]
    with unfinished(folder) as work:
        target = path / work / build
        target.mkdir(mode=0o700)
        target.chmod(0o700)
        done = _run([*compiler, *FLAGS, *sources, "-o", str(target / LIBRARY)], scratch=path / work)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
            raise NotBuilt(f"{Path(compiler[0]).name} failed: {lines[0]}")
        keep(folder, work, build)


def _run(command: list[str], scratch: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a compiler with its own temporary files where they are cleaned up, and readable to it under any umask."""
    environment = {**os.environ, "TMPDIR": str(scratch)} if scratch else None
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=LONGEST_SECONDS, env=environment, umask=0o077
    )


def _sources() -> list[Path]:
    return sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))


def _digest(compiler: list[str]) -> str:
    """Of sources, flags, compiler and processor: machines of several kinds may share a cache."""
    parts = [*FLAGS, *compiler, compiler_version(compiler), _processor()]
    whole = [*(path.read_bytes() for path in _sources()), *(part.encode(errors="replace") for part in parts)]
    return hashlib.sha256(b"\0".join(whole)).hexdigest()[:16]


def _processor() -> str:
    """What `-march=native` depends on."""
    described = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = ("flags", "Features", "model name", "CPU part")
        lines = cpuinfo.read_text(errors="replace").splitlines()
        described += sorted({line for line in lines if line.startswith(fields)})
    return "\n".join(described)
