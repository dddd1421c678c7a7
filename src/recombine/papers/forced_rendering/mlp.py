"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)

MLPs of several depths, bump and rate codes, beside the CNN of the preset's depth.

With rate codes the published recipe (128 neurons, raw pixel units, 3150 steps) does not learn its training data: at
N = 28 no linear read-out of 128 neurons comes closer to the 495 training images than 0.057 of a blank image's error, so
that a few silent neurons are enough to miss a tenth of it. Such MLPs have as many neurons here as those with bump codes
(0.003), the code scaled to [−1, 1], and four times the steps at half the learning rate, in float32: neighbouring
values have codes that differ little.

Compared are the CNN of the usual depth and the MLP with as many stages, seed by seed; other depths are alternatives. A
CNN of depth d has d + 1 hidden stages, an MLP of depth d has d, so that the CNN of depth 4 stands beside the MLP of
depth 5. The held-out contrast of log10 dv and F do not depend on the scale of the code, which differs between the two
where factors are rate-coded.

The paper says that MLPs warp the held-out region the opposite way, and not which way either does. Read here: CNNs have
less volume in the held-out region than outside (a contrast below 0), MLPs more. That is what CNNs of seeds 0 to 31 had.
The contrast of a network is its mean over hidden stages and output.
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
from recombine.panels import band, seed_count, volume_rows
from recombine.papers.forced_rendering.depth import factorization_fall, networks_of, trained_depths
from recombine.papers.forced_rendering.depth_figure import probes_and_factorization
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import Statistic, difference, majority
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Several
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import (
    fall,
    keep_first,
    listed_attribute,
    mean_after_input,
    total_variation,
    unevenness,
)
from recombine.reproduction.tables import output as at_output
from recombine.specs import RunSpec

CNN_ARM, MLP_ARM = "CNN", "MLP"


class MLPSettings(BumpPreset):
    """Depths and widths of the MLP."""

    mlp_depths: Several = (3, 4, 5, 6, 7)
    """Hidden layers of the MLPs."""
    mlp_bump_width: Count = 256
    """Neurons of hidden layers, for bump codes."""
    mlp_rate_width: Count = 256
    """The paper's 128 are too few for the training images."""
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
        """An MLP that learns what it is trained on."""
        if code == "rate":
            decoder = MLP(width=self.mlp_rate_width, depth=depth)
            spec = self.spec(
                encoding=Rate(scale="unit"), decoder=decoder, steps=self.mlp_rate_steps, lr=self.mlp_rate_lr
            )
            return spec.replace(recipe=spec.recipe.replace(precision="float32"))
        return self.spec(encoding=code, decoder=MLP(width=self.mlp_bump_width, depth=depth))


class MLPStudy(Study[MLPSettings]):
    """MLPs from shallow to deep, and a CNN."""

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

        result = keep_first(tabulate(trials, ("encoding", "decoder", "depth"), measured, stage_dims()), "log_volume")
        preset = trials.preset
        attributes = base_attributes(
            trials, size=preset.size, cnn_depth=preset.depth, mlp_depths=list(preset.mlp_depths)
        )
        return result.assign(**grid_variables(trials.first.spec)).assign_attrs(attributes)


STUDY = MLPStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


MAJORITY = 0.2
"""How far above a half a share of networks has to be: more than 70 % of them."""
LEAST_FALL = 0.02
"""The smallest difference in the fall of F that matters."""
LEAST_SHARE = 0.1
"""The smallest difference in unevenness that matters, as a share of the variation."""

Place = Callable[[xarray.DataArray], xarray.DataArray]
"""From numbers over stages to one per seed."""


def matched_depth(depths: Sequence[int], cnn_depth: int) -> int:
    """Depth of the MLP with as many stages as the CNN, or the one nearest to it."""
    return min(depths, key=lambda depth: (abs(depth - cnn_depth - 1), depth))


def _cnns(data: Data, code: str) -> xarray.Dataset:
    return data["mlp"].sel(encoding=code, decoder=CNN_ARM, depth=int(data["mlp"].attrs["cnn_depth"]))


