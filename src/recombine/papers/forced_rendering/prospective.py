"""Do markers predict composing where they were not chosen? (ours)

Three markers of the output (metrics used to predict composing; `markers`) and their thresholds were fixed on the marker
study's networks of seeds 100 and up (`fixed_thresholds`, stored in prospective.json). Here they predict composing in
architectures, tasks and numbers of factors that study does not have, without the images of held-out combinations:

    python -m benchmarks.marker_thresholds results/paper

Every setting has networks that should fail and networks that should compose, with the same architecture, code and task.
Shorter runs of the same seeds show how early a marker tells how a network ends. With three factors, the Schmidt rank is
that over x and y, averaged over the third factor's values; a network composes if at least 90 % of its held-out outputs
are in place and show the right value of every factor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from recombine.decoders import CNN, BroadcastDecoder, CoordConvDecoder, HypernetworkDecoder
from recombine.metrics import effective_rank, gram_matrix, nearest_values, schmidt_spectrum
from recombine.panels import COLORS, seed_count, styled
from recombine.papers.forced_rendering import factors, markers_ranking
from recombine.papers.forced_rendering.markers import FEW_BUMPS, MARKERS, OUTPUT
from recombine.papers.forced_rendering.palette import arm_styles
from recombine.papers.forced_rendering.presets import kept_combinations
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, learnt, sample
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.intervals import Resampled
from recombine.reproduction.measuring import Batch, base_attributes, stage_profile, tabulate
from recombine.reproduction.preset import Count, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

FILE = Path(__file__).with_name("prospective.json")
CHOSEN = ("schmidt_rank", "cross_term_held", "factorization_held")
"""The best markers that need no held-out images and are told from the output alone, best first."""
SHARES = (0.125, 0.25, 0.5, 1.0)
"""Lengths of the runs, relative to that at whose end a network composes or not."""
FINAL = 1.0
BROAD = 2.0
"""Width in pixels of bumps that the marker study does not have (1 there)."""
RESAMPLES = 2000


def fixed_thresholds(networks: xarray.Dataset) -> dict[str, Any]:
    """Return each chosen marker's direction and threshold at the output.

    The threshold lies between two networks' values, such that the share of composing and the share of failing networks
    on their side of it, averaged over both and over architectures, is largest.
    """
    shown = networks.sel(marker=list(CHOSEN), position=[OUTPUT])
    table = markers_ranking.table_of(markers_ranking.never_shown(shown))
    groups = [(table.architecture == name) & (table.composing == composes)
              for name in table.scored for composes in (True, False)]  # fmt: skip
    rules = {}
    for name, values in zip(shown["marker"].values, table.values[:, :, 0].T, strict=True):
        ordered = np.unique(values[np.isfinite(values)])
        candidates = (ordered[1:] + ordered[:-1]) / 2
        larger = np.array([(values[rows, None] > candidates).mean(axis=0) for rows in groups])
        rightly = np.where(np.arange(len(groups))[:, None] % 2, 1 - larger, larger).mean(axis=0)  # if larger composes
        higher = bool(rightly.max() >= 1 - rightly.min())
        threshold = candidates[(rightly if higher else -rightly).argmax()]
        rules[str(name)] = {"higher": higher, "threshold": float(f"{threshold:.4g}")}
    seeds = networks["seed"].values
    about = f"{markers_ranking.described(table)}; seeds {seeds.min()} to {seeds.max()}"
    return {"networks": about, "markers": {name: rules[name] for name in CHOSEN}}


RULES: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text())["markers"]


class Settings(StripeSettings, factors.Settings):
    prospective_seeds: Seeds = 24
    """Number of seeds per condition in the prospective study of markers, at most `seeds`."""
    prospective_depth: Count = 4
    """Hidden layers of the decoders that the marker study does not have."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"prospective_seeds": 1, "prospective_depth": 2}}

    def broadcast_spec(self) -> RunSpec:
        """Return the spec of spatial broadcast decoders that see all bumps."""
        return self.spec(decoder=BroadcastDecoder(width=self.width, depth=self.prospective_depth))

    def conditions(self) -> dict[tuple[str, str], RunSpec]:
        """Return the run specs by setting and by what should happen to their networks."""
        few, width, broadcast = FEW_BUMPS[0], self.width, self.broadcast_spec()
        placed = CoordConvDecoder(width=width, depth=self.depth)
        many = f"pick:{min(MANY, kept_combinations(self.spec()))}"
        alone, isolated = (
            self.factors_spec(CNN(width=self.factors_width, depth=self.factors_depth), self.bumps_task(3, **more))
            for more in ({}, {"isolated": True, "mixing": 0.3})
        )
        return {
            ("broadcast decoder", "fails"): broadcast.replace(task=broadcast.task.replace(training=few)),
            ("broadcast decoder", "composes"): broadcast,
            ("CoordConv", "fails"): self.spec(decoder=placed),
            ("CoordConv", "composes"): self.spec(decoder=placed, isolated=True, training=many),
            ("hypernetwork", "either"): self.spec(decoder=HypernetworkDecoder(width=width, depth=2)),
            ("broad bumps", "fails"): self.spec(sigma=BROAD),
            ("broad bumps", "composes"): self.spec(isolated=True, training=many, sigma=BROAD),
            ("three factors", "fails"): alone,
            ("three factors", "composes"): isolated,
        }  # fmt: skip


