"""Does the shape or the size of the hold-out matter? (extra)

The bump-coded CNN is trained with a box, a corner, an L shape, random combinations or the published cross (which
removes entire values of x and y) held out, and with centred boxes of several sizes on small and large grids. The paper
also mentions a box of equal area in the bottom left corner of the image, i.e. at small x and large y.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

from recombine.holdouts import Center
from recombine.panels import COLORS, divided, grid_image, seed_count, shades, styled
from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.figures import FigureSpec, cell
from recombine.reproduction.measuring import Batch, base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.preset import Several
from recombine.reproduction.study import DONE, Arm, Study, Trials
from recombine.tasks import Task

BOTTOM_LEFT = "bottom left"
SHAPES = ("center", "corner", BOTTOM_LEFT, "L", "cross", "random")
SHAPE, SIZE = "shape", "size"


class Settings(BumpPreset):
    holdout_sizes: Several = (14, 28)
    """Grid sizes N on which boxes of several sizes are held out."""
    holdout_percents: Several = (20, 40, 60, 80)
    """Sides of the held-out box, as percentages of N."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"holdout_sizes": (14,), "holdout_percents": (30, 80)}}


class HoldoutStudy(Study[Settings]):
    name: ClassVar[str] = "holdouts"
    question: ClassVar[str] = "Does the shape or the size of the held-out region matter?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2

    def arms(self, preset: Settings) -> list[Arm]:
        center = preset.spec(holdout="center").task
        kinds = {shape: bottom_left(center) if shape == BOTTOM_LEFT else shape for shape in SHAPES}
        arms = [
            Arm((SHAPE, preset.size, shape), preset.spec(holdout=own, allow_unseen=shape == "cross"), extra=True)
            for shape, own in kinds.items()
        ]
        for size in preset.holdout_sizes:
            for percent in preset.holdout_percents:
                spec = preset.spec(size=size, holdout=f"center:fraction={percent / 100}")
                arms.append(Arm((SIZE, size, str(percent)), spec, extra=True))
        return arms

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        scores = tabulate(trials, ("kind", "size", "holdout"), lambda batch: batch.scores)
        base, sizes = trials.preset.size, list(trials.preset.holdout_sizes)
        percents = [str(percent) for percent in trials.preset.holdout_percents]
        parts = {
            SHAPE: scores.sel(kind=SHAPE, size=base, drop=True).sel(holdout=list(SHAPES)).rename(holdout="shape"),
            SIZE: scores.sel(kind=SIZE, drop=True).sel(size=sizes, holdout=percents).rename(holdout="percent"),
        }
        variables: dict[str, Any] = {
            f"{kind}_{region}": own[f"{region}_over_blank"] for kind, own in parts.items() for region in ("ood", "id")
        }
        errors, masks = [], []
        for shape in SHAPES:
            runs = trials[SHAPE, base, shape]
            batch = Batch([run for run in runs if run.status == DONE] or runs, trials.device)
            errors.append(grid_maps(batch, "error").mean(axis=0) / grid_maps(batch, "blank")[0].mean())
            masks.append(grid_variables(batch.spec)["held_out"][1])
        variables |= {"error": (("shape", "y", "x"), np.stack(errors)), "mask": (("shape", "y", "x"), np.stack(masks))}
        grid = grid_variables(trials.first.spec)
        attributes = base_attributes(trials, size=base)
        return xarray.Dataset(variables, coords={"x": grid["x"], "y": grid["y"]}, attrs=attributes)


def bottom_left(task: Task) -> Center:
    """Return a hold-out of the same area as the task's square, in the bottom left corner of the image."""
    side = round(int(task.held_out.sum()) ** 0.5)
    return Center(low=(0, task.grid.shape[1] - side), high=(side - 1, task.grid.shape[1] - 1))


STUDY = HoldoutStudy()


def draw(result: xarray.Dataset) -> Figure:
    """Plot error maps for each shape, and the held-out error by grid and box size."""
    shapes = [str(shape) for shape in result["shape"].values]
    percents = [float(percent) for percent in result["percent"].values]
    with styled():
        figure = pyplot.figure(figsize=(10.2, 4.7), layout="constrained")
        top, bottom = divided(figure, 2, 1, height_ratios=[1, 1.2])
        axes = top.subplots(1, len(shapes))
        for ax, shape in zip(axes, shapes, strict=True):
            error, mask = (result[name].sel(shape=shape).values for name in ("error", "mask"))
            image = grid_image(ax, error, result, mask, vmin=0, vmax=1.5)
            ax.set_title(f"{shape}: {result['shape_ood'].sel(shape=shape).mean().item():.2f} blank", fontsize=8)
        top.colorbar(image, ax=list(axes), shrink=0.8, label="MSE / blank")
        ax = bottom.subplots()
        for size, color in zip(result["size"].values, shades(COLORS[0], result.sizes["size"]), strict=True):
            own = result["size_ood"].sel(size=size)
            spread = own.std("seed").fillna(0)
            ax.errorbar(percents, own.mean("seed"), spread, marker="o", color=color, label=f"N = {size}", capsize=2)
        ax.axhline(1, color="black", linewidth=0.8, linestyle=":")
        ax.set(xlabel="side of the held-out box, % of N", ylabel="held-out MSE / blank")
        ax.legend()
    return figure


def caption(result: xarray.Dataset) -> str:
    return (
        "Squared error of a bump-coded CNN over the grid for hold-outs of several shapes (the cross removes entire "
        "values of x and y), and held-out error for centred boxes by size, on grids of several sizes, with standard "
        f"deviations; {seed_count(result['shape_ood'])}."
    )


def table(result: xarray.Dataset) -> list[list[str]]:
    over = result["shape_ood"].mean("seed")
    return [["hold-out", "error / blank"], *([str(own), cell(over.sel(shape=own))] for own in result["shape"].values)]


FIGURES = (FigureSpec("holdouts", "Shape and size of the hold-out", ("holdouts",), draw, caption, table),)
