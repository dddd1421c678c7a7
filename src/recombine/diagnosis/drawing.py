"""Figures for a diagnosis: a map of each stage on a plane of the grid, and plots of metrics against stage."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.errors import InvalidValue, listed
from recombine.metrics.registry import STAGE_METRICS
from recombine.metrics.sampling import SAMPLED
from recombine.metrics.stages import metric_method
from recombine.panels import extent_of, outline, styled

LONGEST_LABEL = 26
LOWEST = -1.0
"""Lowest value plotted. Only R² on held-out points, which has no lower bound, can be negative."""
CHARACTERS = 10
"""Characters per inch in titles; notes, set in smaller type, fit 1.5 times as many."""
VOLUME = "volume"
NEAR = 1e-6
"""Tolerance when matching a factor value, relative to the factor's range."""
LISTED = 12
"""Maximum number of values listed in a message."""


def plane_figure(
    result: xarray.Dataset,
    column: str = VOLUME,
    plane: Sequence[str] | None = None,
    at: Mapping[str, float] | None = None,
) -> Figure:
    """Draw a variable on a plane of the grid, one panel per stage; other factors are fixed by `at` or averaged out.

    Each panel has its own colour scale. The volume element is shown as log10. Cells with held-out points are outlined.
    """
    dims = {"stage", *result["held_out"].dims}
    drawable = [str(name) for name, values in result.data_vars.items() if {*values.dims} == dims]
    if column not in drawable:
        raise InvalidValue("column", column, f"a variable with one value per stage and grid point ({listed(drawable)})")
    known = {str(name): result[name].values for name in result["held_out"].dims}
    (across, upward), fixed, averaged = plane_through(known, plane, at, is_sampled=SAMPLED in result.attrs)
    chosen = result[[column, "held_out"]].sel(fixed)
    values = chosen[column]
    if column == VOLUME:
        values = xarray.DataArray(np.log10(values.where((values > 0) & np.isfinite(values))))
    maps = values.mean(averaged).transpose("stage", upward, across).values
    held_out = chosen["held_out"].any(averaged).transpose(upward, across).values
    labels, prefix = stage_labels([str(stage) for stage in result["stage"].values])
    columns = min(4, len(labels)) if len(labels) <= 16 else 6
    rows = -(-len(labels) // columns)
    width = 2.4 * columns
    with styled():
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(width, 2.2 * rows + 0.6), squeeze=False, layout="constrained"
        )
        for index, (ax, label, heights) in enumerate(zip(axes.flat, labels, maps, strict=False)):
            x, y = (_even(ax, result[name].values, axis) for name, axis in ((across, "x"), (upward, "y")))
            ax.spines[:].set_visible(True)
            image = ax.imshow(heights, extent=extent_of(x, y), aspect="auto")
            if np.isfinite(heights).any():
                outline(ax, held_out, x, y)
                figure.colorbar(image, ax=ax, shrink=0.8)
            else:
                words = "0 everywhere" if bool((result[column][index] == 0).all()) else "not finite"
                ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center")
            ax.set_title(_literal(label), fontsize=8)
            if index % columns == 0:
                ax.set_ylabel(_literal(upward))
            if index + columns >= len(labels):
                ax.set_xlabel(_literal(across))
        for ax in axes.flat[len(labels) :]:
            ax.set_visible(False)
        others = [f"{name} = {value:g}" for name, value in fixed.items()]
        others += [f"mean over {', '.join(averaged)}"] if averaged else []
        title = ", ".join(["log10 volume element" if column == VOLUME else column, *others])
        _annotate(figure, title, result, prefix, width)
    return figure


def _even(ax: Axes, values: np.ndarray, axis: str) -> np.ndarray:
    """Return the values if they are evenly spaced; otherwise, return their ranks and label the ticks with values."""
    steps = np.diff(values)
    if len(steps) < 2 or np.allclose(steps, steps[0]):
        return values
    places = np.arange(len(values), dtype=float)
    shown = np.unique(np.linspace(0, len(values) - 1, min(6, len(values))).round().astype(int))
    getattr(ax, f"set_{axis}ticks")(places[shown], [f"{values[k]:g}" for k in shown])
    return places


