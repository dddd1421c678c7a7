"""Decoders that run in a report: which ones its explorer shows, and the one that its panel trains."""

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
    """Its spec with any seed."""
    labels: Mapping[str, str]
    """The value of each switch of the explorer, as `{"decoder": "CNN", "depth": "4"}`."""


@dataclass(frozen=True)
class DecoderChoice:
    """Which decoders an explorer shows."""

    decoders: Callable[[Any], list[LabelledSpec]]
    """Returns the decoders of a preset, the most important first: later ones are dropped if they do not fit."""
    learnt: Callable[[Run], bool]
    """Whether a network learnt its training set; the first seed that did is kept."""


@dataclass(frozen=True)
class TrainingPanel:
    """A small decoder that a page trains live, with isolated examples and without."""

    spec: RunSpec
    """A CNN whose task has two position factors, trained on each kept combination."""
    text: str
    """What is trained, as HTML that may contain {parameters}, {kept}, {held} and {isolated}, which are counts."""
    drawn: str
    """What every image shows, as "disk"."""
    isolated: str
    """What the examples of single factors are called."""
    filled: float
    """Accuracy on held-out combinations from which the panel says that the decoder fills the hold-out."""
    failed: float
    """Accuracy up to which the panel says that it fails."""
    section: str
    """Section of the report that it stands in."""
