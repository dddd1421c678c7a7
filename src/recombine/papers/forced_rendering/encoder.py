"""Does an encoder, which maps images to codes, generalise to unseen combinations? (ours)

A convolutional encoder maps bump images to their bump or rate code, with the same box held out. The result contains
scores per seed and by distance from the kept (not held-out) region, errors of a linear read-out, and error maps.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch import Tensor

from recombine.decoders import ConvEncoder
from recombine.metrics import LinearProbe, ensemble_reader, features
from recombine.panels import band, color_bar, color_limits, divided, grid_image, seed_count, styled
from recombine.papers.forced_rendering.palette import CODE_COLORS
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import PerSeed, decades, measured_by, some_distances
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, Measured, base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials


class EncoderStudy(Study[BumpPreset]):
    name: ClassVar[str] = "encoder"
    question: ClassVar[str] = "Does an encoder, which maps images to codes, compose?"
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


def readout_errors(batch: Batch) -> dict[str, Tensor]:
    """Return the squared error of a linear read-out of the factors from each encoder's last hidden stage.

    Errors are in squared grid steps, at kept and held-out combinations. The read-out is fitted on half of the kept
    combinations (the black squares of a checkerboard) and scored on the other half, and vice versa, because errors on
    the points used for fitting would be biased low.
    """
    task, points = batch.task, batch.task.grid.points.to(batch.device)
    held, black = task.held_out.to(batch.device), (task.grid.indices.sum(dim=1) % 2 == 0).to(batch.device)
    module = batch.spec.module().to(batch.device).eval()
    reader = ensemble_reader(module, batch.weights, lambda values: task.examples(values).inputs)
    stages = features(reader, points, members=1, memory=batch.memory)
    stage = next(activations for name, activations in stages if name == "hidden")
    errors = []
    for half in (black, ~black):
        probe = LinearProbe().fit(stage[:, half & ~held], points[half & ~held])
        error = (probe.predict(stage) - points).square().mean(dim=-1)
        errors.append(torch.stack([error[:, ~half & ~held].mean(dim=1), error[:, held].mean(dim=1)]))
    return dict(zip(("readout_kept", "readout_held"), torch.stack(errors).mean(dim=0), strict=True))


STUDY = EncoderStudy()


def _ratio(numerator: str, denominator: str = "id_mse") -> PerSeed:
    return lambda networks: decades(networks[numerator], networks[denominator])


def _error_ratios(data: Data) -> dict[str, Sample]:
    """Return error ratios in the interior, by distance from the kept region, and for the linear read-out."""
    read_out = _ratio("readout_held", "readout_kept")
    cases: dict[str, Sample] = {}
    for code in CODES:
        own = data["encoder"].sel(encoding=[code])
        near = own.sel(distance=some_distances(own["distance_mse"]))
        cases |= measured_by(own, _ratio("interior_mse"), "{encoding}, interior", "encoding")
        cases |= measured_by(own, read_out, "{encoding}, linear read-out of the last hidden stage", "encoding")
        words = "{encoding}, {distance} px from the kept region"
        cases |= measured_by(near, _ratio("distance_mse"), words, "encoding", "distance")
    return cases


CLAIMS = (
    Claim(
        "C26",
        "The reverse direction, from image to code, fails in the same region",
        "SPEC §4",
        statements=(
            Statement(
                effect("error in the hold-out over that outside, decades", 1.0),
                lambda data: measured_by(data["encoder"], _ratio("ood_mse"), "{encoding}", "encoding"),
                _error_ratios,
            ),
        ),
        studies=("encoder",),
        ours=True,
    ),
)


def draw(result: xarray.Dataset) -> Figure:
    """Plot the encoders' error over the grid and by distance from the kept region."""
    codes = [str(code) for code in result["encoding"].values]
    columns = len(codes) + 1
    errors = np.log10(np.maximum(result["error"].sel(encoding=codes).values, 1e-8))
    with styled():
        figure = pyplot.figure(figsize=(3.4 * columns + 0.4, 3.1), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[len(codes) + 0.35, 1])
        maps, ax = left.subplots(1, len(codes), squeeze=False), right.subplots()
        for place, code, values in zip(maps.flat, codes, errors, strict=True):
            own = result.sel(encoding=code)
            image = grid_image(place, values, result, **color_limits(errors))
            place.set_title(f"image to {code} code")
            band(ax, decades(own["distance_mse"], own["id_mse"]), f"{code} code", CODE_COLORS[code])
        color_bar(maps, image, "log10 error / error of the mean code", shrink=0.8, extend="both")
        ax.axhline(1, color="0.7", linewidth=0.8)
        ax.set(xlabel="px from the kept region", title="log10 error / error outside")
        ax.legend(fontsize=7)
    return figure


def caption(result: xarray.Dataset) -> str:
    return (
        "Squared error over the grid, relative to always predicting the mean code, of a convolutional encoder that "
        "maps bump images to their code (the opposite direction), and by distance from the kept region, relative to "
        f"the error outside the hold-out; {seed_count(result['ood_over_blank'])}."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    rows = []
    for code in result["encoding"].values:
        own = result.sel(encoding=code)
        ratios = (
            decades(own[held], own[kept]).mean()
            for held, kept in (("ood_mse", "id_mse"), ("readout_held", "readout_kept"))
        )
        errors = f"{own['id_over_blank'].mean().item():.3g}", f"{own['ood_over_blank'].mean().item():.3g}"
        rows.append([str(code), *errors, cell(own["ood_accuracy"].mean(), percent=True), *map(cell, ratios)])
    heads = ["kept error / mean code's", "held-out error / mean code's", "held-out images read correctly"]
    return [["code", *heads, "log10 held-out / kept error", "of a linear read-out of the last hidden stage"], *rows]


FIGURES = (FigureSpec("encoder", "The opposite direction, from image to code", ("encoder",), draw, caption, table),)