class ProspectiveStudy(Study[Settings]):
    name: ClassVar[str] = "prospective"
    question: ClassVar[str] = "Do markers predict composing where they were not chosen?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "effective_rank", "extreme_pixel", "gram_matrix", "hits", "nearest_values", "schmidt_spectrum",
        "squared_error", "stage_profile",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        arms, seeds = [], min(preset.prospective_seeds, preset.seeds)
        for (setting, expected), spec in preset.conditions().items():
            for share in SHARES:
                number = 2 * seeds if expected == "either" else seeds  # as many per setting
                arms.append(Arm((setting, expected, share), shortened(spec, share), seeds=number))
        return arms

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(trials, ("setting", "expected", "share"), measured, {"value": ("marker",)})
        return result.assign_coords(marker=list(CHOSEN)).assign_attrs(base_attributes(trials, size=trials.preset.size))


def shortened(spec: RunSpec, share: float) -> RunSpec:
    """Return a spec with a share of its steps."""
    return spec.replace(recipe=spec.recipe.replace(steps=max(1, round(share * spec.total_steps))))


def measured(batch: Batch) -> dict[str, Any]:
    """Return the markers, the score by which networks compose (`held_out`), and how well they fit their training."""
    task = batch.task
    outputs = batch.forward(task.codes(task.grid.points).float())
    found, scores = training_fit(batch, outputs.cpu()), batch.scores
    values = torch.full((len(batch), len(CHOSEN)), torch.nan)
    values[:, 0] = schmidt_rank(outputs.flatten(2) - task.background, task.grid.shape).cpu()
    held_out = torch.as_tensor(scores["ood_accuracy"])
    if len(task.grid.shape) == 2:
        profile = stage_profile(batch, probes=False, maps=False)
        for place, name in enumerate(CHOSEN[1:], start=1):
            values[:, place] = torch.as_tensor(profile[name][:, -1])
    else:
        targets = task.render(task.grid.points).float().flatten(1).to(outputs.device)
        own = task.grid.indices.to(outputs.device)
        right = torch.stack([(nearest_values(member.flatten(1), targets, task.grid.shape) == own).all(dim=1)
                             for member in outputs]).cpu().double()  # fmt: skip
        held_out = torch.minimum(held_out, right[:, task.held_out].mean(dim=1))
        found["training_accuracy"] = torch.minimum(found["training_accuracy"], right[:, ~task.held_out].mean(dim=1))
    return {**scores, **found, "held_out": held_out, "value": values}


