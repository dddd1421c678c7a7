"""Do networks compose, whatever the encoding? (§3.2, Fig. 1 a–c; claim C1)

Every encoding against the centred box; bump and rate codes also against the published cross, which removes whole values
of x and y; and the published scripts' dark bumps. Result: scores a seed, error maps over the grid, and drawings at
held-out places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from recombine.claims import CLAIMS, Judgement
from recombine.encodings import ENCODINGS
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import (
    answers,
    base_attributes,
    grid_map,
    grid_variables,
    keep_first,
    per_seed,
    sample_points,
    tabulate,
)

if TYPE_CHECKING:
    import xarray

BOX, CROSS, DARK = "box", "cross", "box, dark bumps"


@register
class EncodingStudy(Study):
    """Every encoding against the centred hold-out."""

    name: ClassVar[str] = "encodings"
    question: ClassVar[str] = "Does any disentangled encoding let a plain decoder compose?"
    claims: ClassVar[tuple[str, ...]] = ("C1",)

    def arms(self, preset: Preset) -> list[Arm]:
        arms = [Arm((encoding, BOX), preset.spec(encoding=encoding)) for encoding in ENCODINGS if encoding != "polar"]
        for encoding in ("bump", "rate"):
            crossed = preset.spec(encoding=encoding, holdout="cross", allow_unseen=True)
            arms.append(Arm((encoding, CROSS), crossed, extra=True))
        arms.append(Arm(("bump", DARK), preset.spec(polarity="dark"), extra=True))
        return arms

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, object]:
            drawn = answers(run, sample_points(run.spec), trials.device).numpy()
            return {**run.scores, "error": grid_map(run, "error") / _blank(run), "drawing": drawn}

        inner = {"error": ("y", "x"), "drawing": ("sample", "row", "column")}
        result = tabulate(trials, ("encoding", "holdout"), measured, inner)
        places = {}
        for holdout in (BOX, CROSS):
            spec = trials["bump", holdout][0].spec
            places[holdout] = (sample_points(spec).numpy(), spec.task.held_out.reshape(spec.task.grid.shape).T.numpy())
        coordinates = grid_variables(trials["bump", BOX][0].spec)
        return keep_first(result, "error", "drawing").assign(
            place=(("region", "sample", "axis"), np.stack([points for points, _ in places.values()])),
            held_out=(("region", "y", "x"), np.stack([mask for _, mask in places.values()])),
        ).assign_coords(region=list(places), x=coordinates["x"], y=coordinates["y"], axis=["x", "y"]).assign_attrs(
            base_attributes(trials)
        )  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        names = [c.score for c in (*CLAIMS["C1"].premises, *CLAIMS["C1"].conditions)]
        boxed = result.sel(holdout=BOX)
        cases = {
            str(encoding): {name: per_seed(boxed[name].sel(encoding=encoding)) for name in names}
            for encoding in result["encoding"].values
        }
        return [CLAIMS["C1"].judge(cases)]


def _blank(run: Run) -> float:
    """Mean error of the empty answer over the held-out region."""
    arrays = run.arrays()
    return float(arrays["blank"][arrays["held_out"].astype(bool)].mean())
