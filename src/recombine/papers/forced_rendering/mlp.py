"""Do MLPs warp the held-out region the other way? (App. E.3, Fig. 13, 14)

MLPs of several depths and a CNN of the preset's depth are trained on bump and rate codes. Rate-coded MLPs do not
learn their training data with the published recipe. Ours use 256 neurons, codes in [−1, 1], four times as many steps
at half the learning rate, and float32, since nearby codes differ little. Neither F nor the held-out contrast of
log10 dv depends on the scale of the code. See docs/reproduction.md (C17) for our interpretation of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.decoders import MLP
from recombine.encodings import Rate
from recombine.panels import band, seed_count, shades, volume_rows
from recombine.papers.forced_rendering.depth import by_depth, factorization_fall
from recombine.papers.forced_rendering.depth_figure import VOLUMES, probes_and_factorization
from recombine.papers.forced_rendering.palette import ARCHITECTURES
from recombine.papers.forced_rendering.presets import CODES, BumpPreset
from recombine.papers.forced_rendering.samples import Majority, PerSeed, majority, sample
from recombine.reproduction import tables
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import base_attributes, grid_variables, stage_dims, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Several
from recombine.reproduction.study import Arm, Study, Trials
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
    """Optimiser steps for rate-coded MLPs."""
    mlp_rate_lr: Positive = 5e-4
    """Learning rate for rate-coded MLPs."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "mlp_depths": (3, 5), "mlp_bump_width": 128, "mlp_rate_width": 128, "mlp_rate_steps": 1000,
            "mlp_rate_lr": 2e-3,
        }
    }  # fmt: skip

    def mlp_spec(self, code: str, depth: int) -> RunSpec:
        """Return an MLP run spec with settings that allow the training data to be learnt."""
        if code != "rate":
            return self.spec(encoding=code, decoder=MLP(width=self.mlp_bump_width, depth=depth))
        decoder = MLP(width=self.mlp_rate_width, depth=depth)
        spec = self.spec(encoding=Rate(scale="unit"), decoder=decoder, steps=self.mlp_rate_steps, lr=self.mlp_rate_lr)
        return spec.replace(recipe=spec.recipe.replace(precision="float32"))


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
        preset, dims = trials.preset, ("encoding", "decoder", "depth")
        depths = {"cnn_depth": preset.depth, "mlp_depths": list(preset.mlp_depths)}
        result = tabulate(trials, dims, lambda batch: {**batch.scores, **stage_profile(batch)}, stage_dims())
        result = tables.keep_first(result, "log_volume").assign(**grid_variables(trials.first.spec))
        return result.assign_attrs(base_attributes(trials, size=preset.size, **depths))


STUDY = MLPStudy()


def matched_depth(depths: Sequence[int], cnn_depth: int) -> int:
    """Return the depth of the MLP whose number of stages is closest to the CNN's."""
    return min(depths, key=lambda depth: (abs(depth - cnn_depth - 1), depth))


def _compared(data: Data, decoder: str) -> dict[str, xarray.Dataset]:
    """Return one decoder's networks by code: the CNNs, or the MLPs of the depth that matches them."""
    result = data["mlp"]
    depth = int(result.attrs["cnn_depth"])
    if decoder == MLP_ARM:
        depth = matched_depth(tables.listed_attribute(result, "mlp_depths"), depth)
    return {code: result.sel(encoding=code, decoder=decoder, depth=depth) for code in CODES}


def _other_depths(data: Data, decoder: str) -> dict[str, xarray.Dataset]:
    """Return one decoder's networks of all other depths; CNNs come from the depth study, if present."""
    networks = data["mlp"].sel(decoder=MLP_ARM) if decoder == MLP_ARM else data.get("depth")
    if networks is None:
        return {}
    return {
        f"{code}, {decoder} of depth {depth}": own
        for code, compared in _compared(data, decoder).items()
        for depth, own in by_depth(networks.sel(encoding=code)).items()
        if depth != compared["depth"]
    }


def _as_claimed(
    networks: xarray.Dataset, decoder: str, place: Callable[..., xarray.DataArray] = tables.mean_after_input
) -> Sample:
    """Return the share of networks with less (CNNs) or more (MLPs) volume in the held-out region, less a half."""
    return majority(place(networks["contrast"]) * (1 if decoder == MLP_ARM else -1), networks)


def _warped(data: Data) -> dict[str, Sample]:
    return {
        f"{code}, {decoder}: {SIGNS[decoder]} volume": _as_claimed(own, decoder)
        for decoder in SIGNS
        for code, own in _compared(data, decoder).items()
    }


def _warped_otherwise(data: Data) -> dict[str, Sample]:
    """Return the same at the output and for other depths, and how factorization is lost in MLPs and CNNs."""
    cases: dict[str, Sample] = {}
    for decoder in SIGNS:
        for code, own in _compared(data, decoder).items():
            cases[f"{code}, {decoder}, at the output"] = _as_claimed(own, decoder, tables.output)
        cases |= {case: _as_claimed(own, decoder) for case, own in _other_depths(data, decoder).items()}
    mlps, cnns = (_compared(data, decoder) for decoder in (MLP_ARM, CNN_ARM))
    for words, statistic in LOSSES.items():
        for code in CODES:
            cases[f"{code}, {words}"] = _share_above(statistic, mlps[code], cnns[code], words)
    return cases


