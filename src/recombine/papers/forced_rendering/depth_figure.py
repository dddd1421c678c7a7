"""Figures 2, 5, 10, 11 and 12: CNNs of several depths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recombine.panels import band, divided, held_out_drawing, letter, seed_count, styled, volume_line, volume_rows
from recombine.papers.forced_rendering.depth import RAMP
from recombine.papers.forced_rendering.presets import CODES
from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.tables import listed_attribute

LETTERS = {"bump": ("a", "c", "e"), "rate": ("b", "d", "f"), RAMP: ("g", "h", "i")}
"""Codes of Fig. 2, with the letters of their panels: probe, factorization, volume."""
VOLUMES = "log10 of the volume element by stage (columns: input, layers, output)"


def _depths(result: xarray.Dataset, code: str, name: str) -> list[int]:
    """Return the depths of the networks trained with this code."""
    own = result[name].sel(encoding=code).dropna("depth", how="all")
    return [int(depth) for depth in own["depth"].values]


def _profiles(ax: Axes, result: xarray.Dataset, code: str, name: str, depths: list[int], **line: object) -> None:
    """Plot one line per depth against stage, with the same colours in every panel."""
    every = [int(depth) for depth in result["depth"].values]
    shades = dict(zip(every, pyplot.get_cmap("viridis")(np.linspace(0.05, 0.95, len(every))), strict=True))
    for depth in depths:
        band(ax, result[name].sel(encoding=code, depth=depth), f"depth {depth}", shades[depth], **line)
    ax.set_xlabel("stage (0: input)")


def _compared_codes(result: xarray.Dataset) -> list[str]:
    """Return the codes of Fig. 2, without those for which no network was trained."""
    return [code for code in LETTERS if code in result["encoding"].values]


def depth_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 2: probes, factorization and volume for bump, rate and ramp codes."""
    shown, depths, codes = int(result.attrs["shown"]), listed_attribute(result, "compared"), _compared_codes(result)
    columns = len(codes)
    with styled():
        figure = pyplot.figure(figsize=(3.2 + 3.2 * columns, 5.3 + 1.05 * columns), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[2.9, 1.05 * columns])
        axes = top.subplots(2, columns, sharey="row", sharex=True)
        panels = bottom.subplots(columns, shown + 3, squeeze=False)
        for k, code in enumerate(codes):
            probe, factorization, volume = LETTERS[code]
            _profiles(axes[0, k], result, code, "probe_in_sample", depths)
            _profiles(axes[0, k], result, code, "probe_held_out", depths, linestyle="--", marker="s")
            axes[0, k].set_ylim(-0.5, 1.05)
            letter(axes[0, k], probe, f"{code} code: probe R² (dashed: held-out points)")
            _profiles(axes[1, k], result, code, "factorization", depths)
            letter(axes[1, k], factorization, f"{code} code: factorization")
            volume_line(list(panels[k]), result, result["log_volume"].sel(encoding=code, depth=shown))
            panels[k, 0].set_ylabel(f"{code} code")
            letter(panels[k, 0], volume, "log10 dv: in")
        axes[0, 0].set_ylabel("R²")
        axes[1, 0].set_ylabel("F")
        axes[1, -1].legend(fontsize=7, ncols=2)
    return figure


def depth_caption(result: xarray.Dataset) -> str:
    compared = result.sel(depth=listed_attribute(result, "compared"))
    words = []
    for code in _compared_codes(result):
        own = compared.sel(encoding=code)
        factorization = own["factorization"]
        first, lowest = factorization.isel(stage=0).mean().item(), factorization.min("stage").mean().item()
        held, fitted = (own[name].mean("seed").min().item() for name in ("probe_held_out", "probe_in_sample"))
        words.append(
            f"{code} code: factorization falls from {first:.2f} at the input to {lowest:.2f} at its lowest stage; the "
            f"probe's lowest R² is {held:.2f} on held-out points and {fitted:.2f} in sample"
        )
    return (
        "Linear probes (a, b, g) and factorization (c, d, h) along the stages of CNNs of several depths (means and "
        f"standard errors over {seed_count(compared['factorization'])}; fewer for the ramp code). (e, f, i) log10 of "
        f"the volume element over the grid for depth {result.attrs['shown']}, first seed; each stage has its own "
        f"colour scale. {'. '.join(words)}."
    )


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
    parts = []
    for code in CODES:
        over = result["ood_over_blank"].sel(encoding=code).mean("seed").dropna("depth")
        parts.append(f"{code} code {over.min().item():.2f} to {over.max().item():.2f}")
    accuracy = 100 * result["ood_accuracy"].mean("seed")
    return (
        "Outputs of the first seed at three held-out positions for each depth; crosses mark the truth. Held-out error "
        f"over blank, mean over {seed_count(result['ood_over_blank'])}, range over depths: {'; '.join(parts)}. The "
        f"bump is in place for {accuracy.min().item():.0f} to {accuracy.max().item():.0f} % of held-out combinations."
    )


