"""Decoders that run inside a report: those shown by its explorer, and the one trained by its training panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recombine.specs import RunSpec
from recombine.store import Run


@dataclass(frozen=True)
class LabelledSpec:
    """A decoder trained by a study, with its labels in the explorer."""

    study: str
    spec: RunSpec
    """The decoder's spec; its seed is ignored."""
    labels: Mapping[str, str]
    """The value for each of the explorer's switches, e.g. `{"decoder": "CNN", "depth": "4"}`."""


@dataclass(frozen=True)
class DecoderChoice:
    """Which decoders an explorer shows."""

    decoders: Callable[[Any], list[LabelledSpec]]
    """Returns a preset's decoders in order of decreasing importance; the last ones are dropped if they do not fit."""
    learnt: Callable[[Run], bool]
    """Returns whether a network learnt its training set; the first seed that did is kept."""
    measure: Callable[[Any], Mapping[str, np.ndarray]] = lambda decoder: {}
    """Returns what a page shows of a kept decoder and takes long to measure."""


@dataclass(frozen=True)
class TrainingPanel:
    """A small decoder that a page trains live, with and without isolated-factor examples."""

    spec: RunSpec
    """A CNN for a task with two position factors, trained on each kept combination once per epoch."""
    text: str
    """Description of what is trained, in HTML; {parameters}, {kept}, {held} and {isolated} are replaced by counts."""
    drawn: str
    """Noun for the object shown in every image, such as "disk"."""
    isolated: str
    """Noun for the isolated-factor examples, such as "stripes"."""
    filled: float
    """Held-out accuracy at or above which the panel reports that the decoder filled the hold-out."""
    failed: float
    """Held-out accuracy at or below which the panel reports that the decoder failed."""
    section: str
    """Section of the report that shows the panel."""
