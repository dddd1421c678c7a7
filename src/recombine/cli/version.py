"""`recombine --version`, and with `--verbose` what a bug report needs: versions, devices and folders."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recombine.console import say
from recombine.version import __version__

LIBRARIES = ("torch", "numpy", "pydantic", "xarray", "safetensors", "triton", "distributed")
PREFIX = "RECOMBINE_"
"""How the names of this package's own environment variables begin; no others are shown."""


def version(
    *, verbose: Annotated[bool, Parameter(help="Versions, compiler, devices and folders, for bug reports.")] = False
) -> None:
    """Print the version."""
    if not verbose:
        say(__version__)
        return
    for name, value in _facts():
        say(f"{name}: {value.replace(os.path.expanduser('~'), '~')}")


def _facts() -> Iterator[tuple[str, str]]:
    import torch

    from recombine import kernels
    from recombine.files import cache_folder
    from recombine.store.store import store_path
    from recombine.training import device_name

    yield "recombine", f"{__version__} ({Path(__file__).parents[1]})"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield "environment", ", ".join(f"{name}={value}" for name, value in os.environ.items() if name.startswith(PREFIX))
    installed = {own.metadata["name"]: own.version for own in metadata.distributions()}
    for name in LIBRARIES:
        yield name, installed.get(name, "not installed")
    devices = [torch.device("cpu"), *(torch.device("cuda", at) for at in range(torch.cuda.device_count()))]
    yield "devices", ", ".join(device_name(device) for device in devices)
    for device in dict.fromkeys(device.type for device in devices):
        yield f"kernels on {device}", kernels.why_not(device) or kernels.BACKENDS[device]
    yield "store", str(store_path(None).absolute())
    yield "cache", str(cache_folder())
