"""What outputs of a stripe-trained network are made of: their two stripes, or a bump where those cross (§4.2, Fig. 4b).

Conventions (`recombine.metrics.combinations`): an *additive conjunction* is a sum, with weights that are not negative,
of the two training stripes of a point. `additive` is the fraction of the outputs that the best such sums explain, over
all held-out points, and `additive_inside` over those well inside. `additive_unweighted` is that explained by what the
network itself draws for either factor alone, D(x, ∅) + D(∅, y), with no weights at all; it may be negative. With the
true bump beside the stripes, `stripe_share` and `bump_share` are what each part contributes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recombine.metrics import interior, stripe_superposition
from recombine.reproduction.measuring import Batch
from recombine.tasks import Task


def conjunctions(batch: Batch) -> dict[str, Tensor]:
    """How additive held-out outputs of runs are, and the shares of stripes and bump in them."""
    task = batch.task
    outputs, alone = (
        batch.forward(task.examples(values).inputs) for values in (task.grid.points, task.isolated_values())
    )
    return conjunctions_of_outputs(task, outputs, alone)


def conjunctions_of_outputs(task: Task, outputs: Tensor, alone: Tensor) -> dict[str, Tensor]:
    """The same of outputs at all grid points, `[member, point, y, x]`, and for single factors."""
    device, held_out = outputs.device, task.held_out.to(outputs.device)
    signals, drawn = (images.flatten(2).double() - task.background for images in (outputs, alone))
    stripes, truth = (
        task.render(values).flatten(1).double().to(device) - task.background
        for values in (task.isolated_values(), task.grid.points)
    )
    own = _stripes_of_points(task, stripes)
    everywhere = stripe_superposition(signals, own, truth, held_out)
    inside = stripe_superposition(signals, own, truth, interior(held_out, task.grid.shape))
    unweighted = _stripes_of_points(task, drawn).sum(dim=-3)
    residual = (signals - unweighted)[:, held_out].square().sum(dim=(1, 2))
    return {
        "additive": everywhere["stripes"],
        "additive_inside": inside["stripes"],
        "additive_unweighted": 1 - residual / signals[:, held_out].square().sum(dim=(1, 2)),
        "stripe_share": everywhere["stripe_share"],
        "bump_share": everywhere["bump_share"],
    }


def _stripes_of_points(task: Task, stripes: Tensor) -> Tensor:
    """For each factor, the image of its value alone at every grid point: `[…, factor, point, pixel]`."""
    values, points = task.isolated_values(), task.grid.points
    rows = [torch.nonzero(points[:, k, None] == values[None, :, k])[:, 1] for k in range(points.shape[1])]
    return torch.stack([stripes[..., own.to(stripes.device), :] for own in rows], dim=-3)
