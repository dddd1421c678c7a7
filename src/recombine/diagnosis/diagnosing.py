"""`diagnose`: apply the paper's metrics to each stage of a user's module and return one Dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from recombine.console import late_bar
from recombine.diagnosis.calling import Method
from recombine.diagnosis.geometry import Geometry, exact_geometry
from recombine.diagnosis.result import OUTPUT_SCORES, Diagnosis, reserved_names
from recombine.diagnosis.running import MIXED, Runner, running
from recombine.diagnosis.scoring import (
    averaged_scores,
    errors_on,
    kernel_scores,
    sampled_errors,
    shaped,
    superposition_of,
)
from recombine.diagnosis.subject import Encode, Subject, TargetFunction, Trained
from recombine.encodings import Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid, Grid
from recombine.holdouts import Holdout, HoldoutSummary
from recombine.metrics import (
    volume_element,
)
from recombine.metrics.plans import Part, Plan, Scope, averaged_profile, plan_of
from recombine.metrics.registry import (
    STAGE_METRICS,
    Need,
    Stage,
    StageProfile,
    read_stages,
    stage_profile,
    usual_metrics,
)
from recombine.metrics.sampling import SAMPLED
from recombine.metrics.stages import INPUT, MEMORY, neighbour_metric
from recombine.tasks import ArrayTask

GEOMETRIES = ("auto", "exact", "differences")


def diagnose(
    module: nn.Module | Trained,
    grid: Grid | None = None,
    *,
    data: ArrayTask | str | os.PathLike[str] | None = None,
    bins: Mapping[str, Any] | str | None = None,
    repeats: Literal["mean", "keep"] | None = None,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | np.ndarray | TargetFunction | None = None,
    background: float | None = None,
    output: str | int | None = None,
    call: Method | None = None,
    kwargs: Mapping[str, Any] | None = None,
    memory: int = MEMORY,
    geometry: Literal["auto", "exact", "differences"] = "auto",
    thorough: bool | Sequence[str] = False,
    points: int | None = None,
    seed: int = 0,
    metrics: Sequence[str] | None = None,
    progress: bool = True,
) -> Diagnosis:
    """Measure a module over a factor grid.

    Parameters
    ----------
    module
        A module that maps a batch of encoded factor values to a batch of outputs, or a finished run or its checkpoint
        (`ModelConfig.from_pretrained(folder)`), whose spec supplies all arguments from `grid` to `background`.
    grid
        Factors and their values: a string such as `x=0:27,y=0:27`, or values by name, such as `{"x": range(28)}`.
    data
        Images with their factors, as a file or an `ArrayTask`; replaces `grid`, `targets` and `background`. The
        encoding and hold-out of an `ArrayTask` are the defaults for `encode` and `holdout`.
    bins
        How to bin the factors of a file, such as `{"x": 10}` (docs/data.md).
    repeats
        Whether a file may have several images of a combination; outputs are compared with their mean.
    encode
        An encoding, its name, or a function from `(point, factor)` values to inputs, which may use NumPy instead of
        torch. Default: raw factor values, also called `raw`.
    holdout
        Combinations held out of training: a hold-out, its name, conditions such as `x>=8,y>=8`, or a boolean mask over
        the grid.
    stages
        Paths of submodules or patterns (`*` matches within a level, `**` across levels). Default: the submodules in the
        order in which they run, with wrappers replaced by their children.
    targets
        Target outputs for errors and superposition scores: one row per grid point in the grid's order, or a function
        of `(point, factor)` values. For a sampled grid, only the required rows are read.
    background
        Value of every channel in an empty output. Default: 0.
    output
        Which returned tensor is the output: a key, an index or an attribute, or several joined by dots, such as
        `sample` or `1.mean`. Default: the first floating-point tensor with one row per input row.
    call
        The method to call, such as `decode`, or a function of the module and its inputs. Default: `forward`.
    kwargs
        Other arguments of the method, such as `{"timestep": 0}`.
    memory
        Memory budget in bytes.
    geometry
        How to compute the metric tensor. `auto` uses exact derivatives if the encoding and the module have them, and
        finite differences between grid points otherwise; `exact` raises an error in that case; `differences` always
        uses finite differences.
    thorough
        Whether to compute expensive metrics too, such as tests of factorization up to an invertible map: all of them
        (True) or only the named ones (see docs/metrics.md). Cannot be combined with `metrics`.
    points
        Maximum number of grid points to measure. Larger grids are sampled, and variables with the suffix `_se` hold
        the standard errors. Default: 4096.
    seed
        Seed for sampling large grids.
    metrics
        Variables to compute, e.g. `["ood_error", "factorization_mean"]`. Default: all except expensive ones.
    progress
        Whether to show progress on a terminal or in a notebook if the measurement takes more than a few seconds.

    Returns
    -------
    Diagnosis
        A Dataset. `attrs["metric"]` states how the metric tensor was computed (absent if no variable requires it),
        `attrs["metric_reason"]` explains why it is not exact, and `attrs["notes"]` lists anything else that affects
        the results.

    Examples
    --------
    >>> import recombine as rc
    >>> from torch import nn
    >>> decoder = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 16))
    >>> result = rc.diagnose(decoder, "x=0:3,y=0:3", encode="bump", holdout="center:1:2")
    >>> [str(stage) for stage in result["stage"].values]
    ['input', '0', '1', 'output']
    >>> result["volume"].dims
    ('stage', 'x', 'y')
    """
    if geometry not in GEOMETRIES:
        raise InvalidValue("geometry", geometry, f"one of {listed(GEOMETRIES)}")
    if memory < 1:
        raise InvalidValue("memory", memory, "at least 1")
    subject = Subject.of(
        module, grid, data=data, bins=bins, repeats=repeats, encode=encode, holdout=holdout, targets=targets,
        background=background, output=output, call=call, kwargs=kwargs,
    )  # fmt: skip
    named_grid, renamed = named_dimensions(subject.grid)
    plan = plan_of(named_grid, subject.held_out, points, seed, subject.present)
    selection = selected(metrics, [thorough] if isinstance(thorough, str) else thorough)
    named = [stages] if isinstance(stages, str) else stages
    with (
        running(subject, plan.parts[0].grid, named, memory) as runner,
        late_bar(1 + len(plan.parts) * (len(runner.stages.names) + 2), shown=progress) as begin,
    ):
        if plan.points is not None and runner.rows.how == "whole":
            required = f"a whole grid without gaps: {MIXED}"
            raise InvalidValue("points" if plan.present is None else "data", len(plan.points), required)
        begin("metric tensor")
        computed = _geometry(geometry, runner, plan.parts, selection)
        tensors: Sequence[dict[str, Tensor] | None] = computed.metrics or [None] * len(plan.parts)
        measured = [
            _measured(runner, part, exact, selection, begin) for part, exact in zip(plan.parts, tensors, strict=True)
        ]
        profiles, scores_of_parts = zip(*measured, strict=True)
        profile, standard_errors = averaged_profile(plan, profiles, selection.stage_metrics)
        scores = averaged_scores(scores_of_parts) | standard_errors | sampled_errors(runner, plan)
    notes = [*subject.notes, *renamed, *plan.notes, *runner.rows.notes, *runner.stages.notes, *computed.notes]
    if "kernel_p" in scores and len(plan.parts) > 1:
        notes.append("kernel_p is that of the first sub-grid with held-out points, not a mean")
    return _dataset(subject, plan, profile, scores, computed, notes)


def named_dimensions(grid: FactorGrid) -> tuple[FactorGrid, list[str]]:
    """Return the grid, with a prefix for factors named like a variable or dimension of the result, and notes."""
    taken = sorted(reserved_names() & {*grid.names})
    names = {name: f"factor_{name}" for name in taken}
    factors = tuple(replace(factor, name=names.get(factor.name, factor.name)) for factor in grid.factors)
    notes = [f"the factor {name} is called {names[name]}, since the result has a {name} of its own" for name in taken]
    return (replace(grid, factors=factors) if taken else grid), notes


@dataclass(frozen=True)
class Selection:
    """Names of the stage metrics to compute, and whether to compute kernel and superposition scores."""

    stage_metrics: list[str]
    kernels: bool = True
    superposition: bool = True


def selected(names: Sequence[str] | None, thorough: bool | Collection[str]) -> Selection:
    """Return what must be computed to obtain these variables, or the default selection if `names` is None."""
    if names is None:
        return Selection(usual_metrics(thorough))
    if thorough:
        raise InvalidValue("thorough", thorough, "omitted when metrics are given (name expensive metrics there)")
    requested = {names} if isinstance(names, str) else set(names)
    known = STAGE_METRICS.by_column()
    scores = ("error", *OUTPUT_SCORES)
    if unknown := sorted(requested - {*known, *scores}):
        raise InvalidValue("metrics", unknown[0], f"one of {listed([*scores, *known])}")
    metrics = {known[name].name for name in requested if name in known}
    kernels = bool(requested & {"kernel_agreement", "kernel_p"})
    return Selection([name for name in STAGE_METRICS if name in metrics], kernels, "superposition" in requested)


def _needs(names: Sequence[str]) -> set[Need]:
    return {need for name in names for need in STAGE_METRICS[name].needs}


def _geometry(setting: str, runner: Runner, parts: Sequence[Part], selection: Selection) -> Geometry:
    """Return exact metric tensors for all sub-grids, the reason for finite differences, or neither if not required."""
    encoding, grid = runner.subject.encoding, runner.subject.grid
    if Need.METRIC not in _needs(selection.stage_metrics):
        return Geometry(None)
    if setting == "differences":
        geometry = Geometry(None, "as requested")
    elif isinstance(encoding, Encoding) and not encoding.differentiable:
        geometry = Geometry(None, f"since {encoding.kind} codes have no derivative")
    elif runner.rows.how == "whole":
        geometry = Geometry(None, f"since {MIXED}")
    else:
        geometry = exact_geometry(runner, [runner.values(part.grid.points) for part in parts])
    if setting == "exact" and geometry.metrics is None:
        raise InvalidValue("geometry", setting, f"auto or differences, {geometry.reason}")
    if geometry.metrics is None and min(grid.shape) < 2:
        required = f"at least 2 values per factor for finite differences ({geometry.reason})"
        raise InvalidValue("grid", grid.shape, required)
    return geometry


def _measured(
    runner: Runner, part: Part, exact: dict[str, Tensor] | None, selection: Selection, begin: Callable[[str], None]
) -> tuple[StageProfile, dict[str, Any]]:
    """Return the stage metrics and output scores on one sub-grid."""
    subject, points = runner.subject, runner.values(part.grid.points)
    targets = None if subject.targets is None else subject.target_rows(part.indices)
    names, neighbours = part.metrics(selection.stage_metrics), None
    needs = _needs(names)
    by_differences = Need.DIFFERENCES in needs or (Need.METRIC in needs and exact is None)
    if by_differences and part.indices is not None and min(subject.grid.shape) > 1:
        neighbours = neighbour_metric(runner.reader, subject.grid, part.indices, runner.device, memory=runner.memory)
    stages = read_stages(
        runner.reader, points, part.grid, part.held_out,
        exact=exact, targets=targets, neighbours=neighbours, is_whole=part.indices is None, memory=runner.memory,
    )  # fmt: skip
    outputs = torch.empty(0)

    def checked() -> Iterator[Stage]:
        nonlocal outputs
        for stage in stages:
            begin(f"stage {stage.name}")
            if not stage.features.shape[-1] or not bool(torch.isfinite(stage.features).all()):
                field, value = ("encode", subject.encoding) if stage.name == INPUT else ("module", stage.name)
                raise InvalidValue(field, value, "finite numbers, at least one, at every grid point")
            if Need.METRIC in needs and not bool(torch.isfinite(volume_element(stage.metric)).all()):
                raise InvalidValue("module", stage.name, "a stage whose metric tensor is finite at every grid point")
            outputs = stage.features  # the last stage is the output
            yield stage

    profile = stage_profile(checked(), names)
    truth = None if targets is None else shaped(targets, outputs)
    scores = {} if truth is None else errors_on(outputs, truth, part)
    if part.scope is not Scope.OTHERS and bool(part.held_out.any()):
        positions = torch.stack([own.position(points[:, k]) for k, own in enumerate(part.grid.factors)], dim=1)
        if selection.kernels:
            scores |= kernel_scores(outputs, positions, part)
        if selection.superposition:
            scores |= superposition_of(runner, part, outputs, truth, points, positions)
    return profile, scores


def _dataset(
    subject: Subject, plan: Plan, profile: StageProfile, scores: dict[str, Any], geometry: Geometry, notes: list[str]
) -> Diagnosis:
    """Return the labelled Dataset, with maps from the first sub-grid."""
    columns, grid, held_out = STAGE_METRICS.columns(), plan.parts[0].grid, plan.parts[0].held_out
    needing_metric = {name for name, metric in STAGE_METRICS.by_column().items() if Need.METRIC in metric.needs}
    how = "finite differences" if geometry.metrics is None else "exact"
    method = {"metric": how, "metric_reason": geometry.reason} if needing_metric & {*profile.columns} else {}
    variables = {}
    for name, values in profile.columns.items():
        dims, stacked = ("stage", *columns[name].dims), np.stack([value.cpu().numpy() for value in values])
        if "point" in dims:  # replaced by one axis per factor
            at = dims.index("point")
            dims = (*dims[:at], *grid.names, *dims[at + 1 :])
            stacked = stacked.reshape(*stacked.shape[:at], *grid.shape, *stacked.shape[at + 1 :])
        attributes = {"description": columns[name].description} | (method if name in needing_metric else {})
        variables[name] = (dims, stacked, attributes)
    names = grid.names
    labels: dict[str, Any] = {"stage": profile.stages, "factor": list(names), "other_factor": list(names)}
    labels |= {factor.name: factor.values.numpy() for factor in grid.factors}
    data = {**variables, **scores, "held_out": (names, held_out.reshape(grid.shape).numpy())}
    about: dict[str, Any] = method | {"notes": "\n".join(notes)}
    summary = HoldoutSummary.of(subject.held_out, subject.grid, plan.present)
    about |= {"holdout": str(summary)} if summary.held_out else {}
    about |= {"left_out": json.dumps(profile.left_out)} if profile.left_out else {}
    about |= {} if plan.points is None else {SAMPLED: len(plan.points)}
    return Diagnosis(data, coords=labels, attrs=about).with_marker_auroc()
