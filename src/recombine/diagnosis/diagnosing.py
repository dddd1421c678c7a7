"""The paper's measurements on anyone's module.

>>> result = diagnose(module, "x=0:27,y=0:27", encode="bump", holdout="center:6:22", targets=images)
>>> print(result.summary())

`module` maps a batch of encoded factor values to a batch of anything. It is run in evaluation mode, watched by hooks,
and left exactly as it was: training flags, hooks, gradients, buffers and random state. The result is one labelled
Dataset: metric tensor, volume and factorization at every stage and grid point, probes, tuning indices and Schmidt
spectra per stage, kernels and superposition of the outputs; and how the metric was computed, with what had to be done
to the module's rows and which parts were left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from recombine.checks import items, number, one_of, whole_number
from recombine.diagnosis.arguments import (
    encode_values,
    holdout_mask,
    one_line_mistakes,
    shaped_targets,
    valid_encoding,
    valid_grid,
    valid_module,
    valid_targets,
)
from recombine.diagnosis.data import POINTS, part_of
from recombine.diagnosis.derivatives import Geometry, exact_geometry
from recombine.diagnosis.hooks import OUTPUT
from recombine.diagnosis.isolation import as_called, differentiable, refuse_unfinished, uncompiled, undisturbed
from recombine.diagnosis.outputs import averaged_outputs, output_scores, superposition
from recombine.diagnosis.result import Diagnosis, dataset, reserved_names
from recombine.diagnosis.subject import Subject, prepare_subject
from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.holdouts import Holdout
from recombine.metrics import volume_element
from recombine.metrics.profile import read_stages, stage_profile
from recombine.metrics.registry import Stage
from recombine.metrics.stages import INPUT, MEMORY, Encode, precision
from recombine.tasks import ArrayTask
from recombine.training.devices import arithmetic

GEOMETRIES = ("auto", "exact", "differences")


@one_line_mistakes
def diagnose(
    module: nn.Module,
    grid: FactorGrid | str | None = None,
    *,
    data: ArrayTask | str | os.PathLike[str] | None = None,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | np.ndarray | None = None,
    background: float = 0.0,
    memory: int = MEMORY,
    geometry: Literal["auto", "exact", "differences"] = "auto",
    thorough: bool | Sequence[str] = False,
    points: int = POINTS,
) -> Diagnosis:
    """Measure a module over a factor grid.

    Parameters
    ----------
    module
        Maps a batch of encoded factor values to a batch of anything.
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
        Right outputs, one row per grid point in its order, for errors and superposition.
    background
        Value of an empty output.
    memory
        Bytes that a measurement may keep at a time.
    geometry
        `auto`: exact wherever encoding and module have a derivative, by differences between grid points elsewhere;
        `exact` refuses the latter, `differences` takes no derivatives.
    thorough
        Whether to measure what takes long too, such as tests of factorization up to an invertible map; or the names of
        some such metrics (docs/metrics.md).
    points
        Combinations of the data on which the module is measured at most; of more, every second, third, … value.

    Returns
    -------
    Diagnosis
        A Dataset. `attrs["metric"]` says how the metric tensor was computed, `attrs["metric_reason"]` why not exactly,
        and `attrs["notes"]` what else a reader must know.
    """
    valid_module(module)
    notes: list[str] = []
    if data is not None:
        for name, given in {"grid": grid, "targets": targets}.items():
            if given is not None:
                raise InvalidValue(name, given, "nothing beside data, which has its own")
        grid, encode, holdout, targets, background, notes = part_of(data, encode, holdout, points)
    grid = valid_grid(grid, reserved_names())
    encoding = valid_encoding(encode)
    mask = holdout_mask(holdout, grid)
    targets = valid_targets(targets, grid)
    one_of("geometry", geometry, GEOMETRIES)
    number("background", background)
    whole_number("memory", memory)
    thorough = thorough if isinstance(thorough, bool) else items("thorough", thorough, str, example="names of metrics")
    stages = stages if stages is None else items("stages", stages, str, example="paths of submodules")
    module = uncompiled(module)
    refuse_unfinished(module)
    weight = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    device, dtype = weight.device, weight.dtype if weight.is_floating_point() else torch.float32

    def encoded(values: Tensor) -> Tensor:
        inputs = encode_values(values, encoding, grid).clone()  # a module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    strict = arithmetic("float32")  # TF32's rounding would hide what small steps do
    with strict, as_called(module, device) as forward, undisturbed(module), differentiable(module):
        values = grid.points.to(device, precision(device)).clone()
        subject = prepare_subject(module, forward, encoded, values, stages, memory)
        derivative = _geometry(geometry, encoding, subject, values, grid)
        by_stage = read_stages(
            subject.reader, values, grid, mask, exact=derivative.metrics, targets=targets, memory=subject.memory
        )
        kept: dict[str, Tensor] = {}
        profile = stage_profile(_measurable(by_stage, encode, kept), thorough=thorough)
        outputs = kept[OUTPUT]
        truth = None if targets is None else shaped_targets(targets, outputs)
        scores = output_scores(outputs, values, mask, grid, truth)
        if bool(mask.any()):
            averaged = _averaged(subject, encoding, lambda: encoded(values), grid, mask, background)
            scores |= superposition(outputs, values, mask, grid, truth, background, averaged)
    return dataset(profile, scores, grid, mask, derivative, [*notes, *subject.notes])


def _averaged(
    subject: Subject,
    encoding: object,
    codes: Callable[[], Tensor],
    grid: FactorGrid,
    mask: Tensor,
    background: float,
) -> Tensor | None:
    """The averaged prediction for held-out points; none where codes have no block per factor, or rows meet."""
    if not isinstance(encoding, Encoding) or subject.rows.how == "whole":
        return None
    sizes = [encoding.size(factor) for factor in grid.factors]
    return averaged_outputs(lambda part: subject.outputs(part) - background, codes(), sizes, mask)


def _measurable(stages: Iterable[Stage], encode: object, kept: dict[str, Tensor]) -> Iterator[Stage]:
    """The stages, refusing those without finite numbers; the outputs are kept for scores of their own."""
    for stage in stages:
        _refuse_unmeasurable(stage, encode)
        if stage.name == OUTPUT:
            kept[OUTPUT] = stage.features
        yield stage


def _refuse_unmeasurable(stage: Stage, encode: object) -> None:
    """Refuse a stage that has no numbers at all, or some that are not finite."""
    features = stage.features
    if features.shape[-1] and bool(torch.isfinite(features).all()):
        if not bool(torch.isfinite(volume_element(stage.metric)).all()):
            allowed = "a stage whose metric tensor and volume are finite at every grid point"
            raise InvalidValue("module", stage.name, allowed)
        return
    allowed = "finite numbers at every grid point" if features.shape[-1] else "at least one number per grid point"
    if stage.name == INPUT:
        raise InvalidValue("encode", encode, f"a code with {allowed}")
    raise InvalidValue("module", stage.name, f"a stage with {allowed}")


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
