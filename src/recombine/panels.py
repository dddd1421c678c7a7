"""Panels shared by several figures; each function draws arrays on matplotlib axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    import xarray

HOLDOUT_COLOR = "#D55E00"
COLORS = ("#0072B2", "#B87A00", "#009E73", "#CC79A7", "#3A9BD5", "#D55E00", "#857400", "#000000")
"""Okabe and Ito's colour-blind-friendly palette, its light colours darkened to a contrast of 3 or more on white."""
FAINT = 0.2  # minimum pixel value shown as white


@contextmanager
def styled() -> Iterator[None]:
    """Draw figures in this package's style within the context."""
    with as_file(files("recombine") / "recombine.mplstyle") as path, pyplot.style.context(str(path)):
        yield
        interactive = pyplot.isinteractive()
    if interactive:  # set by a notebook's backend with the first figure; later figures need it too
        pyplot.ion()


def divided(figure: Figure | SubFigure, rows: int, columns: int, **shares: Any) -> Any:
    """Return subfigures as an untyped array."""
    return figure.subfigures(rows, columns, **shares)


def edges_of(values: np.ndarray) -> np.ndarray:
    """Return the boundaries of cells centred on evenly spaced values; a single cell has width 1."""
    half = float(values[1] - values[0]) / 2 if len(values) > 1 else 0.5
    return np.append(values - half, values[-1] + half)


