"""Studies: experimental conditions (*arms*) to train, and a measurement of their runs.

The result of a study is one labelled Dataset, used to judge claims and draw figures. A spec shared by several studies
is trained only once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch

from recombine.decoders import StagedDecoder
from recombine.errors import InvalidValue
from recombine.metrics.registry import metric_versions
from recombine.reproduction.preset import Preset
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.training.evaluate import SCORES_VERSION

if TYPE_CHECKING:
    import xarray

P = TypeVar("P", bound=Preset)
Labels = tuple[Any, ...]
DONE = "done"  # status of a run that completed training without diverging


@dataclass(frozen=True)
class Arm:
    """One experimental condition of a study: its labels along the Dataset's dimensions, and its spec."""

    labels: Labels
    spec: RunSpec
    extra: bool = False
    """Whether no claim depends on this arm, so that few seeds suffice."""
    seeds: int | None = None
    """Number of seeds. Default: that of the preset."""

    def specs(self, preset: Preset) -> list[RunSpec]:
        """Return the arm's spec for every seed."""
        number = self.seeds
        if number is None:
            number = min(preset.extra_seeds, preset.seeds) if self.extra else preset.seeds
        return self.spec.seeds(range(preset.first_seed, preset.first_seed + number))


class Trials(dict[Labels, Sequence[Run]], Generic[P]):
    """The finished runs of a study by arm and seed, indexed by an arm's tuple of labels or its only label."""

    def __init__(self, preset: P, device: torch.device, runs: Mapping[Labels, Sequence[Run]]) -> None:
        super().__init__(runs)
        self.preset, self.device = preset, device

    def __getitem__(self, labels: Any) -> list[Run]:
        return list(super().__getitem__(labels if isinstance(labels, tuple) else (labels,)))

    @property
    def first(self) -> Run:
        """The first arm's run with the first seed."""
        return next(iter(self.values()))[0]

    def pictured_run(self, *labels: Any) -> Run:
        """Return the run that represents an arm in pictures: the first that did not diverge, or else the first."""
        runs = self[labels]
        return next((run for run in runs if run.status == DONE), runs[0])

    @property
    def pictured(self) -> Trials[P]:
        """The runs that represent the arms in pictures, one per arm."""
        return Trials(self.preset, self.device, {labels: [self.pictured_run(*labels)] for labels in self})

    @property
    def seeds(self) -> int:
        """The largest number of seeds in any arm."""
        return max(len(runs) for runs in self.values())


class Study(ABC, Generic[P]):
    """One question of a paper, with the networks to train and the measurement to answer it.

    Examples
    --------
    >>> import recombine as rc
    >>> study, preset = rc.STUDIES["depth"], rc.PRESETS["quick"]
    >>> len(study.specs(preset)) > len(study.arms(preset)) > 1
    True
    """

    name: ClassVar[str]
    question: ClassVar[str]
    settings: ClassVar[type[Preset]]
    """Preset class that declares the settings used by the study."""
    version: ClassVar[int] = 1
    """Version of the study's code: increment it when the measurement changes, so that Datasets are remeasured."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics used by the study; Datasets also depend on their versions (`recombine.metrics.registry`)."""

    @abstractmethod
    def arms(self, preset: P) -> list[Arm]:
        """Return the arms to train."""

    def more(self, preset: P, runs: Mapping[str, Run]) -> list[RunSpec]:
        """Return the specs to train next, given the previous runs by digest; empty when the design is complete."""
        return []

    def optional_tools(self) -> tuple[str, ...]:
        """Return the installed optional tools that the measurement depends on."""
        return ()

    @abstractmethod
    def measure(self, trials: Trials[P]) -> xarray.Dataset:
        """Measure the finished runs and return a Dataset."""

    @property
    def versions(self) -> dict[str, int]:
        """Declared versions of the study's measuring code."""
        return {"study": self.version, "scores": SCORES_VERSION, **metric_versions(self.metrics)}

    def specs(self, preset: P) -> list[RunSpec]:
        """Return the specs of all arms and seeds."""
        return [spec for arm in self.arms(preset) for spec in arm.specs(preset)]

    def seeded(self, preset: P, spec: RunSpec) -> list[RunSpec]:
        """Return the specs, one per seed, of the arm that contains this spec; empty if there is none."""
        return [own for arm in self.arms(preset) if arm.spec == spec for own in arm.specs(preset)]

    def trials(self, preset: P, device: torch.device, runs: Mapping[str, Run]) -> Trials[P]:
        """Group the given runs, indexed by digest, by arm."""
        by_arm: dict[Labels, list[Run]] = {}
        for arm in self.arms(preset):
            if arm.labels in by_arm:
                raise InvalidValue("study", self.name, f"one whose arms have unique labels (two have {arm.labels})")
            by_arm[arm.labels] = [runs[spec.digest] for spec in arm.specs(preset)]
        return Trials(preset, device, by_arm)

    def own_settings(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the preset fields used by this study."""
        return {name: fields[name] for name in self.settings.model_fields if name in fields}


@dataclass(frozen=True)
class InitialRun(Run):
    """A network with its initial weights, without scores or stored arrays."""

    start: RunSpec

    @property
    def status(self) -> str:
        return DONE

    @property
    def scores(self) -> dict[str, float]:
        return {}

    @cached_property
    def spec(self) -> RunSpec:
        return self.start

    def weights(self) -> dict[str, Any]:
        return {name: value.numpy() for name, value in self.module().state_dict().items()}

    def module(self) -> StagedDecoder:
        return self.start.module().eval()


def initial_runs(specs: Iterable[RunSpec]) -> list[InitialRun]:
    """Return untrained networks, which can be measured like finished runs.

    >>> [run] = initial_runs([RunSpec(seed=3)])
    >>> run.status, run.spec.seed, run.scores
    ('done', 3, {})
    """
    return [InitialRun(spec.digest, Path(), spec) for spec in specs]
