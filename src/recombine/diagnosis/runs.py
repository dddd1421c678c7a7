"""What a finished run says about its own diagnosis: grid, code, hold-out and right outputs."""

from __future__ import annotations

from typing import Any

from recombine.store import Run
from recombine.tasks import ArrayTask


def settings_of(run: Run) -> dict[str, Any]:
    """The arguments of `diagnose` that a run's spec gives."""
    task = run.spec.task
    if isinstance(task, ArrayTask):
        return {"data": task}
    return {
        "grid": task.grid, "encode": task.encoding, "holdout": task.held_out, "targets": task.render,
        "background": task.background,
    }  # fmt: skip
