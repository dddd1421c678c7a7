"""Reversible and irreversible mixing (A.3), measured by how well the factors can be recovered from a stage.

`factor_recovery` searches for a map from a stage to the factors with several decoders, cross-validated over random
folds of the points. Neighbours of a scored point are in the training folds, so this measures information, not
generalisation. For each fold and factor, the decoder is selected by its errors in the other folds, so selection does
not bias the score: noise features have an R² of about 0.

A map whose inverse none of these decoders can represent looks like a loss. The metric tensor does not depend on
decoders and reveals local losses (`jacobian_rank`, `local_loss`), but not the merging of distant points.

All decoders are functions of the Gram matrix of points. One family is kernel ridge regression with an unpenalised
intercept and a linear kernel, or Gaussian ones with widths relative to the median distance between points. Ridges are
relative to the mean of the centred kernel's diagonal. With G = (K + λ)⁻¹ and P = G − G 1 1ᵀ G / (1ᵀ G 1), the errors on
a left-out fold F are (P_FF)⁻¹ (P v)_F, without refitting. The other family averages nearest neighbours. Widths and
ridges are scaled using all points, but not their factor values.

Known answers: rotations and invertible coupling layers change nothing. Averaging over a factor gives it recovery 0 and
local loss 1, without affecting the others. Saturation over half of a factor's range gives local loss ½ and R² 7/8. A
projection onto x + y gives both factors an R² of ½, and reduces the rank from 2 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.theory.projections import both_grams, refuse_not_finite, squared_distances

FOLDS = 5
LOSS_TOLERANCE = 1e-3
"""A factor counts as lost where its independent squared speed is below this fraction of its median squared speed."""
WIDTHS = (0.25, 0.5, 1.0, 2.0)
"""Widths of Gaussian kernels, in units of the median distance between points."""
RIDGES = (1e-6, 1e-3, 1.0, 1e3)
"""Relative ridges; the last predicts little more than the mean, for factors that are lost."""
NEIGHBOURS = (1, 3, 5)


def factor_recovery(
    features: Float[Tensor, "*member point feature"],
    points: Float[Tensor, "point factor"],
    *,
    scored: Bool[Tensor, " point"] | None = None,
) -> Float[Tensor, "*member factor"]:
    """Return the cross-validated R² with which each factor can be decoded from a stage.

    Decoders are fitted to all points in the other folds and scored at the `scored` points (default: all). The result is
    NaN for a factor with a single value.

    >>> x, y = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    >>> points = torch.stack([x.flatten(), y.flatten()], dim=1)
    >>> [round(value, 2) for value in factor_recovery(points[:, :1].exp(), points).tolist()]
    [1.0, -0.03]
    """
    return recovery(both_grams(features)[0], points).score(scored)


@dataclass(frozen=True, eq=False)
class Recovery:
    """Cross-validated errors of all decoders."""

    values: Float[Tensor, "point factor"]
    folds: tuple[Tensor, ...]
    errors: Float[Tensor, "decoder *member point factor"]
    """Squared errors at points whose fold was left out."""

    def score(self, scored: Bool[Tensor, " point"] | None = None) -> Float[Tensor, "*member factor"]:
        """Return R² at some points (default: all), selecting each fold's decoder by its errors in the other folds."""
        counted = torch.ones(len(self.values), dtype=torch.bool) if scored is None else scored.cpu()
        if not bool(counted.any()):
            raise InvalidValue("scored", "no point", "at least one point to score")
        weights = counted.to(self.values)
        own = self.values[counted.to(self.values.device)]
        total = (own - own.mean(dim=0)).square().sum(dim=0)
        errors = self.errors * weights[:, None]
        sums = torch.stack([errors[..., fold, :].sum(dim=-2) for fold in self.folds], dim=1)
        elsewhere = sums.sum(dim=1, keepdim=True) - sums
        best = sums.gather(0, elsewhere.argmin(dim=0, keepdim=True))[0]
        return 1 - best.sum(dim=0) / torch.where(total > 0, total, torch.nan)


def recovery(gram: Tensor, points: Tensor, *, folds: int = FOLDS) -> Recovery:
    """Return cross-validated errors of all decoders that predict factor values from the points' Gram matrix."""
    refuse_not_finite("points", points)
    if len(points) < 2 * folds:
        raise InvalidValue("folds", folds, f"at most half as many as points ({len(points)})")
    values = points.double().to(gram.device)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0)).to(gram.device)
    parts, centred = order.tensor_split(folds), values - values.mean(dim=0)
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None]
    unit = gram.double() / torch.where(scale > 0, scale, 1.0)
    return Recovery(values, parts, torch.stack([*_ridges(unit, centred, parts), *_neighbours(unit, centred, parts)]))


