"""What a network draws between the angles it was trained on: the gap, its edges, and regressions on true images."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.tasks.rotation import RotationTask

MARGIN = 0.25
"""Fraction of the gap excluded from regressions at each edge."""


def in_gap(task: RotationTask) -> Bool[Tensor, " angle"]:
    """Return a mask of the first digit's held-out angles."""
    return task.held_out.reshape(task.digits, task.angles)[0]


def gap_angles(task: RotationTask) -> Float[Tensor, " angle"]:
    """Return the held-out angles."""
    return task.grid.factors[-1].values[in_gap(task)]


def gap_edges(task: RotationTask) -> tuple[float, float]:
    """Return the training angles next to the gap on either side."""
    inside, step = gap_angles(task), task.grid.factors[-1].spacing
    return inside.min().item() - step, inside.max().item() + step


def in_middle(task: RotationTask, margin: float = MARGIN) -> Bool[Tensor, " angle"]:
    """Return which held-out angles are at least `margin` times the gap's width away from its edges."""
    low, high = gap_edges(task)
    depth = (gap_angles(task) - low) / (high - low)
    return torch.minimum(depth, 1 - depth) >= margin - 1e-9  # rounding tolerance


def first_digit(task: RotationTask, angles: Tensor) -> Tensor:
    """Return rows of factor values for the first digit at these angles."""
    return angles[:, None] if task.digits == 1 else torch.stack([torch.zeros_like(angles), angles], dim=1)


def edge_images(task: RotationTask) -> Float[Tensor, "edge y x"]:
    """Return the first digit's true images at the gap's two edges."""
    return task.render(first_digit(task, torch.tensor(gap_edges(task), dtype=torch.float64)))


def linear_blend(task: RotationTask, angles: Float[Tensor, " angle"]) -> Float[Tensor, "angle y x"]:
    """Return blends of the true images at the gap's edges, with weights linear in the angle."""
    (low, high), (before, after) = gap_edges(task), edge_images(task)
    weight = ((angles - low) / (high - low))[:, None, None]
    return (1 - weight) * before + weight * after


# Each output in the gap is regressed, over pixels, on the true image at that angle and those at the gap's two edges.
# There is no intercept, since the background is 0. The weight of the edge images minus that of the true image, averaged
# over angles, is −1 for a network that draws the true image, 1 for any blend of the edge images (whose weights sum to
# 1), and 0 for a network that draws nothing. Weights may be negative, to allow for networks that draw something else.
#
# Near an edge, the true image almost equals that edge's image, so the weights are ill-determined; hence the margin.
# `blend_less_truth` can use all angles, because its two weights are shared by all of them, and angles at which the true
# image and the blend nearly coincide contribute almost nothing.


def edge_regression(
    drawn: Float[Tensor, "*member angle y x"], truths: Float[Tensor, "angle y x"], edges: Float[Tensor, "edge y x"]
) -> tuple[Float[Tensor, "*member angle image"], Float[Tensor, "*member angle"]]:
    """Return each output's weights on the true image and both edge images, and the share explained (NaN if blank)."""
    known = torch.stack([truths, *(edge.expand_as(truths) for edge in edges)], dim=1)
    return _least_squares(drawn.flatten(-2), known.flatten(-2).to(drawn.device))


def edges_less_truth(weights: Float[Tensor, "*member angle image"]) -> Float[Tensor, "*member"]:
    """Return the weight of the edge images minus that of the true image, averaged over angles."""
    return (weights[..., 1:].sum(dim=-1) - weights[..., 0]).mean(dim=-1)


def blend_less_truth(
    drawn: Float[Tensor, "*member angle y x"], truths: Float[Tensor, "angle y x"], blends: Float[Tensor, "angle y x"]
) -> Float[Tensor, "*member"]:
    """Return the weight of linear blends minus that of true images in a joint regression of all outputs."""
    known = torch.stack([truths, blends]).flatten(1).to(drawn.device)
    weights, _ = _least_squares(drawn.flatten(-3), known)
    return weights[..., 1] - weights[..., 0]


def _least_squares(
    drawn: Float[Tensor, "*shape pixel"], known: Float[Tensor, "*row image pixel"]
) -> tuple[Float[Tensor, "*shape image"], Float[Tensor, "*shape"]]:
    """Return the weights of known images in outputs, and the share of the outputs' energy that they explain."""
    drawn, known = drawn.double(), known.double()
    weights = (drawn[..., None, :] @ torch.linalg.pinv(known))[..., 0, :]
    residual = drawn - (weights[..., None, :] @ known)[..., 0, :]
    square = drawn.square().sum(dim=-1)
    return weights, 1 - residual.square().sum(dim=-1) / torch.where(square > 0, square, torch.nan)


# Over all angles, a stage's activations form a closed path. Its roughness is the mean norm of the second differences
# f(i + 1) − 2 f(i) + f(i − 1) divided by that of the first differences (f(i + 1) − f(i − 1)) / 2. The ratio of means,
# rather than the mean of ratios, gives little weight to angles at which the stage hardly changes.


def stage_roughness(
    activations: Float[Tensor, "*member angle feature"], inside: Bool[Tensor, " angle"]
) -> Float[Tensor, "*member"]:
    """Return the ratio of roughness inside to outside the gap; NaN if constant in either region or straight outside."""
    path = activations.double()
    after, before = path.roll(-1, dims=-2), path.roll(1, dims=-2)
    second, first = (after - 2 * path + before).norm(dim=-1), (after - before).norm(dim=-1) / 2
    within, outside = (second[..., part].mean(dim=-1) / first[..., part].mean(dim=-1) for part in (inside, ~inside))
    return torch.where(outside > 0, within / outside, torch.nan)


def principal_scores(activations: Float[Tensor, "angle feature"]) -> np.ndarray:
    """Return scores `[angle, component]` on the principal components that explain all but 1e-5 of the variance.

    There are at least two components, largest first. The scores preserve distances up to a factor, which is all that
    UMAP uses, so figures can be drawn without the network. The largest score is 1, and each component's largest entry
    is positive.
    """
    centred = (activations - activations.mean(dim=0)).double()
    values, vectors = torch.linalg.eigh(centred @ centred.mT)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    left_out = values.sum() - values.cumsum(dim=0)
    count = max(2, int((left_out > 1e-5 * values.sum()).sum()) + 1)
    scores = vectors[:, :count] * values[:count].sqrt()
    extreme = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    rounded = (scores * extreme.sign() / scores.abs().max().clamp(min=1e-30)).half()  # to save space
    return np.asarray(rounded.float().cpu().numpy())
