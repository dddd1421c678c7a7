"""Does factorization cause composing? (ours)

The paper explains failure by a loss of factorization. If this is the cause, networks that are made to factorize should
compose, and networks that are kept from it should not. The cross-term of one stage (`recombine.remedies.cross_term`) is
penalised in CNNs that fail and rewarded in CNNs that compose by stripes, at several doses. *Change with the dose* is
the difference between the ends of the least-squares line over doses, of networks with the same seed; doses are half a
decade apart, and none counts as one step below the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, get_args

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import COLORS, seed_count, styled
from recombine.papers.forced_rendering.presets import kept_combinations
from recombine.papers.forced_rendering.samples import COMPOSING_ACCURACY, decades, learnt, sample
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.remedies.cross_term import CrossTerm, StageName
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import Batch, base_attributes, stage_profile, tabulate
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.specs import RunSpec

STAGES: tuple[StageName, ...] = get_args(StageName)
FAILING, COMPOSING = "failing, penalty", "composing, reward"
STEP = 0.5
"""Decades between neighbouring doses."""


class Settings(StripeSettings):
    causal_seeds: Seeds = 56
    """Number of seeds per dose, at most `seeds`."""
    causal_steps: Count = 1500
    """Optimiser steps; penalties are slow."""
    causal_doses: Count = 4
    """Number of doses of the cross-term beside none."""
    causal_penalty: Positive = 3.16e-3
    """Largest weight of the penalty, with which failing networks learn (results/remedies/cross_term_doses.csv)."""
    causal_reward: Positive = 3.16e-4
    """Largest weight of the reward, with which composing networks learn (results/remedies/cross_term_doses.csv)."""

    variants: ClassVar[Mapping[str, Any]] = {
        "quick": {
            "causal_seeds": 1, "causal_steps": 300, "causal_doses": 1, "causal_penalty": 1e-2, "causal_reward": 1e-3,
        }
    }  # fmt: skip

    def dosed(self, family: str, stage: StageName, dose: int) -> RunSpec:
        """Return a run spec of one family with the given dose at a stage; 0 is none."""
        failing, reward = self.spec(steps=self.causal_steps), family == COMPOSING
        many = min(MANY, kept_combinations(failing))
        spec = self.striped_spec(many, steps=self.causal_steps) if reward else failing
        if not dose:
            return spec
        largest = self.causal_reward if reward else self.causal_penalty
        weight = float(f"{largest * 10 ** (STEP * (dose - self.causal_doses)):.3g}")
        return spec.replace(penalties=(CrossTerm(weight=weight, stage=stage, reward=reward),))


class CausalStudy(Study[Settings]):
    name: ClassVar[str] = "causal"
    question: ClassVar[str] = "Does factorization cause composing?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("extreme_pixel", "hits", "squared_error", "stage_profile")

    def arms(self, preset: Settings) -> list[Arm]:
        seeds = min(preset.causal_seeds, preset.seeds)
        labels = product((FAILING, COMPOSING), STAGES, range(preset.causal_doses + 1))
        return [Arm(own, preset.dosed(*own), seeds=seeds) for own in labels]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(trials, ("family", "stage", "dose"), _measured, {"cross_term": ("place",)})
        # networks without a dose serve all stages; each row keeps the cross-term of its own stage
        own = result["cross_term"].isel(place=xarray.DataArray(range(len(STAGES)), dims="stage"))
        attributes = base_attributes(trials, size=trials.preset.size)
        return result.assign(cross_term=own.transpose("family", "stage", "dose", "seed")).assign_attrs(attributes)


def _measured(batch: Batch) -> dict[str, Any]:
    """Return scores and the normalised cross-term of the three stages, averaged over all grid points."""
    terms = stage_profile(batch, probes=False, maps=False)["cross_term"]
    hidden = terms.shape[1] - 2  # stage 0 is the code
    places = (1, 1 + (hidden - 1) // 2, terms.shape[1] - 1)
    return {**batch.scores, **training_fit(batch), "cross_term": terms[:, places]}


STUDY = CausalStudy()

PerDose = Callable[[xarray.Dataset], xarray.DataArray]
"""Function that computes one number per dose and seed from the networks of one stage."""


def change(values: xarray.DataArray) -> xarray.DataArray:
    """Return the change from no to the largest dose along the least-squares line; NaN if a dose has no value."""
    steps = np.arange(values.sizes["dose"], dtype=float)
    centred = xarray.DataArray(steps - steps.mean(), dims="dose")
    return (values * centred).sum("dose", skipna=False) / (centred**2).sum() * (len(steps) - 1)


def rank_correlation(values: xarray.DataArray) -> xarray.DataArray:
    """Return Spearman's correlation with the dose; 0 if all doses have the same value, NaN if one has none."""
    from scipy.stats import rankdata

    ranks = rankdata(values.transpose("dose", ...).values, axis=0, nan_policy="propagate")
    ranks, steps = ranks - ranks.mean(axis=0), np.arange(len(ranks)) - (len(ranks) - 1) / 2
    scale = np.sqrt((ranks**2).sum(axis=0) * (steps**2).sum())
    return values.isel(dose=0, drop=True).copy(data=steps @ ranks / np.where(scale == 0, 1.0, scale))


