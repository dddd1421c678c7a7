"""Whether a network learnt its own training set.

The scores of a run are over the grid outside the hold-out. Of networks with ten bumps that says how far they
generalise, which is what this study asks, not whether training succeeded. So a network counts here if it draws the
examples that it was trained on: squared error below a tenth of that of a blank image, of bumps and of stripes each by
themselves (stripes are so much brighter that bumps would not be seen in a common mean), and more than 95 % of the bumps
in place (a network without bumps: the error alone). Bounds are those of every claim
(`recombine.papers.forced_rendering.samples`).

Of training sets with more than `MOST` examples as many are looked at, evenly spaced; draws are in no order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.papers.forced_rendering.samples import LEARNT_ACCURACY, LEARNT_ERROR
from recombine.store import Run

MOST = 1024
CHUNK = 256
"""Examples at a time."""


class TrainingScores(NamedTuple):
    """How well a network draws what it was trained on."""

    over_blank: float
    """Squared error over that of a blank image: of bumps or of stripes, whichever is larger."""
    accuracy: float
    """Share of the bumps in place; NaN without bumps."""

    @property
    def learnt(self) -> bool:
        """Whether that counts as learnt."""
        in_place = math.isnan(self.accuracy) or self.accuracy > LEARNT_ACCURACY
        return self.over_blank < LEARNT_ERROR and in_place


@torch.no_grad()
def training_scores(run: Run, device: torch.device) -> TrainingScores:
    """How well a network draws its training examples.

    Parameters
    ----------
    run
        A finished run of the bump task.
    device
        Where to compute.

    Returns
    -------
    TrainingScores
        Over the whole training set, or `MOST` of it.
    """
    task = run.spec.task
    values = task.training_values(run.spec.seed)
    if len(values) > MOST:
        values = values[torch.linspace(0, len(values) - 1, MOST).long()]
    module, examples = run.module().to(device), task.examples(values)
    outputs = torch.cat([module(part.to(device)).float() for part in examples.inputs.split(CHUNK)])
    targets, values = examples.targets.to(device), values.to(device)
    errors, blank = squared_error(outputs, targets), squared_error(task.blank.to(device).expand_as(targets), targets)
    is_bump = ~values.isnan().any(dim=1)
    located = extreme_pixel(outputs[is_bump], "bright" if task.background == 0 else "dark")
    in_place = hits(located, values[is_bump, :2])
    over = [(errors[kind].mean() / blank[kind].mean()).item() for kind in (is_bump, ~is_bump) if kind.any()]
    return TrainingScores(max(over), in_place.double().mean().item())
