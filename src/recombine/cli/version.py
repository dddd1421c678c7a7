"""`recombine --version`, and with `--verbose` all that a bug report needs.

Nothing here fails: what cannot be found out is said to be unknown, and why. Folders below the user's own are written
with `~`, and of the environment only this package's own variables are shown.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.errors import reason_of
from recombine.screen import say
from recombine.version import __version__

PREFIX = "RECOMBINE_"
"""How the names of this package's own environment variables begin."""
NAME = re.compile(r"[\w.-]+")
DEVELOPMENT = re.compile(r"extra == ['\"](dev|test|release|docs|bench)['\"]")
"""Markers of requirements that only this package's developers have."""


def version(
    *, verbose: Annotated[bool, Parameter(help="Versions, compiler, devices and folders, for bug reports.")] = False
) -> None:
    """Print the version."""
    if not verbose:
        say(__version__)
        return
    for name, value in facts():
        say(f"{name}: {' '.join(_shortened_home(value).split())}")


def facts() -> Iterator[tuple[str, str]]:
    """Names and values of what a bug report should say, each found out by itself."""
    for name, ask in {
        "recombine": _own_version,
        "python": lambda: f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
        "platform": platform.platform,
        "processors": lambda: f"{os.cpu_count()}, {platform.machine()}",
        "environment": _environment,  # before kernels are asked for, which leave a note there
    }.items():
        yield name, _tried(ask)
    yield from _libraries()
    for name, ask in {
        "CUDA": _cuda,
        "devices": _devices,
        "compiler": _compiler,
        "kernels": _kernels,
        "store": _store,
        "cache": _cache,
    }.items():
        yield name, _tried(ask)


def _tried(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:  # a broken installation is what such a report is about
        return f"unknown ({reason_of(error)})"


def _shortened_home(text: str) -> str:
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


def _own_version() -> str:
    from recombine.sweep.provenance import git_commit

    return f"{__version__} ({Path(__file__).parents[1]}, commit {git_commit() or 'unknown'})"


def _libraries() -> Iterator[tuple[str, str]]:
    """Versions of what this package requires, and of what its extras for users do."""
    try:
        lines = metadata.requires("recombine") or []
    except metadata.PackageNotFoundError:
        yield "libraries", "unknown (recombine is not installed, only imported)"
        lines = ["torch", "numpy"]
    for line in lines:
        match = NAME.match(line)
        if match is None or DEVELOPMENT.search(line):
            continue
        try:
            yield match[0], metadata.version(match[0])
        except metadata.PackageNotFoundError:
            yield match[0], "not installed"


def _cuda() -> str:
    import torch

    if torch.version.cuda is None:
        return "torch is built without it"
    return f"{torch.version.cuda}, {'available' if torch.cuda.is_available() else 'not available'}"


def _devices() -> str:
    import torch

    from recombine.training import device_name

    devices = [torch.device("cpu"), *(torch.device("cuda", at) for at in range(torch.cuda.device_count()))]
    return ", ".join(device_name(device) for device in devices)


def _compiler() -> str:
    from recombine.kernels.cpp.build import NotBuilt, compiler_version, find_compiler

    try:
        command = find_compiler()
    except NotBuilt as error:
        return str(error)
    first = compiler_version(command).splitlines()[:1]
    return f"{' '.join(command)} ({first[0] if first else 'says no version'})"


def _kernels() -> str:
    """Whose kernels train on each type of device that is present; those for a CPU are compiled if they were not yet."""
    import torch

    from recombine import kernels

    present = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    reasons = {device: kernels.why_not(device) for device in present}
    return ", ".join(
        f"{device}: {f'off ({why})' if why else kernels.BACKENDS[device]}" for device, why in reasons.items()
    )


def _store() -> str:
    from recombine.store.names import MARKER
    from recombine.store.store import store_path

    path = store_path(None).absolute()
    return f"{path} ({'there' if (path / MARKER).exists() else 'none yet'})"


def _cache() -> str:
    from recombine.files import cache_folder

    path = cache_folder()
    return f"{path} ({'there' if path.exists() else 'none yet'})"


def _environment() -> str:
    own = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(PREFIX)]
    return ", ".join(own) or f"no {PREFIX}* variable is set"
