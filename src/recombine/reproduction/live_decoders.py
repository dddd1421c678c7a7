"""Decoders that run in a report: those that its explorer shows, and the one that its panel trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recombine.specs import RunSpec
from recombine.store import Run


@dataclass(frozen=True)
class LabelledSpec:
    """A decoder that a study trains, with its labels in the explorer."""

    study: str
    spec: RunSpec
    """Its spec; the seed does not matter."""
    labels: Mapping[str, str]
    """The value of each of the explorer's switches, such as `{"decoder": "CNN", "depth": "4"}`."""


@dataclass(frozen=True)
class DecoderChoice:
    """Which decoders an explorer shows."""

    decoders: Callable[[Any], list[LabelledSpec]]
    """Returns the decoders of a preset, the most important first: later ones are dropped if they do not fit."""
    learnt: Callable[[Run], bool]
    """Whether a network learnt its training set; the first seed that did is kept."""


@dataclass(frozen=True)
class TrainingPanel:
    """A small decoder that a page trains live, with and without isolated-factor examples."""

    spec: RunSpec
    """A CNN whose task has two position factors, trained once per epoch on each combination that is not held out."""
    text: str
    """Description of what is trained, in HTML; {parameters}, {kept}, {held} and {isolated} are replaced by counts."""
    drawn: str
    """Noun for what every image shows, such as "disk"."""
    isolated: str
    """Noun for the isolated-factor examples, such as "stripes"."""
    filled: float
    """Held-out accuracy at or above which the panel says that the decoder filled the hold-out."""
    failed: float
    """Held-out accuracy at or below which the panel says that it failed."""
    section: str
    """Section of the report in which it is shown."""
