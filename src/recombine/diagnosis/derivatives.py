"""Exact derivatives where a module has them, differences between grid points elsewhere, and always the reason.

The stages of one result must be comparable, so that either all of them are exact or none is. Exact derivatives are
given up where torch has none, where a stage varies over the grid while its exact metric is 0 (`detach`, numpy,
inference mode, whole numbers), and where the derivative that a module reports is not that of its activations (`detach`
in one branch, straight-through estimators): a few points off the grid are moved by a small step to find out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from textwrap import shorten

import torch
from torch import Tensor

from recombine.diagnosis.hooks import activations
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics import Reader, features, metric_tensor
from recombine.metrics.metric_tensors import stage_jacobians

EXACT, DIFFERENCES = "exact", "finite differences"
CHECKED = ((0.27, 0.61, 0.44), (0.72, 0.36, 0.58), (0.53, 0.19, 0.83))
"""Points of the derivative's check, as shares of the factors' ranges: off the grid, where codes may have kinks."""
MISMATCH = 0.02
"""Share of a derivative by which small steps may depart from it, beyond rounding."""
STEPS = (1.0, 1 / 8, 1 / 64)
"""The derivative is right if it agrees at one of these steps: a longer one may cross kinks or whole periods."""
ROUNDING = 0.05
"""Share of a derivative that rounding may hide; a shorter step than the first at which it hides more says nothing."""


@dataclass(frozen=True)
class Geometry:
    """Exact metric tensors, or none, and why there are none: words that follow "finite differences, "."""

    metrics: dict[str, Tensor] | None
    reason: str = ""

    @property
    def method(self) -> str:
        return DIFFERENCES if self.metrics is None else EXACT


def exact_geometry(reader: Reader, points: Tensor, grid: FactorGrid, memory: int, epsilon: float) -> Geometry:
    """Exact metric tensors of all stages, or the reason why they cannot be trusted."""
    try:
        if reason := _wrong_derivative(reader, grid, points, epsilon):
            return Geometry(None, reason)
        metrics = metric_tensor(reader, points, memory=memory, repeated=True)
    except InvalidValue as error:
        if error.field != "encoding":
            raise
        return Geometry(None, "since the encoding has no derivative")
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # the module ran without tangents: what fails is its derivative
        reason = shorten(str(error).partition(" because ")[0] or type(error).__name__, 100, placeholder=" …")
        return Geometry(None, f"since the module has no forward-mode derivative ({reason})")
    if infinite := [name for name, metric in metrics.items() if not bool(metric.isfinite().all())]:
        return Geometry(None, f"since the derivative is not finite at {infinite[0]}")
    still = [name for name, metric in metrics.items() if not bool(metric.any())]
    for name, stage in features(reader, points, memory=memory) if still else ():
        if name in still and bool((stage != stage[:1]).any()):
            return Geometry(None, f"since the derivative is lost at {name}")
    return Geometry(metrics)


def _wrong_derivative(reader: Reader, grid: FactorGrid, points: Tensor, epsilon: float) -> str | None:
    """What is wrong with the derivative of the first stage that small steps contradict, beyond rounding and kinks."""
    low = torch.tensor([factor.low for factor in grid.factors], dtype=points.dtype, device=points.device)
    range_ = torch.tensor([factor.high - factor.low for factor in grid.factors]).to(low)
    spacing = torch.tensor([factor.spacing for factor in grid.factors]).to(low)
    count = len(grid.factors)
    shares = torch.tensor([[row[k % len(row)] for k in range(count)] for row in CHECKED]).to(low)
    values = low + range_ * shares
    try:
        activations(reader, values)
    except Exception:
        return None  # an encoding may know the grid's own points only
    exact = {name: jacobian.double() for name, jacobian in stage_jacobians(reader, values).items()}
    contradicted = {(name, k) for name in exact for k in range(count)}
    for share in STEPS:
        step = spacing * epsilon ** (1 / 3) * share
        contradicted &= _contradicted(reader, values, step, exact, epsilon, math.inf if share == 1 else ROUNDING)
        if not contradicted:
            return None
    name = next(name for name in exact if any(name == wrong for wrong, _ in contradicted))
    if not bool(exact[name].any()):
        return f"since the derivative is lost at {name}"
    return f"since the derivative at {name} is not that of its activations"


def _contradicted(
    reader: Reader, values: Tensor, step: Tensor, exact: dict[str, Tensor], epsilon: float, rounding_limit: float
) -> set[tuple[str, int]]:
    """Stages that do not move along a factor as their derivative says, or with more rounding than allowed."""
    wrong = set()
    for k in range(values.shape[1]):
        offset = torch.zeros_like(values)
        offset[:, k] = step[k]
        ahead, behind = activations(reader, values + offset), activations(reader, values - offset)
        coarse = float(values[:, k].abs().max() / step[k]) * epsilon
        for name, stage in ahead.items():
            differences, derivative = (stage - behind[name]) / (2 * float(step[k])), exact[name][..., k]
            error = float((differences - derivative).norm())
            size = max(float(differences.norm()), float(derivative.norm()))
            rounding = coarse * size + 4 * epsilon * float(stage.norm()) / float(step[k])
            if error > MISMATCH * size + rounding or rounding > rounding_limit * size:
                wrong.add((name, k))
    return wrong
