"""Does the shape or the size of the hold-out matter? (extra)

The bump-coded CNN against a box, a corner, an L, random combinations and the published cross (which removes whole
values), and against centred boxes from small to large on small and large grids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import xarray

from recombine.papers.forced_rendering.presets import BumpPreset
from recombine.reproduction.measuring import Batch, base_attributes, grid_maps, grid_variables, tabulate
from recombine.reproduction.preset import Several
from recombine.reproduction.study import DONE, Arm, Study, Trials

SHAPES = ("center", "corner", "L", "cross", "random")
SHAPE, SIZE = "shape", "size"


class Settings(BumpPreset):
    """Sizes of grids and boxes."""

    holdout_sizes: Several = (14, 28)
    """N of the grids on which boxes of several sizes are held out."""
    holdout_percents: Several = (20, 40, 60, 80)
    """Side of the held-out box in per cent of N."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"holdout_sizes": (14,), "holdout_percents": (30, 80)}}


class HoldoutStudy(Study[Settings]):
    """Hold-outs of several shapes and sizes."""

    name: ClassVar[str] = "holdouts"
    question: ClassVar[str] = "Does the shape or the size of the held-out region matter?"
    settings: ClassVar[type[Settings]] = Settings

    def arms(self, preset: Settings) -> list[Arm]:
        arms = [
            Arm((SHAPE, preset.size, shape), preset.spec(holdout=shape, allow_unseen=shape == "cross"), extra=True)
            for shape in SHAPES
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
        shaped = scores.sel(kind=SHAPE, size=base).sel(holdout=list(SHAPES)).rename(holdout="shape")
        sized = scores.sel(kind=SIZE, size=sizes).sel(holdout=percents).rename(holdout="percent")
        coordinates = grid_variables(trials.first.spec)
        return xarray.Dataset(
            {
                "shape_ood": shaped["ood_over_blank"].drop_vars(["kind", "size"]),
                "shape_id": shaped["id_over_blank"].drop_vars(["kind", "size"]),
                "size_ood": sized["ood_over_blank"].drop_vars("kind"),
                "size_id": sized["id_over_blank"].drop_vars("kind"),
                **_maps(trials),
            },
            coords={"x": coordinates["x"], "y": coordinates["y"]},
            attrs=base_attributes(trials, size=base),
        )


def _maps(trials: Trials[Settings]) -> dict[str, Any]:
    """Mean error over the grid and the held-out mask, by shape."""
    errors, masks = [], []
    for shape in SHAPES:
        every = trials[SHAPE, trials.preset.size, shape]
        batch = Batch([run for run in every if run.status == DONE] or every, trials.device)
        errors.append(grid_maps(batch, "error").mean(axis=0) / grid_maps(batch, "blank")[0].mean())
        masks.append(grid_variables(batch.spec)["held_out"][1])
    return {"error": (("shape", "y", "x"), np.stack(errors)), "mask": (("shape", "y", "x"), np.stack(masks))}


STUDY = HoldoutStudy()
