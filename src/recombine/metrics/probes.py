"""Linear probes: how well factors can be read off a stage by a linear map (Fig. 2 a–b).

Conventions: `fit` and `score` are apart. The paper fits and scores on the same grid, with ordinary least squares: with
more features than points that is near 1 for any stage, random ones included. The honest score fits on the kept
combinations and scores on the held-out ones, with ridge.

R² = 1 − Σ(v − v̂)² / Σ(v − v̄)², a number a factor, v̄ being the mean of the scored points; it can be negative.

The ridge parameter is relative: λ = `ridge` × the mean squared norm of the centred features, so that it means the same
for every stage. `ridge=0` is least squares: directions whose share of the features' variance is below `RANK_TOLERANCE`
are not used (they are damped by a ridge of that size, which a Cholesky factor can bear).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recombine.checks import checked, finite, number
from recombine.errors import InvalidValue

RIDGE = 1e-3
"""Relative ridge of the held-out probe."""
RANK_TOLERANCE = 1e-10
"""Eigenvalues of a Gram matrix well below this share of their sum count as zero, in float64."""


@dataclass(frozen=True)
class LinearProbe:
    """A linear map from features to factor values, with intercept, for any number of members at once."""

    ridge: float = RIDGE

    def __post_init__(self) -> None:
        number("ridge", self.ridge, at_least=0)

    @checked
    def fit(self, features: Float[Tensor, "*member point feature"], values: Float[Tensor, "point factor"]) -> Fitted:
        """Fit on some points. Costs points³ / 3 + points² × features, however many features there are."""
        finite("features", features)
        finite("values", values)
        center = features.double().mean(dim=-2, keepdim=True)
        centred = features.double() - center
        gram = centred @ centred.mT
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        damping = self.ridge * diagonal.mean(dim=-1) + RANK_TOLERANCE * diagonal.sum(dim=-1)
        tiny = torch.finfo(torch.float64).tiny  # features that do not vary have a zero matrix
        damped = gram + (damping + tiny)[..., None, None] * torch.eye(
            gram.shape[-1], dtype=gram.dtype, device=gram.device
        )
        mean = values.double().mean(dim=0)
        centred_values = (values.double() - mean).expand(*gram.shape[:-1], values.shape[-1])
        dual = torch.cholesky_solve(centred_values, torch.linalg.cholesky(damped))
        return Fitted(center, centred.mT @ dual, mean)


@dataclass(frozen=True)
class Fitted:
    """A fitted probe."""

    center: Tensor
    weights: Float[Tensor, "*member feature factor"]
    mean: Float[Tensor, " factor"]

    @checked
    def predict(self, features: Float[Tensor, "*member point feature"]) -> Float[Tensor, "*member point factor"]:
        """The factor values read off the features."""
        if features.shape[-1] != self.weights.shape[-2]:
            raise InvalidValue("features", features, f"{self.weights.shape[-2]} features, as many as were fitted")
        return (features.double() - self.center) @ self.weights + self.mean

    @checked
    def score(
        self, features: Float[Tensor, "*member point feature"], values: Float[Tensor, "point factor"]
    ) -> Float[Tensor, "*member factor"]:
        """R² of each factor."""
        truth = values.double()
        residual = (truth - self.predict(features)).square().sum(dim=-2)
        return 1 - residual / (truth - truth.mean(dim=0)).square().sum(dim=0)


@checked
def probe_scores(
    features: Float[Tensor, "*member point feature"],
    values: Float[Tensor, "point factor"],
    held_out: Bool[Tensor, " point"] | None = None,
    ridge: float = RIDGE,
) -> dict[str, Float[Tensor, "*member factor"]]:
    """`in_sample` (the paper's) and, where something is held out, `held_out` (fitted on kept, scored on held-out)."""
    found = {"in_sample": LinearProbe(0.0).fit(features, values).score(features, values)}
    if held_out is not None and bool(held_out.any()):
        kept = ~held_out
        fitted = LinearProbe(ridge).fit(features[..., kept, :], values[kept])
        found["held_out"] = fitted.score(features[..., held_out, :], values[held_out])
    return found
