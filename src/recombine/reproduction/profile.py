"""Geometry, probes and tuning of every stage of a network.

Conventions: `log_volume` is log10 of the volume element, floored at `FLOOR` so that flat places count as flat, not as
infinitely so. Regions: *held* (held out) and *kept*. Stage 0 is the input code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recombine.metrics import (
    decoder_reader,
    features,
    finite_difference_metric,
    mean_factorization,
    metric_tensor,
    neuron_tuning,
    probe_scores,
    volume_element,
)
from recombine.store import Run

FLOOR = 1e-8
"""Volume elements below this count as this."""
MEMORY = {"cpu": 1 << 30, "cuda": 16 << 30}
"""Bytes that a measurement may keep at a time."""

STAGE_NUMBERS = (
    "factorization", "factorization_of_means", "factorization_differences", "spread", "spread_differences",
    "spread_held", "spread_kept", "contrast", "deviation_held", "deviation_kept", "stripe_index",
    "localisation_index", "probe_in_sample", "probe_held_out",
)  # fmt: skip
"""What `stage_profile` gives as one number a stage."""


def log_volume(metric: Tensor) -> Tensor:
    """log10 of the volume element, floored."""
    return volume_element(metric).clamp(min=FLOOR).log10()


def _region_statistics(volume: Tensor, held: Tensor) -> dict[str, Tensor]:
    """How log10 dv varies over the grid and over its two regions."""
    kept, inside = volume[~held], volume[held]
    return {
        "spread": volume.std(correction=0),
        "spread_held": inside.std(correction=0),
        "spread_kept": kept.std(correction=0),
        "contrast": inside.mean() - kept.mean(),
        "deviation_held": (inside - kept.mean()).square().mean().sqrt(),
        "deviation_kept": kept.std(correction=0),
    }


def stage_profile(run: Run, device: torch.device, *, probes: bool = True, maps: bool = True) -> dict[str, np.ndarray]:
    """Geometry, probes and tuning of every stage of a network over a two-factor grid; a row a stage.

    `…_differences` are the published scripts' finite differences, `factorization_of_means` their ratio of means. Codes
    without a derivative have finite differences only.
    """
    task, module = run.spec.task, run.module().to(device)
    points, shape = task.grid.points.to(device), task.grid.shape
    held = task.held_out  # on the host: choosing by a mask that lies on the device waits for it
    reader = decoder_reader(module, lambda values: task.codes(values).float())
    memory = MEMORY[device.type]
    exact = metric_tensor(reader, points, memory=memory) if task.encoding.differentiable else None
    rows: dict[str, list[Tensor]] = {}
    for name, stage in features(reader, points, memory=memory):
        differences = finite_difference_metric(stage, shape)
        metric = differences if exact is None else exact[name]
        volume = log_volume(metric)
        tuned = neuron_tuning(stage, shape)
        found = {
            "factorization": mean_factorization(metric),
            "factorization_of_means": mean_factorization(metric, "means"),
            "factorization_differences": mean_factorization(differences),
            "spread_differences": log_volume(differences).std(correction=0),
            **_region_statistics(volume, held),
            "stripe_index": tuned.stripe_index.nanmean(),
            "localisation_index": tuned.localisation_index.nanmean(),
        }
        if probes:
            found |= {f"probe_{kind}": score.mean() for kind, score in probe_scores(stage, points, held).items()}
        if maps:
            found["log_volume"] = volume.reshape(shape).T
        for key, value in found.items():
            rows.setdefault(key, []).append(value)
    return {name: torch.stack(values).float().cpu().numpy() for name, values in rows.items()}


STAGE_DIMS: dict[str, Sequence[str]] = {
    **dict.fromkeys(STAGE_NUMBERS, ("stage",)),
    "log_volume": ("stage", "y", "x"),
}
"""Dimensions of what `stage_profile` gives."""
