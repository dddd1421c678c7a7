"""Do networks that compose have the structure that Appendix A of the paper requires? (§3.4, App. A)

The networks are CNNs and MLPs with bump codes and low-rank decoders with one-hot codes, each without a remedy, with one
(stripes and 100 bumps, or both penalties), trained on the whole grid, or untrained. We measure the number of products
of single-factor functions in outputs, pixel by pixel (Eq. 17); whether a linear map (Eq. 24) or an invertible flow
(Eq. 25–27) splits a stage into one block per factor; how well factors can be decoded, and the rank of the Jacobian
(A.3); the kernel's position between memorisation and factorization (A.5); and the share of a stage that is a sum of
blocks, and the width of the hole (§3.4).

Networks without a remedy are compared, seed by seed, with composing networks of the same architecture or, where the
paper attributes failure to the hole in the data (§3.4), with networks trained on the whole grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from recombine.metrics import landmarks, metric_tensor
from recombine.metrics.registry import STAGE_METRICS, read_stages, stage_profile
from recombine.panels import COLORS, band, bar_groups, letter, seed_count, styled
from recombine.papers.forced_rendering.controls import tabulated_with_untrained
from recombine.papers.forced_rendering.mlp import MLPSettings, matched_depth
from recombine.papers.forced_rendering.penalties import BOTH, NONE, PenaltySettings, penalised_spec
from recombine.papers.forced_rendering.presets import kept_combinations, whole_grid
from recombine.papers.forced_rendering.samples import PerSeed, Statistic, difference
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.measuring import Batch, base_attributes
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden, output
from recombine.tasks import BumpTask
from recombine.theory.factorization import nonlinear_factorization
from recombine.theory.ranks import learnt_complexity, pixel_ranks

FAMILIES = {
    family: (family, f"{family}, {remedy}", f"{family}, whole grid", f"{family}, untrained")
    for family, remedy in {"CNN": "stripes", "low-rank": "penalties", "MLP": "stripes"}.items()
}
"""Arms (experimental conditions) by architecture: no remedy, with a remedy, whole grid, and untrained."""
KINDS = ("no remedy", "remedy", "whole grid", "untrained")
WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
COMPOSING = {"CNN": FAMILIES["CNN"][1], "low-rank": FAMILIES["low-rank"][1], "MLP": WHOLE["MLP"]}
"""Composing arm of each architecture. MLPs do not compose with stripes (30 % of bumps in place, seeds 0 to 7)."""
INITIAL = {untrained: failing for failing, _, _, untrained in FAMILIES.values()}
"""Untrained arms, mapped to the arms whose initial weights they share."""
FLOW = "nonlinear_factorization"
STAGE_COLUMNS = (
    "kernel_axis", "linear_factorization", "factor_recovery", "factor_recovery_held_out", "reversibility", "additivity",
    "hole",
)  # fmt: skip
"""Registered metrics that are computed at every stage."""
DIMS: Mapping[str, Sequence[str]] = {
    **{column.name: ("stage",) for name in (*STAGE_COLUMNS, FLOW) for column in STAGE_METRICS[name].columns},
    **dict.fromkeys(("held_ranks", "kept_ranks", "target_ranks"), ("rank",)),
}
LARGEST_RANK = 4
"""Largest number of products to search for; longer sums are counted together."""


class Settings(MLPSettings, StripeSettings, PenaltySettings):
    theory_epsilon: Positive = 0.3
    """Largest relative error allowed for a sum of products."""
    theory_pixels: Count = 32
    """Number of pixels for which products are counted by search, chosen by their energy in the target."""
    theory_flow_steps: Count = 150
    """Maximum number of training steps for a flow that splits a stage into blocks."""
    theory_seeds: Seeds = 40
    """Number of seeds in the theory study."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"theory_pixels": 16, "theory_flow_steps": 50, "theory_seeds": 3}}


