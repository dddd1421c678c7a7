"""Every diagnostic of networks of one arm, and its values at comparable positions.

Kernels of stages are over every second grid value along an axis where the grid is larger than `LARGEST_SIDE`: their
spectra would cost more than all the rest. They are cosines; of outputs over the background. *Effective rank* is that of
the covariance over the grid, as `diagnose` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import xarray
from torch import Tensor

from recombine.metrics import (
    block_contrast,
    effective_rank,
    features,
    gram_matrix,
    interior,
    kernel_agreement,
    kernel_families,
    nonnegative_superposition,
    partial_factorization,
    peak_scores,
    schmidt_spectrum,
    superposition_scores,
)
from recombine.papers.forced_rendering.attention import MEMORY, one_by_one
from recombine.papers.forced_rendering.scores import training_fit
from recombine.reproduction import tables
from recombine.reproduction.measuring import Batch, stage_dims, stage_profile
from recombine.tasks import Task

COMPOSING = 0.9
"""OOD accuracy from which on a network composes; below it, it fails."""

WHOLE_GRID = "whole grid"
"""Data of networks that were trained on the combinations that count as held out."""

FIRST, MIDDLE, LAST, OUTPUT = "first hidden stage", "middle hidden stage", "last hidden stage", "output"
MEAN, FALL = "mean over hidden stages and output", "first hidden stage less output"


FACTORIZED, VOLUME = "factorization", "volume"
NAMED = (FACTORIZED, VOLUME)
"""Families of markers that the paper names; all others are their rivals."""


class Marker(NamedTuple):
    """A diagnostic in words."""

    title: str
    family: str
    """What it measures: forms of one diagnostic are no rivals of each other."""
    sign: int = 0
    """Of composing less failing networks as the paper predicts it; 0 where it predicts none."""
    staged: bool = True
    """Whether every stage has one, not the output alone."""
    needs_targets: bool = False
    """Whether it needs to be known what is right for held-out combinations."""


FACTORIZATION, SPREAD = "factorization", "spread"
MARKERS = {
    "probe_held_out": Marker("probe R², held-out points", "probe"),
    "probe_in_sample": Marker("probe R², in sample", "probe"),
    FACTORIZATION: Marker("factorization F", FACTORIZED, 1),
    "factorization_held": Marker("F, held-out points", FACTORIZED, 1),
    "factorization_differences": Marker("F by finite differences", FACTORIZED, 1),
    SPREAD: Marker("spread of log10 dv", VOLUME, -1),
    "spread_held": Marker("spread of log10 dv, held-out points", VOLUME, -1),
    "spread_excess": Marker("spread of log10 dv, held-out less kept", VOLUME, -1),
    "contrast": Marker("mean log10 dv, held-out less kept", VOLUME),
    "roughness": Marker("roughness of log10 dv", VOLUME, -1),
    "roughness_held": Marker("roughness of log10 dv, held-out points", VOLUME, -1),
    "cross_term": Marker("cross-terms", FACTORIZED),
    "cross_term_held": Marker("cross-terms, held-out points", FACTORIZED),
    "stripe_index": Marker("stripe index of units", "tuning"),
    "localisation_index": Marker("localisation index of units", "tuning"),
    "effective_rank": Marker("effective rank", "rank"),
    "schmidt_rank": Marker("Schmidt rank of the kernel", "kernel"),
    "single_factor": Marker("PF_Coeff of the kernel", "kernel"),
    "superposed": Marker("superposition of training images, over chance", "superposition", staged=False),
    "memorised": Marker("superposition of own outputs, equal weights", "superposition", staged=False),
    "kernel_margin": Marker("OR kernel over product and radial", "kernel", staged=False),
    "kernel_binary": Marker("agreement with the binary kernel", "kernel", staged=False),
    "block_contrast": Marker("block contrast of the kernel", "kernel", staged=False),
    "several_peaks": Marker("held-out outputs with several peaks", "peaks", staged=False),
    "kernel_distance": Marker("distance of the kernel to the ideal one", "kernel", staged=False, needs_targets=True),
    "id_error": Marker("ID error", "error", staged=False),
    "training_error": Marker("training error", "error", staged=False),
}
"""By name. Probes need held-out factor values, not images; superposition needs training images."""


def predicted_sign(marker: str, position: str) -> int:
    """Of composing less failing networks as the paper predicts it there: what is kept has the smaller fall."""
    sign = MARKERS[marker].sign
    return -sign if position == FALL else sign


MARKER_METRICS = (
    "block_contrast", "effective_rank", "extreme_pixel", "features", "gram_matrix", "hits", "interior",
    "kernel_agreement", "kernel_families", "nonnegative_superposition", "partial_factorization", "peak_scores",
    "schmidt_spectrum", "squared_error", "stage_profile", "superposition_scores",
)  # fmt: skip
"""What markers are measured with."""
KERNEL_STAGES = ("effective_rank", "schmidt_rank", "single_factor")
LARGEST_SIDE = 16
"""Grids larger than this along an axis are thinned for kernels of stages."""
ALONE = ("transformer", "coordinate")
"""Decoders that are measured one network after the other: they need memory for every pixel, or pair of pixels."""


def marker_dims() -> dict[str, Sequence[str]]:
    """Dimensions of what `measured` gives, beside the networks'."""
    return {**stage_dims(), **dict.fromkeys(KERNEL_STAGES, ("stage",))}


