"""Activations over angles in as few numbers as keep all distances between angles.

UMAP sees distances alone, and a figure may be drawn where there is no network, so that a Dataset has the scores on all
principal components that matter: without the last ones, which have together less than `NEGLIGIBLE` of the variance.
They are rounded to half precision, and take little space so. Angles are every so many of the grid, at most
`MOST_ANGLES` of them.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

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

    Parameters
    ----------
    activations
        A stage at some angles.

    Returns
    -------
    array
        At least two columns, the largest score 1; distances between its rows are those between activations, up to
        that factor.
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
