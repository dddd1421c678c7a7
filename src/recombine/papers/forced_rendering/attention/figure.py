"""Drawings and errors of transformers and coordinate MLPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.reproduction.figures import FigureSpec
from recombine.reproduction.panels import drawn_image, seed_count, styled

if TYPE_CHECKING:
    import xarray


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


FIGURES = (
    FigureSpec("attention", "Transformers and coordinate MLPs", ("attention",), attention_figure, attention_caption),
)