class TheoryStudy(Study[Settings]):
    name: ClassVar[str] = "theory"
    question: ClassVar[str] = "Do networks that compose have the structure that Appendix A requires?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "landmarks", "learnt_complexity", "metric_tensor", "nonlinear_factorization",
        "pixel_ranks", "squared_error", *STAGE_COLUMNS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        cnn, low_rank = preset.spec(), penalised_spec(preset, NONE)
        # The MLP's number of stages is the closest to the CNN's.
        mlp = preset.mlp_spec("bump", matched_depth(preset.mlp_depths, preset.depth))
        bumps = min(MANY, kept_combinations(cnn))
        specs = {
            "CNN": (cnn, preset.striped_spec(bumps)),
            "MLP": (mlp, preset.striped_spec(bumps, decoder=mlp.decoder)),
            "low-rank": (low_rank, penalised_spec(preset, BOTH)),
        }
        return [
            Arm((arm,), spec, seeds=preset.theory_seeds)
            for family, (failing, remedied) in specs.items()
            for arm, spec in zip(FAMILIES[family], (failing, remedied, whole_grid(failing)), strict=False)
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {
                **batch.scores, **training_fit(batch), **products(batch, trials.preset),
                **stage_columns(batch, trials.preset.theory_flow_steps),
            }  # fmt: skip

        result = tabulated_with_untrained(trials, INITIAL, measured, DIMS)
        attributes = base_attributes(trials, size=trials.preset.size, epsilon=trials.preset.theory_epsilon)
        task = trials.first.spec.task
        assert isinstance(task, BumpTask)
        known = landmarks(task.grid.shape, bump=task.sigma)
        places = ("landmark", [float(place) for place in known.values()])
        return result.assign(landmark_place=places).assign_coords(landmark=list(known)).assign_attrs(attributes)


def products(batch: Batch, preset: Settings) -> dict[str, Tensor]:
    """Return the mean number of products in outputs, and the shares of energy in pixels with 0, 1, … products."""
    task, shape = batch.task, batch.task.grid.shape
    target = (task.render(task.grid.points) - task.background).flatten(1).to(batch.device)
    outputs = (batch.outputs(task.grid.points) - task.background).flatten(2).to(batch.device)
    pixels = min(preset.theory_pixels, target.shape[1])
    brightest = target.float().double().square().sum(dim=0).topk(pixels).indices.sort().values
    epsilon = preset.theory_epsilon
    learnt = learnt_complexity(outputs[..., brightest], shape, task.held_out, epsilon, largest=LARGEST_RANK)
    held = pixel_ranks(outputs, shape, task.held_out, epsilon, LARGEST_RANK)
    held_target = pixel_ranks(target.float(), shape, task.held_out, epsilon, LARGEST_RANK)
    finer = pixel_ranks(outputs, shape, task.held_out, epsilon / 3, LARGEST_RANK)
    return {
        "held_products": held.mean,
        "held_products_finer": finer.mean,
        "held_products_brightest": learnt.held_out.mean,
        "kept_products": learnt.kept.mean,
        "all_products": learnt.everywhere.mean,
        "target_products": held_target.mean.expand(len(batch)),
        "held_ranks": held.distribution,
        "kept_ranks": learnt.kept.distribution,
        "target_ranks": held_target.distribution.expand(len(batch), -1),
    }


def stage_columns(batch: Batch, flow_steps: int) -> dict[str, np.ndarray]:
    """Return registered metrics of every stage, averaged over factors, and a flow's score at the last hidden stage."""
    task, reader, memory = batch.task, batch.reader(), batch.memory
    points = task.grid.points.to(batch.device)
    exact = metric_tensor(reader, points, members=1, memory=memory) if task.encoding.differentiable else None
    stages = read_stages(reader, points, task.grid, task.held_out, exact=exact, members=1, memory=memory)
    columns: dict[str, list[Tensor]] = {}
    last_hidden_name = batch.spec.module().stage_names[-2]
    for stage in stages:
        own = {name: value for name, (value,) in stage_profile([stage], STAGE_COLUMNS).columns.items()}
        own[FLOW] = torch.full((len(batch),), torch.nan)
        if stage.name == last_hidden_name:
            flow = nonlinear_factorization(
                stage.coordinates, stage.grid.shape, stage.held_out, steps=flow_steps, permutations=0
            )
            own[FLOW] = torch.minimum(flow.score, flow.recovered)
        for name, value in own.items():
            columns.setdefault(name, []).append(value.reshape(len(batch), -1).mean(dim=1).cpu())
    return {name: torch.stack(rows, dim=1).float().cpu().numpy() for name, rows in columns.items()}


STUDY = TheoryStudy()


def linear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Return the mean over hidden stages of the linear test's R²; negative values count as 0."""
    return mean_of_hidden(networks["linear_factorization"].clip(min=0))


OWN_QUANTITIES = {
    "rank of the Jacobian at the output": "share of points where a factor is lost, output, failing less composing",
    "share of held-out outputs that are not beside far ones": (
        "share of held-out outputs that are not beside far ones, whole grid less failing"
    ),
}
"""What alternatives measure that do not measure their statement's statistic."""


def _against(data: Data, cases: Mapping[str, tuple[Mapping[str, str], Statistic]]) -> dict[str, Sample]:
    """Return failing-minus-other differences per architecture; `cases` maps name suffixes to (arms, statistic)."""
    result = data["theory"]
    return {
        f"{family}{words}": replace(
            difference(
                statistic, result.sel(arm=failing), result.sel(arm=others[family]), untrained=others[family] in INITIAL
            ),
            measures=OWN_QUANTITIES.get(words.removeprefix(", "), ""),
        )
        for words, (others, statistic) in cases.items()
        for family, (failing, *_) in FAMILIES.items()
    }


def _compared(
    criterion: Criterion, others: Mapping[str, str], statistic: PerSeed, otherwise: Mapping[str, Statistic]
) -> Statement:
    """State how failing networks differ from others, with alternative statistics and other networks as controls."""
    controls = {"whole grid": WHOLE} if others is COMPOSING else {"composing": COMPOSING}
    controls["untrained"] = UNTRAINED
    return Statement(
        criterion,
        lambda data: _against(data, {"": (others, statistic)}),
        lambda data: _against(data, {f", {words}": (others, own) for words, own in otherwise.items()}),
        lambda data: _against(data, {f" against {words}": (arms, statistic) for words, arms in controls.items()}),
    )


_claim = partial(Claim, studies=("theory",), ours=True)
CLAIMS = (
    _claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "functions, than what composing ones draw",
        "App. A.1, Eq. 13, 17",
        (
            _compared(
                effect("products per pixel in held-out outputs, failing less composing", 0.5),
                COMPOSING,
                lambda networks: networks["held_products"] - networks["target_products"],
                {
                    "a third of the error": "held_products_finer",
                    "brightest pixels": "held_products_brightest",
                    "whole grid, brightest pixels": "all_products",
                    "kept points, brightest pixels": "kept_products",
                },
            ),
        ),
    ),
    _claim(
        "C28",
        "Composing networks keep the factors in blocks, up to an invertible map, where failing ones do not",
        "§5, App. A.2, Eq. 24–27",
        (
            _compared(
                effect("R² of blocks after a linear map, held-out points, hidden stages, composing less failing", 0.1),
                COMPOSING,
                lambda own: -linear_split(own),
                {
                    "last hidden stage": lambda own: -last_hidden(own["linear_factorization"].clip(min=0)),
                    # flows are fitted only to the last hidden stage
                    "last hidden stage, after a flow": lambda own: -own[FLOW].clip(min=0).max("stage"),
                    "output": lambda own: -output(own["linear_factorization"].clip(min=0)),
                },
            ),
        ),
    ),
    _claim(
        "C29",
        "Failing networks mix factors irreversibly: what a decoder finds of them at held-out combinations is lost",
        "App. A.3",
        (
            _compared(
                effect("1 − R² of factors decoded at held-out points, last hidden stage, failing less composing", 0.1),
                COMPOSING,
                lambda own: 1 - last_hidden(own["factor_recovery_held"]),
                {
                    "output": lambda own: 1 - output(own["factor_recovery_held"]),
                    "all points": lambda own: 1 - last_hidden(own["factor_recovery"]),
                    "rank of the Jacobian at the output": lambda own: output(own["local_loss"]),
                },
            ),
        ),
    ),
    _claim(
        "C30",
        "The hole in the data warps the stages: they are less a sum of one block per factor than in networks that saw "
        "the whole grid, and the hole is narrower",
        "§3.4",
        (
            _compared(
                effect("share of the last hidden stage that is no sum of blocks, failing less whole grid", 0.05),
                WHOLE,
                lambda own: 1 - last_hidden(own["additivity"]),
                {
                    "output": lambda own: 1 - output(own["additivity"]),
                    "first hidden stage": lambda own: 1 - first_hidden(own["additivity"]),
                },
            ),
            _compared(
                effect("width of the hole at the output, in steps, whole grid less failing", 0.1),
                WHOLE,
                lambda own: -output(own["hole_openness"]),
                {
                    "last hidden stage": lambda own: -last_hidden(own["hole_openness"]),
                    "first hidden stage": lambda own: -first_hidden(own["hole_openness"]),
                    "share of held-out outputs that are not beside far ones": (
                        lambda own: output(own["hole_misplaced"]) - 1
                    ),
                },
            ),
        ),
    ),
)

