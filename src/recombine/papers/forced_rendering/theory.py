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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import landmarks, metric_tensor
from recombine.metrics.registry import STAGE_METRICS, Stage, read_stages
from recombine.metrics.registry import stage_profile as registered_profile
from recombine.papers.forced_rendering.controls import kept_combinations, whole_grid, with_untrained
from recombine.papers.forced_rendering.mlp import Settings as MLPSettings
from recombine.papers.forced_rendering.penalties import BOTH, NONE, penalised_spec
from recombine.papers.forced_rendering.penalties import Settings as PenaltySettings
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import MANY
from recombine.papers.forced_rendering.stripes import Settings as StripeSettings
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, tabulate
from recombine.reproduction.preset import Count, Positive, Seeds
from recombine.reproduction.study import Arm, Study, Trials
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
        mlp = preset.mlp_spec("bump", matched_depth(preset))
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

        result = tabulate(with_untrained(trials, INITIAL), ("arm",), measured, {**STAGE_DIMS, **PRODUCT_DIMS})
        untrained = result["arm"].isin(list(INITIAL))
        attributes = base_attributes(trials, size=trials.preset.size, epsilon=trials.preset.theory_epsilon)
        task = trials.first.spec.task
        assert isinstance(task, BumpTask)
        known = landmarks(task.grid.shape, bump=task.sigma)
        places = ("landmark", [float(place) for place in known.values()])
        result = result.assign({TRAINED: result[TRAINED].where(~untrained, 0.0), "landmark_place": places})
        return result.assign_coords(landmark=list(known)).assign_attrs(attributes)


def matched_depth(preset: Settings) -> int:
    """Of the MLP with as many stages as the CNN, or the one nearest to it."""
    return min(preset.mlp_depths, key=lambda depth: (abs(depth - preset.depth - 1), depth))


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
    for stage, last in _with_last_hidden(stages):
        own = {name: value for name, (value,) in registered_profile([stage], STAGE_COLUMNS).columns.items()}
        own[FLOW] = torch.full((len(batch),), torch.nan)
        if last:
            flow = nonlinear_factorization(
                stage.coordinates, stage.grid.shape, stage.held_out, steps=flow_steps, permutations=0
            )
            own[FLOW] = torch.minimum(flow.score, flow.recovered)
        for name, value in own.items():
            columns.setdefault(name, []).append(value.reshape(len(batch), -1).mean(dim=1).cpu())
    return {name: torch.stack(rows, dim=1).float().cpu().numpy() for name, rows in columns.items()}


def _with_last_hidden(stages: Iterator[Stage]) -> Iterator[tuple[Stage, bool]]:
    """Each stage, and whether it is the last before the output."""
    waiting: list[Stage] = []
    for stage in stages:
        waiting.append(stage)
        if len(waiting) > 2:
            yield waiting.pop(0), False
    yield waiting[0], True
    yield waiting[1], False


STUDY = TheoryStudy()