def _kernels(gram: Tensor) -> Iterator[Tensor]:
    yield gram
    squared = squared_distances(gram)
    points = gram.shape[-1]
    pairs = torch.triu_indices(points, points, 1, device=gram.device)
    median = squared[..., pairs[0], pairs[1]].median(dim=-1).values[..., None, None]
    unit = torch.where(median > 0, median, squared.mean(dim=(-2, -1), keepdim=True))
    for width in WIDTHS:
        yield torch.exp(-squared / (2 * width**2 * torch.where(unit > 0, unit, 1.0)))


def _ridges(gram: Tensor, values: Tensor, folds: Sequence[Tensor]) -> Iterator[Tensor]:
    points = gram.shape[-1]
    identity = torch.eye(points, dtype=gram.dtype, device=gram.device)
    for kernel in _kernels(gram):
        varying = kernel.diagonal(dim1=-2, dim2=-1).mean(dim=-1) - kernel.mean(dim=(-2, -1))
        for ridge in RIDGES:
            damping = (ridge * varying).clamp(min=1e-9)[..., None, None]  # so that a constant kernel is invertible
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(kernel + damping * identity))
            sums = inverse.sum(dim=-1, keepdim=True)
            smoother = inverse - sums @ sums.mT / sums.sum(dim=-2, keepdim=True)
            weighted = smoother @ values
            errors = torch.empty_like(weighted)
            for fold in folds:
                own = smoother[..., fold, :][..., fold]
                errors[..., fold, :] = torch.linalg.solve(own, weighted[..., fold, :]).square()
            yield errors


def _neighbours(gram: Tensor, values: Tensor, folds: Sequence[Tensor]) -> Iterator[Tensor]:
    squared = squared_distances(gram)
    for fold in folds:
        squared[..., fold[:, None], fold] = torch.inf
    most = min(max(NEIGHBOURS), gram.shape[-1] - max(map(len, folds)))
    nearest = squared.topk(most, dim=-1, largest=False).indices
    running = values[nearest].cumsum(dim=-2)
    for count in NEIGHBOURS:
        used = min(count, most)
        yield (values - running[..., used - 1, :] / used).square()


def jacobian_rank(metric: Float[Tensor, "*member point factor factor"]) -> Int[Tensor, "*member point"]:
    """Return the number of directions in which a stage moves at each point: the rank of the metric tensor g = JᵀJ.

    Eigenvalues below a millionth of the largest one on the grid count as 0.

    >>> jacobian_rank(torch.stack([torch.eye(2), torch.ones(2, 2), torch.zeros(2, 2)])).tolist()
    [2, 1, 0]
    """
    refuse_not_finite("metric", metric)
    values = torch.linalg.eigvalsh(metric.double())
    largest = values.amax(dim=(-2, -1), keepdim=True)
    return ((values > 1e-6 * largest) & (values > 0)).sum(dim=-1)


def local_loss(metric: Float[Tensor, "*member point factor factor"]) -> Float[Tensor, "*member factor"]:
    """Return the fraction of points where a factor moves the stage in no direction independent of the other factors.

    The independent squared speed of factor i is the Schur complement g_ii − g_io g_oo⁺ g_oi, where o are the other
    factors. It counts as 0 below `LOSS_TOLERANCE` times the median of g_ii over points.

    >>> local_loss(torch.stack([torch.eye(2), torch.ones(2, 2), torch.diag(torch.tensor([1.0, 0.0]))])).tolist()
    [0.3333333333333333, 0.6666666666666666]
    """
    refuse_not_finite("metric", metric)
    g = metric.double()
    speeds = g.diagonal(dim1=-2, dim2=-1).contiguous()  # torch's median is wrong for expanded tensors
    least = 1e-10 * speeds.amax(dim=(-2, -1), keepdim=True)  # speeds below this are rounding errors
    own = torch.stack([_own_speed(g, factor, least[..., 0]) for factor in range(g.shape[-1])], dim=-1)
    usual = LOSS_TOLERANCE * speeds.median(dim=-2, keepdim=True).values
    return (own <= torch.maximum(least, usual)).double().mean(dim=-2)


def _own_speed(metric: Tensor, factor: int, least: Tensor) -> Tensor:
    """Return the Schur complement of a factor's squared speed, ignoring others' directions that are rounding errors."""
    others = [k for k in range(metric.shape[-1]) if k != factor]
    if not others:
        return metric[..., factor, factor]
    cross = metric[..., others, factor]
    inverse = torch.linalg.pinv(metric[..., others, :][..., others], hermitian=True, atol=least)
    return metric[..., factor, factor] - torch.einsum("...i,...ij,...j->...", cross, inverse, cross)
