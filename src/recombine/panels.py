"""Panels that several figures share: arrays in, an axes changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    import xarray

HOLDOUT_COLOR = "#D55E00"
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart."""


FAINT = 0.2
"""A drawing darker than this everywhere is not made brighter."""


@contextmanager
def styled() -> Iterator[None]:
    """Context in which figures have this package's style.

    The first figure loads its backend, and a notebook's makes pyplot interactive then: that outlasts the context, or no
    later figure would be shown.
    """
    with as_file(files("recombine") / "recombine.mplstyle") as path, pyplot.style.context(str(path)):
        yield
        interactive = pyplot.isinteractive()
    if interactive:
        pyplot.ion()


def divided(figure: Figure | SubFigure, rows: int, columns: int, **shares: Any) -> Any:
    """A figure's parts."""
    return figure.subfigures(rows, columns, **shares)


def edges_of(values: np.ndarray) -> np.ndarray:
    """Where cells around values begin and end: half-way between neighbours; half a unit from a single one."""
    half = float(values[1] - values[0]) / 2 if len(values) > 1 else 0.5
    return np.append(values - half, values[-1] + half)


def outline(ax: Axes, region: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Dashed border around the True cells of a region over the grid."""
    edges_x, edges_y = edges_of(x), edges_of(y)
    padded = np.pad(region.astype(int), 1)
    points: list[tuple[float, float]] = []
    for line, changes in enumerate(np.diff(padded, axis=0)[:, 1:-1] != 0):
        for first, last in _stretches(changes):
            points += [(edges_x[first], edges_y[line]), (edges_x[last], edges_y[line])]
    for line, changes in enumerate(np.diff(padded, axis=1)[1:-1].T != 0):
        for first, last in _stretches(changes):
            points += [(edges_x[line], edges_y[first]), (edges_x[line], edges_y[last])]
    if points:
        path = Path(points, [Path.MOVETO, Path.LINETO] * (len(points) // 2))
        ax.add_artist(PathPatch(path, fill=False, edgecolor=HOLDOUT_COLOR, linestyle=(0, (3, 2)), linewidth=1.3))


def _stretches(on: np.ndarray) -> list[tuple[int, int]]:
    """First and past-the-last index of every run of True."""
    change = np.flatnonzero(np.diff(np.pad(on.astype(int), 1)))
    return [(int(first), int(last)) for first, last in zip(change[0::2], change[1::2], strict=True)]


def cross(ax: Axes, x: float, y: float) -> None:
    """The true place of a bump."""
    ax.plot([x], [y], marker="x", color=HOLDOUT_COLOR, markersize=6, markeredgewidth=1.5, linestyle="none")


def bare(ax: Axes) -> None:
    """A picture: framed, without ticks."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(True)


def extent_of(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Where the grid's cells lie, first row at the top."""
    edges_x, edges_y = edges_of(x), edges_of(y)
    return float(edges_x[0]), float(edges_x[-1]), float(edges_y[-1]), float(edges_y[0])


def drawn_image(
    ax: Axes, image: np.ndarray, held_out: np.ndarray | None = None, place: Any = None,
    background: float = 0.0,
) -> None:  # fmt: skip
    """What a network draws, bumps bright on black whatever the polarity, with the held-out region and the truth.

    White is the brightest pixel, or `FAINT` where all are darker than that. An image `(channel, y, x)` of three
    channels is shown in its colours, on its own background; of another number of channels, their distance from it.
    """
    size = np.arange(image.shape[-2]), np.arange(image.shape[-1])
    extent = extent_of(size[1], size[0])
    if image.ndim == 3 and len(image) == 3:
        ax.imshow(np.moveaxis(np.clip(np.nan_to_num(image), 0, 1), 0, -1), extent=extent)
    else:
        shown = np.abs(image - background).sum(axis=0) if image.ndim == 3 else image if background == 0 else 1 - image
        top = max(FAINT, float(np.nanmax(shown)))
        ax.imshow(shown, cmap="gray", vmin=0, vmax=top, extent=extent)
    if held_out is not None:
        outline(ax, held_out, size[1], size[0])
    if place is not None:
        cross(ax, place[0], place[1])
    bare(ax)


def held_out_drawing(ax: Axes, image: np.ndarray, result: xarray.Dataset, sample: int) -> None:
    """What a network draws at one of a Dataset's held-out places."""
    place = result["place"].values[sample]
    drawn_image(ax, image, result["held_out"].values, place, float(result.attrs.get("background", 0.0)))


def grid_image(
    ax: Axes, values: np.ndarray, result: xarray.Dataset, held_out: np.ndarray | None = None, **shown: Any
) -> Any:
    """A map over the factor grid with the held-out region."""
    x, y = result["x"].values, result["y"].values
    image = ax.imshow(values, extent=extent_of(x, y), **shown)
    outline(ax, result["held_out"].values if held_out is None else held_out, x, y)
    bare(ax)
    return image


def color_limits(values: np.ndarray, low: float = 1, high: float = 99) -> dict[str, Any]:
    """Limits that a few extreme points do not stretch."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return {"vmin": 0.0, "vmax": 1.0}
    bottom, top = np.percentile(finite, [low, high])
    return {"vmin": float(bottom), "vmax": float(max(top, bottom + 1e-6))}


def band(ax: Axes, values: xarray.DataArray, label: str, color: Any, **line: Any) -> None:
    """Mean over seeds against the remaining dimension, with its standard error as a band."""
    (dim,) = [d for d in values.dims if d != "seed"]
    mean, error = values.mean("seed"), values.std("seed") / np.sqrt(values.notnull().sum("seed"))
    at = values[dim].values if dim in values.coords else np.arange(values.sizes[dim])
    present = np.isfinite(mean.values)
    ax.plot(at[present], mean.values[present], label=label, color=color, **{"marker": "o", "markersize": 3.5, **line})
    low, high = (mean - error).values[present], (mean + error).values[present]
    ax.fill_between(at[present], low, high, color=color, alpha=0.2, linewidth=0)
    if dim == "stage":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def seed_count(values: xarray.DataArray) -> str:
    """In words, how many seeds have a value, fewest and most of the arms that have any."""
    inner = values.dims[values.dims.index("seed") + 1 :]
    counts = values.notnull().any(inner).sum("seed").values.ravel()
    counts = counts[counts > 0] if (counts > 0).any() else counts
    few, many = int(counts.min()), int(counts.max())
    return f"{few} seed{'s' if few != 1 else ''}" if few == many else f"{few} to {many} seeds"


def of_shared_seeds(*values: xarray.DataArray) -> tuple[xarray.DataArray, ...]:
    """Each of these for the seeds that all of them have: what is compared is of the same networks' seeds."""
    shared = np.all([own.notnull().values for own in values], axis=0)
    return tuple(own.isel(seed=shared) for own in values)


def geometric_mean(values: xarray.DataArray) -> float:
    """Of all values that there are."""
    return float(np.exp(np.log(values).mean()))


def stage_names(count: int) -> list[str]:
    """Titles of stage panels: the input (stage 0), the layers by number, the output."""
    return ["in", *(str(k) for k in range(1, count - 1)), "out"]


def letter(ax: Axes, text: str, title: str = "") -> None:
    """A panel's letter as in the paper, and a title beside it."""
    ax.set_title("")
    ax.set_title(f"({text}) {title}", loc="left", fontsize=9)


def volume_rows(
    result: xarray.Dataset, rows: Sequence[tuple[str, xarray.DataArray]], title: str, width: float = 1.25
) -> Figure:
    """log10 dv, one row per network and one column per stage, every stage in colours of its own."""
    stages = max(int(volume.notnull().any(["y", "x"]).sum()) for _, volume in rows)
    with styled():
        figure, axes = pyplot.subplots(
            len(rows), stages, figsize=(width * stages + 0.9, width * 1.02 * len(rows) + 0.5), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for line, (name, volume) in zip(axes, rows, strict=True):
            volume_line(list(line), result, volume)
            line[0].set_ylabel(name)
        figure.suptitle(title, fontsize=9)
    return figure


def volume_line(axes: Sequence[Axes], result: xarray.Dataset, volume: xarray.DataArray) -> None:
    """log10 dv of one network, one panel per stage; panels that are left over are hidden."""
    present = [k for k in range(volume.sizes["stage"]) if bool(volume.isel(stage=k).notnull().any())]
    names = stage_names(len(present))
    for ax in axes[len(present) :]:
        ax.set_visible(False)
    for ax, k in zip(axes, present, strict=False):
        values = volume.isel(stage=k).values
        grid_image(ax, values, result, **color_limits(values))
        ax.set_title(names[k], fontsize=8, pad=2)


def bar_groups(ax: Axes, groups: Sequence[str], values: Mapping[str, np.ndarray], colors: Sequence[str]) -> None:
    """Every seed as a dot over its group, with the mean as a line."""
    for k, group in enumerate(groups):
        seen = values[group]
        seen = seen[np.isfinite(seen)]
        jitter = np.linspace(-0.18, 0.18, len(seen)) if len(seen) > 1 else np.zeros(len(seen))
        ax.plot(k + jitter, seen, "o", markersize=3, alpha=0.6, color=colors[k % len(colors)], markeredgewidth=0)
        if len(seen):
            ax.plot([k - 0.28, k + 0.28], [seen.mean()] * 2, color="black", linewidth=1.4)
    ax.set_xticks(range(len(groups)), groups)
