"""Scores of a module's outputs: errors, accuracies, kernels and superposition, on grids and samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from recombine.diagnosis.running import ROWS_AT_ONCE, Runner
from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.metrics import (
    averaged_prediction,
    gram_matrix,
    kernel_agreement,
    nearest_points,
    squared_error,
    superposition_scores,
)
from recombine.metrics.plans import Part, Plan
from recombine.metrics.sampling import SUFFIX, Estimate, mean_estimate, ratio_estimate, repeated_estimate
from recombine.metrics.stages import chunks

PERMUTATIONS = 499
"""Number of permutations in the kernel test; studies that require smaller p-values use more."""


def errors_on(outputs: Tensor, targets: Tensor, part: Part) -> dict[str, Any]:
    """Return the squared error per point; on a whole grid, also mean errors, absolute and relative to the mean's."""
    truth, mask = targets.cpu().double(), part.held_out
    error = squared_error(outputs.cpu().double(), truth)
    scores: dict[str, Any] = {"error": (part.grid.names, error.reshape(part.grid.shape).numpy())}
    if part.indices is not None:
        return scores
    constant = squared_error(truth[~mask].mean(dim=0).expand_as(truth), truth)
    regions = {"id": ~mask} | ({"ood": mask} if bool(mask.any()) else {})
    for region, points_in in regions.items():
        scores[f"{region}_error"] = ((), error[points_in].mean().item())
        scores[f"{region}_over_mean"] = ((), (error[points_in].mean() / constant[points_in].mean()).item())
    return scores | _accuracies(outputs.cpu(), truth, part.grid.indices, mask)


def _accuracies(outputs: Tensor, targets: Tensor, positions: Tensor, held_out: Tensor) -> dict[str, Any]:
    """Return the fractions of outputs whose nearest target, among all of these, has their own values of the factors."""
    nearest = nearest_points(outputs.flatten(1), targets.flatten(1))
    right, scores = positions[nearest] == positions, dict[str, Any]()
    for region, here in (("id", ~held_out), ("ood", held_out)):
        if bool(here.any()):
            scores[f"{region}_accuracy"] = ((), right[here].all(dim=1).double().mean().item())
            scores[f"{region}_factor_accuracy"] = ("factor", right[here].double().mean(dim=0).tolist())
    return scores


def kernel_scores(outputs: Tensor, positions: Tensor, part: Part) -> dict[str, Any]:
    """Return the agreement between the outputs' Gram matrix and theoretical kernels."""
    gram = gram_matrix(outputs.cpu())
    agreement = kernel_agreement(gram, positions.cpu(), part.held_out, permutations=PERMUTATIONS)
    return {
        "kernel_agreement": ("kernel", [value.item() for value in agreement.agreement.values()]),
        "kernel": ("kernel", list(agreement.agreement)),
        "kernel_p": ((), agreement.p_value.item()),
    }


def superposition_of(
    runner: Runner, part: Part, outputs: Tensor, targets: Tensor | None, points: Tensor, positions: Tensor
) -> dict[str, Any]:
    """Return superposition scores for memorised outputs and, if factors are encoded separately, for averaged codes."""
    subject, held_out, averaged = runner.subject, part.held_out.to(points.device), None
    background, encoding = subject.background, subject.encoding
    if isinstance(encoding, Encoding) and runner.rows.how != "whole":
        sizes, codes = [encoding.size(factor) for factor in subject.grid.factors], runner.stages.encode(points)
        averaged = averaged_prediction(
            lambda inputs: runner.outputs(inputs) - background, codes[held_out], sizes, codes[~held_out]
        )
    truth = None if targets is None else targets - background
    scores = superposition_scores(outputs - background, positions, held_out, truth=truth, averaged=averaged)
    return {
        "superposition": ("prediction", [value.item() for value in scores.values()]),
        "prediction": ("prediction", list(scores)),
    }


def shaped(targets: Tensor, outputs: Tensor) -> Tensor:
    if targets.numel() != outputs.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{outputs.shape[1]} numbers per grid point")
    return targets.to(outputs).reshape(outputs.shape)


def averaged_scores(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return kernel and superposition scores averaged over sub-grids, and all other scores from the first sub-grid."""
    combined = {name: value for own in reversed(scores) for name, value in own.items()}
    for name in ("kernel_agreement", "superposition") if len(scores) > 1 else ():
        if name in combined:
            values = torch.tensor([own[name][1] for own in scores if name in own], dtype=torch.float64)
            _add_estimate(combined, name, repeated_estimate(values), combined[name][0])
    return combined


def sampled_errors(runner: Runner, plan: Plan) -> dict[str, Any]:
    """Return errors on kept and held-out combinations of a sampled grid, absolute and relative to the mean target's."""
    subject, drawn = runner.subject, plan.points
    if subject.targets is None or drawn is None:
        return {}
    # targets are read twice, for their mean and for the errors, to keep only a few in memory at a time
    is_held_out = subject.held_out[drawn]
    kept = drawn[~is_held_out]
    sums = (subject.target_rows(indices).cpu().double().flatten(1).sum(dim=0) for indices in chunks(kept, ROWS_AT_ONCE))
    mean = reduce(torch.add, sums) / len(kept)
    errors, constants = [], []
    compared = _compared(drawn, mean.numel(), runner.memory)
    images: list[tuple[Tensor, Tensor]] = []
    for indices in chunks(drawn, ROWS_AT_ONCE):
        codes = runner.stages.encode(runner.values(subject.grid.rows(indices)))
        outputs, truth = runner.outputs(codes).cpu().double(), subject.target_rows(indices).cpu().double().flatten(1)
        errors.append(squared_error(outputs, shaped(truth, outputs)))
        constants.append(squared_error(mean.expand_as(truth), truth))
        chosen = torch.isin(indices, drawn[compared])
        images.append((outputs[chosen].float(), truth[chosen].float()))
    error, constant = torch.cat(errors), torch.cat(constants)
    scores: dict[str, Any] = {}
    population = ~subject.held_out if plan.present is None else plan.present & ~subject.held_out
    is_sample = len(drawn) < int((population | subject.held_out).sum())
    for region, here, mask in (("id", ~is_held_out, population), ("ood", is_held_out, subject.held_out)):
        if count := int(mask.sum()):
            ratio = ratio_estimate(error[here], constant[here], count)
            _add_estimate(scores, f"{region}_error", mean_estimate(error[here], count), with_error=is_sample)
            _add_estimate(scores, f"{region}_over_mean", ratio, with_error=is_sample)
    pairs = [torch.cat(parts) for parts in zip(*images, strict=True)]
    positions = subject.grid.positions(drawn[compared])
    return scores | _accuracies(pairs[0], pairs[1], positions, is_held_out[compared])


def _compared(drawn: Tensor, pixels: int, memory: int) -> Tensor:
    """Return which of the drawn points to compare with each other, evenly spaced if not all fit into memory."""
    fitting = max(2, memory // (4 * torch.float32.itemsize * pixels))
    return torch.linspace(0, len(drawn) - 1, min(len(drawn), fitting)).round().long().unique()


def _add_estimate(
    scores: dict[str, Any], name: str, estimate: Estimate, dims: str | tuple[()] = (), *, with_error: bool = True
) -> None:
    scores[name] = (dims, estimate.value.tolist())
    if with_error:
        scores[f"{name}{SUFFIX}"] = (dims, estimate.standard_error.tolist(), estimate.error_attributes(name))
