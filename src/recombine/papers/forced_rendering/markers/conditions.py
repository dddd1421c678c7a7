"""In what networks differ, in words, from their specs."""

from __future__ import annotations

from typing import Any

from recombine.papers.forced_rendering.markers.labels import WHOLE_GRID
from recombine.specs import RunSpec
from recombine.tasks import Task

DECODERS = {
    "cnn": "CNN", "mlp": "MLP", "low_rank": "low-rank", "coordinate": "coordinate MLP", "transformer": "transformer"
}  # fmt: skip
PENALTIES = {(False, False): "", (True, False): "entropy", (False, True): "variance", (True, True): "both penalties"}
NO_REMEDY, ALL_KEPT = "no remedy", "all bumps"


def condition(spec: RunSpec) -> dict[str, Any]:
    """Decoder, depth, code, hold-out, data and remedy of a run, and all of them as the name of its arm."""
    task, decoder = spec.task, spec.decoder
    penalties = PENALTIES[spec.recipe.entropy > 0, spec.recipe.variance > 0]
    if penalties and getattr(decoder, "vectors", "unit") != "unit":
        penalties += " on raw vectors"
    parts: dict[str, Any] = {
        "decoder": DECODERS.get(decoder.kind, decoder.kind),
        "depth": getattr(decoder, "depth", 0),
        "code": str(task.encoding),
        "holdout": f"{task.holdout.kind} ({task.held_out.float().mean().item():.0%})",
        "data": _data(task),
        "remedy": penalties or ("stripes" if task.isolated else NO_REMEDY),
    }
    words = [parts["decoder"], f"depth {parts['depth']}", f"N = {task.image_shape[0]}", *list(parts.values())[2:]]
    return {**parts, "arm": ", ".join(words)}


def _data(task: Task) -> str:
    """Which combinations it is trained on."""
    if task.region == "whole":
        return WHOLE_GRID
    kept = int((~task.held_out).sum())
    number = task.training.count(kept)
    return f"{number} bumps" if number < kept else ALL_KEPT
