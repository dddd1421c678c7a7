"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)

MLPs of several depths and a CNN of the preset's depth are trained on bump and rate codes.

With rate codes, MLPs do not learn their training data with the published recipe (128 neurons, raw pixel units, 3150
steps). At N = 28, no linear read-out of 128 neurons reaches less than 0.057 times a blank image's error, so with a few
silent neurons a network misses our criterion of 0.1. Our rate-coded MLPs have 256 neurons like bump-coded ones (0.003
instead of 0.057), codes in [−1, 1], and four times the steps at half the rate, in float32 since nearby codes are close.

The CNN of default depth is compared, seed by seed, with the MLP that has as many stages (a CNN of depth d has d + 1
hidden stages, an MLP has d). Other depths are alternatives. Rate codes of the two differ in scale, but neither F nor
the held-out contrast of log10 dv (mean over hidden stages and output) depends on the scale of the code.

The paper says that MLPs warp the held-out region in the opposite way, but not in which way. We take this to mean that
CNNs have less volume in the held-out region than outside (contrast below 0, as in seeds 0 to 31) and MLPs have more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.decoders import MLP
from recombine.encodings import Rate
from recombine.panels import HOLDOUT_COLOR, band, seed_count, volume_rows
from recombine.papers.forced_rendering.depth import factorization_fall, networks_of, trained_depths
from recombine.papers.forced_rendering.depth_figure import VOLUMES, probes_and_factorization
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import Statistic, difference, majority
from recombine.reproduction import tables
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import listed_attribute
from recombine.specs import RunSpec

CNN_ARM, MLP_ARM = "CNN", "MLP"


class MLPSettings(BumpPreset):
    mlp_depths: Several = (3, 4, 5, 6, 7)
    """Numbers of hidden layers of the MLPs."""
    mlp_bump_width: Count = 256
    """Neurons per hidden layer of bump-coded MLPs."""
    mlp_rate_width: Count = 256
    """Neurons per hidden layer of rate-coded MLPs; the paper's 128 are too few to learn the training images."""
    mlp_rate_steps: Count = 12600
    """Optimiser steps of rate-coded MLPs."""
    mlp_rate_lr: Positive = 5e-4
    """Learning rate of rate-coded MLPs."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "mlp_depths": (3, 5), "mlp_bump_width": 128, "mlp_rate_width": 128, "mlp_rate_steps": 1000,
            "mlp_rate_lr": 2e-3,
        }
    }  # fmt: skip

    def mlp_spec(self, code: str, depth: int) -> RunSpec:
        """Return an MLP run with settings that learn the training data."""
        if code == "rate":
            decoder = MLP(width=self.mlp_rate_width, depth=depth)
            spec = self.spec(
                encoding=Rate(scale="unit"), decoder=decoder, steps=self.mlp_rate_steps, lr=self.mlp_rate_lr
            )
            return spec.replace(recipe=spec.recipe.replace(precision="float32"))
        return self.spec(encoding=code, decoder=MLP(width=self.mlp_bump_width, depth=depth))


class MLPStudy(Study[MLPSettings]):
    name: ClassVar[str] = "mlp"
    question: ClassVar[str] = "Do MLPs fail in the same way as CNNs?"
    settings: ClassVar[type[MLPSettings]] = MLPSettings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("stage_profile",)

    def arms(self, preset: MLPSettings) -> list[Arm]:
        arms = [
            Arm((code, MLP_ARM, depth), preset.mlp_spec(code, depth)) for code in CODES for depth in preset.mlp_depths
        ]
        return arms + [Arm((code, CNN_ARM, preset.depth), preset.spec(encoding=code)) for code in CODES]

    def measure(self, trials: Trials[MLPSettings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {**batch.scores, **stage_profile(batch)}

        result = tabulate(trials, ("encoding", "decoder", "depth"), measured, stage_dims())
        preset = trials.preset
        attributes = base_attributes(
            trials, size=preset.size, cnn_depth=preset.depth, mlp_depths=list(preset.mlp_depths)
        )
        grid = grid_variables(trials.first.spec)
        return tables.keep_first(result, "log_volume").assign(**grid).assign_attrs(attributes)


STUDY = MLPStudy()


# -- claims ------------------------------------------------------------------------------------------------------------


def _share(networks: str, volume: str) -> Criterion:
    where = "(log10 dv, mean over stages) in the held-out region than outside, less a half"
    return effect(f"share of {networks} with {volume} volume {where}", 0.2)  # more than 70 % of the networks


def matched_depth(depths: Sequence[int], cnn_depth: int) -> int:
    """Return the depth of the MLP whose number of stages is closest to the CNN's."""
    return min(depths, key=lambda depth: (abs(depth - cnn_depth - 1), depth))


