"""Do networks that compose have the structure that the paper's Appendix A asks for? (§3.4, App. A)

Networks without a remedy, with one (stripes and 100 bumps; both penalties), trained on the whole grid, and untrained;
CNNs and MLPs on bump codes, the low-rank decoder on one-hot codes. Measured are

- the number of products of single-factor functions in what they draw, pixel by pixel, beside the target's (Eq. 17);
- whether a linear map splits a stage into a block per factor (Eq. 24), and at the last hidden stage an invertible flow
  (Eq. 25–27);
- what of the factors a decoder finds in a stage, everywhere and at held-out combinations, and the rank of its Jacobian
  (A.3);
- the place of its kernel between memorisation and factorization (A.5);
- the share of a stage that is a sum of blocks, and the width of the hole (§3.4).

MLPs have the depth that is nearest to the CNN's number of stages.

The appendix defines what a factorized, a reversible and a complex map are, and says that failing networks lose these;
it measures none of it. Here networks without a remedy are compared, seed by seed, with those of the same architecture
that compose: stripes and 100 bumps for CNNs, both penalties for the low-rank decoder. Stripes do not make MLPs compose;
theirs are compared with MLPs trained on the whole grid. So are all where the paper blames the hole in the data (§3.4).
Networks trained on the whole grid and untrained ones are controls of every comparison.

The settings (an error of 0.3 for counting products, which stages count, scores not below 0) and the smallest
differences that matter were fixed with networks of seeds 0 to 7 in view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import landmarks, metric_tensor
from recombine.metrics.registry import STAGE_METRICS, read_stages
from recombine.metrics.registry import stage_profile as registered_profile
from recombine.papers.forced_rendering.controls import tabulated_with_untrained
from recombine.papers.forced_rendering.mlp import MLPSettings, matched_depth
from recombine.papers.forced_rendering.penalties import BOTH, NONE, PenaltySettings, penalised_spec
from recombine.papers.forced_rendering.presets import kept_combinations, whole_grid
from recombine.papers.forced_rendering.samples import PerSeed, difference
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY, StripeSettings
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import Criterion, effect
from recombine.reproduction.measuring import Batch, base_attributes
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_hidden, last_hidden, mean_of_hidden
from recombine.reproduction.tables import output as at_output
from recombine.tasks import BumpTask
from recombine.theory.factorization import nonlinear_factorization
from recombine.theory.ranks import learnt_complexity, pixel_ranks

CNN_FAILING, CNN_COMPOSING, CNN_WHOLE, CNN_UNTRAINED = "CNN", "CNN, stripes", "CNN, whole grid", "CNN, untrained"
MLP_FAILING, MLP_COMPOSING, MLP_WHOLE, MLP_UNTRAINED = "MLP", "MLP, stripes", "MLP, whole grid", "MLP, untrained"
LOW_RANK_FAILING, LOW_RANK_COMPOSING = "low-rank", "low-rank, penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"

FAMILIES = {
    "CNN": (CNN_FAILING, CNN_COMPOSING, CNN_WHOLE, CNN_UNTRAINED),
    "low-rank": (LOW_RANK_FAILING, LOW_RANK_COMPOSING, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
    "MLP": (MLP_FAILING, MLP_COMPOSING, MLP_WHOLE, MLP_UNTRAINED),
}
"""By architecture: without a remedy, with one, trained on the whole grid, and the first ones before training."""
COMPOSING = {"CNN": CNN_COMPOSING, "low-rank": LOW_RANK_COMPOSING, "MLP": MLP_WHOLE}
"""By architecture, the networks that compose. Stripes do not make these MLPs compose (seeds 0 to 7: 30 % in place)."""
INITIAL = {untrained: failing for failing, _, _, untrained in FAMILIES.values()}
"""Each untrained arm, and the arm whose networks it has before their first step."""


STAGE_COLUMNS = (
    "kernel_axis", "linear_factorization", "factor_recovery", "factor_recovery_held_out", "reversibility", "additivity",
    "hole",
)  # fmt: skip
"""Registered metrics of every stage."""
LARGEST_RANK = 4
"""Sums of more products are not told apart."""


class Settings(MLPSettings, StripeSettings, PenaltySettings):
    """Those of the studies whose networks it measures, and how finely it looks."""

    theory_epsilon: Positive = 0.3
    """Largest relative error of a sum of products."""
    theory_pixels: Count = 32
    """Pixels whose products are counted where that takes a search: those in which the target has most energy."""
    theory_flow_steps: Count = 150
    """Of training of a flow that splits a stage into blocks, at most."""
    theory_seeds: Seeds = 40
    """Seeds of this study."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"theory_pixels": 16, "theory_flow_steps": 50, "theory_seeds": 3}}


