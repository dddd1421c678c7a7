"""The paper's measurements on anyone's module.

>>> result = diagnose(module, "x=0:27,y=0:27", encode="bump", holdout="center:6:22", targets=images)
>>> print(result.summary())

`module` maps a batch of encoded factor values to a batch of anything. It is run in evaluation mode, watched by hooks,
and left exactly as it was: training flags, hooks, gradients, buffers and random state. The result is one labelled
Dataset: metric tensor, volume and factorization at every stage and grid point, probes, tuning indices and Schmidt
spectra a stage, kernels and superposition of the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from recombine.checks import items, number, one_of, whole_number
from recombine.diagnosis.arguments import (
    checked_targets,
    encode_values,
    explaining,
    given_encoding,
    given_grid,
    given_module,
    given_targets,
    holdout_mask,
)
from recombine.diagnosis.reading import (
    OUTPUT,
    check_stages,
    differentiable,
    found_stages,
    module_reader,
    tensor_in,
    try_inputs,
    undisturbed,
)
from recombine.diagnosis.result import RESERVED, Diagnosis, dataset
from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.holdouts import Holdout
from recombine.metrics import (
    Reader,
    averaged_prediction,
    effective_rank,
    features,
    finite_difference_metric,
    gram_matrix,
    kernel_agreement,
    local_factorization,
    mean_factorization,
    metric_tensor,
    neuron_tuning,
    probe_scores,
    schmidt_spectrum,
    squared_error,
    superposition_scores,
    volume_element,
)
from recombine.metrics.stages import MEMORY, Encode, flat

SCHMIDT_MODES = 16
"""Schmidt values kept a stage."""
PERMUTATIONS = 499
"""Permutations of the kernel test; a study that needs smaller p-values asks for more."""
ROWS_AT_ONCE = 64
"""Rows that a module is given at a time where nothing says how large they are."""
Geometry = Literal["auto", "exact", "differences"]


@explaining
def diagnose(
    module: nn.Module,
    grid: FactorGrid | str,
    *,
    encode: Encode | Encoding | str | None = None,
    holdout: Holdout | Tensor | np.ndarray | str | None = None,
    stages: Sequence[str] | None = None,
    targets: Tensor | np.ndarray | None = None,
    background: float = 0.0,
    memory: int = MEMORY,
    geometry: Geometry = "auto",
) -> Diagnosis:
    """Measure a module over a factor grid.

    `encode` is an encoding (by name, or one of ours), a function from `(point, factor)` values to inputs, or nothing:
    the values themselves. `stages` are module paths; by default the module's own parts, in the order they are run.
    `targets` are the right answers, a row a grid point in its order, for errors and superposition. `geometry` is exact
    wherever the encoding has a derivative, unless differences between grid points are asked for.
    """
    given_module(module)
    grid = given_grid(grid, RESERVED)
    encoding = given_encoding(encode)
    mask = holdout_mask(holdout, grid)
    targets = given_targets(targets, grid)
    one_of("geometry", geometry, get_args(Geometry))
    number("background", background)
    whole_number("memory", memory)
    stages = stages if stages is None else items("stages", stages, str, example="paths of submodules")
    place = next((p for p in (*module.parameters(), *module.buffers())), torch.empty(0))
    dtype = place.dtype if place.is_floating_point() else torch.float32
    points = grid.points.to(place.device, torch.float32 if place.device.type == "mps" else torch.float64)

    def encoded(values: Tensor) -> Tensor:
        inputs = encode_values(values, encoding, grid).clone()  # a module may work in place
        return inputs.to(dtype) if inputs.is_floating_point() else inputs

    with undisturbed(module), differentiable(module):
        try_inputs(module, encoded(points[:2]))
        names = check_stages(module, stages) if stages is not None else found_stages(module, encoded(points[:2]))
        reader = module_reader(module, encoded, names)
        smooth = not isinstance(encoding, Encoding) or encoding.differentiable
        if geometry == "exact" and not smooth:
            raise InvalidValue("geometry", geometry, "differences, since one-hot codes have no derivative")
        metrics = _exact_metrics(reader, points, memory, geometry) if smooth and geometry != "differences" else None
        result: dict[str, Any] = {}
        rows: dict[str, list[Any]] = {}
        order = []
        answers = None
        for name, stage in features(reader, points, memory=memory):
            if not bool(torch.isfinite(stage).all()):
                raise InvalidValue("module", name, "a stage with finite activations at every grid point")
            spacing = tuple(factor.spacing for factor in grid.factors)
            metric = metrics[name] if metrics else finite_difference_metric(stage, grid.shape, spacing)
            order.append(name)
            _measure_stage(rows, stage, metric, points, mask, grid)
            answers = stage if name == OUTPUT else answers
        assert answers is not None
        truth = checked_targets(targets, answers)
        if bool(mask.any()):
            result |= _superposition(module, encoding, grid, points, mask, answers, truth, background, encoded)
    result |= _answers(answers, points, mask, grid, truth)
    return dataset(rows, order, result, grid, mask, "exact" if metrics else "finite differences")


def _exact_metrics(reader: Reader, points: Tensor, memory: int, geometry: str) -> dict[str, Tensor] | None:
    """Exact metric tensors; none where something has no derivative and that was not insisted on."""
    try:
        return metric_tensor(reader, points, memory=memory, repeated=True)
    except NotImplementedError as error:
        if geometry == "exact":
            reason = str(error).splitlines()[0][:120]
            raise InvalidValue("geometry", geometry, f"auto or differences for this module ({reason})") from None
    except InvalidValue as error:
        if geometry == "exact" or error.field != "encoding":
            raise
    return None


def _measure_stage(
    rows: dict[str, list[Any]], stage: Tensor, metric: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid
) -> None:
    """Everything about one stage, added to the columns."""
    probes = probe_scores(stage, points, mask.to(stage.device))
    tuned = neuron_tuning(stage, grid.shape)
    several = len(grid.shape) > 1
    found = {
        "metric": metric,
        "volume": volume_element(metric),
        "features": torch.tensor(stage.shape[-1]),
        "effective_rank": effective_rank(torch.linalg.eigvalsh(_centred_gram(stage)).clamp(min=0)),
        "stripe_index": tuned.stripe_index.nanmean(),
        "localisation_index": tuned.localisation_index.nanmean(),
        **{f"probe_{name}": score for name, score in probes.items()},
    }
    if several:
        found["factorization"] = local_factorization(metric)
        found["factorization_mean"] = mean_factorization(metric, "points")
        found["factorization_of_means"] = mean_factorization(metric, "means")
    if len(grid.shape) == 2:
        spectrum = schmidt_spectrum(stage.double() @ stage.double().mT, grid.shape)
        found["schmidt"] = torch.nn.functional.pad(spectrum, (0, SCHMIDT_MODES))[:SCHMIDT_MODES]
    for name, value in found.items():
        rows.setdefault(name, []).append(value.cpu().numpy())


def _centred_gram(stage: Tensor) -> Tensor:
    centred = stage.double() - stage.double().mean(dim=0)
    return centred @ centred.mT


def _answers(answers: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid, targets: Tensor | None) -> dict[str, Any]:
    """Errors of the answers, and which kernel they are like."""
    found: dict[str, Any] = {}
    if targets is not None:
        error = squared_error(answers.cpu().double(), targets.cpu().double())
        found["error"] = (grid.names, error.reshape(grid.shape).numpy())
        found["id_error"] = ((), error[~mask].mean().item())
        if bool(mask.any()):
            found["ood_error"] = ((), error[mask].mean().item())
    if bool(mask.any()) and not bool(mask.all()):
        positions = _positions(points, grid).cpu()
        agreement = kernel_agreement(gram_matrix(answers.cpu()), positions, mask, permutations=PERMUTATIONS)
        found["kernel_agreement"] = ("kernel", [value.item() for value in agreement.agreement.values()])
        found["kernel"] = ("kernel", list(agreement.agreement))
        found["kernel_p"] = ((), agreement.p_value.item())
    return found


def _superposition(
    module: nn.Module,
    encoding: Encode | Encoding | None,
    grid: FactorGrid,
    points: Tensor,
    mask: Tensor,
    answers: Tensor,
    truth: Tensor | None,
    background: float,
    encoded: Encode,
) -> dict[str, Any]:
    """The memorised form for any module, the averaged one for codes that have a block a factor."""
    place, averaged = mask.to(points.device), None

    @torch.no_grad()
    def signal(part: Tensor) -> Tensor:
        rows = [tensor_in(module(few.clone())) for few in part.split(ROWS_AT_ONCE)]
        return torch.cat([flat(row) for row in rows if row is not None]) - background

    if isinstance(encoding, Encoding):
        codes, sizes = encoded(points), [encoding.size(factor) for factor in grid.factors]
        averaged = averaged_prediction(signal, codes[place], sizes, codes[~place])
    scores = superposition_scores(
        answers - background, _positions(points, grid), place,
        truth=None if truth is None else truth - background, averaged=averaged,
    )  # fmt: skip
    return {
        "superposition": ("prediction", [value.item() for value in scores.values()]),
        "prediction": ("prediction", list(scores)),
    }


def _positions(points: Tensor, grid: FactorGrid) -> Tensor:
    return torch.stack([factor.position(points[:, k]) for k, factor in enumerate(grid.factors)], dim=1)
