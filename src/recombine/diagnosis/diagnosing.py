"""The paper's measurements on anyone's module, run in evaluation mode, watched by hooks, and left as it was."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from recombine.diagnosis.arguments import (
    Selection,
    TargetFunction,
    encode_values,
    holdout_mask,
    own_data,
    selected,
    shaped_targets,
    target_rows,
    valid_encoding,
    valid_grid,
    valid_targets,
)
from recombine.diagnosis.derivatives import Geometry, exact_geometry
from recombine.diagnosis.hooks import OUTPUT
from recombine.diagnosis.isolation import as_called, differentiable, refuse_unfinished, uncompiled, undisturbed
from recombine.diagnosis.outputs import output_scores, streamed_errors, superposition
from recombine.diagnosis.result import Diagnosis, dataset, reserved_names
from recombine.diagnosis.sampling import Part, averaged_profile, averaged_scores, error_scores, plan_of, profile_errors
from recombine.diagnosis.subject import Subject, prepare_subject
from recombine.encodings import Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import FactorGrid
from recombine.holdouts import Holdout, HoldoutSummary
from recombine.metrics import averaged_prediction, volume_element
from recombine.metrics.metric_tensors import neighbour_metric
from recombine.metrics.registry import Stage, StageProfile, read_stages, stage_profile
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import INPUT, MEMORY, Encode, precision
from recombine.store import Run
from recombine.tasks import ArrayTask
from recombine.training.devices import arithmetic

GEOMETRIES = ("auto", "exact", "differences")


def diagnose(
    module: nn.Module | Run,
    grid: FactorGrid | str | None = None,
    *,
    data: ArrayTask | str | os.PathLike[str] | None = None,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | np.ndarray | TargetFunction | None = None,
    background: float = 0.0,
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
        Maps a batch of encoded factor values to a batch of anything; or a finished run, whose spec gives grid, data,
        encode, holdout, targets and background.
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
        Value of an empty output, in every channel.
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
    if isinstance(module, Run):
        given_too = {"grid": grid, "data": data, "encode": encode, "holdout": holdout, "targets": targets}
        for name, value in (given_too | {"background": background or None}).items():
            if value is not None:
                raise InvalidValue(name, value, "left out: the spec of a run says it")
        task = module.spec.task
        given_by_spec: dict[str, Any] = {"data": task} if isinstance(task, ArrayTask) else {
            "grid": task.grid, "encode": task.encoding, "holdout": task.held_out, "targets": task.render,
            "background": task.background,
        }  # fmt: skip
        return diagnose(
            module.module(), **given_by_spec, stages=stages, memory=memory, geometry=geometry, thorough=thorough,
            points=points, seed=seed, metrics=metrics,
        )  # fmt: skip
    if not isinstance(module, nn.Module):
        raise InvalidValue("module", module, "a torch.nn.Module or a finished run")
    if geometry not in GEOMETRIES:
        raise InvalidValue("geometry", geometry, f"one of {listed(GEOMETRIES)}")
    present: Tensor | None = None
    if data is not None:
        for name, value in {"grid": grid, "targets": targets}.items():
            if value is not None:
                raise InvalidValue(name, value, "left out beside data, which has its own")
        grid, encode, holdout, targets, background, present = own_data(data, encode, holdout)
    grid = valid_grid(grid, reserved_names())
    encoding = valid_encoding(encode, grid)
    mask = holdout_mask(holdout, grid)
    given = valid_targets(targets, grid)
    plan = plan_of(grid, mask, points, seed, present)
    whole = target_rows(given, grid) if plan.points is None else None
    stages = [stages] if isinstance(stages, str) else stages
    thorough = [thorough] if isinstance(thorough, str) else thorough
    selection = selected(metrics, thorough)
    module = uncompiled(module)
    refuse_unfinished(module)
    weight = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    device, dtype = weight.device, weight.dtype if weight.is_floating_point() else torch.float32

    def encoded(values: Tensor) -> Tensor:
        inputs = encode_values(values, encoding, grid).clone()  # a module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    strict = arithmetic("float32")  # TF32's rounding would hide what small steps do
    with strict, as_called(module, device) as forward, undisturbed(module), differentiable(module):
        places = [points_at(grid, part.indices).to(device, precision(device)).clone() for part in plan.parts]
        subject = prepare_subject(module, forward, encoded, places[0], stages, memory)
        if plan.points is not None and subject.rows.how == "whole":
            allowed = "a whole grid without gaps: outputs depend on other examples in the batch"
            raise InvalidValue("points" if plan.present is None else "data", len(plan.points), allowed)
        how = geometry if selection.metric_tensor else "differences"
        derivatives = [_geometry(how, encoding, subject, own, grid) for own in places]
        derivative = next((own for own in derivatives if own.metrics is None), derivatives[0])
        profiles, scores = [], []
        for part, own, exact in zip(plan.parts, places, derivatives, strict=True):
            tensors = None if derivative.metrics is None else exact.metrics
            truth = whole if part.indices is None else target_rows(given, grid, part.indices)
            profile, score = _measured(
                subject, part, own, grid, tensors, truth, encoding, encoded, background, selection
            )
            profiles.append(profile)
            scores.append(score)
        if plan.points is None:
            return dataset(profiles[0], scores[0], grid, mask, derivative, subject.notes)
        profile, estimates = averaged_profile(plan, profiles)
        combined = averaged_scores(scores) | profile_errors(estimates)
        if given is not None:
            error, constant = streamed_errors(subject, encoded, given, grid, plan.points, mask, precision(device))
            combined |= error_scores(error, constant, plan, mask)
    first, notes = plan.parts[0], [*plan.notes, *subject.notes]
    summary = HoldoutSummary.of(mask, grid, plan.present)
    return dataset(profile, combined, first.grid, first.held_out, derivative, notes, len(plan.points), summary)


def _measured(
    subject: Subject, part: Part, points: Tensor, grid: FactorGrid, metrics: dict[str, Tensor] | None,
    targets: Tensor | None, encoding: object, encoded: Encode, background: float, selection: Selection,
) -> tuple[StageProfile, dict[str, Any]]:  # fmt: skip
    """Registered metrics of every stage over a part of the grid, and scores of the outputs there."""
    neighbours = None
    if part.indices is not None and min(grid.shape) > 1:
        neighbours = neighbour_metric(subject.reader, grid, part.indices, points.device, memory=subject.memory)
    by_stage = read_stages(
        subject.reader, points, part.grid, part.held_out,
        exact=metrics, targets=targets, neighbours=neighbours, memory=subject.memory,
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
        if isinstance(encoding, Encoding) and subject.rows.how != "whole":
            sizes = [encoding.size(factor) for factor in grid.factors]
            own, held_out = encoded(points), part.held_out.to(points.device)
            averaged = averaged_prediction(
                lambda rows: subject.outputs(rows) - background, own[held_out], sizes, own[~held_out]
            )
        scores |= superposition(outputs, points, part.held_out, part.grid, truth, background, averaged)
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


def _geometry(setting: str, encoding: object, subject: Subject, points: Tensor, grid: FactorGrid) -> Geometry:
    """Exact metric tensors, unless something speaks against them; then the reason, which `exact` refuses."""
    if setting == "differences":
        return Geometry(None, "as asked for")
    if isinstance(encoding, Encoding) and not encoding.differentiable:
        geometry = Geometry(None, f"since {encoding.kind} codes have no derivative")
    elif subject.rows.how == "whole":
        geometry = Geometry(None, "since the rows of a batch meet")
    else:
        geometry = exact_geometry(subject.reader, points, grid, subject.memory, subject.epsilon)
    if setting == "exact" and geometry.metrics is None:
        raise InvalidValue("geometry", setting, f"auto or differences, {geometry.reason}")
    return geometry
