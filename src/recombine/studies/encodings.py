"""Do networks compose, whatever the encoding? (§3.2, Fig. 1 b–c; claim C1)

Every encoding, several seeds, the centred hold-out. Result: scores a seed, error maps over the grid, and what each
network draws at a few held-out places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from recombine.claims import CLAIMS, Judgement
from recombine.encodings import ENCODINGS
from recombine.specs import Recipe, RunSpec
from recombine.store import Run
from recombine.studies.base import Study, register
from recombine.tasks import BumpTask

if TYPE_CHECKING:
    import xarray

SAMPLE_PLACES = ((0.5, 0.5), (0.25, 0.25), (0.75, 0.25), (0.25, 0.75))
"""Where in the held-out region networks are asked to draw, as shares of its extent along x and y."""


@register
class EncodingStudy(Study):
    """Every encoding against the centred hold-out."""

    name: ClassVar[str] = "encodings"
    question: ClassVar[str] = "Does any disentangled encoding let a plain decoder compose?"

    def specs(self, preset: str, seeds: Sequence[int]) -> list[RunSpec]:
        specs: list[RunSpec] = []
        for encoding in ENCODINGS:
            if preset == "paper":
                base = RunSpec(task=BumpTask(encoding=encoding))
            else:
                # Smaller image, network and training, for two CPU cores.
                base = RunSpec(
                    task=BumpTask(size=14, encoding=encoding, training="draws:1000"),
                    decoder="cnn:width=16:depth=2",
                    recipe=Recipe(epochs=30, lr=3e-3),
                )
            specs += base.seeds(seeds)
        return specs

    def measure(self, runs: Sequence[Run]) -> xarray.Dataset:
        import xarray

        by_encoding: dict[str, list[Run]] = {}
        for run in runs:
            by_encoding.setdefault(run.spec.task.encoding.kind, []).append(run)
        first = runs[0].spec.task
        shape = first.grid.shape
        names = list(by_encoding)
        score_names = list(runs[0].scores)
        scores = {
            name: (("encoding", "seed"), [[run.scores[name] for run in by_encoding[e]] for e in names])
            for name in score_names
        }
        maps = [[run.arrays()["error"].reshape(shape).T for run in by_encoding[e]] for e in names]
        points = _sample_points(first.held_out.reshape(shape))
        drawn = [[_drawings(run, points) for run in by_encoding[e]] for e in names]
        coordinates = [first.grid.factors[k].values.numpy() for k in (0, 1)]
        result = xarray.Dataset(
            {
                **scores,
                "error": (("encoding", "seed", "y", "x"), np.array(maps)),
                "drawing": (("encoding", "seed", "sample", "row", "column"), np.array(drawn)),
                "held_out": (("y", "x"), first.held_out.reshape(shape).T.numpy()),
                "sample_x": ("sample", points[:, 0]),
                "sample_y": ("sample", points[:, 1]),
            },
            coords={
                "encoding": names,
                "seed": [run.spec.seed for run in by_encoding[names[0]]],
                "x": coordinates[0],
                "y": coordinates[1],
            },
        )
        result.attrs["polarity"] = "bright" if first.background == 0 else "dark"
        result.attrs["blank"] = float(runs[0].arrays()["blank"][first.held_out.numpy()].mean())
        return result

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        names = [c.score for c in (*CLAIMS["C1"].premises, *CLAIMS["C1"].conditions)]
        cases = {
            str(encoding): {name: result[name].sel(encoding=encoding).values.tolist() for name in names}
            for encoding in result["encoding"].values
        }
        return [CLAIMS["C1"].judge(cases)]


def _sample_points(held_out: torch.Tensor) -> np.ndarray:
    """Grid points spread over the held-out region: `(sample, (x, y))`."""
    where = torch.nonzero(held_out)
    low, high = where.min(dim=0).values, where.max(dim=0).values
    wanted = [low + torch.tensor(share) * (high - low) for share in SAMPLE_PLACES]
    nearest = [where[((where - place) ** 2).sum(dim=1).argmin()] for place in wanted]
    return torch.stack(nearest).numpy()


@torch.no_grad()
def _drawings(run: Run, points: np.ndarray) -> np.ndarray:
    inputs = run.spec.task.examples(torch.from_numpy(points).double()).inputs
    return run.module()(inputs).numpy()