def _share_above(statistic: PerSeed, own: xarray.Dataset, other: xarray.Dataset, words: str) -> Sample:
    """Return the share of seeds with a higher statistic in one arm than in the other, less a half."""
    values = statistic(own) - statistic(other)
    above = (values > 0).astype(float).where(values.notnull())
    measures = f"share of seeds whose {words}, less a half"
    return replace(sample(above, own, other, estimated=Majority.of), measures=measures)


LOSSES: Mapping[str, PerSeed] = {
    "F falls more in the MLP than in the CNN": factorization_fall,
    "F falls more evenly in the MLP than in the CNN": lambda own: -tables.unevenness(own["factorization"]),
}
"""How the paper says that MLPs lose factorization. The two say nothing of the held-out region, so they are beside."""
SIGNS = {CNN_ARM: "less", MLP_ARM: "more"}
"""The volume that networks are claimed to have in the held-out region, compared with the kept region."""
OPPOSITE = Statement(
    effect(
        "share of networks whose volume (log10 dv, mean over stages) in the held-out region is smaller than outside "
        "(CNNs) or larger (MLPs), less a half", 0.2, combine="contrast",
    ),
    _warped, _warped_otherwise,
)  # fmt: skip
"""δ: more than 70 % of the networks. A contrast needs both halves, so one sign in all networks is not half of it."""


CLAIMS = (
    Claim(
        "C17",
        "MLPs warp the held-out region the opposite way",
        "App. E.3, Fig. 13–14",
        statements=(OPPOSITE,),
        studies=("mlp",),
        beside=("depth",),
    ),
)


def mlp_volumes_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 13: log10 dv at every stage of MLPs, with a CNN below."""
    depths = {MLP_ARM: tables.listed_attribute(result, "mlp_depths"), CNN_ARM: [int(result.attrs["cnn_depth"])]}
    rows = {
        f"{code}\n{decoder} {depth}": result["log_volume"].sel(encoding=code, decoder=decoder, depth=depth)
        for decoder, own in depths.items()
        for code in CODES
        for depth in own
    }
    return volume_rows(result, rows, VOLUMES, 1.0)


def mlp_volumes_caption(result: xarray.Dataset) -> str:
    return (
        "log10 of the volume element over the grid, less its median, first seed, one row per network (dashed: held "
        f"out); the table gives means over {seed_count(result['contrast'])}."
    )


def _by_decoder(result: xarray.Dataset, columns: Mapping[str, xarray.DataArray]) -> list[list[str]]:
    """Return one row per code and one column per decoder and quantity, means over seeds and depths."""
    rows = [
        [code, *(cell(own.sel(encoding=code, decoder=decoder).mean()) for own in columns.values() for decoder in SIGNS)]
        for code in CODES
    ]
    return [["code", *(f"{name}, {decoder}" for name in columns for decoder in SIGNS)], *rows]


def mlp_volumes_table(result: xarray.Dataset) -> list[list[str]]:
    contrast = result["contrast"].isel(stage=slice(1, None)).mean("stage")
    return _by_decoder(result, {"log10 dv held out less kept, mean over layers": contrast})


def mlp_profiles_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 14: probes and factorization of MLPs, with a CNN for comparison."""
    depths, cnn_depth = tables.listed_attribute(result, "mlp_depths"), result.attrs["cnn_depth"]
    colors = shades(ARCHITECTURES[MLP_ARM], len(depths))

    def lines(ax: Axes, code: str, name: str) -> None:
        own = result[name].sel(encoding=code)
        for depth, color in zip(depths, colors, strict=True):
            band(ax, own.sel(decoder=MLP_ARM, depth=depth), f"MLP {depth}", color)
        cnn = own.sel(decoder=CNN_ARM, depth=cnn_depth)
        band(ax, cnn, f"CNN {cnn_depth}", ARCHITECTURES[CNN_ARM], linestyle="--", marker="s")

    return probes_and_factorization(lines)


def mlp_profiles_caption(result: xarray.Dataset) -> str:
    return (
        "Held-out linear probes and factorization along the stages of MLPs and of a CNN (dashed), means and standard "
        f"errors over {seed_count(result['factorization'])}."
    )


def mlp_profiles_table(result: xarray.Dataset) -> list[list[str]]:
    own = result["factorization"]
    return _by_decoder(result, {"fall of F from the input to its lowest stage": own.isel(stage=0) - own.min("stage")})


FIGURES = (
    FigureSpec(
        "fig13", "Volume element of MLPs", ("mlp",), mlp_volumes_figure, mlp_volumes_caption, mlp_volumes_table
    ),
    FigureSpec(
        "fig14", "Probes and factorization of MLPs", ("mlp",), mlp_profiles_figure, mlp_profiles_caption,
        mlp_profiles_table,
    ),
)  # fmt: skip
