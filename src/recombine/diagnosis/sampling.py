"""Which points of a grid are measured: all of them, or, of a grid too large for that, some.

What is measured of stages, and kernels and superposition, need pairs of points: of a large grid they are means over
`PARTS` random sub-grids, with standard errors; maps are the first one's. Errors of the outputs are of single points
drawn at random, held-out and kept ones apart. Sub-grids are drawn whatever is held out, so that means are right on
average. Where that leaves one without held-out points, what needs these, and nothing else, is measured on sub-grids
drawn until they have some: means over held-out points stay right, those over kept points are drawn towards the
hold-out, which their standard error does not show (on 8 × 8 × 8 points with a corner of 3 × 3 × 3 held out, 95 %
intervals of factorization cover it in 95 % of draws over held-out points, and in 84 % over kept ones).

Of data that lack combinations, what needs a grid is measured on a sub-grid without gaps; errors are of all present.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.registry import STAGE_METRICS, Need, StageProfile
from recombine.metrics.sampling import (
    Estimate,
    draw_sub_grids,
    gap_free_sub_grid,
    has_both_sides,
    mean_estimate,
    quantile,
    ratio_estimate,
    repeated_estimate,
    stratified_sample,
)
from recombine.streams import stream_seed

LIMIT = 4096
"""Points of a grid that are all measured; of more, so many are drawn."""
PARTS = 5
"""Sub-grids."""
SUFFIX = "_se"
"""Of variables that hold standard errors."""
REPEATED = ("kernel_agreement", "superposition")
"""Scores of the outputs that are means over sub-grids."""

NO_HELD_OUT = "no sub-grid has held-out points: what needs them is left out, but for errors of the outputs"


@dataclass(frozen=True)
class Part:
    """A grid of points that are measured together."""

    grid: FactorGrid
    held_out: Tensor
    indices: Tensor | None = None
    """Where they lie in the whole grid; none: the part is all of it."""
    needing_holdout: bool | None = None
    """Whether metrics that need held-out points are measured here, and only they; none: all metrics."""

    def metrics(self, names: Sequence[str]) -> list[str]:
        """Those of some registered metrics that are measured here."""
        if self.needing_holdout is None:
            return list(names)
        return [name for name in names if (Need.HOLDOUT in STAGE_METRICS[name].needs) == self.needing_holdout]


@dataclass(frozen=True)
class Plan:
    """The parts of a grid that are measured, and the single points."""

    parts: list[Part]
    points: Tensor | None = None
    """Indices of single points, for errors of the outputs; none: all, which are the only part."""
    notes: tuple[str, ...] = ()
    present: Tensor | None = None
    """True where data have a point of the grid; none: everywhere."""


def plan_of(grid: FactorGrid, held_out: Tensor, points: int | None, seed: int, present: Tensor | None = None) -> Plan:
    """What is measured of a grid: everything up to `points` points, a sample of so many above."""
    budget = LIMIT if points is None else points
    if present is not None and not bool(present.all()):
        return _without_gaps(grid, held_out, present, points, seed)
    if grid.size <= budget:
        return Plan([Part(grid, held_out)])
    each = budget // PARTS
    fewest = PARTS * 2 ** sum(count > 1 for count in grid.shape)
    if each * PARTS < fewest and budget < fewest:
        allowed = f"at least {fewest}: {PARTS} sub-grids with two values of each factor"
        raise InvalidValue("grid" if points is None else "points", points or grid.shape, allowed)
    parts, notes = _sub_grids(grid, held_out, max(each, fewest // PARTS), seed)
    sides = " × ".join(map(str, parts[0].grid.shape))
    note = (
        f"{budget} of {grid.size} points: errors are of points drawn at random, all else means over {PARTS} random "
        f"sub-grids of {sides}, maps the first of them; ± is a 95 % interval"
    )
    return Plan(parts, stratified_sample(held_out, budget, seed), (note, *notes))


def _without_gaps(grid: FactorGrid, held_out: Tensor, present: Tensor, points: int | None, seed: int) -> Plan:
    """The plan of a sub-grid that has no gaps, in the whole grid; single points are any that are present."""
    core = gap_free_sub_grid(grid, present)
    inside = held_out[core.indices]
    if bool(inside.all()):
        raise InvalidValue(
            "holdout", int(held_out.sum()), f"a mask that keeps some of the {len(inside)} combinations without gaps"
        )
    inner = plan_of(core.grid, inside, points, seed)
    parts = [
        replace(part, indices=core.indices if part.indices is None else core.indices[part.indices])
        for part in inner.parts
    ]
    available = int(present.sum())
    drawn = stratified_sample(held_out, LIMIT if points is None else points, seed, present)
    errors = "all of them" if len(drawn) == available else f"{len(drawn)} of them, drawn at random"
    sides = " × ".join(map(str, core.grid.shape))
    note = (
        f"{available} of {grid.size} combinations are present: errors are of {errors}, all else of {sides} of them "
        "that have no gaps"
    )
    lacking = [NO_HELD_OUT] if bool(held_out.any()) and not bool(inside.any()) else []
    return Plan(parts, drawn, (note, *lacking, *inner.notes), present)


def _sub_grids(grid: FactorGrid, held_out: Tensor, points: int, seed: int) -> tuple[list[Part], list[str]]:
    """Sub-grids for all metrics; or some for most of them, and others for those that need held-out points."""

    def drawn(mask: Tensor | None, seed: int) -> list[Part]:
        grids = draw_sub_grids(grid, points, PARTS, seed, mask)
        return [Part(own.grid, held_out[own.indices], own.indices) for own in grids]

    parts = drawn(None, seed)
    if not bool(held_out.any()) or all(has_both_sides(part.held_out) for part in parts):
        return parts, []
    parts = [replace(part, needing_holdout=False) for part in parts]
    others = drawn(held_out, stream_seed(seed, "with held-out points"))
    if not all(has_both_sides(part.held_out) for part in others):
        return parts, [NO_HELD_OUT]
    note = (
        f"what needs held-out points is measured on {PARTS} sub-grids drawn until they have some; numbers that compare "
        "these with kept points may be off by more than ± says"
    )
    return [*parts, *(replace(part, needing_holdout=True) for part in others)], [note]


def averaged_profile(plan: Plan, profiles: Sequence[StageProfile]) -> tuple[StageProfile, dict[str, list[Estimate]]]:
    """The profile of several sub-grids: means over them, and estimates by column; maps and labels are the first's."""
    columns = {column.name: column for column in STAGE_METRICS.columns()}
    if len(plan.parts) == 1:
        return profiles[0], {}
    combined, estimates = StageProfile(profiles[0].stages), dict[str, list[Estimate]]()
    groups: dict[bool | None, list[StageProfile]] = {}
    for part, profile in zip(plan.parts, profiles, strict=True):
        groups.setdefault(part.needing_holdout, []).append(profile)
    for group in groups.values():
        combined.left_out |= group[0].left_out
        for name, stages in group[0].columns.items():
            combined.columns[name] = stages
            if "point" in columns[name].dims or columns[name].labels or not stages[0].is_floating_point():
                continue
            by_stage = zip(*(profile.columns[name] for profile in group), strict=True)
            estimates[name] = [repeated_estimate(torch.stack(values).cpu()) for values in by_stage]
            combined.columns[name] = [estimate.value for estimate in estimates[name]]
    if bool in map(type, groups) and True not in groups:  # nothing measures what needs held-out points
        lacking = [name for name, metric in STAGE_METRICS.items() if Need.HOLDOUT in metric.needs]
        combined.left_out |= dict.fromkeys(lacking, str(Need.HOLDOUT))
    return combined, estimates


