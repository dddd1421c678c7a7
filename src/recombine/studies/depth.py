"""Where inside the network does factorization break? (§3.4, Fig. 2, 5, 10–12; claims C4, C5, C6, C16)

CNNs of several depths, bump and rate codes: scores, and geometry, probes and tuning of every stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from recombine.claims import CLAIMS, Judgement
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import (
    STAGE_DIMS,
    all_depths,
    answers,
    base_attributes,
    grid_variables,
    keep_first,
    last_stage,
    listed_attribute,
    per_seed,
    sample_points,
    stage_profile,
    stage_slope,
    tabulate,
)

if TYPE_CHECKING:
    import xarray

ENCODINGS = ("bump", "rate")


@register
class DepthStudy(Study):
    """CNNs from shallow to deep."""

    name: ClassVar[str] = "depth"
    question: ClassVar[str] = "Where inside the network does factorization break, and does depth help?"
    claims: ClassVar[tuple[str, ...]] = ("C4", "C5", "C6", "C16")

    def arms(self, preset: Preset) -> list[Arm]:
        both = [
            Arm((encoding, depth), preset.spec(encoding=encoding, decoder=preset.cnn(depth)))
            for encoding in ENCODINGS
            for depth in preset.depths
        ]
        return both + [Arm(("bump", depth), preset.spec(decoder=preset.cnn(depth))) for depth in preset.extra_depths]

    def measure(self, trials: Trials) -> xarray.Dataset:
        def measured(run: Run) -> dict[str, object]:
            drawn = answers(run, sample_points(run.spec), trials.device).numpy()
            return {**run.scores, **stage_profile(run, trials.device), "drawing": drawn}

        inner = {**STAGE_DIMS, "drawing": ("sample", "row", "column")}
        result = keep_first(tabulate(trials, ("encoding", "depth"), measured, inner), "log_volume", "drawing")
        first = trials["bump", trials.preset.depths[0]][0].spec
        surface = _surface(trials.shown("bump", _shown_depth(trials.preset)), trials.device)
        return result.drop_vars("mean_drawing").assign(
            place=(("sample", "axis"), sample_points(first).numpy()), surface=surface, **grid_variables(first)
        ).assign_attrs(
            {**base_attributes(trials), "compared": list(trials.preset.depths), "shown": _shown_depth(trials.preset)}
        )  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        compared = result.sel(depth=listed_attribute(result, "compared"))
        return [_probes(compared), _factorization(compared), _volume(compared), _every_depth(result)]


def _shown_depth(preset: Preset) -> int:
    return preset.depth if preset.depth in preset.depths else preset.depths[-1]


def _probes(result: xarray.Dataset) -> Judgement:
    cases = {}
    for encoding in ENCODINGS:
        for probe, label in (("in_sample", "fitted and scored on the grid"), ("held_out", "scored on held-out points")):
            slope = all_depths(stage_slope(result[f"probe_{probe}"].sel(encoding=encoding)))
            cases[f"{encoding}, {label}"] = {"slope": per_seed(slope)}
    return CLAIMS["C4"].judge(cases)


def _factorization(result: xarray.Dataset) -> Judgement:
    decay = -stage_slope(result["factorization"])
    cases = {f"{e}: decays": {"effect": per_seed(all_depths(decay.sel(encoding=e)))} for e in ENCODINGS}
    sharper = decay.sel(encoding="rate") - decay.sel(encoding="bump")
    shallow, deep = sharper.isel(depth=0), sharper.isel(depth=-1)
    names = [str(depth) for depth in result["depth"].values]
    cases[f"rate decays faster than bump at depth {names[0]}"] = {"effect": per_seed(shallow)}
    cases[f"and more so than at depth {names[-1]}"] = {"effect": per_seed(shallow - deep)}
    return CLAIMS["C5"].judge(cases)


def _volume(result: xarray.Dataset) -> Judgement:
    cases = {}
    for encoding in ENCODINGS:
        own = result.sel(encoding=encoding)
        cases[f"{encoding}: spread of log10 dv grows along stages"] = {
            "effect": per_seed(all_depths(stage_slope(own["spread"])))
        }
        excess = last_stage(own["deviation_held"]) - last_stage(own["deviation_kept"])
        cases[f"{encoding}: the answers' log10 dv departs more in the held-out region"] = {
            "effect": per_seed(all_depths(excess))
        }
    return CLAIMS["C6"].judge(cases)


def _every_depth(result: xarray.Dataset) -> Judgement:
    claim = CLAIMS["C16"]
    names = [c.score for c in (*claim.premises, *claim.conditions)]
    cases = {}
    for encoding in ENCODINGS:
        for depth in result["depth"].values:
            scores = result.sel(encoding=encoding, depth=depth)
            if bool(scores[names[0]].notnull().any()):
                cases[f"{encoding}, depth {depth}"] = {name: per_seed(scores[name]) for name in names}
    return claim.judge(cases)


def _surface(run: Run, device: torch.device) -> tuple[tuple[str, ...], np.ndarray]:
    """Fig. 5 from a real network: its answers over the grid, along their three largest directions."""
    task = run.spec.task
    drawn = answers(run, task.grid.points, device).flatten(1).double()
    centred = drawn - drawn.mean(dim=0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    placed = (centred @ directions[:3].mT).reshape(*task.grid.shape, 3).permute(1, 0, 2)
    return ("y", "x", "direction"), placed.float().numpy()
