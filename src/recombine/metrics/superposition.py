"""Does a network superpose what it has memorised? (§3.3, Fig. 1d)

Conventions
-----------
Answers are taken as signals over the background, S = D − background. For a held-out combination (x, y):

- `averaged`: S(x, ȳ) + S(x̄, y), where ȳ is the mean *code* of y over the training data, and x̄ likewise (the paper's);
- `memorised`: Σ S(x, y′) + Σ S(x′, y) over the kept combinations that share x or share y: what a sum of memories gives.

For n factors: one term a factor, that factor kept and all others averaged (or: all kept combinations sharing it).

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

from recombine.checks import checked, users_function, whole_number
from recombine.errors import InvalidValue

SHUFFLES = 20


@checked
def averaged_codes(
    codes: Float[Tensor, "point code"], sizes: Sequence[int], training: Float[Tensor, "row code"]
) -> list[Float[Tensor, "point code"]]:
    """For each factor, the codes with that factor kept and every other one replaced by its mean over training."""
    for size in sizes:
        whole_number("sizes", size)
    if sum(sizes) != codes.shape[1]:
        raise InvalidValue("sizes", list(sizes), f"lengths of the factors' codes, {codes.shape[1]} in all")
    mean = training.mean(dim=0).expand_as(codes)
    found, start = [], 0
    for size in sizes:
        own = torch.zeros(codes.shape[1], dtype=torch.bool, device=codes.device)
        own[start : start + size] = True
        found.append(torch.where(own, codes, mean))
        start += size
    return found


@checked
def averaged_prediction(
    signal: Callable[[Tensor], Tensor],
    codes: Float[Tensor, "point code"],
    sizes: Sequence[int],
    training: Float[Tensor, "row code"],
) -> Tensor:
    """Σ over factors of the network's signal for that factor with the others averaged."""
    parts = averaged_codes(codes, sizes, training)
    with users_function("signal", signal):
        return torch.stack([signal(part) for part in parts]).sum(dim=0)


@checked
def memorised_prediction(
    signals: Float[Tensor, "*member point pixel"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
) -> Float[Tensor, "*member held pixel"]:
    """For each held-out point, the sum of the signals at kept points that share a factor value with it."""
    shares = positions[held_out][:, None, :] == positions[~held_out][None, :, :]
    return shares.sum(dim=-1).to(signals.dtype) @ signals[..., ~held_out, :]


@checked
def explained_variance(
    signals: Float[Tensor, "*member point pixel"], prediction: Float[Tensor, "*member point pixel"]
) -> Float[Tensor, "*member"]:
    """Fraction of the signals' variance that the prediction explains, at its best scale."""
    truth = signals.double() - signals.double().mean(dim=-2, keepdim=True)
    guess = prediction.double() - prediction.double().mean(dim=-2, keepdim=True)
    product, power = (truth * guess).sum(dim=(-2, -1)), guess.square().sum(dim=(-2, -1))
    scale = torch.where(power > 0, product / torch.where(power > 0, power, 1.0), 0.0).clamp(min=0)
    residual = (truth - scale[..., None, None] * guess).square().sum(dim=(-2, -1))
    return 1 - residual / truth.square().sum(dim=(-2, -1))


@checked
def superposition_scores(
    signals: Float[Tensor, "*member point pixel"],
    positions: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"],
    *,
    truth: Float[Tensor, "point pixel"] | None = None,
    averaged: Float[Tensor, "*member held pixel"] | None = None,
    seed: int = 0,
) -> dict[str, Float[Tensor, "*member"]]:
    """Fractions of the held-out answers' variance explained, and of each superposition's own null.

    `memorised` and `memorised_null` always; `averaged` and `averaged_null`, and `truth`, where these are given.
    """
    whole_number("seed", seed, at_least=0)
    answers = signals[..., held_out, :]
    predictions = {"memorised": memorised_prediction(signals, positions, held_out)}
    if averaged is not None:
        predictions["averaged"] = averaged
    found = {}
    for name, prediction in predictions.items():
        found[name] = explained_variance(answers, prediction)
        found[f"{name}_null"] = _mismatched(answers, prediction, seed)
    if truth is not None:
        found["truth"] = explained_variance(answers, truth[held_out].expand_as(answers))
    return found


def _mismatched(answers: Tensor, prediction: Tensor, seed: int) -> Tensor:
    """Mean explained variance when every point is given the prediction of another one."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(SHUFFLES):
        order = torch.randperm(answers.shape[-2], generator=generator)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        found.append(explained_variance(answers, prediction[..., other.to(answers.device), :]))
    return torch.stack(found).mean(dim=0)