def schmidt_rank(drawn: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the effective Schmidt rank over the first two factors, averaged over all others, `[member]`."""
    slices = drawn.unflatten(1, (*shape[:2], -1)).movedim(3, 1)
    step = 2 if max(shape) > 16 else 1  # as in the marker study, where thresholds come from
    ranks = []
    for chosen in slices[:, :, ::step, ::step].unbind(1):
        gram = gram_matrix(chosen.flatten(1, 2).double(), "cosine")
        ranks.append(effective_rank(schmidt_spectrum(gram, tuple(chosen.shape[1:3])).square()))
    return torch.stack(ranks).mean(dim=0)


STUDY = ProspectiveStudy()


def ended(result: xarray.Dataset) -> xarray.Dataset:
    """Return one row per network: its final scores, and its marker values at every length of training."""
    final = result.sel(share=FINAL, drop=True).assign(value=result["value"])
    stacked = final.stack(network=("setting", "expected", "seed")).reset_index("network").transpose("network", ...)
    return stacked.isel(network=np.flatnonzero(stacked["trained"].values == 1))


def auroc_by_setting(
    values: np.ndarray, composing: np.ndarray, setting: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return AUROCs `[draw, setting]`, above a half if composing networks have the larger values.

    `weights[draw, network]` are repetitions of the networks (default: each once). A setting without networks of both
    kinds gets NaN.
    """
    weights, scores = np.ones((1, len(values))) if weights is None else weights, []
    for name in np.unique(setting):
        up, down = ((setting == name) & rows for rows in (composing, ~composing))
        above, below = values[up, None], values[None, down]
        won = ((weights[:, up] @ ((above > below) + 0.5 * (above == below))) * weights[:, down]).sum(axis=1)
        pairs = weights[:, up].sum(axis=1) * weights[:, down].sum(axis=1)
        scores.append(np.divide(won, pairs, out=np.full(len(weights), np.nan), where=pairs > 0))
    return np.array(scores).reshape(-1, len(weights)).T


def accuracy_by_setting(
    values: np.ndarray, composing: np.ndarray, setting: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the shares `[draw, setting]` of networks that compose if and only if their value is positive."""
    weights = np.ones((1, len(values))) if weights is None else weights
    own = (setting[:, None] == np.unique(setting)).astype(float)
    return ((weights * ((values > 0) == composing)) @ own) / (weights @ own)


def predicted(
    networks: xarray.Dataset, marker: str, score: Any, higher: float, composes: float, threshold: float = 0.0,
    share: float = FINAL,
) -> Sample:  # fmt: skip
    """Return a score of a marker's predictions, averaged over settings, with seeds resampled within conditions."""
    values = (1 if higher else -1) * (networks["value"].sel(marker=marker, share=share).values - threshold)
    composing = networks["held_out"].values >= composes
    setting, condition = networks["setting"].values.astype(str), networks["expected"].values.astype(str)

    def estimated(rows: np.ndarray) -> Resampled:
        own = rows.astype(int)
        if not len(own):
            return Resampled(np.nan, (np.nan,), 0)
        arms = np.unique(np.char.add(setting[own], condition[own]), return_inverse=True)[1]
        generator, weights = np.random.default_rng(0), np.ones((RESAMPLES, len(own)))
        for arm in range(arms.max() + 1):
            number = int((arms == arm).sum())
            weights[:, arms == arm] = generator.multinomial(number, np.full(number, 1 / number), size=RESAMPLES)
        parts = values[own], composing[own], setting[own]
        value, draws = (markers_ranking.mean(score(*parts, own_weights), 1) for own_weights in (None, weights))
        finite = tuple(draws[np.isfinite(draws)].tolist())
        fewest = int(min(composing[own].sum(), (~composing[own]).sum()))
        return Resampled(float(value[0]), finite or (np.nan,), fewest if finite else 0)

    index = np.where(np.isfinite(values), np.arange(len(values), dtype=float), np.nan)
    return sample(xarray.DataArray(index, dims="network"), networks, estimated=estimated)


def _auroc(data: Data, markers: tuple[Any, ...], higher: tuple[Any, ...], composes: float) -> dict[str, Sample]:
    found = predicted(ended(data["prospective"]), markers[0], auroc_by_setting, higher[0], composes)
    return {MARKERS[markers[0]].title: found}


def _auroc_alternatives(
    data: Data, markers: tuple[Any, ...], higher: tuple[Any, ...], composes: float
) -> dict[str, Sample]:
    """Return AUROCs earlier in training, in single settings, and of the other markers."""
    networks, (best, *others) = ended(data["prospective"]), zip(markers, higher, strict=True)
    cases = {
        f"{MARKERS[best[0]].title}, after {share:g} of the steps": predicted(
            networks, best[0], auroc_by_setting, best[1], composes, share=share
        )
        for share in networks["share"].values if share < FINAL
    }  # fmt: skip
    for name in dict.fromkeys(networks["setting"].values):
        own = networks.isel(network=np.flatnonzero(networks["setting"].values == name))
        cases[f"{MARKERS[best[0]].title}, {name}"] = predicted(own, best[0], auroc_by_setting, best[1], composes)
    return cases | {MARKERS[marker].title: predicted(networks, marker, auroc_by_setting, sign, composes)
                    for marker, sign in others}  # fmt: skip


def _accuracy(
    data: Data, markers: tuple[Any, ...], higher: tuple[Any, ...], composes: float, thresholds: tuple[Any, ...]
) -> dict[str, Sample]:
    """Return the accuracy of each marker's predictions; the first is the one that is tested."""
    networks = ended(data["prospective"])
    return {MARKERS[marker].title: predicted(networks, marker, accuracy_by_setting, sign, composes, threshold)
            for marker, sign, threshold in zip(markers, higher, thresholds, strict=True)}  # fmt: skip


def _first(data: Data, **parameters: Any) -> dict[str, Sample]:
    return dict(list(_accuracy(data, **parameters).items())[:1])


def _others(data: Data, **parameters: Any) -> dict[str, Sample]:
    return dict(list(_accuracy(data, **parameters).items())[1:])


PREDICTION: Mapping[str, Any] = {
    "markers": CHOSEN,
    "higher": tuple(float(RULES[name]["higher"]) for name in CHOSEN),
    "composes": COMPOSING_ACCURACY,
}
THRESHOLDS = tuple(RULES[name]["threshold"] for name in CHOSEN)
CLAIMS = (
    Claim(
        "C35",
        "The Schmidt rank of the output, with a threshold fixed in advance, predicts which networks compose in "
        "architectures, tasks and numbers of factors that it was not chosen on, without held-out images",
        "§5",
        statements=(
            Statement(
                above("AUROC, composing against failing networks of the same setting, mean over settings", 0.9,
                      word="described", parameters=PREDICTION),
                _auroc,
                _auroc_alternatives,
            ),
            Statement(
                above("share of networks that the fixed threshold judges rightly, mean over settings", 0.8,
                      word="described", parameters={**PREDICTION, "thresholds": THRESHOLDS}),
                _first,
                _others,
            ),
        ),
        studies=("prospective",),
        ours=True,
    ),
)  # fmt: skip


def draw(result: xarray.Dataset) -> Figure:
    """Plot held-out scores against the best marker, and its AUROC at every length of training."""
    networks, marker = ended(result), CHOSEN[0]
    with styled():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(8.6, 3.4), layout="constrained")
        names = list(dict.fromkeys(str(name) for name in networks["setting"].values))
        for name, style in arm_styles(names).items():
            own = networks.isel(network=np.flatnonzero(networks["setting"].values == name))
            left.plot(own["value"].sel(marker=marker, share=FINAL), own["held_out"], markersize=3.5, alpha=0.6,
                      markeredgewidth=0, label=name, **{**style, "linestyle": "none"})  # fmt: skip
        left.axvline(RULES[marker]["threshold"], color="black", linewidth=0.8, linestyle=":")
        left.axhline(COMPOSING_ACCURACY, color="0.7", linewidth=0.8, zorder=0)
        left.set(xlabel=f"{MARKERS[marker].title}, output", ylabel="held-out accuracy")
        left.legend(fontsize=7)
        _against_length(right, networks)
    return figure


def _against_length(ax: Axes, networks: xarray.Dataset) -> None:
    shares = [float(share) for share in networks["share"].values]
    for marker, color in zip(CHOSEN, COLORS, strict=False):
        scores = [_pooled(networks, marker, share) for share in shares]
        ax.plot(range(len(shares)), scores, "o-", color=color, label=MARKERS[marker].title)
    ax.axhline(0.5, color="0.7", linewidth=0.8, zorder=0)
    ax.set(xlabel="share of the training steps", ylabel="AUROC, mean over settings", ylim=(0, 1.03))
    ax.set_xticks(range(len(shares)), [f"{share:g}" for share in shares])
    ax.legend(fontsize=7)


def _pooled(networks: xarray.Dataset, marker: str, share: float) -> float:
    """Return the mean AUROC over settings, from networks that learnt."""
    values = networks["value"].sel(marker=marker, share=share).values * (1 if RULES[marker]["higher"] else -1)
    rows = np.isfinite(values) & np.asarray(learnt(networks).values, dtype=bool)
    composing = networks["held_out"].values >= COMPOSING_ACCURACY
    return float(markers_ranking.mean(
        auroc_by_setting(values[rows], composing[rows], networks["setting"].values[rows].astype(str))[0], 0
    ))  # fmt: skip


def caption(result: xarray.Dataset) -> str:
    return (
        "Left: held-out accuracy against the Schmidt rank of the output, in settings that the marker study does not "
        f"have (dotted: the threshold fixed in advance, {RULES[CHOSEN[0]]['threshold']:g}); right: how well markers "
        "tell composing from failing networks of the same setting, at several lengths of training; "
        f"{seed_count(result['held_out'])} per condition."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    networks = ended(result)
    composing = networks["held_out"].values >= COMPOSING_ACCURACY
    rows = []
    for name in dict.fromkeys(str(part) for part in networks["setting"].values):
        own = networks["setting"].values == name
        rows.append([f"composing networks, {name}", f"{int(composing[own].sum())} of {int(own.sum())}"])
    for share in networks["share"].values.tolist():
        auroc = cell(_pooled(networks, CHOSEN[0], share))
        rows.append([f"AUROC of the Schmidt rank after {share:g} of the steps", auroc])
    return [["quantity", "value"], *rows]


FIGURES = (FigureSpec("prospective", "Predicting which networks compose", ("prospective",), draw, caption, table),)
