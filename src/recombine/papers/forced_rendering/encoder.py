"""Does the other direction, image to code, compose? (ours)

A convolutional encoder from bumps to their bump or rate code, the same box held out. Result: scores per seed, also by
distance from the kept region, a linear read-out of the last hidden stage, and error maps.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.decoders import ConvEncoder
from recombine.metrics import LinearProbe, ensemble_reader, features
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.reproduction.measuring import Batch, Measured, base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials


class EncoderStudy(Study[BumpPreset]):
    """Image to code."""

    name: ClassVar[str] = "encoder"
    question: ClassVar[str] = "Does the other direction, from image to code, compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("ensemble_reader", "features", *DISTANCE_METRICS)

    def arms(self, preset: BumpPreset) -> list[Arm]:
        return [
            Arm((code,), preset.spec(encoding=code, direction="encode", decoder=ConvEncoder(), lr=1e-3))
            for code in CODES
        ]

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: Batch) -> Measured:
            blank = grid_maps(batch, "blank").mean(axis=(1, 2), keepdims=True)
            error = grid_maps(batch, "error") / blank
            return {**batch.scores, **errors_by_distance(batch), **readout_errors(batch), "error": error}

        result = tabulate(trials, ("encoding",), measured, {"error": ("y", "x"), **DISTANCE_DIMS})
        return result.assign(error=result["error"].mean("seed"), **grid_variables(trials.first.spec)).assign_coords(
            distance=1 + np.arange(result.sizes["distance"])
        ).assign_attrs(base_attributes(trials, size=trials.preset.size))  # fmt: skip


# -- readout ---------------------------------------------------------------------------------------------------------
# How well the factors can be read off the last hidden stage of an encoder by a linear map.
#
# The map is fitted on one half of the kept combinations (as the black fields of a chessboard) and scored on the other
# half and on the held-out ones, and the other way round: an error where it was fitted would be too small to compare
# with.


def readout_errors(batch: Batch) -> dict[str, Tensor]:
    """Mean squared errors of the factors' values, in grid steps, at kept and at held-out combinations, per encoder."""
    task, points = batch.task, batch.task.grid.points.to(batch.device)
    held, black = task.held_out.to(batch.device), (task.grid.indices.sum(dim=1) % 2 == 0).to(batch.device)
    module = batch.spec.module().to(batch.device).eval()
    reader = ensemble_reader(module, batch.weights, lambda values: task.examples(values).inputs)
    stages = features(reader, points, members=1, memory=batch.memory)
    stage = next(activations for name, activations in stages if name == "hidden")
    kept_errors, held_errors = [], []
    for half in (black, ~black):
        fitted = LinearProbe().fit(stage[:, half & ~held], points[half & ~held])
        error = (fitted.predict(stage) - points).square().mean(dim=-1)
        kept_errors.append(error[:, ~half & ~held].mean(dim=1))
        held_errors.append(error[:, held].mean(dim=1))
    return {"readout_kept": torch.stack(kept_errors).mean(dim=0), "readout_held": torch.stack(held_errors).mean(dim=0)}


STUDY = EncoderStudy()