def profile_figure(result: xarray.Dataset) -> Figure:
    """Plot metrics against stage, with one panel for each group of variables in the result."""
    labels, prefix = stage_labels([str(stage) for stage in result["stage"].values])
    panels: dict[str, dict[str, str]] = {}
    for column in STAGE_METRICS.columns().values():
        if column.panel and column.name in result:
            panels.setdefault(column.panel, {})[column.line or column.name] = column.name
    width = 2.6 + max(3.2, 0.34 * len(labels))
    with styled():
        figure, axes = pyplot.subplots(
            len(panels), 1, figsize=(width, 1.7 * len(panels) + 1.6), squeeze=False, sharex=True, layout="constrained"
        )
        for ax, (title, lines) in zip(axes.flat, panels.items(), strict=True):
            for label, name in lines.items():
                values = result[name]
                heights = (values.mean("factor") if "factor" in values.dims else values).values
                (line,) = ax.plot(np.maximum(heights, LOWEST), marker="o", markersize=4, label=label)
                if (below := np.flatnonzero(heights < LOWEST)).size:
                    arrows = {"marker": "v", "markersize": 8, "label": f"{label}, below {LOWEST:g}"}
                    ax.plot(below, [LOWEST] * below.size, linestyle="none", color=line.get_color(), **arrows)
            ax.set_title(title, loc="left")
            ax.grid(axis="x", color="0.92")
            ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        ticks = [_literal(label) for label in labels]
        axes[-1, 0].set_xticks(range(len(labels)), ticks, rotation=50, ha="right", rotation_mode="anchor", fontsize=8)
        axes[-1, 0].set_xlim(-0.5, len(labels) - 0.5)
        _annotate(figure, "stage by stage", result, prefix, width)
    return figure


def stage_labels(stages: list[str]) -> tuple[list[str], str]:
    """Return short stage labels and the common path prefix removed from them."""
    inner = [stage for stage in stages if stage not in ("input", "output")]
    levels = [stage.split(".")[:-1] for stage in inner]
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*levels, strict=False)) if len(inner) > 1 else ()
    prefix = "".join(f"{level[0]}." for level in shared)
    short = [stage.removeprefix(prefix) for stage in stages]
    cut = [label if len(label) <= LONGEST_LABEL else f"{label[:9]}…{label[10 - LONGEST_LABEL :]}" for label in short]
    return (cut if len(set(cut)) == len(set(stages)) else short), prefix


def _annotate(figure: Figure, title: str, result: xarray.Dataset, prefix: str, width: float) -> None:
    """Add a title, which states how any metric tensor was computed, and place the notes below the panels."""
    title += f" · metric: {method}" if (method := metric_method(result.attrs)) else ""
    heading = "\n".join(textwrap.wrap(title, int(width * CHARACTERS)))
    figure.suptitle(_literal(heading), fontsize=10)
    notes = str(result.attrs.get("notes", "")).splitlines()
    if prefix:
        notes.append(f'stages are shown without their common prefix "{prefix}"')
    lines = [line for note in notes for line in textwrap.wrap(note, int(1.5 * width * CHARACTERS))]
    if lines:
        figure.supxlabel(_literal("\n".join(lines)), fontsize=7, x=0.01, ha="left", color="0.3")


def _literal(text: str) -> str:
    """Return the text with dollar signs escaped so that matplotlib does not interpret them as math mode."""
    return text.replace("$", r"\$")


def plane_through(
    values: Mapping[str, np.ndarray], plane: Sequence[str] | None, at: Mapping[str, float] | None, *, is_sampled: bool
) -> tuple[list[str], dict[str, float], list[str]]:
    """Return the factors along x and y, the values of fixed factors, and the factors to average over.

    `values` are those of each factor. In a sampled grid, a factor is fixed at the nearest sampled value.
    """
    factors = list(values)
    if len(factors) < 2:
        raise InvalidValue("plane", plane, f"omitted: a plane needs two factors, and the grid has {listed(factors)}")
    names = factors[:2] if plane is None else list(plane) if not isinstance(plane, str) else [plane]
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(factors):
        raise InvalidValue("plane", plane, f"two different factors of {listed(factors)}")
    others = [name for name in factors if name not in names]
    fixed = {}
    for name, value in (at or {}).items():
        if name not in others:
            raise InvalidValue("at", name, f"a factor outside the plane ({listed(others)})")
        own = values[name]
        distance = np.abs(own - value)
        if not (distance.min() <= NEAR * max(float(np.ptp(own)), NEAR) or is_sampled):
            some = listed([f"{own_value:g}" for own_value in own[:LISTED]]) + (", …" if len(own) > LISTED else "")
            raise InvalidValue(f"at.{name}", value, f"one of its values: {some}")
        fixed[name] = float(own[distance.argmin()])
    return names, fixed, [name for name in others if name not in fixed]
