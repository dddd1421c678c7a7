"""What a study is: specs to train, a measurement of the runs, the claims it decides.

A study's result is one labelled Dataset; its figure is drawn from that alone and its claims are judged on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from recombine.claims import Judgement
from recombine.errors import InvalidValue, listed
from recombine.specs import RunSpec
from recombine.store import Run

if TYPE_CHECKING:
    import xarray

PRESETS: tuple[str, ...] = ("quick", "paper")


class Study(ABC):
    """One question of the paper."""

    name: ClassVar[str]
    question: ClassVar[str]
    seeds: ClassVar[dict[str, int]] = {"quick": 3, "paper": 32}
    """Seeds at each preset."""

    @abstractmethod
    def specs(self, preset: str, seeds: Sequence[int]) -> list[RunSpec]:
        """What to train."""

    @abstractmethod
    def measure(self, runs: Sequence[Run]) -> xarray.Dataset:
        """What the finished runs show."""

    @abstractmethod
    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        """Verdicts on the claims this study decides."""


STUDIES: dict[str, Study] = {}


def register(cls: type[Study]) -> type[Study]:
    """Class decorator: make a study known by its name."""
    STUDIES[cls.name] = cls()
    return cls


def chosen(name: str) -> list[Study]:
    """The studies a user asks for: `all`, or one by name."""
    if name == "all":
        return list(STUDIES.values())
    if name not in STUDIES:
        raise InvalidValue("study", name, listed(["all", *STUDIES]))
    return [STUDIES[name]]
