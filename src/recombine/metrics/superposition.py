"""Does a network superpose what it has memorised? (§3.3, Fig. 1d)

Conventions
-----------
Outputs are taken as signals over the background, S = D − background. For a held-out combination (x, y):

- `averaged`: S(x, ȳ) + S(x̄, y), where ȳ is the mean *code* of y over the training data, and x̄ likewise (the paper's);
- `memorised`: Σ S(x, y′) + Σ S(x′, y) over the kept combinations that share x or share y: what a sum of memories gives.

For n factors: one term per factor, that factor kept and all others averaged (or: all kept combinations sharing it).

The fraction of variance explained is 1 − Σ(S − a P)² / Σ S², over all held-out points and pixels, S and P both with
their mean over points taken off, at the one scale a ≥ 0 that fits best: a prediction is not blamed for its amplitude.
Beside it stand that of the `truth` (the true images as P) and of a null for each prediction (every point given the
prediction of another one, mean over shuffles).

Known answers: a network that draws the sum of its memories scores 1 for `memorised`; one that draws every bump right
scores 0 for it and 1 for the truth. (Its `averaged` score is not 0: stripes do cross at the bump.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.errors import InvalidValue

SHUFFLES = 20


def averaged_codes(
    codes: Float[Tensor, "point code"], sizes: Sequence[int], training: Float[Tensor, "row code"]
) -> list[Float[Tensor, "point code"]]:
    """For each factor, the codes with that factor kept and every other one replaced by its mean over training.

    `sizes` are the lengths of the factors' blocks of codes.

    >>> averaged_codes(torch.ones(1, 2), [1, 1], torch.zeros(3, 2))
    [tensor([[1., 0.]]), tensor([[0., 1.]])]
    """
    if sum(sizes) != codes.shape[1]:
        raise InvalidValue("sizes", list(sizes), f"lengths of the factors' codes, {codes.shape[1]} in all")
    mean = training.mean(dim=0).expand_as(codes)
    parts, start = [], 0
    for size in sizes:
        own = torch.zeros(codes.shape[1], dtype=torch.bool, device=codes.device)
        own[start : start + size] = True
        parts.append(torch.where(own, codes, mean))
        start += size
    return parts


def averaged_prediction(
    signal: Callable[[Tensor], Tensor],
    codes: Float[Tensor, "point code"],
    sizes: Sequence[int],
    training: Float[Tensor, "row code"],
) -> Tensor:
    """Σ over factors of the network's signal, its output over the background, with the others' codes averaged."""
    return torch.stack([signal(part) for part in averaged_codes(codes, sizes, training)]).sum(dim=0)


def explained_variance(
    signals: Float[Tensor, "*member point pixel"], prediction: Float[Tensor, "*member point pixel"]
) -> Float[Tensor, "*member"]:
    """Fraction of the signals' variance that the prediction explains, at its best scale.

    >>> signals = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    >>> explained_variance(signals, 3 * signals).item()
    1.0
    """
    truth = signals.double() - signals.double().mean(dim=-2, keepdim=True)
    guess = prediction.double() - prediction.double().mean(dim=-2, keepdim=True)
    product, power = (truth * guess).sum(dim=(-2, -1)), guess.square().sum(dim=(-2, -1))
    scale = torch.where(power > 0, product / torch.where(power > 0, power, 1.0), 0.0).clamp(min=0)
    residual = (truth - scale[..., None, None] * guess).square().sum(dim=(-2, -1))
    return 1 - residual / truth.square().sum(dim=(-2, -1))


def superposition_scores(
    signals: Float[Tensor, "*member point pixel"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    truth: Float[Tensor, "point pixel"] | None = None,
    averaged: Float[Tensor, "*member held pixel"] | None = None,
) -> dict[str, Float[Tensor, "*member"]]:
    """Fractions of the held-out outputs' variance explained by each prediction, and by its null.

    Signals are outputs over the background at every grid point, as is the truth; the averaged prediction is of held-out
    points alone. One number per member: `memorised` and `memorised_null`; `averaged`, `averaged_null` and `truth` where
    these are given.
    """
    outputs = signals[..., held_out, :]
    shares = positions[held_out][:, None, :] == positions[~held_out][None, :, :]
    predictions = {"memorised": shares.sum(dim=-1).to(signals.dtype) @ signals[..., ~held_out, :]}
    if averaged is not None:
        predictions["averaged"] = averaged
    scores = {}
    for name, prediction in predictions.items():
        scores[name] = explained_variance(outputs, prediction)
        scores[f"{name}_null"] = _mismatched(outputs, prediction)
    if truth is not None:
        scores["truth"] = explained_variance(outputs, truth[held_out].expand_as(outputs))
    return scores


def _mismatched(outputs: Tensor, prediction: Tensor) -> Tensor:
    """Mean explained variance when every point is given the prediction of another one."""
    generator = torch.Generator().manual_seed(0)
    scores = []
    for _ in range(SHUFFLES):
        order = torch.randperm(outputs.shape[-2], generator=generator)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        scores.append(explained_variance(outputs, prediction[..., other.to(outputs.device), :]))
    return torch.stack(scores).mean(dim=0)
