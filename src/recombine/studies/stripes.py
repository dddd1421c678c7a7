"""Remedy B: do examples of single factors make a network compose? (§4.2, Fig. 4 a, b, d, e, 7; claims C10, C12)

All 2N stripes with few bumps from the kept combinations, and as many bumps without stripes. Fig. 7b counts bumps in per
cent of the kept combinations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.claims import CLAIMS, Judgement
from recombine.metrics import decoder_reader, features
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import (
    STAGE_DIMS,
    answers,
    base_attributes,
    grid_variables,
    keep_first,
    listed_attribute,
    log_ratio,
    per_seed,
    sample_points,
    stage_profile,
    tabulate,
)

if TYPE_CHECKING:
    import xarray

WITH, WITHOUT, PERCENT, FULL = "stripes", "bumps alone", "stripes, per cent", "all training bumps"
NEURONS = 8
"""First-stage neurons shown (Fig. 4e)."""


def striped_spec(preset: Preset, bumps: int, **task: Any) -> RunSpec:
    """Stripes and so many bumps."""
    return preset.spec(isolated=True, training=f"pick:{bumps}", **task)


@register
class StripeStudy(Study):
    """Stripes with few bumps against bumps alone."""

    name: ClassVar[str] = "stripes"
    question: ClassVar[str] = "Do examples of single factors make a network compose?"
    claims: ClassVar[tuple[str, ...]] = ("C10", "C12")

    def arms(self, preset: Preset) -> list[Arm]:
        arms = [Arm((WITH, bumps), striped_spec(preset, bumps)) for bumps in preset.bumps]
        arms += [Arm((WITHOUT, n), preset.spec(training=f"pick:{n}")) for n in preset.bumps if n]
        arms += [
            Arm((PERCENT, p), preset.spec(isolated=True, training=f"percent:{p}"), extra=True) for p in preset.percents
        ]
        return [*arms, Arm((FULL, preset.samples), preset.spec())]

    def measure(self, trials: Trials) -> xarray.Dataset:
        mapped = {(WITH, bumps) for bumps in trials.preset.bumps} | {(FULL, trials.preset.samples)}
        keys = {run.key for arm in mapped for run in trials[arm]}

        def measured(run: Run) -> dict[str, Any]:
            drawn = answers(run, sample_points(run.spec), trials.device).numpy()
            found: dict[str, Any] = {**run.scores, "drawing": drawn}
            if run.key in keys:
                found |= stage_profile(run, trials.device, probes=False)
            return found

        inner = {**STAGE_DIMS, "drawing": ("sample", "row", "column")}
        result = keep_first(tabulate(trials, ("family", "bumps"), measured, inner), "log_volume", "drawing")
        spec = trials[WITH, trials.preset.bumps[0]][0].spec
        shown = trials.preset.bumps[min(2, len(trials.preset.bumps) - 1)]
        activations = _first_stage(trials.shown(WITH, shown), trials.device)
        return result.drop_vars("mean_drawing").assign(
            place=(("sample", "axis"), sample_points(spec).numpy()),
            activation=(("neuron", "y", "x"), activations),
            stripe_image=(("stripe", "row", "column"), _stripe_images(spec)),
            **grid_variables(spec),
        ).assign_attrs({
            **base_attributes(trials), "shown": shown, "full": trials.preset.samples,
            "added": list(trials.preset.bumps), "percents": list(trials.preset.percents),
        })  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        added, striped = listed_attribute(result, "added"), result.sel(family=WITH)
        cases = {
            f"stripes and {added[0]} bumps: in place": {
                "ood_accuracy": per_seed(striped["ood_accuracy"].sel(bumps=added[0]))
            }
        }
        for fewer, more in pairwise(added):
            ratio = log_ratio(striped["ood_mse"].sel(bumps=fewer), striped["ood_mse"].sel(bumps=more))
            cases[f"{more} bumps: OOD error below that of {fewer}"] = {"effect": ratio}
        for bumps in added:
            if bumps:
                alone = result["ood_mse"].sel(family=WITHOUT, bumps=bumps)
                ratio = log_ratio(alone, striped["ood_mse"].sel(bumps=bumps))
                cases[f"{bumps} bumps: OOD error below that of {bumps} without stripes"] = {"effect": ratio}
        full = result.sel(family=FULL, bumps=result.attrs["full"])["spread_held"].mean("stage")
        smooth = {
            f"stripes and {bumps} bumps: spread of log10 dv in the held-out region below bumps alone": {
                "effect": per_seed(full - striped["spread_held"].sel(bumps=bumps).mean("stage"))
            }
            for bumps in added
        }
        return [CLAIMS["C10"].judge(cases), CLAIMS["C12"].judge(smooth)]


def _stripe_images(spec: RunSpec) -> np.ndarray:
    return spec.task.render(spec.task.isolated_values()).numpy().astype(np.float32)


def _first_stage(run: Run, device: torch.device) -> np.ndarray:
    """Activation over the grid of the most varying first-stage neurons."""
    task, module = run.spec.task, run.module().to(device)
    reader = decoder_reader(module, lambda values: task.codes(values).float())
    stages = dict(features(reader, task.grid.points.to(device)))
    first = next(stage for name, stage in stages.items() if name != "input")
    chosen = first.var(dim=0).argsort(descending=True)[:NEURONS]
    return first[:, chosen].T.reshape(-1, *task.grid.shape).transpose(1, 2).cpu().numpy().astype(np.float32)
