"""Exact metric tensors of a module's stages, or why its derivatives cannot be trusted.

Exact derivatives are used either for all stages or for none, so that stages are comparable. They are not used if torch
cannot compute them, if a stage varies across the grid although its exact metric is 0 (`detach`, numpy, inference mode,
integers), or if they contradict finite differences at a few points off the grid (`detach` in one branch,
straight-through estimators).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import torch
from torch import Tensor

from recombine.diagnosis.running import Runner, is_constant, out_of_memory, tried
from recombine.diagnosis.stages import (
    activations,
)
from recombine.errors import InvalidValue
from recombine.metrics.stages import (
    Reader,
    features,
    metric_tensor,
    stage_jacobians,
)

CHECKED = ((0.27, 0.61, 0.44), (0.72, 0.36, 0.58), (0.53, 0.19, 0.83))
"""Off-grid points where derivatives are checked, as fractions of factor ranges; codes may have kinks on the grid."""
MISMATCH = 0.02
"""Tolerated relative difference between a derivative and its finite-difference estimate, in addition to rounding."""
STEPS = (1.0, 1 / 8, 1 / 64)
"""Relative step sizes. A derivative must agree for one of them, since longer steps may cross kinks or whole periods."""
ROUNDING = 0.05
"""Largest relative rounding error at which a shorter step is still informative."""
UNCHECKED = "derivatives were not checked against finite differences: the module does not run between grid points"


@dataclass(frozen=True)
class Geometry:
    """Exact metric tensors by stage for each sub-grid, or None and the reason for using finite differences."""

    metrics: list[dict[str, Tensor]] | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def exact_geometry(runner: Runner, parts: Sequence[Tensor]) -> Geometry:
    """Return the exact metric tensors of all stages on each sub-grid, or the reason why they are unreliable."""
    factors = runner.subject.grid.factors
    low, high = torch.tensor([(factor.low, factor.high) for factor in factors], dtype=torch.float64).unbind(1)
    shares = torch.tensor([[row[k % len(row)] for k in range(len(factors))] for row in CHECKED])
    values = runner.values(low + (high - low) * shares)
    notes = (UNCHECKED,) if tried(runner.reader, values) is None else ()  # an encoding may accept grid points only
    try:
        if not notes and (reason := _wrong_derivative(runner, values)):
            return Geometry(None, reason)
        tensors = [metric_tensor(runner.reader, points, memory=runner.memory, repeated=True) for points in parts]
    except InvalidValue as error:
        if error.field != "encoding":
            raise
        return Geometry(None, "since the encoding has no derivative")
    except Exception as error:  # the module ran without tangents, so its derivative is what fails
        if out_of_memory(error):
            raise
        reason = shorten(str(error).partition(" because ")[0] or type(error).__name__, 100, placeholder=" …")
        return Geometry(None, f"since the module has no forward-mode derivative ({reason})")
    for points, metrics in zip(parts, tensors, strict=True):
        if infinite := [name for name, metric in metrics.items() if not bool(metric.isfinite().all())]:
            return Geometry(None, f"since the derivative is not finite at {infinite[0]}")
        zero = [name for name, metric in metrics.items() if not bool(metric.any())]
        for name, stage in features(runner.reader, points, memory=runner.memory) if zero else ():
            if name in zero and not is_constant(stage):
                return Geometry(None, f"since the derivative is lost at {name}")
    return Geometry(tensors, notes=notes)


def _wrong_derivative(runner: Runner, values: Tensor) -> str | None:
    """Return what is wrong with the derivative at the first stage where finite differences contradict it, or None."""
    factors, epsilon = runner.subject.grid.factors, runner.stages.epsilon
    spacing = torch.tensor([factor.spacing for factor in factors], dtype=torch.float64).to(values)
    exact = {name: jacobian.double() for name, jacobian in stage_jacobians(runner.reader, values).items()}
    contradicted = {(name, k) for name in exact for k in range(len(factors))}
    for share in STEPS:
        # ε^(1/3) balances the rounding and truncation errors of a central difference
        step = spacing * epsilon ** (1 / 3) * share
        limit = math.inf if share == 1 else ROUNDING
        contradicted &= _contradicted(runner.reader, values, step, exact, epsilon, limit)
        if not contradicted:
            return None
    name = next(name for name in exact if any(name == wrong for wrong, _ in contradicted))
    if not bool(exact[name].any()):
        return f"since the derivative is lost at {name}"
    return f"since the derivative at {name} is not that of its activations"


def _contradicted(
    reader: Reader, values: Tensor, step: Tensor, exact: dict[str, Tensor], epsilon: float, rounding_limit: float
) -> set[tuple[str, int]]:
    """Return the stages and factors where central differences contradict the derivative or rounding errors dominate."""
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
