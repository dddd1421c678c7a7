"""Do memorising and composing networks sit in different kernel regimes? (App. A.4–A.5)

Failing (bumps alone), stripe-trained, and penalised networks: PF_Coeff and operator-Schmidt spectrum of the Gram matrix
of their outputs, and its distance to that of the ideal bump images, ‖K − K*‖ / ‖K*‖ (Frobenius). Kernels are cosines
of outputs over the background, so that brightness does not count.
"""

from __future__ import annotations

from typing import Any, ClassVar

import xarray
from torch import Tensor

from recombine.metrics import effective_rank, gram_matrix, partial_factorization, schmidt_spectrum
from recombine.papers.forced_rendering.penalties import BOTH, NONE, penalised_spec
from recombine.papers.forced_rendering.penalties import Settings as PenaltySettings
from recombine.papers.forced_rendering.scores import training_fit
from recombine.papers.forced_rendering.stripes import Settings as StripeSettings
from recombine.reproduction.measuring import Batch, base_attributes, tabulate
from recombine.reproduction.study import Arm, Study, Trials

FAILING, STRIPES, STRIPES_BUMPS = "bumps alone", "stripes only", "stripes and bumps"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
RIVALS = {STRIPES: FAILING, STRIPES_BUMPS: FAILING, PENALISED: UNPENALISED}
"""Each composing arm, and the arm that it is compared with: the same network without the remedy."""


MODES = 12
"""Schmidt values kept."""


class Settings(StripeSettings, PenaltySettings):
    """Those of the two studies whose networks it measures."""


class RegimeStudy(Study[Settings]):
    """Kernels of failing and composing networks."""

    name: ClassVar[str] = "regimes"
    question: ClassVar[str] = "Do memorising and composing networks sit in different kernel regimes?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = (
        "effective_rank", "extreme_pixel", "gram_matrix", "hits", "partial_factorization", "schmidt_spectrum",
        "squared_error",
    )  # fmt: skip

    def arms(self, preset: Settings) -> list[Arm]:
        return [
            Arm((FAILING,), preset.spec()),
            Arm((STRIPES,), preset.striped_spec(0)),
            Arm((STRIPES_BUMPS,), preset.striped_spec(preset.many_bumps)),
            Arm((UNPENALISED,), penalised_spec(preset, NONE)),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        inner = {"schmidt": ("mode",), "ideal_schmidt": ("mode",)}
        result = tabulate(trials, ("arm",), _measured, inner)
        ideal = tabulate(trials.pictured, ("arm",), _ideal, inner).isel(seed=0, drop=True)
        return result.merge(ideal, compat="no_conflicts").assign_attrs(base_attributes(trials, size=trials.preset.size))


def _measured(batch: Batch) -> dict[str, Any]:
    task = batch.task
    gram = _kernel(batch.outputs(task.grid.points) - task.background)
    ideal = _kernel(task.render(task.grid.points) - task.background)
    return {
        **batch.scores,
        **training_fit(batch),
        **_regime(gram, task.grid.shape),
        "kernel_distance": (gram - ideal).norm(dim=(-2, -1)) / ideal.norm(),
    }


def _ideal(batch: Batch) -> dict[str, Any]:
    """The same of the right images, which every run of an arm has."""
    task = batch.task
    gram = _kernel(task.render(task.grid.points) - task.background).expand(len(batch), -1, -1)
    return {f"ideal_{name}": value for name, value in _regime(gram, task.grid.shape).items()}


def _kernel(images: Tensor) -> Tensor:
    """Cosines between images, `[…, point, y, x]`."""
    return gram_matrix(images.flatten(-2).double(), "cosine")


def _regime(gram: Tensor, shape: tuple[int, ...]) -> dict[str, Tensor]:
    spectrum = schmidt_spectrum(gram, shape)
    return {
        "schmidt": spectrum[:, :MODES],
        "schmidt_rank": effective_rank(spectrum.square()),
        "single_factor": partial_factorization(gram, shape),
        "single_factor_absolute": partial_factorization(gram, shape, weight="absolute"),
    }


STUDY = RegimeStudy()
