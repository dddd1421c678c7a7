"""Is what the paper gives as the cause peculiar to networks that fail?

Where the paper says why networks fail (probes, factorization, volume, cross-terms, superposition), the same numbers are
measured on networks of the same architecture that do not: composing ones (stripes and 100 bumps; both penalties), ones
trained on the whole grid, the held-out region being only one to look at, and ones that were not trained at all. The
latter are the failing networks' own first weights. CNNs have the bump code and the usual depth; the low-rank decoder
has one-hot codes, which have finite differences only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import xarray

from recombine.papers.forced_rendering.penalties import BOTH, NONE, penalised_spec
from recombine.papers.forced_rendering.penalties import Settings as PenaltySettings
from recombine.papers.forced_rendering.samples import Statistic, difference
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import Settings as StripeSettings
from recombine.papers.forced_rendering.superposition import (
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    SUPERPOSITION_METRICS,
    superposition_scores_of,
)
from recombine.reproduction.claims import Data, Sample
from recombine.reproduction.measuring import TRAINED, Batch, base_attributes, stage_dims, stage_profile, tabulate
from recombine.reproduction.study import Arm, Labels, Study, Trials, initial_runs
from recombine.specs import RunSpec
from recombine.store import Run

STRIPE_BUMPS = 100
"""Bumps beside the stripes of the composing CNN."""
FAILING, STRIPED = "failing", f"stripes and {STRIPE_BUMPS} bumps"
WHOLE, UNTRAINED = "whole grid", "untrained"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
LOW_RANK_WHOLE, LOW_RANK_UNTRAINED = "low-rank, whole grid", "low-rank, untrained"
CONTROLS = {
    FAILING: (STRIPED, WHOLE, UNTRAINED),
    UNPENALISED: (PENALISED, LOW_RANK_WHOLE, LOW_RANK_UNTRAINED),
}
"""Each failing arm, and the networks of the same architecture that it is compared with."""
INITIAL = {UNTRAINED: FAILING, LOW_RANK_UNTRAINED: UNPENALISED}
"""Each untrained arm, and the arm whose networks it has before their first step."""


class Settings(StripeSettings, PenaltySettings):
    """Those of the two studies whose networks it measures."""


class ControlStudy(Study[Settings]):
    """Failing networks beside composing, whole-grid and untrained ones."""

    name: ClassVar[str] = "controls"
    question: ClassVar[str] = "Is what is given as the cause peculiar to networks that fail?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = (
        "extreme_pixel", "hits", "squared_error", "stage_profile", *SUPERPOSITION_METRICS,
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        failing, unpenalised = preset.spec(), penalised_spec(preset, NONE)
        return [
            Arm((FAILING,), failing),
            Arm((STRIPED,), preset.striped_spec(min(STRIPE_BUMPS, kept_combinations(failing)))),
            Arm((WHOLE,), whole_grid(failing)),
            Arm((UNPENALISED,), unpenalised),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
            Arm((LOW_RANK_WHOLE,), whole_grid(unpenalised)),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, Any]:
            found = superposition_scores_of(batch)
            return {**batch.scores, **training_fit(batch), **found, **stage_profile(batch, maps=False)}

        result = tabulate(with_untrained(trials, INITIAL), ("arm",), measured, {**SUPERPOSITION_DIMS, **stage_dims()})
        trained = result[TRAINED].where(~result["arm"].isin(list(INITIAL)), 0.0)
        attributes = base_attributes(trials, size=trials.preset.size, depth=trials.preset.depth)
        return result.assign({TRAINED: trained}).assign_coords(SUPERPOSITION_COORDS).assign_attrs(attributes)


def with_untrained(trials: Trials[Any], initial: Mapping[str, str]) -> Trials[Any]:
    """Also, by the name of their arm, the first weights of the networks of other arms."""
    runs: dict[Labels, Sequence[Run]] = dict(trials.items())
    runs |= {(arm,): initial_runs(run.spec for run in trials[source]) for arm, source in initial.items()}
    return Trials(trials.preset, trials.device, runs)


def kept_combinations(spec: RunSpec) -> int:
    """Combinations that are not held out; small grids have fewer than there are bumps."""
    return int((~spec.task.held_out).sum())


def whole_grid(spec: RunSpec) -> RunSpec:
    """The same run with the held-out combinations in its training set, and as many steps."""
    recipe = spec.recipe.replace(steps=spec.total_steps)
    return spec.replace(task=spec.task.replace(region="whole"), recipe=recipe)


def less_controls(data: Data, statistic: Statistic) -> dict[str, Sample]:
    """A number of failing networks less that of each control, seed by seed, by the control's name.

    Failing networks must have learnt, and controls too unless they are untrained. Without the control study's Dataset
    there is no sample.
    """
    if "controls" not in data:
        return {}
    arms = data["controls"]
    return {
        f"less {other}": difference(statistic, arms.sel(arm=failing), arms.sel(arm=other), untrained=other in INITIAL)
        for failing, others in CONTROLS.items()
        for other in others
    }


STUDY = ControlStudy()
