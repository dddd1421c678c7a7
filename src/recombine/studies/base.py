"""What a study is: arms to train, a measurement of the runs, the claims it decides, the figures it feeds.

A study's result is one labelled Dataset; figures are drawn from Datasets alone and claims are judged on them. Studies
share runs freely: a spec that several ask for is trained once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from recombine.claims import Judgement
from recombine.errors import InvalidValue, listed
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.studies.presets import Preset

if TYPE_CHECKING:
    import xarray

Labels = tuple[Any, ...]
DONE = "done"
"""Status of a run that trained to its end; one that diverged counts for nothing."""


@dataclass(frozen=True)
class Arm:
    """One condition of a study: what it is called along the Dataset's dimensions, and what is trained."""

    labels: Labels
    spec: RunSpec
    extra: bool = False
    """Whether no claim rests on it, so that a few seeds are enough."""


class Trials:
    """The finished runs of a study, by arm and seed."""

    def __init__(self, preset: Preset, device: torch.device, runs: Mapping[Labels, Sequence[Run]]) -> None:
        self.preset, self.device, self._runs = preset, device, dict(runs)

    def __getitem__(self, labels: Any) -> list[Run]:
        return list(self._runs[labels if isinstance(labels, tuple) else (labels,)])

    def __iter__(self) -> Iterator[Labels]:
        return iter(self._runs)

    def __contains__(self, labels: object) -> bool:
        return (labels if isinstance(labels, tuple) else (labels,)) in self._runs

    def items(self) -> Iterable[tuple[Labels, Sequence[Run]]]:
        """Arms and their runs."""
        return self._runs.items()

    def shown(self, *labels: Any) -> Run:
        """The run of an arm that pictures are of: the first that did not diverge, if there is one."""
        runs = self[labels]
        return next((run for run in runs if run.status == DONE), runs[0])

    @property
    def pictured(self) -> set[str]:
        """Keys of the runs that pictures are of, one an arm."""
        return {self.shown(*labels).key for labels in self}

    @property
    def seeds(self) -> int:
        """Most seeds of any arm."""
        return max(len(runs) for runs in self._runs.values())


class Study(ABC):
    """One question of the paper."""

    name: ClassVar[str]
    question: ClassVar[str]
    claims: ClassVar[tuple[str, ...]] = ()
    """Claims that this study decides."""

    @abstractmethod
    def arms(self, preset: Preset) -> list[Arm]:
        """What to train, without seeds."""

    def more(self, preset: Preset, runs: Mapping[str, Run]) -> list[RunSpec]:
        """Specs to train next, given the runs so far by digest; empty when the design is complete."""
        return []

    def optional_tools(self) -> tuple[str, ...]:
        """Optional tools on this machine that the measurement depends on."""
        return ()

    @abstractmethod
    def measure(self, trials: Trials) -> xarray.Dataset:
        """What the finished runs show."""

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        """Verdicts on the claims this study decides."""
        return []

    def specs(self, preset: Preset) -> list[RunSpec]:
        """What to train, seed by seed."""
        return [spec for arm in self.arms(preset) for spec in arm.spec.seeds(_seeds(arm, preset))]

    def trials(self, preset: Preset, device: torch.device, runs: Mapping[str, Run]) -> Trials:
        """The runs, by digest, sorted into arms."""
        found: dict[Labels, list[Run]] = {}
        for arm in self.arms(preset):
            if arm.labels in found:
                raise InvalidValue("study", self.name, f"arms with different labels ({arm.labels} comes twice)")
            found[arm.labels] = [runs[spec.digest] for spec in arm.spec.seeds(_seeds(arm, preset))]
        return Trials(preset, device, found)


def _seeds(arm: Arm, preset: Preset) -> range:
    return range(min(preset.extra_seeds, preset.seeds) if arm.extra else preset.seeds)


STUDIES: dict[str, Study] = {}


def register(cls: type[Study]) -> type[Study]:
    """Class decorator: make a study known by its name."""
    STUDIES[cls.name] = cls()
    return cls


def deciding(claim: str) -> Study:
    """The study that decides a claim."""
    for study in STUDIES.values():
        if claim in study.claims:
            return study
    raise InvalidValue("claim", claim, listed(name for study in STUDIES.values() for name in study.claims))