def _cnns(data: Data, code: str) -> xarray.Dataset:
    return data["mlp"].sel(encoding=code, decoder=CNN_ARM, depth=int(data["mlp"].attrs["cnn_depth"]))


def _mlps(data: Data, code: str) -> xarray.Dataset:
    """Return the MLPs of the depth that matches the CNN."""
    result = data["mlp"]
    depth = matched_depth(listed_attribute(result, "mlp_depths"), int(result.attrs["cnn_depth"]))
    return result.sel(encoding=code, decoder=MLP_ARM, depth=depth)


def _other_mlps(data: Data, code: str) -> dict[str, xarray.Dataset]:
    """Return the MLPs of all other depths."""
    own, matched = data["mlp"].sel(encoding=code, decoder=MLP_ARM), _mlps(data, code)["depth"]
    depths = [depth for depth in listed_attribute(data["mlp"], "mlp_depths") if depth != matched]
    return {f"{code}, MLP of depth {depth}": own.sel(depth=depth) for depth in depths}


def _mlps_less_cnns(data: Data, statistic: Statistic, words: str = "") -> dict[str, Sample]:
    """Return the difference between MLP and CNN for each code at the matched depth."""
    return {f"{code}{words}": difference(statistic, _mlps(data, code), _cnns(data, code)) for code in CODES}