class TheoryStudy(Study[Settings]):
    """Appendix A, measured on failing and composing networks."""

    name: ClassVar[str] = "theory"
    question: ClassVar[str] = "Do networks that compose have the structure that Appendix A asks for?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "landmarks", "learnt_complexity", "metric_tensor", "nonlinear_factorization",
        "pixel_ranks", "squared_error", *STAGE_COLUMNS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        cnn, low_rank = preset.spec(), penalised_spec(preset, NONE)
        mlp = preset.mlp_spec("bump", matched_depth(preset.mlp_depths, preset.depth))
        bumps = min(MANY, kept_combinations(cnn))
        specs = {
            CNN_FAILING: cnn,
            CNN_COMPOSING: preset.striped_spec(bumps),
            CNN_WHOLE: whole_grid(cnn),
            MLP_FAILING: mlp,
            MLP_COMPOSING: preset.striped_spec(bumps, decoder=mlp.decoder),
            MLP_WHOLE: whole_grid(mlp),
            LOW_RANK_FAILING: low_rank,
            LOW_RANK_COMPOSING: penalised_spec(preset, BOTH),
            LOW_RANK_WHOLE: whole_grid(low_rank),
        }
        return [Arm((arm,), spec, seeds=preset.theory_seeds) for arm, spec in specs.items()]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            return {
                **batch.scores, **training_fit(batch), **products(batch, trials.preset),
                **stage_columns(batch, trials.preset.theory_flow_steps),
            }  # fmt: skip

        result = tabulated_with_untrained(trials, INITIAL, measured, {**STAGE_DIMS, **PRODUCT_DIMS})
        attributes = base_attributes(trials, size=trials.preset.size, epsilon=trials.preset.theory_epsilon)
        task = trials.first.spec.task
        assert isinstance(task, BumpTask)
        known = landmarks(task.grid.shape, bump=task.sigma)
        places = ("landmark", [float(place) for place in known.values()])
        return result.assign(landmark_place=places).assign_coords(landmark=list(known)).assign_attrs(attributes)


# -- products --------------------------------------------------------------------------------------------------------

PRODUCT_DIMS = {"held_ranks": ("rank",), "kept_ranks": ("rank",), "target_ranks": ("rank",)}
"""Shares of the energy in pixels of 0, 1, … products, and of more."""


def products(batch: Batch, preset: Settings) -> dict[str, Tensor]:
    """Mean numbers of products in what networks draw, and how they are spread."""
    task, shape = batch.task, batch.task.grid.shape
    target = (task.render(task.grid.points) - task.background).flatten(1).to(batch.device)
    outputs = (batch.outputs(task.grid.points) - task.background).flatten(2).to(batch.device)
    pixels = min(preset.theory_pixels, target.shape[1])
    brightest = target.float().double().square().sum(dim=0).topk(pixels).indices.sort().values
    learnt = learnt_complexity(
        outputs[..., brightest], shape, task.held_out, preset.theory_epsilon, largest=LARGEST_RANK
    )
    held = pixel_ranks(outputs, shape, task.held_out, preset.theory_epsilon, LARGEST_RANK)
    wanted = pixel_ranks(target.float(), shape, task.held_out, preset.theory_epsilon, LARGEST_RANK)
    third = pixel_ranks(outputs, shape, task.held_out, preset.theory_epsilon / 3, LARGEST_RANK)
    count = len(batch)
    return {
        "held_products": held.mean,
        "held_products_finer": third.mean,
        "held_products_brightest": learnt.held_out.mean,
        "kept_products": learnt.kept.mean,
        "all_products": learnt.everywhere.mean,
        "target_products": wanted.mean.expand(count),
        "held_ranks": held.distribution,
        "kept_ranks": learnt.kept.distribution,
        "target_ranks": wanted.distribution.expand(count, -1),
    }


# -- stages ----------------------------------------------------------------------------------------------------------

FLOW = "nonlinear_factorization"
STAGE_DIMS: Mapping[str, Sequence[str]] = {
    column.name: ("stage",) for name in (*STAGE_COLUMNS, FLOW) for column in STAGE_METRICS[name].columns
}
"""Dimensions of what is measured of every stage; the flow is trained at the last hidden stage only."""


def stage_columns(batch: Batch, flow_steps: int) -> dict[str, np.ndarray]:
    """Registered metrics of every stage, mean over factors, and the score of a flow at the last hidden one."""
    task, reader, memory = batch.task, batch.reader(), batch.memory
    points = task.grid.points.to(batch.device)
    exact = metric_tensor(reader, points, members=1, memory=memory) if task.encoding.differentiable else None
    stages = read_stages(reader, points, task.grid, task.held_out, exact=exact, members=1, memory=memory)
    columns: dict[str, list[Tensor]] = {}
    last_hidden_name = batch.spec.module().stage_names[-2]
    for stage in stages:
        own = {name: value for name, (value,) in registered_profile([stage], STAGE_COLUMNS).columns.items()}
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


# -- claims ----------------------------------------------------------------------------------------------------------


WHOLE = {family: arms[2] for family, arms in FAMILIES.items()}
UNTRAINED = {family: arms[3] for family, arms in FAMILIES.items()}
PRODUCTS, SPLIT, LOSS, MIXING, WIDTH = 0.5, 0.1, 0.1, 0.05, 0.1
"""The smallest differences that matter."""
Place = Callable[[xarray.DataArray], xarray.DataArray]
"""From numbers over stages to one per seed."""


