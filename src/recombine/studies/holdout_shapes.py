"""Does the shape or the size of the hold-out matter? (extra)

The bump-coded CNN against a box, a corner, an L, random combinations and the published cross (which removes whole
values), and against centred boxes from small to large on small and large grids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from recombine.store import Run
from recombine.studies.base import DONE, Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import base_attributes, grid_map, grid_variables, tabulate

if TYPE_CHECKING:
    import xarray

SHAPES = ("center", "corner", "L", "cross", "random")
SHAPE, SIZE = "shape", "size"


@register
class HoldoutStudy(Study):
    """Hold-outs of several shapes and sizes."""

    name: ClassVar[str] = "holdouts"
    question: ClassVar[str] = "Does the shape or the size of the held-out region matter?"

    def arms(self, preset: Preset) -> list[Arm]:
        arms = [
            Arm((SHAPE, preset.size, shape), preset.spec(holdout=shape, allow_unseen=shape == "cross"), extra=True)
            for shape in SHAPES
        ]
        for size in preset.holdout_sizes:
            for percent in preset.holdout_percents:
                spec = preset.spec(size=size, holdout=f"center:fraction={percent / 100}")
                arms.append(Arm((SIZE, size, str(percent)), spec, extra=True))
        return arms

    def measure(self, trials: Trials) -> xarray.Dataset:
        import xarray

        def measured(run: Run) -> dict[str, Any]:
            return run.scores

        scores = tabulate(trials, ("kind", "size", "holdout"), measured)
        base = trials.preset.size
        maps, masks = [], []
        for shape in SHAPES:
            runs = [run for run in trials[SHAPE, base, shape] if run.status == DONE] or trials[SHAPE, base, shape]
            blank = grid_map(runs[0], "blank").mean()
            maps.append(np.mean([grid_map(run, "error") for run in runs], axis=0) / blank)
            masks.append(grid_variables(runs[0].spec)["held_out"][1])
        coordinates = grid_variables(trials[SHAPE, base, SHAPES[0]][0].spec)
        shaped = scores.sel(kind=SHAPE, size=base).sel(holdout=list(SHAPES)).rename(holdout="shape")
        sized = scores.sel(kind=SIZE, size=list(trials.preset.holdout_sizes)).sel(
            holdout=[str(percent) for percent in trials.preset.holdout_percents]
        ).rename(holdout="percent")  # fmt: skip
        return xarray.Dataset(
            {
                "shape_ood": shaped["ood_over_blank"].drop_vars(["kind", "size"]),
                "shape_id": shaped["id_over_blank"].drop_vars(["kind", "size"]),
                "size_ood": sized["ood_over_blank"].drop_vars("kind"),
                "size_id": sized["id_over_blank"].drop_vars("kind"),
                "error": (("shape", "y", "x"), np.stack(maps)),
                "mask": (("shape", "y", "x"), np.stack(masks)),
            },
            coords={"x": coordinates["x"], "y": coordinates["y"]},
            attrs=base_attributes(trials),
        )