def _at_other_depths(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """Return the difference between MLP and CNN for each code and other depth."""
    return {
        name: difference(statistic, mlp, _cnns(data, code))
        for code in CODES
        for name, mlp in _other_mlps(data, code).items()
    }


def _larger_inside(
    networks: xarray.Dataset, place: Callable[..., xarray.DataArray] = tables.mean_after_input, sign: int = 1
) -> Sample:
    """Return the share of networks with more (`sign=-1`: less) volume inside the hold-out than outside, minus 0.5."""
    return majority(sign * place(networks["contrast"]), networks)


_smaller_inside = partial(_larger_inside, sign=-1)


def _cnn_alternatives(data: Data) -> dict[str, Sample]:
    """Return samples for CNNs at the output, and for other depths if the depth study has them."""
    cases = {f"{code}, CNN, at the output": _smaller_inside(_cnns(data, code), tables.output) for code in CODES}
    default = int(data["mlp"].attrs["cnn_depth"])
    for code in CODES if "depth" in data else ():
        depths = [depth for depth in trained_depths(data, code) if depth != default]
        cases |= {f"{code}, CNN of depth {depth}": _smaller_inside(networks_of(data, code, depth)) for depth in depths}
    return cases


def _mlp_alternatives(data: Data) -> dict[str, Sample]:
    """Return samples for MLPs at the output, and for other depths."""
    cases = {f"{code}, MLP, at the output": _larger_inside(_mlps(data, code), tables.output) for code in CODES}
    return cases | {name: _larger_inside(own) for code in CODES for name, own in _other_mlps(data, code).items()}


def _evenness(networks: xarray.Dataset) -> xarray.DataArray:
    """Return minus the largest share of the variation of F that falls within a quarter of the depth."""
    return -tables.unevenness(networks["factorization"])


def _smoothness(networks: xarray.Dataset) -> xarray.DataArray:
    """Return minus the mean absolute second difference of F over its total variation; 0 if F is constant."""
    own = networks["factorization"]
    variation = tables.total_variation(own)
    rough = abs(own.isel(stage=slice(1, None)).diff("stage", n=2)).mean("stage")
    return -(rough / variation).where(variation != 0, 0.0)


CLAIMS = (
    Claim(
        "C17",
        "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically",
        "App. E.3, Fig. 13–14",
        statements=(
            Statement(
                _share("CNNs", "less"),
                lambda data: {f"{code}, CNN": _smaller_inside(_cnns(data, code)) for code in CODES},
                _cnn_alternatives,
            ),
            Statement(
                _share("MLPs", "more"),
                lambda data: {f"{code}, MLP": _larger_inside(_mlps(data, code)) for code in CODES},
                _mlp_alternatives,
            ),
            Statement(
                effect("fall of factorization F, first hidden stage to output, MLP less CNN", 0.02),
                lambda data: _mlps_less_cnns(data, factorization_fall),
                lambda data: {
                    **_mlps_less_cnns(data, lambda own: tables.fall(own["factorization_of_means"]), ", ratio of means"),
                    **_at_other_depths(data, factorization_fall),
                },
            ),
            Statement(
                effect("largest share of the variation of F within a quarter of the depth, CNN less MLP", 0.1),
                lambda data: _mlps_less_cnns(data, _evenness),
                lambda data: {
                    **_mlps_less_cnns(data, _smoothness, ", roughness over variation"),
                    **_at_other_depths(data, _evenness),
                },
            ),
        ),
        studies=("mlp",),
        beside=("depth",),
    ),
)


# -- figures -----------------------------------------------------------------------------------------------------------


def mlp_volumes_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 13: log10 dv at every stage of MLPs, with a CNN below."""
    networks = [(MLP_ARM, depth) for depth in listed_attribute(result, "mlp_depths")]
    arms = [(code, *own) for code in CODES for own in networks]
    arms += [(code, CNN_ARM, int(result.attrs["cnn_depth"])) for code in CODES]
    volume = result["log_volume"]
    rows = [
        (f"{code}\n{decoder} {depth}", volume.sel(encoding=code, decoder=decoder, depth=depth))
        for code, decoder, depth in arms
    ]
    return volume_rows(result, rows, VOLUMES, 1.0)


def mlp_volumes_caption(result: xarray.Dataset) -> str:
    contrast = result["contrast"].isel(stage=slice(1, None)).mean("stage").mean(["depth", "seed"])
    words = []
    for code in CODES:
        mlp, cnn = (contrast.sel(encoding=code, decoder=decoder).item() for decoder in (MLP_ARM, CNN_ARM))
        words.append(f"{code} code: MLP {mlp:+.2f}, CNN {cnn:+.2f}")
    return (
        "log10 of the volume element over the grid, first seed; each panel has its own colour scale. Mean of log10 dv "
        f"in the held-out region minus that in the kept one, over layers and {seed_count(result['contrast'])}: "
        f"{'; '.join(words)}."
    )


def mlp_profiles_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 14: probes and factorization of MLPs, with a CNN for comparison."""
    depths, cnn_depth = listed_attribute(result, "mlp_depths"), result.attrs["cnn_depth"]
    shades = pyplot.get_cmap("viridis")(np.linspace(0.05, 0.9, len(depths)))

    def lines(ax: Axes, code: str, name: str) -> None:
        own = result[name].sel(encoding=code)
        for depth, color in zip(depths, shades, strict=True):
            band(ax, own.sel(decoder=MLP_ARM, depth=depth), f"MLP {depth}", color)
        cnn = own.sel(decoder=CNN_ARM, depth=cnn_depth)
        band(ax, cnn, f"CNN {cnn_depth}", HOLDOUT_COLOR, linestyle="--", marker="s")

    return probes_and_factorization(lines)


def mlp_profiles_caption(result: xarray.Dataset) -> str:
    words = []
    for code in CODES:
        own = result["factorization"].sel(encoding=code)
        fall = (own.isel(stage=0) - own.min("stage")).mean("seed")
        mlp = fall.sel(decoder=MLP_ARM).mean().item()
        cnn = fall.sel(decoder=CNN_ARM, depth=result.attrs["cnn_depth"]).item()
        words.append(f"{code} code: {mlp:.2f} for MLPs, {cnn:.2f} for the CNN")
    return (
        "Held-out linear probes and factorization along the stages of MLPs and of a CNN (dashed), means and standard "
        f"errors over {seed_count(result['factorization'])}. Fall of factorization from the input to its lowest stage: "
        f"{'; '.join(words)}."
    )


FIGURES = (
    FigureSpec("fig13", "Volume element of MLPs", ("mlp",), mlp_volumes_figure, mlp_volumes_caption),
    FigureSpec("fig14", "Probes and factorization of MLPs", ("mlp",), mlp_profiles_figure, mlp_profiles_caption),
)
