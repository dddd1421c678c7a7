"""Do memorising and composing networks sit in different kernel regimes? (App. A.4–A.5)

Failing (bumps alone), stripe-trained, and penalised networks: PF_Coeff and operator-Schmidt spectrum of the Gram matrix
of their outputs. Beside them the ideal bump images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from recombine.metrics import effective_rank, gram_matrix, partial_factorization, schmidt_spectrum
from recombine.papers.forced_rendering.penalties.labels import BOTH, NONE
from recombine.papers.forced_rendering.penalties.study import Settings as PenaltySettings
from recombine.papers.forced_rendering.penalties.study import penalised_spec
from recombine.papers.forced_rendering.regimes.labels import FAILING, PENALISED, STRIPES, STRIPES_BUMPS, UNPENALISED
from recombine.papers.forced_rendering.stripes.study import Settings as StripeSettings
from recombine.reproduction.batches import Batch
from recombine.reproduction.measuring import base_attributes, tabulate
from recombine.reproduction.study import Arm, Study, Trials

if TYPE_CHECKING:
    import xarray

MODES = 12
"""Schmidt values kept."""


class Settings(StripeSettings, PenaltySettings):
    """Those of the two studies whose networks it measures."""


class RegimeStudy(Study[Settings]):
    """Kernels of failing and composing networks."""

    name: ClassVar[str] = "regimes"
    question: ClassVar[str] = "Do memorising and composing networks sit in different kernel regimes?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("effective_rank", "gram_matrix", "partial_factorization", "schmidt_spectrum")

    def arms(self, preset: Settings) -> list[Arm]:
        return [
            Arm((FAILING,), preset.spec()),
            Arm((STRIPES,), preset.striped_spec(0)),
            Arm((STRIPES_BUMPS,), preset.striped_spec(max(preset.bumps))),
            Arm((UNPENALISED,), penalised_spec(preset, NONE)),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        inner = {"schmidt": ("mode",), "ideal_schmidt": ("mode",)}
        result = tabulate(trials, ("arm",), _measured, inner)
        ideal = tabulate(trials.pictured, ("arm",), _ideal, inner).isel(seed=0, drop=True)
        return result.merge(ideal).assign_attrs(base_attributes(trials, size=trials.preset.size))


def _measured(batch: Batch) -> dict[str, Any]:
    images = batch.outputs(batch.task.grid.points).flatten(2) - batch.task.background
    return {"ood_over_blank": batch.scores["ood_over_blank"], **_regime(images, batch.task.grid.shape)}


def _ideal(batch: Batch) -> dict[str, Any]:
    """The same of the right images, which every run of an arm has."""
    task = batch.task
    images = (task.render(task.grid.points).flatten(1) - task.background).expand(len(batch), -1, -1)
    return {f"ideal_{name}": value for name, value in _regime(images, task.grid.shape).items()}


def _regime(signals: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    gram = gram_matrix(signals, "cosine")
    spectrum = schmidt_spectrum(gram, shape)
    return {
        "schmidt": spectrum[:, :MODES],
        "schmidt_rank": effective_rank(spectrum.square()),
        "single_factor": partial_factorization(gram, shape),
        "single_factor_absolute": partial_factorization(gram, shape, weight="absolute"),
    }


STUDY = RegimeStudy()