def volumes_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 11: log10 dv at every stage, for all depths and both codes."""
    rows = [
        (f"{code}\ndepth {depth}", result["log_volume"].sel(encoding=code, depth=depth))
        for code in CODES
        for depth in _depths(result, code, "log_volume")
    ]
    return volume_rows(result, rows, VOLUMES, 1.0)


def volumes_caption(result: xarray.Dataset) -> str:
    words = []
    for code in CODES:
        spread = result["spread"].sel(encoding=code).mean("seed")
        last = [spread.sel(depth=d).dropna("stage").values[-1] for d in _depths(result, code, "spread")]
        words.append(
            f"{code} code: {spread.isel(stage=0).mean().item():.2f} at the input, {min(last):.2f} to {max(last):.2f} "
            "at the output"
        )
    return (
        "log10 of the volume element over the grid, first seed, one row per network; each panel has its own colour "
        f"scale. Dashed: held out. Standard deviation over the grid, mean over {seed_count(result['spread'])}: "
        f"{'; '.join(words)}."
    )


def profiles_figure(result: xarray.Dataset) -> Figure:
    """Draw Fig. 12: probes and factorization for all depths."""
    return probes_and_factorization(
        lambda ax, code, name: _profiles(ax, result, code, name, _depths(result, code, "factorization"))
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
    words = []
    for code in CODES:
        low = result["factorization"].sel(encoding=code).mean("seed").min("stage").dropna("depth")
        values = zip(low["depth"].values, low.values, strict=True)
        words.append(f"{code} code " + ", ".join(f"{value:.2f} (depth {int(depth)})" for depth, value in values))
    return (
        "Held-out linear probes and factorization along the stages of CNNs of all depths (means and standard errors "
        f"over {seed_count(result['factorization'])}). Lowest factorization: {'; '.join(words)}."
    )


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
        letter(flat, "native", "factor space; held out in orange")
        curved = figure.add_subplot(1, 2, 2, projection="3d")
        curved.plot_surface(
            *np.moveaxis(surface, -1, 0), facecolors=colors, rstride=1, cstride=1, shade=False, linewidth=0.15,
            edgecolor=(1, 1, 1, 0.5), antialiased=True,
        )  # fmt: skip
        letter(curved, "embedding", "outputs, 3 main directions")
        curved.set(xticklabels=[], yticklabels=[], zticklabels=[])
        curved.view_init(elev=28, azim=-55)
    return figure


def wrapping_caption(result: xarray.Dataset) -> str:
    whole, held = result["surface"], result["surface"].where(result["held_out"])
    extents = [float((part.std(["y", "x"]) ** 2).sum()) for part in (held, whole)]
    return (
        "The flat factor grid (left) and its image in the output space of a trained bump-coded CNN of depth "
        f"{result.attrs['shown']} (right: along the first three principal directions of its outputs, first seed). "
        f"The held-out box extends {np.sqrt(extents[0] / extents[1]):.2f} times as far as the whole grid."
    )


FIGURES = (
    FigureSpec("fig2", "Probes, factorization and volume along the stages", ("depth",), depth_figure, depth_caption),
    FigureSpec("fig5", "Factor space, wrapped in the space of images", ("depth",), wrapping_figure, wrapping_caption),
    FigureSpec("fig10", "Held-out outputs by CNN depth", ("depth",), drawings_figure, drawings_caption),
    FigureSpec("fig11", "Volume element of CNNs, all depths", ("depth",), volumes_figure, volumes_caption),
    FigureSpec("fig12", "Probes and factorization of CNNs, all depths", ("depth",), profiles_figure, profiles_caption),
)
