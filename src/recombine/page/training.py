"""The panel in which a small decoder is trained live: its spec, and its parts for any page of ours.

`LIVE` is the paper's task (28 × 28, the centred box held out) with its CNN at a width and length that a browser trains
in seconds; `LIVE_STRIPES` is the same with all stripes added. Over 12 seeds torch puts 26–41 % of held-out bumps in
place with the first and all with the second (`tests/page/test_training.py` repeats some).

The page has its own random numbers, so a seed there is another member of the same population, not torch's.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from torch import nn

from recombine.decoders import CNN
from recombine.encodings import Bump
from recombine.metrics.errors import TOLERANCE
from recombine.page.document import as_json, kernel, parts, script
from recombine.reproduction.report import Parts
from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpTask

LIVE = RunSpec(
    task=BumpTask(size=28, training="each"),
    decoder=CNN(width=8, depth=2),
    recipe=Recipe(steps=400, batch=16, lr=3e-3),
)
"""What the panel trains without stripes: every kept combination."""
LIVE_STRIPES = LIVE.replace(task=LIVE.task.replace(isolated=True))
"""The same with every single factor value shown alone."""

PANEL_MODULES = ("bytes", "pictures", "training/examples", "training/runs", "training/panel")
"""Modules of the panel's script, each after those that it imports."""
WORKER_MODULES = (
    "kernel", "convolution", "training/examples", "training/network", "training/trainer", "training/worker",
)  # fmt: skip
"""Modules of the script that trains."""
WORKER_POLICY = "recombine-training"
"""Name of the trusted-types policy by which the panel starts its worker."""
FILLED, FAILED = 0.9, 0.6
"""Shares of held-out bumps in place from which, and up to which, the panel says that the box filled, or failed."""


def training_settings(spec: RunSpec = LIVE) -> dict[str, Any]:
    """What the page's script needs to train a CNN on the bump task with a bump code, on each kept combination."""
    task, recipe = spec.task, spec.recipe
    assert isinstance(task, BumpTask)
    assert isinstance(task.encoding, Bump)
    assert isinstance(spec.decoder, CNN)
    module = spec.module()
    bounds = [part.weight[0].numel() ** -0.5 for part in module.modules()
              if isinstance(part, nn.Conv2d | nn.ConvTranspose2d)]  # fmt: skip
    return {
        "size": task.size, "sigma": task.sigma, "background": task.background, "variance": task.encoding.variance,
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


def training_panel(heading: str = "h2") -> Parts:
    """The panel, whose heading is an element `h2`, `h3` or `h4`; a page names its `workers` in its policy."""
    settings = training_settings()
    data = {"settings": settings, "kernel": str(kernel()), "filled": FILLED, "failed": FAILED, "policy": WORKER_POLICY}
    values = {
        "heading": Markup(heading), "settings": settings,
        "held": settings["held"].count("1"), "kept": settings["held"].count("0"),
        "data": as_json(data), "worker": Markup(script(WORKER_MODULES)),
    }  # fmt: skip
    return parts("training", values, PANEL_MODULES, (WORKER_POLICY,))
