"""Do networks compose, whatever the encoding? (§3.2, Fig. 1 a–c)

Every encoding against the centred box; bump and rate codes also against a corner, and against the published cross,
which removes whole values of x and y; and the published scripts' dark bumps. Result: scores per seed, also in the
interior of the hold-out and by distance from the kept region, error maps over the grid, and drawings at held-out
positions.

Beside the box stand other hold-outs, its interior, distances from the kept region, and other decoders with bump codes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import xarray

from recombine.papers.forced_rendering.attention import ARCHITECTURES, BASE
from recombine.papers.forced_rendering.mlp import MLP_ARM
from recombine.papers.forced_rendering.presets import ALL_CODES, CODES, BumpPreset
from recombine.papers.forced_rendering.samples import (
    COMPOSING_ACCURACY,
    FAILING_ERROR,
    measured_by,
    sample,
    some_distances,
)
from recombine.papers.forced_rendering.scores import DISTANCE_DIMS, DISTANCE_METRICS, errors_by_distance
from recombine.reproduction.claims import Claim, Data, Sample, Statement
from recombine.reproduction.criteria import above, below
from recombine.reproduction.measuring import (
    DRAWING,
    Batch,
    base_attributes,
    drawings,
    grid_maps,
    grid_variables,
    sample_points,
    tabulate,
)
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import keep_first

BOX, CORNER, CROSS, DARK = "box", "corner", "cross", "box, dark bumps"


class EncodingStudy(Study[BumpPreset]):
    """Every encoding against the centred hold-out."""

    name: ClassVar[str] = "encodings"
    question: ClassVar[str] = "Does any disentangled encoding let a plain decoder compose?"
    settings: ClassVar[type[BumpPreset]] = BumpPreset
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = DISTANCE_METRICS

    def arms(self, preset: BumpPreset) -> list[Arm]:
        arms = [Arm((encoding, BOX), preset.spec(encoding=encoding)) for encoding in ALL_CODES]
        for encoding in CODES:
            arms.append(Arm((encoding, CORNER), preset.spec(encoding=encoding, holdout="corner"), extra=True))
            crossed = preset.spec(encoding=encoding, holdout="cross", allow_unseen=True)
            arms.append(Arm((encoding, CROSS), crossed, extra=True))
        arms.append(Arm(("bump", DARK), preset.spec(polarity="dark"), extra=True))
        return arms

    def measure(self, trials: Trials[BumpPreset]) -> xarray.Dataset:
        def measured(batch: Batch) -> dict[str, object]:
            blank = batch.stored("blank")[:, batch.task.held_out.numpy()].mean(axis=1)
            error = grid_maps(batch, "error") / blank[:, None, None]
            return {**batch.scores, **errors_by_distance(batch), "error": error, "drawing": drawings(batch)}

        inner = {"error": ("y", "x"), "drawing": DRAWING, **DISTANCE_DIMS}
        result = tabulate(trials, ("encoding", "holdout"), measured, inner)
        specs = {holdout: trials["bump", holdout][0].spec for holdout in (BOX, CROSS)}
        positions = [sample_points(spec).numpy() for spec in specs.values()]
        masks = [spec.task.held_out.reshape(spec.task.grid.shape).T.numpy() for spec in specs.values()]
        coordinates = grid_variables(specs[BOX])
        return keep_first(result, "error", "drawing").assign(
            place=(("region", "sample", "axis"), np.stack(positions)),
            held_out=(("region", "y", "x"), np.stack(masks)),
        ).assign_coords(
            region=list(specs), x=coordinates["x"], y=coordinates["y"], axis=["x", "y"],
                        distance=1 + np.arange(result.sizes["distance"])).assign_attrs(
            base_attributes(trials, size=trials.preset.size)
        )  # fmt: skip


STUDY = EncodingStudy()


# -- claims ----------------------------------------------------------------------------------------------------------


def _by_encoding(data: Data, score: str) -> dict[str, Sample]:
    return measured_by(data["encodings"].sel(holdout=BOX), score, "{encoding}", "encoding")


def _beside(data: Data, score: str) -> dict[str, Sample]:
    result = data["encodings"]
    boxed = result.sel(holdout=BOX)
    samples = measured_by(boxed, f"interior_{score}", "{encoding}, interior", "encoding")
    bump = boxed.sel(encoding="bump")
    for distance in some_distances(bump[f"distance_{score}"]):
        values = bump[f"distance_{score}"].sel(distance=distance)
        samples[f"bump, {distance} px from the kept region"] = sample(values, bump)
    others = result.drop_sel(holdout=BOX)
    samples |= measured_by(others, f"ood_{score}", "{encoding}, {holdout}", "holdout", "encoding")
    # MLPs of every depth, and with bump codes transformer and coordinate MLP; against the box
    if "mlp" in data:
        mlps = data["mlp"].sel(decoder=MLP_ARM)
        samples |= measured_by(mlps, f"ood_{score}", "{encoding}, MLP of depth {depth}", "encoding", "depth")
    if "attention" in data:
        base = data["attention"].sel(decoder=list(ARCHITECTURES), variant=BASE)
        samples |= measured_by(base, f"ood_{score}", "bump, {decoder}", "decoder")
    return samples


CLAIMS = (
    Claim(
        "C1",
        "Decoders fail to compose for every disentangled code",
        "§3.2, Fig. 1b–c",
        statements=(
            Statement(
                above("held-out error over blank", FAILING_ERROR),
                lambda data: _by_encoding(data, "ood_over_blank"),
                lambda data: _beside(data, "over_blank"),
            ),
            Statement(
                below("held-out accuracy", COMPOSING_ACCURACY),
                lambda data: _by_encoding(data, "ood_accuracy"),
                lambda data: _beside(data, "accuracy"),
            ),
        ),
        studies=("encodings",),
        beside=("mlp", "attention"),
    ),
)
