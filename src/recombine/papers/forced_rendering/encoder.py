"""Does the other direction, image to code, compose? (ours)

A convolutional encoder from bumps to their bump or rate code, the same box held out. Result: scores per seed, also by
distance from the kept region, a linear read-out of the last hidden stage, and error maps.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from recombine.decoders import ConvEncoder
from recombine.metrics import LinearProbe, ensemble_reader, features
from recombine.panels import COLORS, band, grid_image, seed_count, styled
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import decades, sample, some_distances
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec
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


# -- claims ----------------------------------------------------------------------------------------------------------


def error_ratio_alternatives(data: Data) -> dict[str, Sample]:
    """In the interior, by distance from the kept region, and by a linear read-out of the last hidden stage."""
    samples = {}
    for code in CODES:
        networks = data["encoder"].sel(encoding=code)
        samples[f"{code}, interior"] = _decades(data, code, "interior_mse", "id_mse")
        read_out = _decades(data, code, "readout_held", "readout_kept")
        samples[f"{code}, linear read-out of the last hidden stage"] = read_out
        for distance in some_distances(networks["distance_mse"]):
            far = networks["distance_mse"].sel(distance=distance)
            name = f"{code}, {distance} px from the kept region"
            samples[name] = sample(decades(far, networks["id_mse"]), networks)
    return samples


def _decades(data: Data, code: str, above: str, below: str) -> Sample:
    networks = data["encoder"].sel(encoding=code)
    return sample(decades(networks[above], networks[below]), networks)


CLAIMS = (
    Claim(
        "C26",
        "The reverse direction, from image to code, fails in the same region",
        "SPEC §4",
        statements=(
            Statement(
                effect("error in the hold-out over that outside, decades", 1.0),
                lambda data: {code: _decades(data, code, "ood_mse", "id_mse") for code in CODES},
                error_ratio_alternatives,
            ),
        ),
        studies=("encoder",),
        ours=True,
    ),
)


# -- figure ----------------------------------------------------------------------------------------------------------


def encoder_figure(result: xarray.Dataset) -> Figure:
    """Error of encoders over the grid."""
    codes = [str(code) for code in result["encoding"].values]
    with styled():
        figure, axes = pyplot.subplots(
            1, len(codes) + 1, figsize=(3.4 * (len(codes) + 1), 3.1), layout="constrained", squeeze=False
        )
        for ax, code in zip(axes[0], codes, strict=False):
            values = np.log10(np.maximum(result["error"].sel(encoding=code).values, 1e-8))
            image = grid_image(ax, values, result)
            ax.set_title(f"image to {code} code")
            figure.colorbar(image, ax=ax, shrink=0.8, label="log10 error / mean code's")
        for code, color in zip(codes, COLORS, strict=False):
            own = result.sel(encoding=code)
            band(axes[0, -1], decades(own["distance_mse"], own["id_mse"]), f"{code} code", color)
        axes[0, -1].axhline(1, color="0.7", linewidth=0.8)
        axes[0, -1].xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0, -1].set_xlabel("px from the kept region")
        axes[0, -1].set_title("log10 error / error outside")
        axes[0, -1].legend(fontsize=7)
    return figure


def encoder_caption(result: xarray.Dataset) -> str:
    """Errors inside and outside."""
    words = "; ".join(
        f"{code} code {result['id_over_blank'].sel(encoding=code).mean().item():.3g} and "
        f"{result['ood_over_blank'].sel(encoding=code).mean().item():.3g}, read right for "
        f"{100 * result['ood_accuracy'].sel(encoding=code).mean().item():.0f} % of held-out images"
        for code in result["encoding"].values
    )
    ratios = "; ".join(
        f"{code} code {decades(own['ood_mse'], own['id_mse']).mean().item():.2f} (linear read-out of the last hidden "
        f"stage {decades(own['readout_held'], own['readout_kept']).mean().item():.2f})"
        for code in result["encoding"].values
        for own in (result.sel(encoding=code),)
    )
    return (
        "The other direction: a convolutional encoder from bump images to their code. Squared error over the grid "
        f"relative to always giving the mean code, {seed_count(result['ood_over_blank'])}; kept and held-out means: "
        f"{words}. Right, error in the hold-out over that outside by distance from the kept region, in decades; over "
        f"all of it: {ratios}."
    )


FIGURES = (FigureSpec("encoder", "The other direction: image to code", ("encoder",), encoder_figure, encoder_caption),)
