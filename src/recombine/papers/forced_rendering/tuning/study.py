"""Are early stages tuned to stripes and late ones to bumps? (App. E.4, Fig. 4f, 15)

A CNN trained on stripes alone, and on stripes with the most bumps of the stripe study. Kept for the first seed: maps of
the most varying neuron of each of the most varying channels, at four stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from recombine.metrics import decoder_reader, features, neuron_tuning
from recombine.papers.forced_rendering.stripes.study import Settings as StripeSettings
from recombine.papers.forced_rendering.tuning.labels import ARMS
from recombine.reproduction.measuring import base_attributes, grid_variables, tabulate
from recombine.reproduction.preset import Count
from recombine.reproduction.study import Arm, Study, Trials
from recombine.reproduction.tables import first_seed
from recombine.store import Run

if TYPE_CHECKING:
    import xarray

SHOWN_STAGES = 4
NEURONS = 3
"""Neurons kept per stage."""
INNER = {"stripe_index": ("stage",), "localisation_index": ("stage",), "map": ("shown", "neuron", "y", "x")}
"""Dimensions of what is measured."""


class Settings(StripeSettings):
    """Depth of the network, and the numbers of bumps of the stripe study."""

    tuning_depth: Count = 4
    """Depth of the network whose neurons are shown (Fig. 15)."""

    variants: ClassVar[Mapping[str, Any]] = {"quick": {"tuning_depth": 2}}


class TuningStudy(Study[Settings]):
    """Tuning of every stage of stripe-trained networks."""

    name: ClassVar[str] = "tuning"
    question: ClassVar[str] = "What are the neurons of a composing network tuned to?"
    settings: ClassVar[type[Settings]] = Settings
    metrics: ClassVar[tuple[str, ...]] = ("decoder_reader", "features", "neuron_tuning")

    def arms(self, preset: Settings) -> list[Arm]:
        decoder = preset.cnn(preset.tuning_depth)
        return [
            Arm((name,), preset.striped_spec(bumps, decoder=decoder))
            for name, bumps in zip(ARMS, (0, max(preset.bumps)), strict=True)
        ]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        preset, pictured = trials.preset, trials.pictured
        result = tabulate(trials, ("arm",), lambda run: _tuned(run, trials.device, run.key in pictured), INNER)
        names = [f"layer{k}" for k in _shown_stages(preset.tuning_depth)]
        return result.assign(map=first_seed(result["map"]), **grid_variables(trials.first.spec)).assign_coords(
            shown=names
        ).assign_attrs(base_attributes(trials, size=preset.size, bumps=max(preset.bumps)))  # fmt: skip


def _shown_stages(depth: int) -> list[int]:
    """Up to four stages from first to last hidden one."""
    return sorted({round(k) for k in np.linspace(0, depth, SHOWN_STAGES)})


def _tuned(run: Run, device: torch.device, pictured: bool) -> dict[str, Any]:
    """Mean indices by stage; maps of neurons of a run that pictures are of."""
    task, module = run.spec.task, run.module().to(device)
    reader = decoder_reader(module, lambda values: task.codes(values).float())
    stripe, local, maps = [], [], []
    decoder: Any = run.spec.decoder
    kept = {f"layer{k}" for k in _shown_stages(decoder.depth)}
    for name, stage in features(reader, task.grid.points.to(device)):
        tuning = neuron_tuning(stage, task.grid.shape)
        stripe.append(tuning.stripe_index.nanmean().item())
        local.append(tuning.localisation_index.nanmean().item())
        if name in kept:
            # The most varying neurons of different channels, so that they are not neighbours of one another.
            chosen = _spread_out(stage, getattr(decoder, "width", 1))
            maps.append(stage[:, chosen].T.reshape(-1, *task.grid.shape).transpose(1, 2).cpu().numpy())
    indices: dict[str, Any] = {"stripe_index": np.array(stripe), "localisation_index": np.array(local)}
    return {**indices, "map": np.stack(maps).astype(np.float32)} if pictured else indices


def _spread_out(stage: torch.Tensor, channels: int) -> torch.Tensor:
    """In each of the strongest channels the neuron that varies most."""
    variance = stage.var(dim=0).unflatten(0, (channels, -1))
    best, where = variance.max(dim=1)
    strongest = best.argsort(descending=True)[:NEURONS]
    return strongest * variance.shape[1] + where[strongest]


STUDY = TuningStudy()
