"""Figures 2, 5, 10, 11 and 12: CNNs of several depths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import (
    band,
    divided,
    held_out_drawing,
    letter,
    seed_count,
    shades,
    styled,
    volume_maps,
    volume_rows,
)
from recombine.papers.forced_rendering.depth import RAMP
from recombine.papers.forced_rendering.palette import ARCHITECTURES
from recombine.papers.forced_rendering.presets import CODES
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.tables import listed_attribute, output

COMPARED = (*CODES, RAMP)
"""Codes of Fig. 2."""
VOLUMES = "log10 of the volume element by stage (columns: input, layers, output)"


def _depths(result: xarray.Dataset, code: str, name: str) -> list[int]:
    """Return the depths of the networks trained with this code."""
    own = result[name].sel(encoding=code).dropna("depth", how="all")
    return [int(depth) for depth in own["depth"].values]


def _profiles(ax: Axes, result: xarray.Dataset, code: str, name: str, depths: list[int], **line: object) -> None:
    """Plot one line per depth against stage, with the same colours in every panel."""
    colors = shades(ARCHITECTURES["CNN"], len(depths))
    for depth, color in zip(depths, colors, strict=True):
        band(ax, result[name].sel(encoding=code, depth=depth), f"depth {depth}", color, **line)
    ax.set_xlabel("stage (0: input)")


def _compared_codes(result: xarray.Dataset) -> list[str]:
    """Return the codes of Fig. 2, without those for which no network was trained."""
    return [code for code in COMPARED if code in result["encoding"].values]


def depth_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 2: probes, factorization and volume for bump, rate and ramp codes."""
    shown, depths, codes = int(result.attrs["shown"]), listed_attribute(result, "compared"), _compared_codes(result)
    columns = len(codes)
    with styled():
        figure = pyplot.figure(figsize=(3.2 + 3.2 * columns, 5.3 + 1.05 * columns), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[2.9, 1.05 * columns])
        axes = top.subplots(2, columns, sharey="row", sharex=True, squeeze=False)
        maps = bottom.subplots(columns, shown + 3, squeeze=False)
        volume_maps(
            maps, result, {f"{code} code": result["log_volume"].sel(encoding=code, depth=shown) for code in codes}
        )
        for k, code in enumerate(codes):
            _profiles(axes[0, k], result, code, "probe_in_sample", depths)
            _profiles(axes[0, k], result, code, "probe_held_out", depths, linestyle="--", marker="s")
            axes[0, k].set(ylim=(-0.5, 1.05), xlabel="")
            _profiles(axes[1, k], result, code, "factorization", depths)
            for row, (ax, title) in enumerate(
                (
                    (axes[0, k], f"{code} code: probe R² (dashed: held-out points)"),
                    (axes[1, k], f"{code} code: factorization"),
                    (maps[k, 0], "log10 dv: in"),
                )
            ):
                letter(ax, "abcdefghi"[row * columns + k], title)
        axes[0, 0].set_ylabel("R²")
        axes[1, 0].set_ylabel("F")
        axes[1, -1].legend(fontsize=7, ncols=2)
    return figure


def depth_caption(result: xarray.Dataset) -> str:
    factorization = result["factorization"].sel(depth=listed_attribute(result, "compared"))
    return (
        "Linear probes and factorization along the stages of CNNs of several depths, means and standard errors over "
        f"{seed_count(factorization)} (fewer for the ramp code), and maps of log10 of the volume element less its "
        f"median at depth {result.attrs['shown']}, first seed."
    )


def depth_table(result: xarray.Dataset) -> list[list[str]]:
    compared = result.sel(depth=listed_attribute(result, "compared"))
    rows = []
    for code in _compared_codes(result):
        own = compared.sel(encoding=code)
        factorization = own["factorization"]
        probes = (own[name].mean("seed").min() for name in ("probe_in_sample", "probe_held_out"))
        values = (factorization.isel(stage=0).mean(), factorization.min("stage").mean(), *probes)
        rows.append([code, *map(cell, values)])
    return [["code", "F, input", "F, lowest stage", "probe R², in sample, lowest", "held-out points, lowest"], *rows]


def drawings_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 10: outputs of CNNs of each depth at three held-out positions."""
    depths = _depths(result, "bump", "drawing")
    rows = [(code, k) for code in CODES for k in range(3)]
    with styled():
        figure, axes = pyplot.subplots(
            len(rows), len(depths), figsize=(1.05 * len(depths) + 0.7, 1.08 * len(rows) + 0.4), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for line, (code, k) in zip(axes, rows, strict=True):
            for ax, depth in zip(line, depths, strict=True):
                image = result["drawing"].sel(encoding=code, depth=depth).isel(sample=k).values
                if np.isfinite(image).all():
                    held_out_drawing(ax, image, result, k)
                else:
                    ax.set_visible(False)
            if k == 1:
                line[0].set_ylabel(f"{code} code")
        for ax, depth in zip(axes[0], depths, strict=True):
            ax.set_title(f"depth {depth}", fontsize=8)
    return figure


def drawings_caption(result: xarray.Dataset) -> str:
    return (
        "Outputs of the first seed at three held-out positions for each depth; crosses mark the truth, and the table "
        f"gives means over {seed_count(result['ood_over_blank'])}."
    )


def _by_depth(result: xarray.Dataset, columns: dict[str, xarray.DataArray]) -> list[list[str]]:
    """Return one row per depth and one column per code and quantity."""
    values = {f"{name}, {code} code": own.sel(encoding=code) for name, own in columns.items() for code in CODES}
    depths = _depths(result, "bump", "factorization")
    rows = [[str(depth), *(cell(own.sel(depth=depth)) for own in values.values())] for depth in depths]
    return [["depth", *values], *rows]


def drawings_table(result: xarray.Dataset) -> list[list[str]]:
    scores = {"held-out error / blank": "ood_over_blank", "share of bumps in place": "ood_accuracy"}
    return _by_depth(result, {words: result[name].mean("seed") for words, name in scores.items()})


def volumes_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 11: log10 dv at every stage, for all depths and both codes."""
    rows = {
        f"{code}\ndepth {depth}": result["log_volume"].sel(encoding=code, depth=depth)
        for code in CODES
        for depth in _depths(result, code, "log_volume")
    }
    return volume_rows(result, rows, VOLUMES, 1.0)


