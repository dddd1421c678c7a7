"""Scores of a module's outputs: errors, kernels, superposition."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from recombine.diagnosis.running import ROWS_AT_ONCE, Runner
from recombine.diagnosis.subject import Subject
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.metrics import gram_matrix, kernel_agreement, squared_error, superposition_scores
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import Encode

PERMUTATIONS = 499
"""Permutations of the kernel test; a study that needs smaller p-values asks for more."""


def output_scores(
    outputs: Tensor, points: Tensor, mask: Tensor, grid: FactorGrid, targets: Tensor | None, *, kernels: bool = True
) -> dict[str, Any]:
    """Errors of the outputs, also over those of always giving the mean kept target, and which kernel they are like."""
    scores: dict[str, Any] = {}
    if targets is not None:
        truth = targets.cpu().double()
        error = squared_error(outputs.cpu().double(), truth)
        constant = squared_error(truth[~mask].mean(dim=0).expand_as(truth), truth)
        scores["error"] = (grid.names, error.reshape(grid.shape).numpy())
        regions = {"id": ~mask} | ({"ood": mask} if bool(mask.any()) else {})
        for region, points_in in regions.items():
            scores[f"{region}_error"] = ((), error[points_in].mean().item())
            scores[f"{region}_over_mean"] = ((), (error[points_in].mean() / constant[points_in].mean()).item())
    if kernels and bool(mask.any()) and not bool(mask.all()):
        agreement = kernel_agreement(
            gram_matrix(outputs.cpu()), _positions(points, grid).cpu(), mask, permutations=PERMUTATIONS
        )
        scores["kernel_agreement"] = ("kernel", [value.item() for value in agreement.agreement.values()])
        scores["kernel"] = ("kernel", list(agreement.agreement))
        scores["kernel_p"] = ((), agreement.p_value.item())
    return scores


def superposition(
    outputs: Tensor,
    points: Tensor,
    mask: Tensor,
    grid: FactorGrid,
    targets: Tensor | None,
    background: float,
    averaged: Tensor | None,
) -> dict[str, Any]:
    """The memorised form for any module, the averaged one where it is given."""
    truth = None if targets is None else targets - background
    held_out = mask.to(points.device)
    scores = superposition_scores(
        outputs - background, _positions(points, grid), held_out, truth=truth, averaged=averaged
    )
    return {
        "superposition": ("prediction", [value.item() for value in scores.values()]),
        "prediction": ("prediction", list(scores)),
    }


def _positions(points: Tensor, grid: FactorGrid) -> Tensor:
    return torch.stack([factor.position(points[:, k]) for k, factor in enumerate(grid.factors)], dim=1)


def streamed_errors(
    subject: Subject, runner: Runner, encode: Encode, drawn: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Squared error of the outputs at the points drawn, and that of always giving the mean kept target.

    Targets are read twice: for their mean, and with the outputs.
    """

    def rows_at(indices: Tensor) -> Tensor:
        rows = subject.target_rows(indices)
        assert rows is not None
        return rows.cpu().double().flatten(1)

    kept = drawn[~subject.held_out[drawn]]
    chunks = [own.tensor_split(-(-len(own) // ROWS_AT_ONCE)) for own in (kept, drawn)]
    mean = reduce(torch.add, (rows_at(part).sum(dim=0) for part in chunks[0])) / len(kept)
    errors, constants = [], []
    device = next((tensor.device for tensor in (*runner.module.parameters(), *runner.module.buffers())), None)
    for part in chunks[1]:
        outputs = runner.outputs(encode(points_at(subject.grid, part).to(device, dtype).clone())).cpu().double()
        truth = rows_at(part)
        errors.append(squared_error(outputs, shaped_targets(truth, outputs)))
        constants.append(squared_error(mean.expand_as(truth), truth))
    return torch.cat(errors), torch.cat(constants)


def shaped_targets(targets: Tensor, outputs: Tensor) -> Tensor:
    """The right outputs in the shape of the outputs."""
    if targets.numel() != outputs.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{tuple(outputs.shape)} numbers, a row per grid point")
    return targets.to(outputs).reshape(outputs.shape)
