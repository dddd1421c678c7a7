"""Cosine and sine of angles in degrees, exact where they should be.

The angle is reduced to within 45° of a quarter turn before anything is rounded, so that a full turn more changes
nothing, bit for bit, and quarter turns have cosines and sines of exactly 0 and ±1.

Known answers: (1, 0) at 0° and 360°, (0, 1) at 90°, (−1, 0) at 180°, (0, −1) at 270° and −90°.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

TURN = 360.0
"""Degrees of a full turn."""
QUARTERS = 4


def cos_sin(degrees: Float[Tensor, "*shape"]) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Cosine and sine of each angle; both differentiable.

    >>> cosine, sine = cos_sin(torch.tensor([0.0, 90.0, 540.0]))
    >>> cosine.tolist(), sine.tolist()
    ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0])
    """
    reduced = degrees.remainder(TURN)
    quarter = (reduced.detach() * (QUARTERS / TURN)).round()
    rest = torch.deg2rad(reduced - quarter * (TURN / QUARTERS))
    cosine, sine = rest.cos(), rest.sin()
    odd, beyond = quarter.remainder(2) == 1, quarter.remainder(QUARTERS)
    zero = torch.zeros_like(cosine)  # 0 − 0 is +0, as 0° has it: equal angles give equal bits
    along, across = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    return (
        torch.where((beyond == 1) | (beyond == 2), zero - along, zero + along),
        torch.where(beyond >= 2, zero - across, zero + across),
    )
