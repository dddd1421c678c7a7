"""The paper's measurements on anyone's module, run in evaluation mode, watched by hooks, and left as it was."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from recombine.diagnosis.derivatives import Geometry, exact_geometry
from recombine.diagnosis.hooks import OUTPUT
from recombine.diagnosis.outputs import output_scores, shaped_targets, streamed_errors, superposition
from recombine.diagnosis.result import OUTPUT_SCORES, Diagnosis, dataset, reserved_names
from recombine.diagnosis.running import (
    Runner,
    as_called,
    differentiable,
    prepare,
    refuse_unfinished,
    uncompiled,
    undisturbed,
)
from recombine.diagnosis.sampling import Part, averaged_profile, averaged_scores, error_scores, plan_of, profile_errors
from recombine.diagnosis.subject import Subject, TargetFunction, Trained
from recombine.encodings import Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.holdouts import Holdout, HoldoutSummary
from recombine.metrics import averaged_prediction, volume_element
from recombine.metrics.metric_tensors import neighbour_metric
from recombine.metrics.registry import (
    STAGE_METRICS,
    Need,
    Stage,
    StageProfile,
    read_stages,
    stage_profile,
    usual_metrics,
)
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import INPUT, MEMORY, Encode, precision
from recombine.tasks import ArrayTask
from recombine.training.devices import arithmetic

GEOMETRIES = ("auto", "exact", "differences")


def diagnose(
    module: nn.Module | Trained,
    grid: FactorGrid | str | None = None,
    *,
    data: ArrayTask | str | os.PathLike[str] | None = None,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | np.ndarray | TargetFunction | None = None,
    background: float | None = None,
    memory: int = MEMORY,
    geometry: Literal["auto", "exact", "differences"] = "auto",
    thorough: bool | Sequence[str] = False,
    points: int | None = None,
    seed: int = 0,
    metrics: Sequence[str] | None = None,
) -> Diagnosis:
    """Measure a module over a factor grid.

    Parameters
    ----------
    module
        Maps a batch of encoded factor values to a batch of anything; or a finished run, or a
        `ModelConfig.from_pretrained` folder, whose spec gives grid, data, encode, holdout, targets and background.
    grid
        Factors and values, or a text as `x=0:27,y=0:27`.
    data
        In the place of grid, targets and background: images with their factors, as an `ArrayTask` (whose encoding and
        hold-out hold where none is given) or its file.
    encode
        An encoding (by name, or one of ours), a function from `(point, factor)` values to inputs, or nothing: the
        values themselves.
    holdout
        Combinations held out of training: a hold-out, by name, or a boolean mask over the grid.
    stages
        Module paths and patterns (`*` within a level, `**` across levels); by default the module's own parts in the
        order they are run, wrappers opened.
    targets
        Right outputs, one row per grid point in its order, for errors and superposition; or a function from
        `(point, factor)` values to them. Of a sampled grid only the rows that are needed are read.
    background
        Value of an empty output, in every channel. Default: 0.
    memory
        Bytes that a measurement may keep at a time.
    geometry
        `auto`: exact wherever encoding and module have a derivative, by differences between grid points elsewhere;
        `exact` refuses the latter, `differences` takes no derivatives.
    thorough
        Whether to measure what takes long too, such as tests of factorization up to an invertible map; or the names of
        some such metrics (docs/metrics.md).
    points
        Points of the grid that are measured; a larger grid is sampled, and numbers have standard errors (variables
        that end in `_se`). 4096 by default.
    seed
        Of the sample.
    metrics
        Variables that are wanted, as `["ood_error", "factorization_mean"]` (docs/metrics.md); what they do not need is
        not computed. Default: all.

    Returns
    -------
    Diagnosis
        A Dataset. `attrs["metric"]` says how the metric tensor was computed, `attrs["metric_reason"]` why not exactly,
        and `attrs["notes"]` what else a reader must know.

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
    subject = Subject.of(
        module, grid, data=data, encode=encode, holdout=holdout, targets=targets, background=background
    )
    if reserved := reserved_names() & {*subject.grid.names}:
        raise InvalidValue("grid", min(reserved), f"names of factors other than {listed(sorted(reserved_names()))}")
    plan = plan_of(subject.grid, subject.held_out, points, seed, subject.present)
    whole = subject.target_rows() if plan.points is None else None
    selection = selected(metrics, [thorough] if isinstance(thorough, str) else thorough)
    network = uncompiled(subject.module)
    refuse_unfinished(network)
    weight = next((p for p in (*network.parameters(), *network.buffers())), torch.empty(0))
    device, dtype = weight.device, weight.dtype if weight.is_floating_point() else torch.float32

    def encoded(values: Tensor) -> Tensor:
        inputs = subject.inputs(values).clone()  # a module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    strict = arithmetic("float32")  # TF32's rounding would hide what small steps do
    with strict, as_called(network, device) as forward, undisturbed(network), differentiable(network):
        places = [points_at(subject.grid, part.indices).to(device, precision(device)).clone() for part in plan.parts]
        named = [stages] if isinstance(stages, str) else stages
        runner = prepare(network, forward, encoded, places[0], named, memory)
        if plan.points is not None and runner.rows.how == "whole":
            allowed = "a whole grid without gaps: outputs depend on other examples in the batch"
            raise InvalidValue("points" if plan.present is None else "data", len(plan.points), allowed)
        how = geometry if selection.metric_tensor else "differences"
        derivatives = [_geometry(how, subject, runner, own) for own in places]
        derivative = next((own for own in derivatives if own.metrics is None), derivatives[0])
        profiles, scores = [], []
        for part, own, exact in zip(plan.parts, places, derivatives, strict=True):
            tensors = None if derivative.metrics is None else exact.metrics
            truth = whole if part.indices is None else subject.target_rows(part.indices)
            profile, score = _measured(subject, runner, part, own, tensors, truth, encoded, selection)
            profiles.append(profile)
            scores.append(score)
        if plan.points is None:
            return dataset(profiles[0], scores[0], subject.grid, subject.held_out, derivative, runner.notes)
        profile, estimates = averaged_profile(plan, profiles)
        combined = averaged_scores(scores) | profile_errors(estimates)
        if subject.targets is not None:
            error, constant = streamed_errors(subject, runner, encoded, plan.points, precision(device))
            combined |= error_scores(error, constant, plan, subject.held_out)
    first, notes = plan.parts[0], [*plan.notes, *runner.notes]
    summary = HoldoutSummary.of(subject.held_out, subject.grid, plan.present)
    return dataset(profile, combined, first.grid, first.held_out, derivative, notes, len(plan.points), summary)


