"""How much of held-out images a network explains, and what can be had without composing.

    R² = 1 − Σ ‖output − target‖² / Σ ‖target − mean target‖²

over the held-out (or the kept) combinations, with the mean image of the same combinations: the variance-weighted R² of
Wiedemer et al. 2023. A blank image scores below 0, since it lies farther from the targets than their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from recombine.tasks import Task
from recombine.training import Evaluator
from recombine.training.evaluate import EVALUATED, REGIONS

MOST_KEPT, MOST_HELD_OUT = 1000, 200
"""Images that are compared with each other: pairs of the first are tried for each of the second."""
LIT = 0.1
"""A pixel is lit if it differs from the background by more than this share of the largest difference."""


class Scorer:
    """Scores outputs on a task's grid."""

    def __init__(self, task: Task, device: torch.device | None = None, points: int = EVALUATED) -> None:
        self.task = task
        self.evaluator = Evaluator(task, device or torch.device("cpu"), chunk=128, points=points)
        self.held_out = self.evaluator.held_out

    @cached_property
    def spread(self) -> dict[str, float]:
        """Mean squared difference of the targets from their mean image, by region, per pixel."""
        return self.evaluator.spread()

    def of_errors(self, error: Tensor, held_out: Tensor) -> dict[str, float]:
        """Return R² by region from the mean squared error at every evaluated point."""
        parts = dict(zip(REGIONS, (error[~held_out], error[held_out]), strict=True))
        return {f"{name}_r2": 1 - part.double().mean().item() / self.spread[name] for name, part in parts.items()}

    def of_run(self, run: Any) -> dict[str, float]:
        """Return R² of a stored run on this task, by region."""
        arrays = run.arrays()
        return self.of_errors(torch.from_numpy(arrays["error"]), torch.from_numpy(arrays["held_out"]).bool())

    def of_module(self, forward: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return R² of a function from codes to images, by region."""
        evaluation = self.evaluator.of(forward, self.task.held_out)
        return self.of_errors(evaluation["error"], evaluation["held_out"].bool())

    def controls(self) -> Mapping[str, float]:
        """Return what is reached without composing, as R² on held-out combinations, and how much of them is ever lit.

        `nearest` shows, for every held-out image, the most similar kept one, and `sum of two` the most similar sum of
        two kept ones (of at most 1000, on at most 200 held-out images), both chosen with the target in view. `lit` is
        the share of held-out images, by brightness, at pixels that some kept image lights: what lies elsewhere is lost
        before training.
        """
        kept, shown = (
            self._some(region, most) for region, most in zip(REGIONS, (MOST_KEPT, MOST_HELD_OUT), strict=True)
        )
        spread = (shown - shown.mean(dim=0)).square().mean()
        singles = torch.cdist(shown, kept).square().amin(dim=1)
        sizes, products = kept.square().sum(dim=1), kept @ kept.T
        pairs = []
        for image in shown:
            each = sizes - 2 * kept @ image
            pairs.append((each[:, None] + each[None] + 2 * products).min() + image.square().sum())
        errors = {"blank": shown.square().sum(1), "nearest": singles, "sum of two": torch.stack(pairs).minimum(singles)}
        scores = {name: float(1 - own.mean() / shown.shape[1] / spread) for name, own in errors.items()}
        return scores | {"lit": self.lit()}

    def _some(self, region: str, most: int) -> Tensor:
        """Return evenly spaced targets of a region."""
        count = int((self.held_out == (region == "ood")).sum())
        wanted, first, parts = torch.linspace(0, count - 1, min(count, most)).long(), 0, []
        for rows in self.evaluator.relative_targets(region):
            own = wanted[(wanted >= first) & (wanted < first + len(rows))] - first
            parts.append(rows[own.to(rows.device)].cpu())
            first += len(rows)
        return torch.cat(parts)

    def lit(self) -> float:
        """Return the share of held-out images, by brightness, at pixels that some kept image lights."""
        highest = torch.stack(
            [rows.abs().amax(dim=0) for rows in self.evaluator.relative_targets("id") if len(rows)]
        ).amax(dim=0)
        brightness = torch.stack([rows.abs().sum(dim=0) for rows in self.evaluator.relative_targets("ood")]).sum(dim=0)
        return float(brightness[highest > LIT * highest.max()].sum() / brightness.sum())
