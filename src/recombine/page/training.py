"""The panel that trains a small decoder live on the page.

The page has its own random number generator, so the same seed gives a different network than in torch.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from markupsafe import Markup
from torch import nn

from recombine.decoders import CNN
from recombine.errors import InvalidValue
from recombine.metrics.errors import TOLERANCE
from recombine.page.document import as_json, kernel, parts, script
from recombine.page.subject import factor_codes
from recombine.reproduction.live_decoders import TrainingPanel
from recombine.reproduction.report import Parts
from recombine.specs import RunSpec
from recombine.tasks import Task

PANEL_MODULES = ("bytes", "grid", "pictures", "workers", "training/examples", "training/runs", "training/panel")
"""Modules of the panel's script, each listed after the modules that it imports."""
WORKER_MODULES = (
    "kernel", "convolution", "grid", "training/examples", "training/network", "training/trainer", "training/worker",
)  # fmt: skip
"""Modules of the worker's script, which trains the decoder."""
WORKER_POLICY = "recombine-training"
"""Name of the trusted-types policy that the panel uses to start its worker."""


def training_settings(spec: RunSpec) -> dict[str, Any]:
    """Return the script's settings for training a CNN on a task with two position factors."""
    task, recipe, grid = spec.task, spec.recipe, spec.task.grid
    codes = factor_codes(task.encoding, grid)
    if not isinstance(spec.decoder, CNN) or not codes or grid.shape != tuple(task.image_shape):
        raise InvalidValue("training_panel", spec, "a CNN on a task with one factor value per column and row")
    module = spec.module()
    bounds = [part.weight[0].numel() ** -0.5 for part in module.modules()
              if isinstance(part, nn.Conv2d | nn.ConvTranspose2d)]  # fmt: skip
    return {
        "factors": [asdict(factor) for factor in grid.factors], "codes": [code.model_dump() for code in codes],
        "profiles": _profiles(task), "size": grid.shape[0], "background": task.background,
        "tolerance": TOLERANCE, "held": "".join(str(int(held)) for held in task.held_out),
        "convolutions": [
            {**{name: getattr(part, name) for name in ("inputs", "outputs", "kernel", "stride")}, "bound": bound}
            for part, bound in zip(spec.decoder.convolutions(spec.interface), bounds, strict=True)
        ],
        "recipe": {
            name: getattr(recipe, name)
            for name in ("steps", "batch", "lr", "weight_decay", "beta1", "beta2", "epsilon")
        },
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
    }  # fmt: skip


def _profiles(task: Task) -> list[list[list[float]]]:
    """Return a row of pixels for each value of each factor; the outer product of two rows is an image's contrast."""
    contrast, values = 1 - 2 * task.background, task.grid.points.double()
    profiles = []
    for axis, factor in enumerate(task.grid.factors):
        alone = torch.full((factor.count, 2), torch.nan, dtype=torch.float64)
        alone[:, axis] = factor.values
        profiles.append(((task.render(alone) - task.background) * contrast).select(1 + axis, 0))
    products = profiles[0][:, None, None, :] * profiles[1][None, :, :, None]
    if not torch.allclose(task.background + contrast * products.flatten(0, 1), task.render(values)):
        raise InvalidValue("training_panel", task, "a task whose images are products of one profile per factor")
    # Twelve digits round to the same float32 as the full number, in half the space.
    return [[[float(f"{pixel:.12g}") for pixel in row] for row in profile.tolist()] for profile in profiles]


def training_panel(panel: TrainingPanel, heading: str = "h2") -> Parts:
    """Return the panel with an `h2`, `h3` or `h4` heading; the page's policy must allow its `workers`."""
    settings = training_settings(panel.spec)
    words = {name: getattr(panel, name) for name in ("drawn", "isolated", "filled", "failed")}
    counts = {
        "kept": settings["held"].count("0"), "held": settings["held"].count("1"), "isolated": 2 * settings["size"],
        "parameters": f"{settings['parameters']:,}".replace(",", " "),
    }  # fmt: skip
    values = {
        "heading": Markup(heading), "settings": settings, "text": Markup(panel.text).format(**counts), **words,
        "data": as_json({"settings": settings, "kernel": str(kernel()), "policy": WORKER_POLICY, **words}),
        "worker": Markup(script(WORKER_MODULES)),
    }  # fmt: skip
    return parts("training", values, PANEL_MODULES, (WORKER_POLICY,))
