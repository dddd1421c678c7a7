"""Colours of architectures and codes, the same in every figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from recombine.panels import COLORS
from recombine.papers.forced_rendering.presets import ALL_CODES

ARCHITECTURES = {
    "CNN": COLORS[0], "MLP": COLORS[1], "low-rank": COLORS[2], "coordinate MLP": COLORS[3], "transformer": COLORS[5],
    "broadcast decoder": "#6A3D9A", "CoordConv": COLORS[6], "hypernetwork": COLORS[7],
}  # fmt: skip
"""Colours of architectures."""
CODE_COLORS = dict(zip(ALL_CODES, COLORS, strict=False))
"""Colours of position codes."""


def architecture(arm: str) -> str:
    """Return the architecture with which an arm's name begins; arms that name none are CNNs."""
    name = arm.partition(", ")[0]
    return name if name in ARCHITECTURES else "CNN"


def arm_styles(arms: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return a style per arm (experimental condition): its architecture's colour, with its own dashes and marker."""
    styles: dict[str, dict[str, Any]] = {}
    counts = Counter[str]()
    for arm in arms:
        name = architecture(arm)
        own = ("-", "--", ":")[counts[name]], ("o", "s", "^")[counts[name]]
        styles[arm] = {"color": ARCHITECTURES[name], "linestyle": own[0], "marker": own[1]}
        counts[name] += 1
    return styles
