"""The gap in the angles, and the images that would fill it.

The **blend** at an angle in the gap mixes the true images at the gap's two edges, the last trained angles on either
side, with weights linear in the angle. What outputs are made of is told by regressing them on such images
(`regression`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.tasks.rotation import RotationTask


def gap_angles(task: RotationTask) -> Float[Tensor, " angle"]:
    """The held-out angles of the first digit."""
    return task.grid.factors[-1].values[by_digit(task, task.held_out)[0]]


def gap_edges(task: RotationTask) -> tuple[float, float]:
    """The last trained angles on either side of the gap."""
    inside, step = gap_angles(task), task.grid.factors[-1].spacing
    return inside.min().item() - step, inside.max().item() + step


def edge_images(task: RotationTask) -> Float[Tensor, "edge y x"]:
    """The first digit's true images at the gap's two edges."""
    return task.render(first_digit(task, torch.tensor(gap_edges(task), dtype=torch.float64)))


def linear_blend(task: RotationTask, angles: Float[Tensor, " angle"]) -> Float[Tensor, "angle y x"]:
    """The first digit's true images at the gap's edges, mixed with weights linear in the angle."""
    (low, high), (before, after) = gap_edges(task), edge_images(task)
    weight = ((angles - low) / (high - low))[:, None, None]
    return (1 - weight) * before + weight * after


def first_digit(task: RotationTask, angles: Tensor) -> Tensor:
    """Rows of factor values: the first digit at these angles."""
    return angles[:, None] if task.digits == 1 else torch.stack([torch.zeros_like(angles), angles], dim=1)


def by_digit(task: RotationTask, values: Tensor) -> Tensor:
    """Values over grid points as one row per digit."""
    return values.reshape(task.digits, task.angles)


# -- regression ------------------------------------------------------------------------------------------------------
# How much of what is drawn inside the gap is the truth, and how much the images at the gap's edges.
#
# An output inside the gap is regressed on three images, the truth at that angle and the true images at the gap's two
# edges, by least squares over pixels, without a constant: the background is 0. `edges_less_truth` is the weight of both
# edges less the truth's, averaged over angles: −1 for a network that draws the truth, 1 for one that draws a blend of
# the edges, whatever its weights (they sum to 1), 0 for one that draws nothing.
#
# Near an edge of the gap the truth is nearly that edge's image and the weights are not determined: at 28 pixels and the
# default gap the condition number of the three unit images is 2 at the middle, 2.7 a quarter of the gap away from an
# edge, 10 at 2° and 60 at the first angle. So the angles are those at least a quarter of the gap away from either edge
# (`middle_angles`), and each has weights of its own, since a blend's change along the gap. The alternative,
# `blend_regression`, takes any angles: it regresses on the truth and the linear blend with weights shared by all of
# them, to which angles where the two images are nearly the same add next to nothing.
#
# Weights may be negative, which a network that draws neither needs. `explained`, the share of the output's square that
# the images account for, says how far it does.


MARGIN = 0.25
"""Share of the gap next to either edge that is left out."""


@dataclass(frozen=True)
class EdgeWeights:
    """Weights of the images in each output."""

    truth: Float[Tensor, "*member angle"]
    before: Float[Tensor, "*member angle"]
    after: Float[Tensor, "*member angle"]
    explained: Float[Tensor, "*member angle"]
    """Share of the output's square that the three account for; NaN where nothing is drawn."""

    @property
    def edges_less_truth(self) -> Float[Tensor, "*member"]:
        """The edges' weight less the truth's, mean over angles."""
        return (self.before + self.after - self.truth).mean(dim=-1)


def middle_angles(task: RotationTask, margin: float = MARGIN) -> Float[Tensor, " angle"]:
    """The held-out angles of the first digit that are at least a share of the gap away from its edges."""
    angles, (low, high) = gap_angles(task), gap_edges(task)
    depth = (angles - low) / (high - low)
    rounding = 1e-9
    return angles[(depth >= margin - rounding) & (depth <= 1 - margin + rounding)]


def edge_regression(
    drawn: Float[Tensor, "*member angle y x"],
    truths: Float[Tensor, "angle y x"],
    edges: Float[Tensor, "edge y x"],
) -> EdgeWeights:
    """Regress each output on the truth and the images at the gap's edges (`edge_images`).

    The shortest weights where images are the same.
    """
    known = torch.stack([truths, *(edge.expand_as(truths) for edge in edges)], dim=1)
    (truth, before, after), explained = _least_squares(drawn.flatten(-2), known.flatten(-2).to(drawn.device))
    return EdgeWeights(truth, before, after, explained)