def measured(batch: Batch) -> dict[str, Any]:
    """Scores and all markers of finished runs of one arm, those of stages by stage."""
    if batch.spec.decoder.kind in ALONE and (len(batch) > 1 or batch.memory > MEMORY):
        return one_by_one(measured, batch)
    scores, fit = batch.scores, training_fit(batch)
    values = {
        **scores,
        **fit,
        **stage_profile(batch, maps=False),
        **_kernels_of_stages(batch),
        **_of_outputs(batch.task, batch.forward(batch.task.codes(batch.task.grid.points).float()).flatten(2)),
        "id_error": scores["id_over_blank"],
        "training_error": fit["training_over_blank"],
    }
    return {name: value.cpu().numpy() if isinstance(value, Tensor) else value for name, value in values.items()}


def _kernels_of_stages(batch: Batch) -> dict[str, Tensor]:
    """Ranks and PF_Coeff of the kernel of every stage: `[member, stage]`."""
    task = batch.task
    step = 2 if max(task.grid.shape) > LARGEST_SIDE else 1
    points = task.grid.points[(task.grid.indices % step == 0).all(dim=1)].to(batch.device)
    shape = tuple(-(-count // step) for count in task.grid.shape)
    stages = [
        _kernel_of_stage(activations - task.background * (name == "output"), shape)
        for name, activations in features(batch.reader(), points, members=1, memory=batch.memory)
    ]
    return {
        key: torch.stack([stage[key].expand(len(batch)) for stage in stages], dim=1).float() for key in KERNEL_STAGES
    }


def _kernel_of_stage(activations: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    values = activations.double()
    centred = values - values.mean(dim=-2, keepdim=True)
    gram = gram_matrix(values, "cosine")
    return {
        "effective_rank": effective_rank(torch.linalg.eigvalsh(centred @ centred.mT).clamp(min=0)),
        "schmidt_rank": effective_rank(schmidt_spectrum(gram, shape).square()),
        "single_factor": partial_factorization(gram, shape),
    }


def _of_outputs(task: Task, outputs: Tensor) -> dict[str, Tensor]:
    """Superposition, kernels and peaks of outputs at every grid point: `[member, point, pixel]`."""
    device, shape = outputs.device, task.grid.shape
    drawn, held = outputs - task.background, task.held_out.to(device)
    points, inner = task.grid.points.to(device), interior(held, task.grid.shape)
    truth = task.render(task.grid.points).float().flatten(1).to(device) - task.background
    memories = nonnegative_superposition(drawn, truth, points, held, chosen=inner)
    gram, ideal = gram_matrix(drawn, "cosine"), gram_matrix(truth, "cosine")
    images = drawn.unflatten(2, task.image_shape)
    return {
        "superposed": memories["matched"] - memories["mismatched"],
        "memorised": superposition_scores(drawn, points, held)["memorised"],
        "kernel_margin": kernel_families(gram, shape, held, rows=inner).margin,
        "kernel_binary": kernel_agreement(gram, points, held, permutations=0).agreement["binary"],
        "block_contrast": block_contrast(gram, points, held),
        "several_peaks": peak_scores(images, points[:, :2], chosen=inner, dark=task.background == 1)["several"],
        "kernel_distance": (gram - ideal).norm(dim=(-2, -1)) / ideal.norm(),
    }


PLACES: dict[str, Callable[[xarray.DataArray], xarray.DataArray]] = {
    FIRST: tables.first_hidden,
    MIDDLE: tables.middle_hidden,
    LAST: tables.last_hidden,
    OUTPUT: tables.output,
    MEAN: tables.mean_after_input,
    FALL: tables.fall,
}
"""Each position, and how its value is had from those of all stages."""


def at_positions(result: xarray.Dataset) -> xarray.DataArray:
    """Markers at positions, `(…, marker, position)`, from the variables that `measured` gives."""
    rows = []
    for name, marker in MARKERS.items():
        values = result[name]
        parts = [
            place(values) if marker.staged else values.where(position == OUTPUT) for position, place in PLACES.items()
        ]
        rows.append(xarray.concat([part.reset_coords(drop=True) for part in parts], dim="position"))
    return xarray.concat(rows, dim="marker").assign_coords(marker=list(MARKERS), position=list(PLACES))
