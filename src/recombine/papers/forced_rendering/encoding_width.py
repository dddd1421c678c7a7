"""Does a broader population code compose better? (extra)

The bump code's variance s² is varied from 1 to 11 squared neuron spacings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.encodings import Bump
from recombine.panels import COLORS, divided, held_out_drawing, seed_count, styled
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import DRAWING, base_attributes, drawings, tabulate, with_positions
from recombine.reproduction.preset import Several
from recombine.reproduction.study import Arm, Study, Trials


class Settings(BumpPreset):
    variances: Several = (1, 3, 5, 7, 9, 11)
    """Variances s² of the bump code, in squared neuron spacings."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"variances": (1, 5, 11)}}


class EncodingWidthStudy(Study[Settings]):
    name: ClassVar[str] = "encoding_width"
    question: ClassVar[str] = "Does a broader population code compose better?"
    settings: ClassVar[type[Settings]] = Settings

    def arms(self, preset: Settings) -> list[Arm]:
        return [Arm((v,), preset.spec(encoding=Bump(variance=v)), extra=True) for v in preset.variances]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        result = tabulate(
            trials, ("variance",), lambda batch: {**batch.scores, "drawing": drawings(batch)}, {"drawing": DRAWING}
        )
        return with_positions(result, trials.first.spec).assign_attrs(base_attributes(trials, size=trials.preset.size))


STUDY = EncodingWidthStudy()


def draw(result: xarray.Dataset) -> Figure:
    """Plot the errors against the code's variance, and show the first seed's outputs."""
    variances = list(result["variance"].values)
    with styled():
        figure = pyplot.figure(figsize=(9.4, 2.7), layout="constrained")
        left, right = divided(figure, 1, 2, width_ratios=[1, 1.5])
        ax = left.subplots()
        for name, label, color in (("ood_over_blank", "held out", COLORS[5]), ("id_over_blank", "kept", COLORS[0])):
            values = result[name]
            mean = values.mean("seed")
            reach = [mean - values.min("seed"), values.max("seed") - mean]
            ax.errorbar(variances, mean, reach, marker="o", color=color, label=label, capsize=2)
        ax.set(yscale="log", xlabel="variance of the code, s²", ylabel="MSE / blank")
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        axes = right.subplots(2, len(variances), squeeze=False)
        for column, variance in zip(axes.T, variances, strict=True):
            for row, ax in enumerate(column):
                held_out_drawing(ax, result["drawing"].sel(variance=variance).isel(sample=row).values, result, row)
            column[0].set_title(f"s² = {variance}", fontsize=8)
    return figure


def caption(result: xarray.Dataset) -> str:
    return (
        "Error over blank by variance s² of the bump code (bars: range over "
        f"{seed_count(result['ood_over_blank'])}), and outputs of the first seed."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    over = result[["ood_over_blank", "id_over_blank"]].mean("seed")
    rows = [
        [f"{v:g}", cell(over["ood_over_blank"].sel(variance=v)), cell(over["id_over_blank"].sel(variance=v), 4)]
        for v in result["variance"].values
    ]
    return [["variance", "held-out error / blank", "kept error / blank"], *rows]


FIGURES = (FigureSpec("width", "Width of the bump code", ("encoding_width",), draw, caption, table),)