def blend_regression(
    drawn: Float[Tensor, "*member angle y x"],
    truths: Float[Tensor, "angle y x"],
    blends: Float[Tensor, "angle y x"],
) -> Float[Tensor, "*member"]:
    """Regress all outputs together on truths and linear blends (`linear_blend`): a blend's weight less the truth's."""
    known = torch.stack([truths, blends]).flatten(1).to(drawn.device)
    (truth, blend), _ = _least_squares(drawn.flatten(-3), known)
    return blend - truth


def _least_squares(
    drawn: Float[Tensor, "*shape pixel"], known: Float[Tensor, "*row image pixel"]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Weights of the known images in what is drawn, and the share of its square that they account for."""
    drawn, known = drawn.double(), known.double()
    weights = (drawn[..., None, :] @ torch.linalg.pinv(known))[..., 0, :]
    rest = drawn - (weights[..., None, :] @ known)[..., 0, :]
    square = drawn.square().sum(dim=-1)
    explained = 1 - rest.square().sum(dim=-1) / torch.where(square > 0, square, torch.nan)
    return weights.unbind(dim=-1), explained


# -- roughness -------------------------------------------------------------------------------------------------------
# Whether stages stay smooth inside the gap, while the outputs there are wrong (Fig. 9).
#
# Along the angles a stage's activations are a closed path. Its roughness over some angles is the mean length of the
# second differences f(i + 1) − 2 f(i) + f(i − 1) over that of the first differences, f(i + 1) − f(i − 1) halved: how
# far the direction or the speed of the path changes within one step, relative to the step. It is the ratio of two means
# and not the mean of ratios, so that angles at which a stage hardly moves do not count for much.
#
# `stage_roughness` is the roughness inside the gap over that outside: 1 for a path that is the same everywhere, below 1
# for one that is straighter inside, above 1 for one with kinks or jumps there. The length of a step cancels, so tasks
# of other factors may be compared with it by the ratio of `roughness_held` to `roughness_kept` (which is of the
# logarithm of the volume; a path of one factor has those too, its volume being its speed). Speed itself is the study's
# `stage_speed`.


def path_roughness(
    activations: Float[Tensor, "*member angle feature"], region: Bool[Tensor, " angle"] | None = None
) -> Float[Tensor, "*member"]:
    """Mean length of second differences over that of first ones along a closed path of evenly spaced angles.

    Of a region (on the host) the angle in the middle of a difference decides. NaN for a stage that stands still.
    """
    path = activations.double()
    after, before = path.roll(-1, dims=-2), path.roll(1, dims=-2)
    second, first = (after - 2 * path + before).norm(dim=-1), (after - before).norm(dim=-1) / 2
    if region is not None:
        second, first = second[..., region], first[..., region]
    length = first.mean(dim=-1)
    return second.mean(dim=-1) / torch.where(length > 0, length, torch.nan)


def stage_roughness(
    activations: Float[Tensor, "*member angle feature"], inside: Bool[Tensor, " angle"]
) -> Float[Tensor, "*member"]:
    """Roughness of a stage inside the gap over that outside; NaN where it stands still, or runs straight, outside."""
    outside = path_roughness(activations, ~inside)
    return path_roughness(activations, inside) / torch.where(outside > 0, outside, torch.nan)


# -- reduction -------------------------------------------------------------------------------------------------------
# Activations over angles in as few numbers as keep all distances between angles.
#
# UMAP sees distances alone, and a figure may be drawn where there is no network, so that a Dataset has the scores on
# all principal components that matter: without the last ones, which have together less than `NEGLIGIBLE` of the
# variance. They are rounded to half precision, and take little space so. Angles are every so many of the grid, at most
# `MOST_ANGLES` of them.


NEGLIGIBLE = 1e-5
MOST_ANGLES = 250
TINY = 1e-30


def chosen_angles(count: int) -> Tensor:
    """Indices of evenly spaced angles, of so many on a grid.

    >>> chosen_angles(1000)[:3].tolist(), len(chosen_angles(120))
    ([0, 4, 8], 120)
    """
    return torch.arange(0, count, -(-count // MOST_ANGLES))


def principal_scores(activations: Float[Tensor, "angle feature"]) -> np.ndarray:
    """Scores on the components that matter, largest first, each with its largest entry positive: `[angle, component]`.

    At least two columns, the largest score 1; distances between rows are those between activations, up to that factor.
    """
    centred = (activations - activations.mean(dim=0)).double()
    values, vectors = torch.linalg.eigh(centred @ centred.mT)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    left_out = values.sum() - values.cumsum(dim=0)
    count = max(2, int((left_out > NEGLIGIBLE * values.sum()).sum()) + 1)
    scores = vectors[:, :count] * values[:count].sqrt()
    extreme = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    rounded = (scores * extreme.sign() / scores.abs().max().clamp(min=TINY)).half()
    return np.asarray(rounded.float().cpu().numpy())
