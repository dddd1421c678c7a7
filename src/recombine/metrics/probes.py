"""Linear probes, which measure how well factors can be decoded linearly from a stage (Fig. 2 a–b).

The ridge is relative: λ = `ridge` × the mean squared norm of the centred features, so its effect is comparable between
stages. `ridge=0` is least squares, except that directions with less than `RANK_TOLERANCE` of the features' variance are
damped by a ridge of that size, so that a Cholesky factor exists.

Known answers: features that equal the factors score 1; constant features score 0 in sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from recombine.metrics.registry import Column, Need, Stage, stage_metric
from recombine.theory.projections import refuse_not_finite

RIDGE = 1e-3
"""Relative ridge of the held-out probe."""
RANK_TOLERANCE = 1e-10
"""In float64, eigenvalues of a Gram matrix well below this fraction of their sum count as zero."""


@dataclass(frozen=True)
class LinearProbe:
    """A linear map with an intercept from features to factor values, for one or more members at once.

    Examples
    --------
    >>> values = torch.arange(4.0)[:, None]
    >>> round(LinearProbe(0.0).fit(3 * values + 1, values).score(3 * values + 1, values).item(), 6)
    1.0
    """

    ridge: float = RIDGE

    def fit(self, features: Float[Tensor, "*member point feature"], values: Float[Tensor, "point factor"]) -> Fitted:
        """Fit the probe in dual form, which takes points³ / 3 + points² × features operations."""
        refuse_not_finite("features", features)
        refuse_not_finite("values", values)
        center = features.double().mean(dim=-2, keepdim=True)
        centred = features.double() - center
        gram = centred @ centred.mT
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        damping = self.ridge * diagonal.mean(dim=-1) + RANK_TOLERANCE * diagonal.sum(dim=-1)
        damping = damping + torch.finfo(torch.float64).tiny  # constant features have a Gram matrix of zeros
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        damped = gram + damping[..., None, None] * identity
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

    def predict(self, features: Float[Tensor, "*member point feature"]) -> Float[Tensor, "*member point factor"]:
        """Return the factor values predicted from the features."""
        return (features.double() - self.center) @ self.weights + self.mean

    def score(
        self, features: Float[Tensor, "*member point feature"], values: Float[Tensor, "point factor"]
    ) -> Float[Tensor, "*member factor"]:
        """Return R² for each factor, or NaN for a factor that does not vary among these points."""
        truth = values.double()
        residual = (truth - self.predict(features)).square().sum(dim=-2)
        score = 1 - residual / (truth - truth.mean(dim=0)).square().sum(dim=0)
        return torch.where(truth.amax(dim=0) > truth.amin(dim=0), score, torch.nan)


@stage_metric(
    "probe_in_sample",
    Column(
        "probe_in_sample", "R² of least squares, fitted and scored on the whole grid", "Fig. 2a–b", dims=("factor",),
        heading="probe R² (in sample)", panel="probe R²", line="in sample",
    ),
)  # fmt: skip
def evaluate_in_sample(stage: Stage) -> dict[str, Tensor]:
    fitted = LinearProbe(0.0).fit(stage.features, stage.points)
    return {"probe_in_sample": fitted.score(stage.features, stage.points)}


@stage_metric(
    "probe_held_out",
    Column(
        "probe_held_out", "R² of ridge regression, fitted to kept and scored on held-out points", dims=("factor",),
        heading="probe R² (held out)", panel="probe R²", line="held out",
    ),
    needs=(Need.HOLDOUT,),
)  # fmt: skip
def evaluate_held_out(stage: Stage) -> dict[str, Tensor]:
    features, points, held_out = stage.features, stage.points, stage.held_out
    fitted = LinearProbe().fit(features[..., ~held_out, :], points[~held_out])
    return {"probe_held_out": fitted.score(features[..., held_out, :], points[held_out])}
