"""Do memorising and composing networks sit in different kernel regimes? (App. A.4–A.5; claim C18)

Failing (bumps alone), stripe-trained, and penalised networks: PF_Coeff and operator-Schmidt spectrum of the Gram matrix
of their answers. Beside them the ideal bump images. A composing network's kernel is taken to be closer to a single
product (fewer Schmidt terms) and to have more of its weight in single-factor terms than a memorising one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.claims import CLAIMS, Judgement
from recombine.metrics import effective_rank, gram_matrix, partial_factorization, schmidt_spectrum
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.penalties import BOTH, NONE, penalised_spec
from recombine.studies.presets import Preset
from recombine.studies.reading import answers, base_attributes, first_seed, per_seed, tabulate
from recombine.studies.stripes import striped_spec

if TYPE_CHECKING:
    import xarray

MODES = 12
"""Schmidt values kept."""
FAILING, STRIPES, STRIPES_BUMPS = "bumps alone", "stripes only", "stripes and bumps"
UNPENALISED, PENALISED = "low-rank, no penalty", "low-rank, both penalties"
RIVALS = {STRIPES: FAILING, STRIPES_BUMPS: FAILING, PENALISED: UNPENALISED}
"""Each composing arm, and the arm that it is held against: the same network without the remedy."""


@register
class RegimeStudy(Study):
    """Kernels of failing and composing networks."""

    name: ClassVar[str] = "regimes"
    question: ClassVar[str] = "Do memorising and composing networks sit in different kernel regimes?"
    claims: ClassVar[tuple[str, ...]] = ("C18",)

    def arms(self, preset: Preset) -> list[Arm]:
        return [
            Arm((FAILING,), preset.spec()),
            Arm((STRIPES,), striped_spec(preset, 0)),
            Arm((STRIPES_BUMPS,), striped_spec(preset, max(preset.bumps))),
            Arm((UNPENALISED,), penalised_spec(preset, NONE)),
            Arm((PENALISED,), penalised_spec(preset, BOTH)),
        ]

    def measure(self, trials: Trials) -> xarray.Dataset:
        inner = {"schmidt": ("mode",), "ideal_schmidt": ("mode",)}
        pictured = trials.pictured
        result = tabulate(trials, ("arm",), lambda run: _measured(run, trials.device, run.key in pictured), inner)
        ideal = {name: first_seed(result[name]) for name in list(result) if str(name).startswith("ideal_")}
        return result.assign(ideal).assign_attrs(base_attributes(trials))

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        cases = {}
        for composing, failing in RIVALS.items():
            mine, other = result.sel(arm=composing), result.sel(arm=failing)
            cases[f"{composing}: fewer Schmidt terms than {failing}"] = {
                "effect": per_seed(other["schmidt_rank"] - mine["schmidt_rank"])
            }
            cases[f"{composing}: more single-factor weight than {failing}"] = {
                "effect": per_seed(mine["single_factor"] - other["single_factor"])
            }
        return [CLAIMS["C18"].judge(cases)]


def _measured(run: Run, device: torch.device, with_ideal: bool) -> dict[str, Any]:
    task = run.spec.task
    drawn = answers(run, task.grid.points, device).flatten(1) - task.background
    found: dict[str, Any] = {"ood_over_blank": run.scores["ood_over_blank"], **_regime(drawn, task.grid.shape)}
    if with_ideal:
        ideal = task.render(task.grid.points).flatten(1) - task.background
        found |= {f"ideal_{name}": value for name, value in _regime(ideal, task.grid.shape).items()}
    return found


def _regime(signals: torch.Tensor, shape: tuple[int, ...]) -> dict[str, Any]:
    gram = gram_matrix(signals, "cosine")
    spectrum = schmidt_spectrum(gram, shape)
    return {
        "schmidt": spectrum[:MODES].cpu().numpy().astype(np.float32),
        "schmidt_rank": effective_rank(spectrum.square()).item(),
        "single_factor": partial_factorization(gram, shape).item(),
        "single_factor_absolute": partial_factorization(gram, shape, weight="absolute").item(),
    }