ALONG_STAGES = {
    "linear_factorization": "blocks, linear map, R²",
    "factor_recovery_held": "factors decoded, R²",
    "additivity": "variance in a sum of blocks",
    "hole_openness": "width of the hole",
}
"""Variables plotted against stage, mapped to their column titles."""


def theory_figure(result: xarray.Dataset) -> Figure:
    """Plot products, the kernel axis and four variables along the stages, one row per architecture."""
    with styled():
        figure, axes = pyplot.subplots(
            len(FAMILIES), 2 + len(ALONG_STAGES), figsize=(14.0, 2.5 * len(FAMILIES)), layout="constrained"
        )
        for row, (family, arms) in zip(axes, FAMILIES.items(), strict=True):
            counts = {kind: result["held_products"].sel(arm=arm).values for kind, arm in zip(KINDS, arms, strict=True)}
            bar_groups(row[0], KINDS, counts, COLORS)
            target = float(result["target_products"].sel(arm=arms[0]).mean())
            row[0].axhline(target, color="black", linestyle=":", linewidth=1)
            row[0].set_ylim(0.9, max(2.1, row[0].get_ylim()[1]))
            row[0].tick_params(axis="x", rotation=25)
            row[0].set_ylabel(family)
            _kernel_axis(row[1], result, arms)
            for ax, name in zip(row[2:], ALONG_STAGES, strict=True):
                for arm, kind, color in zip(arms, KINDS, COLORS, strict=False):
                    band(ax, result[name].sel(arm=arm).clip(min=0), kind, color)
                ax.set_ylim(bottom=min(0.8, ax.get_ylim()[0]) if name == "factor_recovery_held" else 0)
        titles = ("products per pixel, held out", "kernel, delta 0 to additive 1", *ALONG_STAGES.values())
        for ax, name, title in zip(axes[0], "abcdef", titles, strict=True):
            letter(ax, name, title)
        axes[0, 3].legend(fontsize=7, loc="lower left")
        for ax in axes[-1, 2:]:
            ax.set_xlabel("stage (0: code)")
    return figure