def followed(
    data: Data, family: str, score: PerDose, sign: int = 1, words: str = "{}", by: Any = change, measures: str = ""
) -> dict[str, Sample]:
    """Return, for every stage, how a score follows the dose in networks that learnt at every dose."""
    cases = {}
    for stage in data["causal"]["stage"].values:
        networks = data["causal"].sel(family=family, stage=stage)
        arms = (networks.sel(dose=dose, drop=True) for dose in networks["dose"].values)
        cases[words.format(stage)] = replace(sample(sign * by(score(networks)), *arms), measures=measures)
    return cases


def _accuracy(networks: xarray.Dataset) -> xarray.DataArray:
    return networks["ood_accuracy"]


def _log_error(networks: xarray.Dataset) -> xarray.DataArray:
    return decades(networks["ood_over_blank"], xarray.ones_like(networks["ood_over_blank"]))


def _log_cross_term(networks: xarray.Dataset) -> xarray.DataArray:
    return decades(networks["cross_term"], xarray.ones_like(networks["cross_term"]))


def _alternatives(data: Data, family: str, sign: int) -> dict[str, Sample]:
    verb = "fall" if sign > 0 else "rise"
    return {
        **followed(data, family, _accuracy, sign, "{}, rank correlation", rank_correlation,
                   f"rank correlation of held-out accuracy with the dose{'' if sign > 0 else ', negative'}"),
        **followed(data, family, _log_error, -sign, "{}, error",
                   measures=f"decades by which held-out error {verb}s with the dose"),
        **followed(data, family, _log_cross_term, -sign, "{}, cross-term itself",
                   measures=f"decades by which the stage's cross-term {verb}s with the dose"),
    }  # fmt: skip


CLAIMS = (
    Claim(
        "C36",
        "Factorization causes composing: held-out accuracy rises with a penalty on a stage's cross-term in networks "
        "that fail, and falls with a reward of it in networks that compose",
        "§3.4, §4",
        statements=(
            Statement(
                effect("rise of held-out accuracy with the dose of a penalty on the cross-term, failing CNNs", 0.1,
                       word="described"),
                partial(followed, family=FAILING, score=_accuracy),
                partial(_alternatives, family=FAILING, sign=1),
            ),
            Statement(
                effect("fall of held-out accuracy with the dose of a reward of the cross-term, composing CNNs", 0.1,
                       word="specific"),
                partial(followed, family=COMPOSING, score=_accuracy, sign=-1),
                partial(_alternatives, family=COMPOSING, sign=-1),
            ),
        ),
        studies=("causal",),
        ours=True,
    ),
)  # fmt: skip

ROWS = {"ood_accuracy": "held-out accuracy", "cross_term": "cross-term of the stage"}


def draw(result: xarray.Dataset) -> Figure:
    """Plot held-out accuracy and the cross-term of the stage against the dose, for networks that learnt."""
    with styled():
        families = result["family"].values
        shape = len(ROWS), len(families)
        figure, axes = pyplot.subplots(*shape, figsize=(7.4, 4.6), sharex=True, sharey="row", layout="constrained")
        for column, family in zip(axes.T, families, strict=True):
            for ax, name in zip(column, ROWS, strict=True):
                _against_dose(ax, result.sel(family=family), name)
            column[0].set_title(str(family), loc="left")
            column[0].axhline(COMPOSING_ACCURACY, color="0.7", linewidth=0.8, zorder=0)
            column[-1].set_xlabel("dose, in steps of half a decade (0: none)")
        for ax, label in zip(axes[:, 0], ROWS.values(), strict=True):
            ax.set_ylabel(label)
        axes[0, 0].set_ylim(0, 1.05)
        axes[0, 0].legend(title="at stage", fontsize=7)
    return figure


def _against_dose(ax: Axes, networks: xarray.Dataset, name: str) -> None:
    doses = networks["dose"].values
    for shift, (stage, color) in enumerate(zip(networks["stage"].values, COLORS, strict=False)):
        own = networks.sel(stage=stage)
        counted = xarray.concat([learnt(own.sel(dose=dose, drop=True)) for dose in doses], dim="dose").values
        values = own[name].transpose("dose", "seed").where(counted)
        x = np.arange(len(doses)) + 0.08 * (shift - 1)
        ax.plot(x, values.values, "o", markersize=2, alpha=0.35, color=color, markeredgewidth=0)
        ax.plot(x, values.mean("seed").values, color=color, label=str(stage))
    ax.set_xticks(range(len(doses)), [str(dose) for dose in doses])


def caption(result: xarray.Dataset) -> str:
    return (
        "Held-out accuracy (top) and the stage's normalised cross-term |g_xy| over the grid (bottom) in CNNs trained "
        "with a penalty on the cross-term of one stage (left: bumps alone) or a reward of it (right: stripes and "
        f"bumps), {seed_count(result['ood_accuracy'])}; only networks that learnt."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    rows = []
    for family, stage in product(result["family"].values, STAGES):
        own = result.sel(family=family, stage=stage)
        rows.append([f"{family}, {stage} stage", *(f"{change(own[name]).mean().item():+.2f}" for name in ROWS)])
    return [["mean change with the dose, all networks", *ROWS.values()], *rows]


FIGURES = (FigureSpec("causal", "Penalties and rewards of the cross-term", ("causal",), draw, caption, table),)
