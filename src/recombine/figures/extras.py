"""Extras: kernel regimes, encoder direction, transformers and coordinate MLPs, hold-outs, encoding width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.figures.panels import COLORS, bar_groups, divided, drawn_image, grid_image, seed_count, styled

if TYPE_CHECKING:
    import xarray


def regimes_figure(result: xarray.Dataset) -> Figure:
    """Schmidt spectra, Schmidt rank and single-factor weight of failing and composing networks."""
    arms = [str(arm) for arm in result["arm"].values]
    with styled():
        figure, axes = pyplot.subplots(1, 3, figsize=(10.4, 3.5), layout="constrained")
        modes = np.arange(1, result.sizes["mode"] + 1)
        for arm, color in zip(arms, COLORS, strict=False):
            axes[0].plot(
                modes, result["schmidt"].sel(arm=arm).mean("seed"), "o-", markersize=3.5, color=color, label=arm
            )
        ideals = np.unique(result["ideal_schmidt"].values.round(6), axis=0)
        for number, ideal in enumerate(ideals):
            axes[0].plot(modes, ideal, "k:", label="ideal bumps" if number == 0 else None)
        axes[0].set_yscale("log")
        axes[0].set_ylim(bottom=1e-3)
        axes[0].set_xlabel("mode")
        axes[0].set_title("operator-Schmidt values")
        axes[0].legend(fontsize=7)
        for ax, name, title in zip(
            axes[1:], ("schmidt_rank", "single_factor"), ("Schmidt rank", "PF_Coeff, single factors"), strict=True
        ):
            bar_groups(ax, arms, {arm: result[name].sel(arm=arm).values for arm in arms}, COLORS)
            ax.set_xticks(
                range(len(arms)),
                [arm.replace(", ", ",\n").replace(" and ", "\nand ") for arm in arms],
                rotation=35,
                ha="right",
                fontsize=7,
            )
            for k, ideal in enumerate(result[f"ideal_{name}"].values):
                ax.plot([k - 0.42, k + 0.42], [ideal] * 2, color="black", linestyle=":", linewidth=1.2)
            ax.set_title(title)
    return figure


def regimes_caption(result: xarray.Dataset) -> str:
    """The two numbers by arm."""
    means = result[["schmidt_rank", "single_factor"]].mean("seed")
    words = "; ".join(
        f"{arm} {means['schmidt_rank'].sel(arm=arm).item():.2f} and {means['single_factor'].sel(arm=arm).item():.2f}"
        for arm in result["arm"].values
    )
    ideals: dict[str, list[str]] = {}
    for arm in result["arm"].values:
        own = result[["ideal_schmidt_rank", "ideal_single_factor"]].sel(arm=arm)
        numbers = f"{own['ideal_schmidt_rank'].item():.2f} and {own['ideal_single_factor'].item():.2f}"
        ideals.setdefault(numbers, []).append(str(arm))
    ideal = ", ".join(f"{numbers} ({'; '.join(arms)})" for numbers, arms in ideals.items())
    return (
        f"Kernel (cosine Gram matrix) of the answers over the whole grid, {seed_count(result['schmidt_rank'])}. "
        f"Effective number of Schmidt terms and weight in single-factor terms: {words}. Dotted, ideal bumps at each "
        f"arm's own settings: {ideal}."
    )


def encoder_figure(result: xarray.Dataset) -> Figure:
    """Error of encoders over the grid."""
    codes = [str(code) for code in result["encoding"].values]
    with styled():
        figure, axes = pyplot.subplots(
            1, len(codes), figsize=(3.4 * len(codes), 3.1), layout="constrained", squeeze=False
        )
        for ax, code in zip(axes[0], codes, strict=True):
            values = np.log10(np.maximum(result["error"].sel(encoding=code).values, 1e-8))
            image = grid_image(ax, values, result)
            ax.set_title(f"image to {code} code")
            figure.colorbar(image, ax=ax, shrink=0.8, label="log10 error / mean code's")
    return figure


def encoder_caption(result: xarray.Dataset) -> str:
    """Errors inside and outside."""
    words = "; ".join(
        f"{code} code {result['id_over_blank'].sel(encoding=code).mean().item():.3g} and "
        f"{result['ood_over_blank'].sel(encoding=code).mean().item():.3g}, read right for "
        f"{100 * result['ood_accuracy'].sel(encoding=code).mean().item():.0f} % of held-out images"
        for code in result["encoding"].values
    )
    return (
        f"The other direction: a convolutional encoder from bump images to their code. Squared error over the grid "
        "relative to "
        f"answering the mean code, {seed_count(result['ood_over_blank'])}; kept and held-out means: {words}."
    )


def attention_figure(result: xarray.Dataset) -> Figure:
    """Drawings and errors of transformers and coordinate MLPs."""
    arms = [
        (str(name), int(depth))
        for name in result["decoder"].values
        for depth in result["depth"].values
        if bool(result["ood_mse"].sel(decoder=name, depth=depth).notnull().any())
    ]
    with styled():
        figure, axes = pyplot.subplots(
            3, len(arms), figsize=(1.35 * len(arms) + 0.8, 4.6), layout="constrained", squeeze=False
        )
        for column, (name, depth) in enumerate(arms):
            own = result.sel(decoder=name, depth=depth)
            for row in range(3):
                drawn_image(
                    axes[row, column],
                    own["drawing"].isel(sample=row).values,
                    result["held_out"].values,
                    result["place"].values[row],
                )
            axes[0, column].set_title(f"{name}\ndepth {depth}", fontsize=7)
            axes[2, column].set_xlabel(f"{own['ood_over_blank'].mean().item():.2f} blank", fontsize=8)
    return figure


def attention_caption(result: xarray.Dataset) -> str:
    """Errors by decoder."""
    words = []
    for name in result["decoder"].values:
        own = result.sel(decoder=name).mean("seed")
        over, learnt = own["ood_over_blank"].dropna("depth"), own["id_over_blank"].dropna("depth")
        words.append(
            f"{name} {over.min().item():.2f} to {over.max().item():.2f} (kept: at most {learnt.max().item():.3f})"
        )
    return (
        f"Drawings at three held-out places, first of {seed_count(result['ood_over_blank'])}, "
        f"N = {result.attrs['size']}; below, the held-out "
        "error over blank. Over depths: " + "; ".join(words) + "."
    )


def holdouts_figure(result: xarray.Dataset) -> Figure:
    """Error maps by shape, and held-out error by size of grid and box."""
    shapes = [str(shape) for shape in result["shape"].values]
    with styled():
        figure = pyplot.figure(figsize=(10.2, 4.7), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1.2])
        axes = top.subplots(1, len(shapes))
        for ax, shape in zip(axes, shapes, strict=True):
            image = grid_image(
                ax,
                result["error"].sel(shape=shape).values,
                result,
                result["mask"].sel(shape=shape).values,
                vmin=0,
                vmax=1.5,
            )
            ax.set_title(f"{shape}: {result['shape_ood'].sel(shape=shape).mean().item():.2f} blank", fontsize=8)
        top.colorbar(image, ax=list(axes), shrink=0.8, label="MSE / blank")
        ax = bottom.subplots()
        for size, color in zip(result["size"].values, COLORS, strict=False):
            own = result["size_ood"].sel(size=size)
            at = [float(p) for p in result["percent"].values]
            ax.errorbar(
                at, own.mean("seed"), own.std("seed").fillna(0), marker="o", color=color, label=f"N = {size}", capsize=2
            )
        ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
        ax.set_xlabel("side of the held-out box, % of N")
        ax.set_ylabel("held-out MSE / blank")
        ax.legend()
    return figure


def holdouts_caption(result: xarray.Dataset) -> str:
    """Errors by shape and size."""
    words = ", ".join(
        f"{shape} {result['shape_ood'].sel(shape=shape).mean().item():.2f}" for shape in result["shape"].values
    )
    return (
        f"Bump-coded CNN, {seed_count(result['shape_ood'])}. Top: squared error over the grid for hold-outs of several "
        "shapes; held-out "
        f"error over blank: {words} (the cross removes whole values of x and y). Bottom: centred boxes by size, on "
        "grids of several sizes."
    )


def encoding_width_figure(result: xarray.Dataset) -> Figure:
    """Held-out error against the code's variance, and drawings."""
    variances = list(result["variance"].values)
    with styled():
        figure = pyplot.figure(figsize=(9.4, 2.7), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[1, 1.5])
        ax = left.subplots()
        for name, label, color in (("ood_over_blank", "held out", COLORS[5]), ("id_over_blank", "kept", COLORS[0])):
            own = result[name]
            middle = own.mean("seed")
            reach = [middle - own.min("seed"), own.max("seed") - middle]
            ax.errorbar(variances, middle, reach, marker="o", color=color, label=label, capsize=2)
        ax.set_yscale("log")
        ax.set_xlabel("variance of the code, s²")
        ax.set_ylabel("MSE / blank")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        axes = right.subplots(2, len(variances), squeeze=False)
        for column, variance in enumerate(variances):
            for row in range(2):
                image = result["drawing"].sel(variance=variance).isel(sample=row).values
                drawn_image(axes[row, column], image, result["held_out"].values, result["place"].values[row])
            axes[0, column].set_title(f"s² = {variance}", fontsize=8)
    return figure


def encoding_width_caption(result: xarray.Dataset) -> str:
    """Errors by variance."""
    words = ", ".join(
        f"{v}: {result['ood_over_blank'].sel(variance=v).mean().item():.2f}" for v in result["variance"].values
    )
    return (
        f"Held-out error over blank by variance s² of the bump code, {seed_count(result['ood_over_blank'])}: {words}. "
        "Bars: least and greatest seed. Right: drawings of the first seed."
    )
