"""Whether stages stay smooth inside the gap, while the outputs there are wrong (Fig. 9).

Along the angles a stage's activations are a closed path. Its roughness over some angles is the mean length of the
second differences f(i + 1) − 2 f(i) + f(i − 1) over that of the first differences, f(i + 1) − f(i − 1) halved: how far
the direction or the speed of the path changes within one step, relative to the step. It is the ratio of two means and
not the mean of ratios, so that angles at which a stage hardly moves do not count for much.

`stage_roughness` is the roughness inside the gap over that outside: 1 for a path that is the same everywhere, below 1
for one that is straighter inside, above 1 for one with kinks or jumps there. The length of a step cancels, so tasks of
other factors may be compared with it by the ratio of `roughness_held` to `roughness_kept` (which is of the logarithm of
the volume; a path of one factor has those too, its volume being its speed). Speed itself is the study's `stage_speed`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def path_roughness(
    activations: Float[Tensor, "*member angle feature"], region: Bool[Tensor, " angle"] | None = None
) -> Float[Tensor, "*member"]:
    """Mean length of second differences over that of first ones along a closed path.

    Parameters
    ----------
    activations
        A stage at angles all around, evenly spaced.
    region
        True at the angles that count, on the host; all by default. The angle in the middle of a difference decides.

    Returns
    -------
    Tensor
        One number per member; NaN for a stage that stands still.
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
    """Roughness of a stage inside the gap over that outside.

    Parameters
    ----------
    activations
        A stage at angles all around, evenly spaced.
    inside
        True at the angles in the gap, on the host.

    Returns
    -------
    Tensor
        One number per member; NaN for a stage that stands still, or runs straight, outside.
    """
    outside = path_roughness(activations, ~inside)
    return path_roughness(activations, inside) / torch.where(outside > 0, outside, torch.nan)
