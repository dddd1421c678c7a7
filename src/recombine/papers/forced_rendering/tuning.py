"""What are neurons of stripe-trained networks tuned to? (App. E.4, Fig. 4f, 15)

Pictures of the stripe study's networks: for the first seed, maps of the most varying neuron of each of the most varying
channels, at four stages. The indices that claims are judged on are in the stripe study's Dataset.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import xarray

from recombine.metrics import features
from recombine.papers.forced_rendering.stripes import Settings
from recombine.reproduction.measuring import Batch, base_attributes, grid_variables, tabulate
from recombine.reproduction.study import Arm, Study, Trials

STRIPES, WITH_BUMPS = ARMS = ("stripes only", "stripes and bumps")


SHOWN_STAGES = 4
NEURONS = 3
"""Neurons kept per stage."""
INNER = {"map": ("shown", "neuron", "y", "x")}
"""Dimensions of what is measured."""


class TuningStudy(Study[Settings]):
    """Neurons of stripe-trained networks."""

    name: ClassVar[str] = "tuning"
    question: ClassVar[str] = "What are the neurons of a composing network tuned to?"
    settings: ClassVar[type[Settings]] = Settings
    version: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("features",)

    def arms(self, preset: Settings) -> list[Arm]:
        numbers = (0, preset.many_bumps)
        return [Arm((name,), preset.striped_spec(bumps), extra=True) for name, bumps in zip(ARMS, numbers, strict=True)]

    def measure(self, trials: Trials[Settings]) -> xarray.Dataset:
        preset = trials.preset
        maps = tabulate(trials.pictured, ("arm",), _maps, INNER).isel(seed=0, drop=True)
        names = [f"layer{k}" for k in _shown_stages(preset.depth)]
        return maps.assign(**grid_variables(trials.first.spec)).assign_coords(shown=names).assign_attrs(
            base_attributes(trials, size=preset.size, bumps=preset.many_bumps)
        )  # fmt: skip


def _shown_stages(depth: int) -> list[int]:
    """Up to four stages from first to last hidden one."""
    return sorted({round(k) for k in np.linspace(0, depth, SHOWN_STAGES)})


def _maps(batch: Batch) -> dict[str, Any]:
    """Maps of neurons at some stages."""
    decoder: Any = batch.spec.decoder
    kept = {f"layer{k}" for k in _shown_stages(decoder.depth)}
    points, maps = batch.task.grid.points.to(batch.device), []
    for name, stage in features(batch.reader(), points, members=1, memory=batch.memory):
        if name in kept:
            # The most varying neurons of different channels, so that they are not neighbours of one another.
            variance = stage.var(dim=1).unflatten(1, (decoder.width, -1))
            best, where = variance.max(dim=2)
            strongest = best.argsort(dim=1, descending=True)[:, :NEURONS]
            chosen = strongest * variance.shape[2] + where.gather(1, strongest)
            neurons = stage.take_along_dim(chosen[:, None, :], dim=2).mT
            maps.append(neurons.unflatten(2, batch.task.grid.shape).mT)
    return {"map": torch.stack(maps, dim=1)}


STUDY = TuningStudy()