def _against(data: Data, others: Mapping[str, str], statistic: PerSeed, words: str) -> dict[str, Sample]:
    """By architecture, a number of failing networks less that of others.

    Untrained networks need not have learnt; all others must.
    """
    return {
        f"{family}{words}": difference(
            statistic,
            data["theory"].sel(arm=failing),
            data["theory"].sel(arm=others[family]),
            untrained=others[family] in INITIAL,
        )
        for family, (failing, *_) in FAMILIES.items()
    }


def _compared(
    criterion: Criterion, others: Mapping[str, str], statistic: PerSeed, otherwise: Mapping[str, PerSeed]
) -> Statement:
    """Failing networks less others; beside it other statistics, and as controls the other kinds of networks."""
    beside = {"whole grid": WHOLE} if others is COMPOSING else {"composing": COMPOSING}

    def alternatives(data: Data) -> dict[str, Sample]:
        parts = [_against(data, others, own, f", {words}") for words, own in otherwise.items()]
        return {case: own for part in parts for case, own in part.items()}

    def controls(data: Data) -> dict[str, Sample]:
        arms = {**beside, "untrained": UNTRAINED}
        parts = [_against(data, own, statistic, f" against {words}") for words, own in arms.items()]
        return {case: own for part in parts for case, own in part.items()}

    return Statement(criterion, lambda data: _against(data, others, statistic, ""), alternatives, controls)


# -- numbers per seed --------------------------------------------------------------------------------------------------


def held_products(networks: xarray.Dataset) -> xarray.DataArray:
    """Mean number of products in held-out outputs, over that of the right images there."""
    return networks["held_products"] - networks["target_products"]


def clipped(score: xarray.DataArray) -> xarray.DataArray:
    """R² that is not below 0: how wrong a prediction is that predicts nothing has no meaning."""
    return score.clip(min=0)


def linear_split(networks: xarray.Dataset) -> xarray.DataArray:
    """Score of the linear test, mean over the hidden stages; below 0 nothing is predicted, which counts as 0."""
    return mean_of_hidden(clipped(networks["linear_factorization"]))


def at(place: Place, name: str) -> PerSeed:
    """A number at a stage."""
    return lambda networks: place(networks[name])


def lost(place: Place, name: str) -> PerSeed:
    """What a share lacks of 1, at a stage."""
    return lambda networks: 1 - place(networks[name])


def minus(statistic: PerSeed) -> PerSeed:
    """For what failing networks are said to have less of."""
    return lambda networks: -statistic(networks)


held_loss = lost(last_hidden, "factor_recovery_held")
"""What is lost of the factors at held-out points, at the last hidden stage."""
mixing = lost(last_hidden, "additivity")
"""Share of the last hidden stage's variance that is no sum of blocks."""
hole_width = at(at_output, "hole_openness")
"""Width of the hole at the output, in steps between kept neighbours."""


_claim = partial(Claim, studies=("theory",), ours=True)
CLAIMS = (
    _claim(
        "C27",
        "What failing networks draw at held-out combinations is more complex, as a sum of products of single-factor "
        "functions, than what composing ones draw",
        "App. A.1, Eq. 13, 17",
        (
            _compared(
                effect("products per pixel in held-out outputs, failing less composing", PRODUCTS),
                COMPOSING,
                held_products,
                {
                    "a third of the error": itemgetter("held_products_finer"),
                    "brightest pixels": itemgetter("held_products_brightest"),
                    "whole grid, brightest pixels": itemgetter("all_products"),
                    "kept points, brightest pixels": itemgetter("kept_products"),
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
                effect(
                    "R² of blocks after a linear map, held-out points, hidden stages, composing less failing", SPLIT
                ),
                COMPOSING,
                minus(linear_split),
                {
                    "last hidden stage": lambda own: -last_hidden(clipped(own["linear_factorization"])),
                    # the last hidden stage is the only one with a flow
                    "last hidden stage, after a flow": lambda own: -clipped(own[FLOW]).max("stage"),
                    "output": lambda own: -at_output(clipped(own["linear_factorization"])),
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
                effect("1 − R² of factors decoded at held-out points, last hidden stage, failing less composing", LOSS),
                COMPOSING,
                held_loss,
                {
                    "output": lost(at_output, "factor_recovery_held"),
                    "all points": lost(last_hidden, "factor_recovery"),
                    "rank of the Jacobian at the output": at(at_output, "local_loss"),
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
                effect("share of the last hidden stage that is no sum of blocks, failing less whole grid", MIXING),
                WHOLE,
                mixing,
                {"output": lost(at_output, "additivity"), "first hidden stage": lost(first_hidden, "additivity")},
            ),
            _compared(
                effect("width of the hole at the output, in steps, whole grid less failing", WIDTH),
                WHOLE,
                minus(hole_width),
                {
                    "last hidden stage": minus(at(last_hidden, "hole_openness")),
                    "first hidden stage": minus(at(first_hidden, "hole_openness")),
                    "share of held-out outputs that are not beside far ones": minus(lost(at_output, "hole_misplaced")),
                },
            ),
        ),
    ),
)