def _kernel_axis(ax: Axes, result: xarray.Dataset, arms: tuple[str, ...]) -> None:
    """Plot the positions of output kernels between known kernels, one dot per network."""
    for place, (arm, color) in enumerate(zip(arms, COLORS, strict=False)):
        values = output(result["above_delta"].sel(arm=arm)).values
        values = values[np.isfinite(values)]
        rows = place + np.linspace(-0.25, 0.25, len(values))
        ax.plot(values, rows, "o", markersize=3, alpha=0.6, color=color, markeredgewidth=0)
    for name in result["landmark"].values:
        position = float(result["landmark_place"].sel(landmark=name))
        ax.axvline(position, color="0.6", linewidth=0.8, zorder=0)
        if name in ("delta", "bump", "additive"):  # the labels of other kernels would overlap with these
            top = len(KINDS) - 0.55
            ax.text(position, top, str(name), rotation=90, fontsize=6, ha="right", va="bottom", color="0.4")
    ax.set_yticks(range(len(KINDS)), KINDS, fontsize=7)
    ax.set_ylim(len(KINDS) - 0.5, -0.6)


def theory_caption(result: xarray.Dataset) -> str:
    judged = {
        "products per pixel": result["held_products"],
        "blocks, hidden stages": linear_split(result),
        "factors decoded, last hidden stage": last_hidden(result["factor_recovery_held"]),
        "sum of blocks, last hidden stage": last_hidden(result["additivity"]),
        "width of the hole, output": output(result["hole_openness"]),
    }
    arms = [arm for family in FAMILIES.values() for arm in family]
    means = "; ".join(
        f"{name} " + ", ".join(f"{arm}: {values.sel(arm=arm).mean().item():.2f}" for arm in arms)
        for name, values in judged.items()
    )
    return (
        "Properties in Appendix A of networks without and with a remedy (stripes and 100 bumps; both penalties for the "
        f"low-rank decoder), trained on the whole grid, and untrained; {seed_count(result['held_products'])}. (a) "
        "Products of single-factor functions per pixel in held-out outputs (relative error "
        f"{result.attrs['epsilon']:g}; dotted: target images). (b) Position of the outputs' kernels between the delta "
        "kernel (memorisation) at 0 and additive kernels at 1; lines mark known kernels. (c–f) Means and standard "
        f"errors along the stages, in (c) and (d) at held-out points. Means: {means}."
    )


FIGURES = (FigureSpec("theory", "Appendix A in networks", ("theory",), theory_figure, theory_caption),)