@dataclass(frozen=True)
class Selection:
    """What is measured: registered metrics by name, and whether any of them needs the metric tensor."""

    stage_metrics: list[str]
    metric_tensor: bool = True
    kernels: bool = True
    superposition: bool = True


def selected(names: Sequence[str] | None, thorough: bool | Collection[str]) -> Selection:
    """What must be measured for variables of these names, or for all that are usual."""
    if names is None:
        return Selection(usual_metrics(thorough))
    wanted = {names} if isinstance(names, str) else set(names)
    known = {column.name: metric.name for metric in STAGE_METRICS.values() for column in metric.columns}
    scores = ("error", *OUTPUT_SCORES)
    if unknown := sorted(wanted - {*known, *scores}):
        raise InvalidValue("metrics", unknown[0], f"one of {listed([*scores, *known])}")
    chosen = {known[name] for name in wanted if name in known}
    ordered = [name for name in STAGE_METRICS if name in chosen]
    tensors = any(Need.METRIC in STAGE_METRICS[name].needs for name in ordered)
    kernels = bool(wanted & {"kernel_agreement", "kernel_p"})
    return Selection(ordered, tensors, kernels, "superposition" in wanted)


def _measured(
    subject: Subject, runner: Runner, part: Part, points: Tensor, metrics: dict[str, Tensor] | None,
    targets: Tensor | None, encoded: Encode, selection: Selection,
) -> tuple[StageProfile, dict[str, Any]]:  # fmt: skip
    """Registered metrics of every stage over a part of the grid, and scores of the outputs there."""
    neighbours, grid, encoding = None, subject.grid, subject.encoding
    if part.indices is not None and min(grid.shape) > 1:
        neighbours = neighbour_metric(runner.reader, grid, part.indices, points.device, memory=runner.memory)
    by_stage = read_stages(
        runner.reader, points, part.grid, part.held_out,
        exact=metrics, targets=targets, neighbours=neighbours, memory=runner.memory,
    )  # fmt: skip
    kept: dict[str, Tensor] = {}
    measurable = _measurable(by_stage, encoding, kept, selection.metric_tensor)
    profile = stage_profile(measurable, part.metrics(selection.stage_metrics))
    outputs = kept[OUTPUT]
    truth = None if targets is None else shaped_targets(targets, outputs)
    paired = part.needing_holdout is not False and bool(part.held_out.any())
    kernels = paired and selection.kernels
    scores = output_scores(outputs, points, part.held_out, part.grid, truth, kernels=kernels)
    if paired and selection.superposition:
        averaged = None  # where codes have no block per factor, or outputs depend on other rows
        if isinstance(encoding, Encoding) and runner.rows.how != "whole":
            sizes = [encoding.size(factor) for factor in grid.factors]
            own, held_out = encoded(points), part.held_out.to(points.device)
            averaged = averaged_prediction(
                lambda rows: runner.outputs(rows) - subject.background, own[held_out], sizes, own[~held_out]
            )
        scores |= superposition(outputs, points, part.held_out, part.grid, truth, subject.background, averaged)
    return profile, scores


def _measurable(
    stages: Iterable[Stage], encode: object, kept: dict[str, Tensor], metric_tensor: bool
) -> Iterator[Stage]:
    """The stages, refusing those without finite numbers; the outputs are kept for scores of their own."""
    for stage in stages:
        if not stage.features.shape[-1] or not bool(torch.isfinite(stage.features).all()):
            field = ("encode", encode) if stage.name == INPUT else ("module", stage.name)
            raise InvalidValue(*field, "finite numbers, at least one, at every grid point")
        if metric_tensor and not bool(torch.isfinite(volume_element(stage.metric)).all()):
            raise InvalidValue("module", stage.name, "a stage whose metric tensor is finite at every grid point")
        if stage.name == OUTPUT:
            kept[OUTPUT] = stage.features
        yield stage


def _geometry(setting: str, subject: Subject, runner: Runner, points: Tensor) -> Geometry:
    """Exact metric tensors, unless something speaks against them; then the reason, which `exact` refuses."""
    encoding = subject.encoding
    if setting == "differences":
        return Geometry(None, "as asked for")
    if isinstance(encoding, Encoding) and not encoding.differentiable:
        geometry = Geometry(None, f"since {encoding.kind} codes have no derivative")
    elif runner.rows.how == "whole":
        geometry = Geometry(None, "since the rows of a batch meet")
    else:
        geometry = exact_geometry(runner.reader, points, subject.grid, runner.memory, runner.epsilon)
    if setting == "exact" and geometry.metrics is None:
        raise InvalidValue("geometry", setting, f"auto or differences, {geometry.reason}")
    return geometry
