"""Panels that several figures share: arrays in, an axes changed."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

HOLDOUT_COLOR = "#D55E00"


def styled() -> Any:
    """Context in which figures have this package's style."""
    with as_file(files("recombine.figures") / "recombine.mplstyle") as path:
        return pyplot.style.context(str(path))


def half_cell(values: np.ndarray) -> float:
    """Half the distance between neighbouring values; half a unit for a single one."""
    return float(values[1] - values[0]) / 2 if len(values) > 1 else 0.5


def outline(ax: Axes, region: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Dashed border around the True cells of a region over the grid."""
    half_x, half_y = half_cell(x), half_cell(y)
    style: dict[str, Any] = {"color": HOLDOUT_COLOR, "linestyle": (0, (3, 2)), "linewidth": 1.3}
    padded = np.pad(region, 1)
    for row, column in zip(*np.nonzero(region), strict=True):
        left, right = x[column] - half_x, x[column] + half_x
        top, bottom = y[row] - half_y, y[row] + half_y
        if not padded[row, column + 1]:
            ax.plot([left, right], [top, top], **style)
        if not padded[row + 2, column + 1]:
            ax.plot([left, right], [bottom, bottom], **style)
        if not padded[row + 1, column]:
            ax.plot([left, left], [top, bottom], **style)
        if not padded[row + 1, column + 2]:
            ax.plot([right, right], [top, bottom], **style)


def cross(ax: Axes, x: float, y: float) -> None:
    """The true place of a bump."""
    ax.plot([x], [y], marker="x", color=HOLDOUT_COLOR, markersize=6, markeredgewidth=1.5, linestyle="none")
