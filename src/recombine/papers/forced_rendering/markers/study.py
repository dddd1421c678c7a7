"""Which number should one look at? (§5)

Networks that differ in decoder, depth, code, hold-out, data and remedy, some of which compose. Every diagnostic of
each, at comparable positions: `value` over (network, marker, position). How well they tell composing networks from
failing ones is scored from that (`scoring`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.papers.forced_rendering.markers.arms import Settings, marker_specs
from recombine.papers.forced_rendering.markers.conditions import condition
from recombine.papers.forced_rendering.markers.labels import MARKERS
from recombine.papers.forced_rendering.markers.measuring import MARKER_METRICS, at_positions, marker_dims, measured
from recombine.reproduction.measuring import TRAINED, base_attributes, tabulate
from recombine.reproduction.study import Arm, Study, Trials

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray

    from recombine.specs import RunSpec
    from recombine.store import Run

NETWORK = (
    "ood_accuracy", "ood_over_blank", "id_accuracy", "id_over_blank", "training_over_blank", "training_accuracy",
    TRAINED,
)  # fmt: skip
"""Scores that are kept of every network."""


class MarkerStudy(Study[Settings]):
    """Diagnostics of networks that compose and of networks that fail."""

    name: ClassVar[str] = "markers"
    question: ClassVar[str] = "Which number tells whether a network composes?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = MARKER_METRICS

    def arms(self, preset: Settings) -> list[Arm]:
        return [Arm((condition(spec)["arm"],), spec) for spec in marker_specs(preset)]

    def specs(self, preset: Settings) -> list[RunSpec]:
        return [spec for arm in self.arms(preset) for spec in arm.spec.seeds(_seeds(preset))]

    def trials(self, preset: Settings, device: torch.device, runs: Mapping[str, Run]) -> Trials[Settings]:
        own = preset.replace(seeds=len(_seeds(preset)))
        return super().trials(own, device, runs)

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        import xarray

        result = tabulate(trials, ("arm",), measured, marker_dims())
        table = xarray.Dataset({"value": at_positions(result), **{name: result[name] for name in NETWORK}})
        stacked = table.stack(network=("arm", "seed"))
        names, seeds = (np.asarray(stacked[name].values) for name in ("arm", "seed"))
        conditions = [condition(trials[str(name)][0].spec) for name in names]
        labels: dict[str, Any] = {key: ("network", [own[key] for own in conditions]) for key in conditions[0]}
        labels |= {
            "seed": ("network", seeds),
            "title": ("marker", [marker.title for marker in MARKERS.values()]),
            "needs_targets": ("marker", [marker.needs_targets for marker in MARKERS.values()]),
        }
        return (
            stacked.drop_vars(["network", "arm", "seed"])
            .transpose("network", ...)
            .assign_coords(labels)
            .assign_attrs(base_attributes(trials, size=trials.preset.size))
        )


def _seeds(preset: Settings) -> range:
    return range(preset.first_seed, preset.first_seed + min(preset.marker_seeds, preset.seeds))


STUDY = MarkerStudy()
