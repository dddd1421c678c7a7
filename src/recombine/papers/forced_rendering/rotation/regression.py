"""How much of what is drawn inside the gap is the truth, and how much the images at the gap's edges.

An output inside the gap is regressed on three images, the truth at that angle and the true images at the gap's two
edges, by least squares over pixels, without a constant: the background is 0. `edges_less_truth` is the weight of both
edges less the truth's, averaged over angles: −1 for a network that draws the truth, 1 for one that draws a blend of
the edges, whatever its weights (they sum to 1), 0 for one that draws nothing.

Near an edge of the gap the truth is nearly that edge's image and the weights are not determined: at 28 pixels and the
default gap the condition number of the three unit images is 2 at the middle, 2.7 a quarter of the gap away from an
edge, 10 at 2° and 60 at the first angle. So the angles are those at least a quarter of the gap away from either edge
(`middle_angles`), and each has weights of its own, since a blend's change along the gap. The alternative,
`blend_regression`, takes any angles: it regresses on the truth and the linear blend with weights shared by all of them,
to which angles where the two images are nearly the same add next to nothing.

Weights may be negative, which a network that draws neither needs. `explained`, the share of the output's square that
the images account for, says how far it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.papers.forced_rendering.rotation.gap import gap_angles, gap_edges
from recombine.tasks.rotation import RotationTask

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


@dataclass(frozen=True)
class BlendWeights:
    """Weights of truth and linear blend, shared by all angles."""

    truth: Float[Tensor, "*member"]
    blend: Float[Tensor, "*member"]
    explained: Float[Tensor, "*member"]
    """Share of the outputs' square that the two account for; NaN where nothing is drawn."""

    @property
    def edges_less_truth(self) -> Float[Tensor, "*member"]:
        """The blend's weight less the truth's."""
        return self.blend - self.truth


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
    """Regress each output on the truth and the images at the gap's edges.

    Parameters
    ----------
    drawn
        What networks draw at some angles, see `middle_angles`.
    truths
        The true images at these angles.
    edges
        The true images at the two edges, see `recombine.papers.forced_rendering.rotation.gap.edge_images`.

    Returns
    -------
    EdgeWeights
        One weight per output and image; the shortest ones where images are the same.
    """
    known = torch.stack([truths, *(edge.expand_as(truths) for edge in edges)], dim=1)
    (truth, before, after), explained = _least_squares(drawn.flatten(-2), known.flatten(-2).to(drawn.device))
    return EdgeWeights(truth, before, after, explained)


def blend_regression(
    drawn: Float[Tensor, "*member angle y x"],
    truths: Float[Tensor, "angle y x"],
    blends: Float[Tensor, "angle y x"],
) -> BlendWeights:
    """Regress all outputs together on truths and linear blends.

    Parameters
    ----------
    drawn
        What networks draw at some angles.
    truths
        The true images at these angles.
    blends
        The edges' images mixed linearly, see `recombine.papers.forced_rendering.rotation.gap.linear_blend`.

    Returns
    -------
    BlendWeights
        One weight per network and kind of image.
    """
    known = torch.stack([truths, blends]).flatten(1).to(drawn.device)
    (truth, blend), explained = _least_squares(drawn.flatten(-3), known)
    return BlendWeights(truth, blend, explained)


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