def _mlps(data: Data, code: str) -> xarray.Dataset:
    """Those of the matched depth."""
    result = data["mlp"]
    depth = matched_depth(listed_attribute(result, "mlp_depths"), int(result.attrs["cnn_depth"]))
    return result.sel(encoding=code, decoder=MLP_ARM, depth=depth)


def _other_mlps(data: Data, code: str) -> dict[str, xarray.Dataset]:
    """MLPs of all but the matched depth."""
    own, matched = data["mlp"].sel(encoding=code, decoder=MLP_ARM), _mlps(data, code)["depth"]
    depths = [depth for depth in listed_attribute(data["mlp"], "mlp_depths") if depth != matched]
    return {f"{code}, MLP of depth {depth}": own.sel(depth=depth) for depth in depths}


def _mlps_less_cnns(data: Data, statistic: Statistic, words: str = "") -> dict[str, Sample]:
    """By code, MLP less CNN at the matched depth; with the measure in words."""
    return {f"{code}{words}": difference(statistic, _mlps(data, code), _cnns(data, code)) for code in CODES}


def _at_other_depths(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """By code and depth of the MLP, at all but the matched depth."""
    return {
        name: difference(statistic, mlp, _cnns(data, code))
        for code in CODES
        for name, mlp in _other_mlps(data, code).items()
    }


# -- the volume's sign -----------------------------------------------------------------------------------------------


def _larger_inside(networks: xarray.Dataset, place: Place = mean_after_input, sign: int = 1) -> Sample:
    """Of how many networks the volume is larger in the held-out region than outside; smaller for a sign of −1."""
    return majority(sign * place(networks["contrast"]), networks)


_smaller_inside = partial(_larger_inside, sign=-1)


def cnn_contrast_alternatives(data: Data) -> dict[str, Sample]:
    """At the output, and CNNs of other depths where the depth study has them."""
    cases = {f"{code}, CNN, at the output": _smaller_inside(_cnns(data, code), at_output) for code in CODES}
    usual = int(data["mlp"].attrs["cnn_depth"])
    for code in CODES if "depth" in data else ():
        depths = [depth for depth in trained_depths(data, code) if depth != usual]
        cases |= {f"{code}, CNN of depth {depth}": _smaller_inside(networks_of(data, code, depth)) for depth in depths}
    return cases


# -- how much and how evenly factorization is lost -------------------------------------------------------------------


def _evenness(networks: xarray.Dataset) -> xarray.DataArray:
    """Largest share of the variation of F within a quarter of relative depth, with a minus."""
    return -unevenness(networks["factorization"])


def _smoothness(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean absolute second difference of F over stages, as a share of its total variation, with a minus; else 0."""
    own = networks["factorization"]
    whole = total_variation(own)
    rough = abs(own.isel(stage=slice(1, None)).diff("stage", n=2)).mean("stage")
    return -(rough / whole).where(whole != 0, 0.0)


CLAIMS = (
    Claim(
        "C17",
        "MLPs warp the held-out region the other way, and lose factorization more smoothly but more drastically",
        "App. E.3, Fig. 13–14",
        statements=(
            Statement(
                effect(
                    "share of CNNs with less volume (log10 dv, mean over stages) in the held-out region than outside, "
                    "less a half",
                    MAJORITY,
                ),
                lambda data: {f"{code}, CNN": _smaller_inside(_cnns(data, code)) for code in CODES},
                cnn_contrast_alternatives,
            ),
            Statement(
                effect(
                    "share of MLPs with more volume (log10 dv, mean over stages) in the held-out region than outside, "
                    "less a half",
                    MAJORITY,
                ),
                lambda data: {f"{code}, MLP": _larger_inside(_mlps(data, code)) for code in CODES},
                lambda data: {
                    **{f"{code}, MLP, at the output": _larger_inside(_mlps(data, code), at_output) for code in CODES},
                    **{name: _larger_inside(own) for code in CODES for name, own in _other_mlps(data, code).items()},
                },
            ),
            Statement(
                effect("fall of factorization F, first hidden stage to output, MLP less CNN", LEAST_FALL),
                lambda data: _mlps_less_cnns(data, factorization_fall),
                lambda data: {
                    **_mlps_less_cnns(data, lambda own: fall(own["factorization_of_means"]), ", ratio of means"),
                    **_at_other_depths(data, factorization_fall),
                },
            ),
            Statement(
                effect("largest share of the variation of F within a quarter of the depth, CNN less MLP", LEAST_SHARE),
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


# -- figure ----------------------------------------------------------------------------------------------------------


CNN_COLOR = "#D55E00"


def mlp_volumes_figure(result: xarray.Dataset) -> Figure:
    """Fig. 13: log10 dv at every stage of MLPs, and of a CNN below."""
    rows = [
        (f"{code}\nMLP {depth}", result["log_volume"].sel(encoding=code, decoder=MLP_ARM, depth=depth))
        for code in CODES
        for depth in listed_attribute(result, "mlp_depths")
    ]
    depth = int(result.attrs["cnn_depth"])
    rows += [(f"{c}\nCNN {depth}", result["log_volume"].sel(encoding=c, decoder=CNN_ARM, depth=depth)) for c in CODES]
    return volume_rows(result, rows, "log10 of the volume element by stage (columns: input, layers, output)", 1.0)


def mlp_volumes_caption(result: xarray.Dataset) -> str:
    """The contrasts in words."""
    contrast = result["contrast"].isel(stage=slice(1, None)).mean("stage").mean(["depth", "seed"])
    words = [
        f"{code} code: MLP {contrast.sel(encoding=code, decoder=MLP_ARM).item():+.2f}, "
        f"CNN {contrast.sel(encoding=code, decoder=CNN_ARM).item():+.2f}"
        for code in CODES
    ]
    return (
        "log10 of the volume element over the grid, first seed, each panel in colours of its own. Mean of log10 dv in "
        f"the held-out region less that of the kept one, over layers and {seed_count(result['contrast'])}: "
        + "; ".join(words)
        + "."
    )


def mlp_profiles_figure(result: xarray.Dataset) -> Figure:
    """Fig. 14: probes and factorization of MLPs, a CNN beside them."""
    depths, cnn_depth = listed_attribute(result, "mlp_depths"), result.attrs["cnn_depth"]
    shades = pyplot.get_cmap("viridis")(np.linspace(0.05, 0.9, len(depths)))

    def lines(ax: Axes, code: str, name: str) -> None:
        own = result[name].sel(encoding=code)
        for depth, color in zip(depths, shades, strict=True):
            band(ax, own.sel(decoder=MLP_ARM, depth=depth), f"MLP {depth}", color)
        cnn = own.sel(decoder=CNN_ARM, depth=cnn_depth)
        band(ax, cnn, f"CNN {cnn_depth}", CNN_COLOR, linestyle="--", marker="s")

    return probes_and_factorization(lines)


def mlp_profiles_caption(result: xarray.Dataset) -> str:
    """Falls of factorization in words."""
    words = []
    for code in CODES:
        own = result["factorization"].sel(encoding=code)
        fall = (own.isel(stage=0) - own.min("stage")).mean("seed")
        mlp = fall.sel(decoder=MLP_ARM).mean().item()
        cnn = fall.sel(decoder=CNN_ARM, depth=result.attrs["cnn_depth"]).item()
        words.append(f"{code} code: {mlp:.2f} for MLPs, {cnn:.2f} for the CNN")
    return (
        "Held-out linear probes and factorization along the stages of MLPs, a CNN dashed; means and standard errors "
        f"over {seed_count(result['factorization'])}. Factorization falls from the input to its lowest stage by: "
        + "; ".join(words)
        + "."
    )


FIGURES = (
    FigureSpec("fig13", "Volume element of MLPs", ("mlp",), mlp_volumes_figure, mlp_volumes_caption),
    FigureSpec("fig14", "Probes and factorization of MLPs", ("mlp",), mlp_profiles_figure, mlp_profiles_caption),
)
