"""Which points of a grid are measured: all of them, or, of a grid too large for that, some.

What is measured of stages, and kernels and superposition of the outputs, need a grid, and pairs of its points: of a
large grid they are measured on `PARTS` random sub-grids, and every number is the mean over them with its standard
error. Errors of the outputs need single points: they are of points drawn at random, held-out and kept ones apart, run
in chunks. Numbers that belong to a point (maps) are those of the first sub-grid. What needs neighbours on the grid is
left out, but for differences between neighbours, which are run beside their points.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recombine.checks import whole_number
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics.profile import StageProfile
from recombine.metrics.registry import STAGE_METRICS
from recombine.metrics.sampled_means import (
    Estimate,
    mean_estimate,
    quantile,
    ratio_estimate,
    repeated_estimate,
    stratified_sample,
)
from recombine.metrics.sub_grids import draw_sub_grids, has_both_sides

LIMIT = 4096
"""Points of a grid that are all measured; of more, so many are drawn."""
PARTS = 5
"""Sub-grids."""
GRAM_MATRICES = 4
"""Matrices with one number per pair of points that are in memory together."""
SUFFIX = "_se"
"""Of variables that hold standard errors."""
REPEATED = ("kernel_agreement", "superposition")
"""Scores of the outputs that are means over sub-grids."""


@dataclass(frozen=True)
class Part:
    """A grid of points that are measured together."""

    grid: FactorGrid
    held_out: Tensor
    indices: Tensor | None = None
    """Where they lie in the whole grid; none: the part is all of it."""


@dataclass(frozen=True)
class Plan:
    """The parts of a grid that are measured, and the single points."""

    parts: list[Part]
    points: Tensor | None = None
    """Indices of single points, for errors of the outputs; none: all, which are the only part."""
    notes: tuple[str, ...] = ()


def plan_of(grid: FactorGrid, held_out: Tensor, points: int | None, seed: int) -> Plan:
    """What is measured of a grid: everything up to `points` points, a sample of so many above."""
    whole_number("seed", seed, at_least=0)
    budget = LIMIT if points is None else whole_number("points", points)
    if grid.size <= budget:
        _refuse_large(grid.size, "grid")
        return Plan([Part(grid, held_out)])
    each = budget // PARTS
    fewest = PARTS * 2 ** sum(count > 1 for count in grid.shape)
    if each * PARTS < fewest and budget < fewest:
        allowed = f"at least {fewest}: {PARTS} sub-grids with two values of each factor"
        raise InvalidValue("grid" if points is None else "points", points or grid.shape, allowed)
    _refuse_large(each, "points")
    some = bool(held_out.any())
    grids = draw_sub_grids(grid, max(each, fewest // PARTS), PARTS, seed, held_out if some else None)
    masks = [held_out[part.indices] for part in grids]
    notes = [_note(grid, budget, grids[0].grid.shape)]
    if some and not all(map(has_both_sides, masks)):
        masks = [torch.zeros_like(mask) for mask in masks]
        notes.append("no sub-grid has held-out points: what needs them is left out, but for errors of the outputs")
    parts = [Part(own.grid, mask, own.indices) for own, mask in zip(grids, masks, strict=True)]
    return Plan(parts, stratified_sample(held_out, budget, seed), tuple(notes))


def _note(grid: FactorGrid, budget: int, shape: tuple[int, ...]) -> str:
    sides = " × ".join(map(str, shape))
    return (
        f"{budget} of {grid.size} points: errors are of points drawn at random, all else means over {PARTS} random "
        f"sub-grids of {sides}, maps the first of them; ± is a 95 % interval"
    )


def _refuse_large(points: int, field: str) -> None:
    """Refuse points whose pairs do not fit this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = GRAM_MATRICES * points**2 * torch.float64.itemsize
    if needed > memory:
        sizes = f"{needed / 2**30:.0f} GiB, this machine has {memory / 2**30:.0f}"
        raise InvalidValue(field, points, f"fewer points (matrices of all pairs need {sizes})")


def averaged_profile(profiles: Sequence[StageProfile]) -> tuple[StageProfile, dict[str, list[Estimate]]]:
    """The profile of several sub-grids: means over them, and estimates by column; maps and labels are the first's."""
    columns = {column.name: column for column in STAGE_METRICS.columns()}
    first, estimates = profiles[0], dict[str, list[Estimate]]()
    combined = StageProfile(first.stages, dict(first.columns), first.left_out)
    for name, stages in first.columns.items():
        if "point" in columns[name].dims or columns[name].labels or not stages[0].is_floating_point():
            continue
        by_stage = zip(*(profile.columns[name] for profile in profiles), strict=True)
        estimates[name] = [repeated_estimate(torch.stack(values).cpu()) for values in by_stage]
        combined.columns[name] = [estimate.value for estimate in estimates[name]]
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
    combined = dict(scores[0])
    for name in REPEATED:
        if name in combined:
            estimate = repeated_estimate(torch.tensor([own[name][1] for own in scores], dtype=torch.float64))
            combined[name] = (combined[name][0], estimate.value.tolist())
            attributes = error_attributes(name, estimate.freedom)
            combined[f"{name}{SUFFIX}"] = (combined[name][0], estimate.standard_error.tolist(), attributes)
    return combined


def error_scores(error: Tensor, constant: Tensor, drawn: Tensor, held_out: Tensor) -> dict[str, Any]:
    """Mean errors of each region and their ratio to a constant output's, from the points that were drawn."""
    scores: dict[str, Any] = {}
    inside = held_out[drawn]
    for region, here, population in (("id", ~inside, ~held_out), ("ood", inside, held_out)):
        count = int(population.sum())
        if not count:
            continue
        estimates = {
            f"{region}_error": mean_estimate(error[here], count),
            f"{region}_over_mean": ratio_estimate(error[here], constant[here], count),
        }
        for name, estimate in estimates.items():
            scores[name] = ((), estimate.value.item())
            attributes = error_attributes(name, estimate.freedom)
            scores[f"{name}{SUFFIX}"] = ((), estimate.standard_error.item(), attributes)
    return scores


def error_attributes(name: str, freedom: int) -> dict[str, Any]:
    """What a standard error is of, and how many of them a 95 % interval has on either side."""
    return {"description": f"standard error of {name}, from sampled points", "quantile": quantile(freedom)}