def volumes_caption(result: xarray.Dataset) -> str:
    return (
        "log10 of the volume element over the grid, less its median, first seed, one row per network (dashed: held "
        f"out); the table gives its standard deviation over the grid, mean over {seed_count(result['spread'])}."
    )


def volumes_table(result: xarray.Dataset) -> list[list[str]]:
    spread = result["spread"].mean("seed")
    return _by_depth(result, {"input": spread.isel(stage=0), "output": output(spread)})


def profiles_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 12: probes and factorization for all depths."""
    return probes_and_factorization(
        lambda ax, code, name: _profiles(ax, result, code, name, _depths(result, "bump", "factorization"))
    )


def probes_and_factorization(lines: Callable[[Axes, str, str], None]) -> Figure:
    """Plot one column per code; `lines` plots the lines of one panel, given its code and variable."""
    shown = {"probe_held_out": "probe R² on held-out points", "factorization": "factorization"}
    with styled():
        figure, axes = pyplot.subplots(2, 2, figsize=(8.6, 5.4), layout="constrained", sharey="row")
        for column, code in zip(axes.T, CODES, strict=True):
            for ax, (name, title) in zip(column, shown.items(), strict=True):
                lines(ax, code, name)
                ax.set(title=f"{code} code: {title}", xlabel="stage (0: input)")
        axes[0, 0].set_ylim(max(-0.5, axes[0, 0].get_ylim()[0]), 1.05)
        axes[1, 0].legend(fontsize=7, ncols=2)
    return figure


def profiles_caption(result: xarray.Dataset) -> str:
    return (
        "Held-out linear probes and factorization along the stages of CNNs of all depths, means and standard errors "
        f"over {seed_count(result['factorization'])}."
    )


def profiles_table(result: xarray.Dataset) -> list[list[str]]:
    lowest = {"lowest F": "factorization", "lowest probe R²": "probe_held_out"}
    return _by_depth(result, {words: result[name].mean("seed").min("stage") for words, name in lowest.items()})


def wrapping_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 5: the factor grid, and its image in the output space of a trained network."""
    surface, mask = result["surface"].values, result["held_out"].values
    x, y = np.meshgrid(result["x"].values, result["y"].values)
    hue = pyplot.get_cmap("viridis")((x - x.min()) / (x.max() - x.min()))[..., :3]
    shade = 0.45 + 0.55 * (y - y.min()) / (y.max() - y.min())
    colors = np.where(mask[..., None], [0.84, 0.37, 0.0], hue) * shade[..., None]
    with styled():
        figure = pyplot.figure(figsize=(8.2, 3.8), layout="constrained")
        flat = figure.add_subplot(1, 2, 1)
        flat.pcolormesh(x, y, colors, edgecolor="white", linewidth=0.2)
        flat.set_aspect("equal")
        flat.invert_yaxis()
        flat.set(xlabel="x", ylabel="y")
        letter(flat, "a", "factor space; held out in orange")
        curved = figure.add_subplot(1, 2, 2, projection="3d")
        curved.plot_surface(
            *np.moveaxis(surface, -1, 0), facecolors=colors, rstride=1, cstride=1, shade=False, linewidth=0.15,
            edgecolor=(1, 1, 1, 0.5), antialiased=True,
        )  # fmt: skip
        letter(curved, "b", "outputs, 3 main directions")
        curved.set(xticklabels=[], yticklabels=[], zticklabels=[])
        curved.view_init(elev=28, azim=-55)
    return figure


def wrapping_caption(result: xarray.Dataset) -> str:
    whole, held = result["surface"], result["surface"].where(result["held_out"])
    extents = [float((part.std(["y", "x"]) ** 2).sum()) for part in (held, whole)]
    return (
        "The flat factor grid (a) and its image in the output space of a trained bump-coded CNN of depth "
        f"{result.attrs['shown']} along the first three principal directions (b), first seed, where the held-out box "
        f"extends {np.sqrt(extents[0] / extents[1]):.2f} times as far as the whole grid."
    )


FIGURES = (
    FigureSpec(
        "fig2", "Probes, factorization and volume along the stages", ("depth",), depth_figure, depth_caption,
        depth_table,
    ),
    FigureSpec("fig5", "Factor space, wrapped in the space of images", ("depth",), wrapping_figure, wrapping_caption),
    FigureSpec(
        "fig10", "Held-out outputs by CNN depth", ("depth",), drawings_figure, drawings_caption, drawings_table
    ),
    FigureSpec(
        "fig11", "Volume element of CNNs, all depths", ("depth",), volumes_figure, volumes_caption, volumes_table
    ),
    FigureSpec(
        "fig12", "Probes and factorization of CNNs, all depths", ("depth",), profiles_figure, profiles_caption,
        profiles_table,
    ),
)  # fmt: skip
