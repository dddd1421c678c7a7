"""Do memorising and composing networks sit in different kernel regimes? (App. A.4–A.5)

Failing (bumps alone), stripe-trained, and penalised networks: PF_Coeff and operator-Schmidt spectrum of the Gram matrix
of their outputs. Beside them the ideal bump images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.metrics import effective_rank, gram_matrix, partial_factorization, schmidt_spectrum
from recombine.papers.forced_rendering.penalties.labels import BOTH, NONE
from recombine.papers.forced_rendering.penalties.study import Settings as PenaltySettings
from recombine.papers.forced_rendering.penalties.study import penalised_spec
from recombine.papers.forced_rendering.regimes.labels import FAILING, PENALISED, STRIPES, STRIPES_BUMPS, UNPENALISED
from recombine.papers.forced_rendering.stripes.study import Settings as StripeSettings
from recombine.reproduction.measuring import base_attributes, outputs, tabulate
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_seed
from recombine.store import Run

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
        pictured = trials.pictured
        result = tabulate(trials, ("arm",), lambda run: _measured(run, trials.device, run.key in pictured), inner)
        ideal = {name: first_seed(result[name]) for name in list(result) if str(name).startswith("ideal_")}
        return result.assign(ideal).assign_attrs(base_attributes(trials, size=trials.preset.size))


def _measured(run: Run, device: torch.device, with_ideal: bool) -> dict[str, Any]:
    task = run.spec.task
    images = outputs(run, task.grid.points, device).flatten(1) - task.background
    scores: dict[str, Any] = {"ood_over_blank": run.scores["ood_over_blank"], **_regime(images, task.grid.shape)}
    if with_ideal:
        ideal = task.render(task.grid.points).flatten(1) - task.background
        scores |= {f"ideal_{name}": value for name, value in _regime(ideal, task.grid.shape).items()}
    return scores


def _regime(signals: torch.Tensor, shape: tuple[int, ...]) -> dict[str, Any]:
    gram = gram_matrix(signals, "cosine")
    spectrum = schmidt_spectrum(gram, shape)
    return {
        "schmidt": spectrum[:MODES].cpu().numpy().astype(np.float32),
        "schmidt_rank": effective_rank(spectrum.square()).item(),
        "single_factor": partial_factorization(gram, shape).item(),
        "single_factor_absolute": partial_factorization(gram, shape, weight="absolute").item(),
    }


STUDY = RegimeStudy()