def outline(ax: Axes, region: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Draw a dashed border around the True cells of a region of the grid."""
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
    """Return the start and the (exclusive) end of every run of True values."""
    change = np.flatnonzero(np.diff(np.pad(on.astype(int), 1)))
    return [(int(first), int(last)) for first, last in zip(change[0::2], change[1::2], strict=True)]


def cross(ax: Axes, x: float, y: float) -> None:
    """Mark the true position with a cross."""
    ax.plot([x], [y], marker="x", color=HOLDOUT_COLOR, markersize=6, markeredgewidth=1.5, linestyle="none")


def bare(ax: Axes) -> None:
    """Remove the ticks and draw a frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(True)


def extent_of(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Return the extent of the grid's cells for `imshow`, with the first row at the top."""
    edges_x, edges_y = edges_of(x), edges_of(y)
    return float(edges_x[0]), float(edges_x[-1]), float(edges_y[-1]), float(edges_y[0])


def drawn_image(
    ax: Axes, image: np.ndarray, held_out: np.ndarray | None = None, place: Any = None,
    background: float = 0.0,
) -> None:  # fmt: skip
    """Show a network's output, bright on black, with the held-out region and the true position.

    The brightest pixel is white if its value is at least `FAINT`. An image `(channel, y, x)` is shown in colour if it
    has three channels; otherwise, its distance from the background is summed across channels.
    """
    y, x = np.arange(image.shape[-2]), np.arange(image.shape[-1])
    extent = extent_of(x, y)
    if image.ndim == 3 and len(image) == 3:
        ax.imshow(np.moveaxis(np.clip(np.nan_to_num(image), 0, 1), 0, -1), extent=extent)
    else:
        shown = np.abs(image - background).sum(axis=0) if image.ndim == 3 else image if background == 0 else 1 - image
        top = max(FAINT, float(np.nanmax(shown)))
        ax.imshow(shown, cmap="gray", vmin=0, vmax=top, extent=extent)
    if held_out is not None:
        outline(ax, held_out, x, y)
    if place is not None:
        cross(ax, place[0], place[1])
    bare(ax)


def held_out_drawing(ax: Axes, image: np.ndarray, result: xarray.Dataset, sample: int) -> None:
    """Show a network's output at one of the held-out positions in a Dataset."""
    place = result["place"].values[sample]
    drawn_image(ax, image, result["held_out"].values, place, float(result.attrs.get("background", 0.0)))


def grid_image(
    ax: Axes, values: np.ndarray, result: xarray.Dataset, held_out: np.ndarray | None = None, **shown: Any
) -> Any:
    """Show a map of values on the factor grid with the held-out region."""
    x, y = result["x"].values, result["y"].values
    image = ax.imshow(values, extent=extent_of(x, y), **shown)
    outline(ax, result["held_out"].values if held_out is None else held_out, x, y)
    bare(ax)
    return image


def shades(color: str, count: int) -> list[str]:
    """Return shades of a colour from dark to light, for a quantity that grows; a single one is the colour itself."""
    base = np.asarray(to_rgb(color))
    if count == 1:
        return [color]
    places = np.linspace(-0.8, 0.2, count)
    return [to_hex(base * (1 + place) if place < 0 else base + place * (1 - base)) for place in places]


def color_bar(axes: np.ndarray, image: Any, label: str, **bar: Any) -> None:
    """Add one colour bar, at the right, for panels that share a scale."""
    shown = [ax for ax in axes.flat if ax.get_visible()]
    shown[0].figure.colorbar(
        image, ax=list(axes.flat), label=label, **{"pad": 0.01, "aspect": 4 + 8 * len(axes), **bar}
    )


def color_limits(values: np.ndarray, low: float = 1, high: float = 99) -> dict[str, Any]:
    """Return outlier-robust colour limits: two percentiles of the finite values."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return {"vmin": 0.0, "vmax": 1.0}
    bottom, top = np.percentile(finite, [low, high])
    return {"vmin": float(bottom), "vmax": float(max(top, bottom + 1e-6))}


def band(ax: Axes, values: xarray.DataArray, label: str, color: Any, **line: Any) -> None:
    """Plot the mean over seeds along the remaining dimension, with its standard error as a band."""
    (dim,) = [d for d in values.dims if d != "seed"]
    mean, error = values.mean("seed"), values.std("seed") / np.sqrt(values.notnull().sum("seed"))
    at = values[dim].values if dim in values.coords else np.arange(values.sizes[dim])
    present = np.isfinite(mean.values)
    ax.plot(at[present], mean.values[present], label=label, color=color, **{"marker": "o", "markersize": 3.5, **line})
    low, high = (mean - error).values[present], (mean + error).values[present]
    ax.fill_between(at[present], low, high, color=color, alpha=0.2, linewidth=0)
    if np.issubdtype(at.dtype, np.integer):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def seed_count(values: xarray.DataArray) -> str:
    """Describe the number of seeds with a value, as a range if it differs between conditions."""
    inner = values.dims[values.dims.index("seed") + 1 :]
    counts = values.notnull().any(inner).sum("seed").values.ravel()
    counts = counts[counts > 0] if (counts > 0).any() else counts
    few, many = int(counts.min()), int(counts.max())
    return f"{few} seed{'s' if few != 1 else ''}" if few == many else f"{few} to {many} seeds"


def of_shared_seeds(*values: xarray.DataArray) -> tuple[xarray.DataArray, ...]:
    """Restrict arrays to the seeds for which all of them have a value."""
    shared = np.all([own.notnull().values for own in values], axis=0)
    return tuple(own.isel(seed=shared) for own in values)


def geometric_mean(values: xarray.DataArray) -> float:
    """Return the geometric mean of all values."""
    return float(np.exp(np.log(values).mean()))


def stage_names(count: int) -> list[str]:
    """Return the titles of stage panels: in, 1, 2, …, out."""
    return ["in", *(str(k) for k in range(1, count - 1)), "out"]


def letter(ax: Axes, text: str, title: str = "") -> None:
    """Set a panel's title, preceded by the panel's letter in the paper."""
    ax.set_title("")
    ax.set_title(f"({text}) {title}", loc="left", fontsize=9)


def volume_rows(
    result: xarray.Dataset, rows: Mapping[str, xarray.DataArray], title: str, width: float = 1.25
) -> Figure:
    """Draw maps of log10 dv, one row per network and one column per stage."""
    stages = max(int(volume.notnull().any(["y", "x"]).sum()) for volume in rows.values())
    with styled():
        figure, axes = pyplot.subplots(
            len(rows), stages, figsize=(width * stages + 1.7, width * 1.02 * len(rows) + 0.5), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        volume_maps(axes, result, rows)
        figure.suptitle(title, fontsize=9)
    return figure


def volume_maps(axes: np.ndarray, result: xarray.Dataset, rows: Mapping[str, xarray.DataArray]) -> None:
    """Draw maps of log10 dv on one colour scale, one row per network and one column per stage; hide unused panels.

    Each map is shown relative to its median, since the scale of a stage's activations is arbitrary.
    """
    relative = {name: (volume - volume.median(["y", "x"])).values for name, volume in rows.items()}
    limits = color_limits(np.concatenate([values.ravel() for values in relative.values()]))
    for line, (name, values) in zip(axes, relative.items(), strict=True):
        present = [own for own in values if np.isfinite(own).any()]
        for ax in line[len(present) :]:
            ax.set_visible(False)
        for ax, own, stage in zip(line, present, stage_names(len(present)), strict=False):
            image = grid_image(ax, own, result, **limits)
            ax.set_title(stage, fontsize=8, pad=2)
        line[0].set_ylabel(name)
    color_bar(axes, image, "log10 dv less its median", extend="both", extendfrac=0.03, shrink=0.8)


def activation_map(ax: Axes, values: np.ndarray, result: xarray.Dataset) -> Any:
    """Show a neuron's activation over the grid as a share of its range, so that neurons share a colour scale."""
    low, high = np.nanmin(values), np.nanmax(values)
    return grid_image(ax, (values - low) / ((high - low) or 1.0), result, vmin=0, vmax=1)


def group_dots(ax: Axes, groups: Mapping[str, np.ndarray], colors: Sequence[str]) -> None:
    """Plot one row per group, named at the left: a dot per seed, and the median as a line.

    Values farther from all groups' quartiles than three times the widest interquartile range are drawn as arrows at the
    edge, with the farthest value.
    """
    finite = {group: values[np.isfinite(values)] for group, values in groups.items()}
    low, high = _fences([values for values in finite.values() if len(values)])
    for k, (values, color) in enumerate(zip(finite.values(), colors, strict=True)):
        heights = k + (np.linspace(-0.25, 0.25, len(values)) if len(values) > 1 else np.zeros(len(values)))
        inside = (values >= low) & (values <= high)
        ax.plot(
            values[inside], heights[inside], "o", markersize=3, alpha=0.6, color=color, markeredgewidth=0,
            clip_on=False,
        )  # fmt: skip
        if len(values):
            ax.plot([np.median(values)] * 2, [k - 0.35, k + 0.35], color="black", linewidth=1.4)
        for out, edge, mark, farthest in ((values < low, low, "<", np.min), (values > high, high, ">", np.max)):
            if out.any():
                ax.plot(np.full(out.sum(), edge), heights[out], mark, color=color, markersize=5, clip_on=False)
                left = mark == "<"  # names of groups are at the left of the panel, so the text goes above the arrow
                ax.annotate(
                    f"{farthest(values):.3g}", (edge, heights[out].min() if left else heights[out].mean()),
                    (-3, 5) if left else (5, 0), textcoords="offset points", fontsize=7, ha="left",
                    va="bottom" if left else "center",
                )  # fmt: skip
    ax.set_yticks(range(len(groups)), groups)
    ax.set_ylim(len(groups) - 0.5, -0.5)


def _fences(groups: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the lowest and highest value drawn in place."""
    quartiles = np.array([np.percentile(values, [25, 75]) for values in groups]).reshape(-1, 2)
    reach = 3 * float(np.diff(quartiles).max(initial=0))
    if not reach:
        return -np.inf, np.inf
    return float(quartiles.min() - reach), float(quartiles.max() + reach)


def interval_dots(
    dots: Mapping[str, tuple[np.ndarray, np.ndarray]], intervals: Mapping[str, tuple[float, float, float]], label: str
) -> Figure:
    """Draw one row per group: a dot per value, hollow where the mask is False, and an estimate with its interval."""
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.5, 1.0 + 0.35 * len(dots)), layout="constrained")
        for row, (group, (values, filled)) in enumerate(dots.items()):
            heights = row + np.linspace(-0.2, 0.2, len(values))
            for part, face in ((filled, COLORS[4]), (~filled, "none")):
                ax.plot(
                    values[part], heights[part], "o", markersize=4, alpha=0.6, color=face, markeredgecolor=COLORS[4]
                )
            estimate, *ends = intervals[group]
            if np.isfinite(ends).all():
                ax.plot(ends, [row, row], color=COLORS[0], linewidth=2.5)
            ax.plot(estimate, row, "o", color=COLORS[0])
        ax.set_yticks(range(len(dots)), dots)
        ax.set_ylim(len(dots) - 0.5, -0.5)
        ax.set_xlabel(label)
    return figure
