"""The timed recipes: one per decoder at the paper's size, and one at the size of the quick preset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpTask


@dataclass(frozen=True)
class Case:
    """One recipe to time."""

    name: str
    decoder: str
    members: int
    """Number of members that train together on a GPU in this case."""
    task: dict[str, Any]
    recipe: dict[str, Any]
    penalties: tuple[str, ...] = ()

    def spec(self, precision: str) -> RunSpec:
        """Return the spec of the recipe in a given precision."""
        return RunSpec(
            task=BumpTask(**self.task),
            decoder=self.decoder,
            recipe=Recipe(**self.recipe, precision=precision),
            penalties=self.penalties,
        )


PUBLISHED = {"size": 28, "training": "draws:2000"}
LOW_RANK = {"size": 32, "sigma": 1.5, "encoding": "onehot", "holdout": "corner", "training": "each"}
PENALTIES = ("entropy:0.1", "variance:0.01")
QUICK = {"size": 14, "training": "draws:2000"}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("CNN depth 4", "cnn", 128, PUBLISHED, {"epochs": 50}),
        Case("CNN depth 8", "cnn:depth=8", 128, PUBLISHED, {"epochs": 50}),
        Case("low-rank", "low_rank", 128, LOW_RANK, {"epochs": 1000}, PENALTIES),
        Case("MLP", "mlp", 256, PUBLISHED, {"epochs": 50}),
        Case("spatial broadcast", "broadcast", 64, PUBLISHED, {"epochs": 50}),
        Case("transformer depth 3", "transformer", 8, PUBLISHED, {"epochs": 50}),
        Case("coordinate MLP", "coordinate", 16, PUBLISHED, {"epochs": 50}),
        Case("denoiser", "denoiser:width=16", 64, {"size": 32, "training": "draws:2000"}, {"epochs": 50, "batch": 64}),
        Case("CNN, quick preset", "cnn:depth=3:width=16", 64, QUICK, {"epochs": 20}),
    )
}
CPU_CASES = ("CNN depth 4", "CNN, quick preset", "MLP", "low-rank")
"""Cases that take two cores only minutes."""
