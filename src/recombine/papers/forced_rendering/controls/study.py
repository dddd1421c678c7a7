"""Is what the paper gives as the cause peculiar to networks that fail?

Where the paper says why networks fail (probes, factorization, volume, cross-terms, superposition), the same numbers are
measured on networks of the same architecture that do not: composing ones (stripes and 100 bumps; both penalties), ones
trained on the whole grid, the held-out region being only one to look at, and ones that were not trained at all. The
latter are the failing networks' own first weights. CNNs have the bump code and the usual depth; the low-rank decoder
has one-hot codes, which have finite differences only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from recombine.papers.forced_rendering.controls.labels import (
    FAILING,
    INITIAL,
    LOW_RANK_WHOLE,
    PENALISED,
    STRIPE_BUMPS,
    STRIPED,
    UNPENALISED,
    WHOLE,
)
from recombine.papers.forced_rendering.fit import training_fit
from recombine.papers.forced_rendering.penalties.labels import BOTH, NONE
from recombine.papers.forced_rendering.penalties.study import Settings as PenaltySettings
from recombine.papers.forced_rendering.penalties.study import penalised_spec
from recombine.papers.forced_rendering.stripes.study import Settings as StripeSettings
from recombine.papers.forced_rendering.superposition.measuring import (
    SUPERPOSITION_COORDS,
    SUPERPOSITION_DIMS,
    SUPERPOSITION_METRICS,
    superposition_scores_of,
)
from recombine.reproduction.measuring import STAGE_DIMS, TRAINED, Batch, base_attributes, stage_profile, tabulate
from recombine.reproduction.study import Arm, Labels, Study, Trials, initial_runs
from recombine.specs import RunSpec
from recombine.store import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray


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
        result = tabulate(_with_untrained(trials), ("arm",), _measured, {**SUPERPOSITION_DIMS, **STAGE_DIMS})
        trained = result[TRAINED].where(~result["arm"].isin(list(INITIAL)), 0.0)
        attributes = base_attributes(trials, size=trials.preset.size, depth=trials.preset.depth)
        return result.assign({TRAINED: trained}).assign_coords(SUPERPOSITION_COORDS).assign_attrs(attributes)


def kept_combinations(spec: RunSpec) -> int:
    """Combinations that are not held out; small grids have fewer than there are bumps."""
    return int((~spec.task.held_out).sum())


def whole_grid(spec: RunSpec) -> RunSpec:
    """The same run with the held-out combinations in its training set, and as many steps."""
    recipe = spec.recipe.replace(steps=spec.total_steps)
    return spec.replace(task=spec.task.replace(region="whole"), recipe=recipe)


def _with_untrained(trials: Trials[Settings]) -> Trials[Settings]:
    runs: dict[Labels, Sequence[Run]] = dict(trials.items())
    runs |= {(arm,): initial_runs(run.spec for run in trials[source]) for arm, source in INITIAL.items()}
    return Trials(trials.preset, trials.device, runs)


def _measured(batch: Batch) -> dict[str, Any]:
    return {
        **batch.scores, **training_fit(batch), **superposition_scores_of(batch), **stage_profile(batch, maps=False)
    }  # fmt: skip


STUDY = ControlStudy()
