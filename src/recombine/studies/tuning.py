"""Are early stages tuned to stripes and late ones to bumps? (App. E.4, Fig. 4f, 15; claim C13)

A CNN trained on stripes alone, and on stripes with the most bumps of the stripe study. Kept for the first seed: maps of
the most varying neuron of each of the most varying channels, at four stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.claims import CLAIMS, Judgement
from recombine.metrics import decoder_reader, features, neuron_tuning
from recombine.store import Run
from recombine.studies.base import Arm, Study, Trials, register
from recombine.studies.presets import Preset
from recombine.studies.reading import base_attributes, first_seed, grid_variables, per_seed, stage_slope, tabulate
from recombine.studies.stripes import striped_spec

if TYPE_CHECKING:
    import xarray

SHOWN_STAGES = 4
NEURONS = 3
"""Neurons shown a stage."""
STRIPES, WITH_BUMPS = "stripes only", "stripes and bumps"


@register
class TuningStudy(Study):
    """Tuning of every stage of stripe-trained networks."""

    name: ClassVar[str] = "tuning"
    question: ClassVar[str] = "What are the neurons of a composing network tuned to?"
    claims: ClassVar[tuple[str, ...]] = ("C13",)

    def arms(self, preset: Preset) -> list[Arm]:
        decoder = preset.cnn(preset.tuning_depth)
        return [
            Arm((name,), striped_spec(preset, bumps, decoder=decoder))
            for name, bumps in ((STRIPES, 0), (WITH_BUMPS, max(preset.bumps)))
        ]

    def measure(self, trials: Trials) -> xarray.Dataset:
        inner = {
            "stripe_index": ("stage",), "localisation_index": ("stage",), "map": ("shown", "neuron", "y", "x"),
        }  # fmt: skip
        pictured = trials.pictured
        result = tabulate(trials, ("arm",), lambda run: _tuned(run, trials.device, run.key in pictured), inner)
        spec = trials[STRIPES][0].spec
        names = [f"layer{k}" for k in _shown(trials.preset)]
        return result.assign(map=first_seed(result["map"]), **grid_variables(spec)).assign_coords(
            shown=names
        ).assign_attrs({**base_attributes(trials), "bumps": max(trials.preset.bumps)})  # fmt: skip

    def judge(self, result: xarray.Dataset) -> list[Judgement]:
        layers = result.isel(stage=slice(1, None))  # the input code is tuned to one factor by construction
        cases = {}
        for arm in (STRIPES, WITH_BUMPS):
            own = layers.sel(arm=arm)
            cases[f"{arm}: stripe index falls along stages"] = {"effect": per_seed(-stage_slope(own["stripe_index"]))}
            cases[f"{arm}: localisation index rises along stages"] = {
                "effect": per_seed(stage_slope(own["localisation_index"]))
            }
        return [CLAIMS["C13"].judge(cases)]


def _shown(preset: Preset) -> list[int]:
    """Up to four stages from first to last hidden one."""
    return sorted({round(k) for k in np.linspace(0, preset.tuning_depth, SHOWN_STAGES)})


def _tuned(run: Run, device: torch.device, pictured: bool) -> dict[str, Any]:
    task, module = run.spec.task, run.module().to(device)
    reader = decoder_reader(module, lambda values: task.codes(values).float())
    stripe, local, maps = [], [], []
    decoder: Any = run.spec.decoder
    depths = sorted({round(k) for k in np.linspace(0, decoder.depth, SHOWN_STAGES)})
    wanted = {f"layer{k}" for k in depths}
    for name, stage in features(reader, task.grid.points.to(device)):
        tuned = neuron_tuning(stage, task.grid.shape)
        stripe.append(tuned.stripe_index.nanmean().item())
        local.append(tuned.localisation_index.nanmean().item())
        if name in wanted:
            # The most varying neurons of different channels, so that they are not neighbours of one another.
            chosen = _spread_out(stage, getattr(decoder, "width", 1))
            maps.append(stage[:, chosen].T.reshape(-1, *task.grid.shape).transpose(1, 2).cpu().numpy())
    found: dict[str, Any] = {"stripe_index": np.array(stripe), "localisation_index": np.array(local)}
    if pictured:
        found["map"] = np.stack(maps).astype(np.float32)
    return found


def _spread_out(stage: torch.Tensor, channels: int) -> torch.Tensor:
    """In each of the strongest channels the neuron that varies most."""
    variance = stage.var(dim=0).unflatten(0, (channels, -1))
    best, where = variance.max(dim=1)
    strongest = best.argsort(descending=True)[:NEURONS]
    return strongest * variance.shape[1] + where[strongest]
