"""Where a result came from."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

from recombine.training import device_name, kernels_name
from recombine.version import __version__


@cache
def git_commit() -> str | None:
    """The commit of the source tree this package is imported from, `+changes` if files differ; none elsewhere.

    `RECOMBINE_COMMIT` names it where the tree is a copy without its history.
    """
    if named := os.environ.get("RECOMBINE_COMMIT"):
        return named
    here = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", __file__) is None:
        return None
    commit = git("rev-parse", "HEAD")
    return f"{commit}+changes" if commit and git("status", "--porcelain", "--untracked-files=no", ".") else commit


def provenance(device: torch.device, precision: str) -> dict[str, Any]:
    """Versions, device and arithmetic, as one record."""
    return {
        "recombine": __version__,
        "commit": git_commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device_name(device),
        "precision": precision,
        "kernels": kernels_name(device),
    }