def profile_errors(estimates: dict[str, list[Estimate]]) -> dict[str, Any]:
    """Standard errors of a profile's columns, as variables of a Dataset."""
    columns = {column.name: column for column in STAGE_METRICS.columns()}
    return {
        f"{name}{SUFFIX}": (
            ("stage", *columns[name].dims), torch.stack([own.standard_error for own in stages]).numpy(),
            error_attributes(name, stages[0].freedom),
        )
        for name, stages in estimates.items()
    }  # fmt: skip


def averaged_scores(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores of the outputs on several sub-grids: means with standard errors; what has none is the first's."""
    combined: dict[str, Any] = {}
    for own in scores:
        combined = {**own, **combined}
    for name in REPEATED if len(scores) > 1 else ():
        if name in combined:
            values = [own[name][1] for own in scores if name in own]
            estimate = repeated_estimate(torch.tensor(values, dtype=torch.float64))
            combined[name] = (combined[name][0], estimate.value.tolist())
            attributes = error_attributes(name, estimate.freedom)
            combined[f"{name}{SUFFIX}"] = (combined[name][0], estimate.standard_error.tolist(), attributes)
    return combined


def error_scores(error: Tensor, constant: Tensor, plan: Plan, held_out: Tensor) -> dict[str, Any]:
    """Mean errors of each region and their ratio to a constant output's, from the points that were drawn."""
    assert plan.points is not None
    scores: dict[str, Any] = {}
    inside = held_out[plan.points]
    kept = ~held_out if plan.present is None else plan.present & ~held_out
    is_drawn = len(inside) < int((kept | held_out).sum())
    for region, here, population in (("id", ~inside, kept), ("ood", inside, held_out)):
        count = int(population.sum())
        if not count:
            continue
        estimates = {
            f"{region}_error": mean_estimate(error[here], count),
            f"{region}_over_mean": ratio_estimate(error[here], constant[here], count),
        }
        for name, estimate in estimates.items():
            scores[name] = ((), estimate.value.item())
            if is_drawn:
                attributes = error_attributes(name, estimate.freedom)
                scores[f"{name}{SUFFIX}"] = ((), estimate.standard_error.item(), attributes)
    return scores


def error_attributes(name: str, freedom: int) -> dict[str, Any]:
    """What a standard error is of, and how many of them a 95 % interval has on either side."""
    return {"description": f"standard error of {name}, from sampled points", "quantile": quantile(freedom)}
