"""Which points of a large grid are measured: sub-grids and samples, as described in docs/metrics.md ("Large grids").

On sub-grids that are redrawn until they have held-out points, means over kept points are biased towards the hold-out,
which their standard error does not show (on 8 × 8 × 8 points with a corner of 3 × 3 × 3 held out, 95 % intervals of
factorization cover the true value in 95 % of draws for held-out and in 84 % for kept points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid, Form  # noqa: F401  jaxtyping resolves inherited annotations here
from recombine.metrics.registry import STAGE_METRICS, Need, StageProfile
from recombine.metrics.sampling import (
    LIMIT,
    PARTS,
    SUFFIX,
    draw_sub_grids,
    gap_free_sub_grid,
    has_both_sides,
    repeated_estimate,
    stratified_sample,
)
from recombine.streams import stream_seed

NO_HELD_OUT = "no sub-grid has held-out points: metrics that need them are left out, except errors of the outputs"


class Scope(Enum):
    """Which of the selected metrics to measure on a part of a grid."""

    ALL, NEEDING_HOLDOUT, OTHERS = range(3)


@dataclass(frozen=True)
class Part:
    """A whole grid or sub-grid whose points are measured together."""

    grid: FactorGrid
    held_out: Tensor
    indices: Tensor | None = None
    """Indices of the points in the whole grid; None if the part is the whole grid."""
    scope: Scope = Scope.ALL

    def metrics(self, names: Sequence[str]) -> list[str]:
        """Return the named metrics that are measured on this part of the grid."""
        here = {Scope.ALL: (True, False), Scope.NEEDING_HOLDOUT: (True,), Scope.OTHERS: (False,)}[self.scope]
        return [name for name in names if (Need.HOLDOUT in STAGE_METRICS[name].needs) in here]


@dataclass(frozen=True)
class Plan:
    """The parts of a grid to measure, and the points at which output errors are measured."""

    parts: list[Part]
    points: Tensor | None = None
    """Indices of the points for output errors; None for all points, if the only part is the whole grid."""
    notes: tuple[str, ...] = ()
    present: Tensor | None = None
    """Mask of the combinations that are present in the data; None if all are."""


def plan_of(
    grid: FactorGrid, held_out: Tensor, points: int | None = None, seed: int = 0, present: Tensor | None = None
) -> Plan:
    """Return a plan to measure the whole grid, or a sample of it if it has gaps or more than `points` points."""
    budget = LIMIT if points is None else points
    if present is not None and not bool(present.all()):
        return _plan_without_gaps(grid, held_out, present, budget, seed)
    if grid.size <= budget:
        return Plan([Part(grid, held_out)])
    fewest = PARTS * 2 ** sum(count > 1 for count in grid.shape)
    if budget < fewest:
        required = f"at least {fewest}: {PARTS} sub-grids with two values of each factor"
        raise InvalidValue("grid" if points is None else "points", points or grid.shape, required)
    parts, notes = _sub_grid_parts(grid, held_out, budget // PARTS, seed)
    sides = " × ".join(map(str, parts[0].grid.shape))
    note = (
        f"{budget} of {grid.size} points: errors are means over random points, all other metrics means over {PARTS} "
        f"random sub-grids of {sides}, and maps show the first sub-grid; ± is a 95 % interval"
    )
    return Plan(parts, stratified_sample(held_out, budget, seed), (note, *notes))


def _plan_without_gaps(grid: FactorGrid, held_out: Tensor, present: Tensor, budget: int, seed: int) -> Plan:
    """Return a plan for a gap-free sub-grid, indexed in the whole grid; output errors may use any point present."""
    core = gap_free_sub_grid(grid, present)
    inside = held_out[core.indices]
    if bool(inside.all()):
        required = f"a mask that keeps some of the {len(inside)} combinations without gaps"
        raise InvalidValue("holdout", int(held_out.sum()), required)
    inner = plan_of(core.grid, inside, budget, seed)
    parts = [
        replace(part, indices=core.indices if part.indices is None else core.indices[part.indices])
        for part in inner.parts
    ]
    available = int(present.sum())
    drawn = stratified_sample(held_out, budget, seed, present)
    errors = "all of them" if len(drawn) == available else f"{len(drawn)} of them, drawn at random"
    sides = " × ".join(map(str, core.grid.shape))
    note = (
        f"{available} of {grid.size} combinations are present: errors are means over {errors}, all other metrics are "
        f"measured on {sides} of them that have no gaps"
    )
    missing = [NO_HELD_OUT] if bool(held_out.any()) and not bool(inside.any()) else []
    return Plan(parts, drawn, (note, *missing, *inner.notes), present)


def _sub_grid_parts(grid: FactorGrid, held_out: Tensor, points: int, seed: int) -> tuple[list[Part], list[str]]:
    """Draw sub-grids for all metrics, with separate ones for metrics that need held-out points if necessary."""

    def drawn(mask: Tensor | None, seed: int, scope: Scope = Scope.ALL) -> list[Part]:
        grids = draw_sub_grids(grid, points, PARTS, seed, mask)
        return [Part(own.grid, held_out[own.indices], own.indices, scope) for own in grids]

    parts = drawn(None, seed)
    if not bool(held_out.any()) or all(has_both_sides(part.held_out) for part in parts):
        return parts, []
    parts = [replace(part, scope=Scope.OTHERS) for part in parts]
    others = drawn(held_out, stream_seed(seed, "with held-out points"), Scope.NEEDING_HOLDOUT)
    if not all(has_both_sides(part.held_out) for part in others):
        return parts, [NO_HELD_OUT]
    note = (
        f"metrics that need held-out points are measured on {PARTS} sub-grids redrawn until they have some; those that "
        "compare held-out with kept points may deviate by more than ± indicates"
    )
    return [*parts, *others], [note]


def averaged_profile(
    plan: Plan, profiles: Sequence[StageProfile], names: Sequence[str]
) -> tuple[StageProfile, dict[str, Any]]:
    """Return the mean profile of the named metrics over several sub-grids, with standard errors as Dataset variables.

    Maps and labels, which have no meaningful mean, are those of the first sub-grid.
    """
    if len(plan.parts) == 1:
        return profiles[0], {}
    combined, errors = StageProfile(profiles[0].stages), dict[str, Any]()
    metrics = STAGE_METRICS.by_column()
    groups: dict[Scope, list[StageProfile]] = {}
    for part, profile in zip(plan.parts, profiles, strict=True):
        groups.setdefault(part.scope, []).append(profile)
    for scope, group in groups.items():
        combined.left_out |= group[0].left_out
        for name, stages in group[0].columns.items():
            column = STAGE_METRICS.columns()[name]
            if scope is Scope.NEEDING_HOLDOUT and "point" in column.dims:  # its points differ from those of other maps
                combined.left_out[metrics[name].name] = "held-out points in every random sub-grid"
                continue
            combined.columns[name] = stages
            if "point" in column.dims or column.labels or not stages[0].is_floating_point():
                continue
            by_stage = zip(*(profile.columns[name] for profile in group), strict=True)
            estimates = [repeated_estimate(torch.stack(values).cpu()) for values in by_stage]
            combined.columns[name] = [estimate.value for estimate in estimates]
            stacked = torch.stack([estimate.standard_error for estimate in estimates]).numpy()
            errors[f"{name}{SUFFIX}"] = (("stage", *column.dims), stacked, estimates[0].error_attributes(name))
    if Scope.OTHERS in groups and Scope.NEEDING_HOLDOUT not in groups:
        missing = [name for name in names if Need.HOLDOUT in STAGE_METRICS[name].needs]
        combined.left_out |= dict.fromkeys(missing, str(Need.HOLDOUT))
    return combined, errors
