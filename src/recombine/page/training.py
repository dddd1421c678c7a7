"""The decoder that is trained in the page: its spec, and what the page's script needs to know of it.

`LIVE` is the paper's task (28 × 28, the centred box held out) with its CNN at a width and length that a browser trains
in seconds; `LIVE_STRIPES` is the same with all stripes added. Over 12 seeds torch puts 26–41 % of held-out bumps in
place with the first and all with the second (`tests/page/test_training.py` repeats some).

The page has its own random numbers, so a seed there is another member of the same population, not torch's.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from recombine.decoders import CNN
from recombine.decoders.cnn import FIRST_SIZE
from recombine.encodings import Bump
from recombine.errors import InvalidValue
from recombine.metrics.errors import TOLERANCE
from recombine.specs import Recipe, RunSpec
from recombine.tasks import BumpTask, Each

LANES = 8
"""Channels that the page's products of matrices have side by side."""
LIVE = RunSpec(
    task=BumpTask(size=28, training="each"),
    decoder=CNN(width=8, depth=2),
    recipe=Recipe(steps=400, batch=16, lr=3e-3),
)
"""What the panel trains without stripes: every kept combination."""
LIVE_STRIPES = LIVE.replace(task=LIVE.task.replace(isolated=True))
"""The same with every single factor value shown alone."""


def training_settings(spec: RunSpec = LIVE) -> dict[str, Any]:
    """What the page's script needs to train a spec, with stripes or without; seeds are the page's own.

    Parameters
    ----------
    spec
        A CNN on the bump task.

    Returns
    -------
    dict
        As JSON has it.

    Examples
    --------
    >>> training_settings()["recipe"]["steps"]
    400
    """
    task, recipe = spec.task, spec.recipe
    _check(spec)
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


def _check(spec: RunSpec) -> None:
    """Refuse what the page's script does not train."""
    task, decoder, recipe = spec.task, spec.decoder, spec.recipe
    if not isinstance(task, BumpTask) or task.brightness > 1:
        raise InvalidValue("task", task.kind, "bump, of two factors")
    if not isinstance(decoder, CNN):
        raise InvalidValue("decoder", decoder.kind, "cnn")
    reached = {FIRST_SIZE * 2**blocks for blocks in range(decoder.depth + 1)}
    for field, value, right, allowed in (
        ("encoding", str(task.encoding), isinstance(task.encoding, Bump), "bump"),
        ("training", str(task.training), isinstance(task.training, Each), "each"),
        ("centers", task.centers, task.centers == "integer", "integer"),
        ("region", task.region, task.region == "kept", "kept"),
        ("mixing", task.mixing, task.mixing is None, "nothing"),
        ("isolated_factors", task.isolated_factors, task.isolated_factors is None, "all factors"),
        ("direction", task.direction, task.direction == "decode", "decode"),
        ("size", task.size, task.size in reached, f"a size that the decoder reaches by doubling {FIRST_SIZE}"),
        ("width", decoder.width, decoder.width % LANES == 0, f"a multiple of {LANES}"),
        ("steps", recipe.steps, recipe.steps is not None, "a number of steps"),
        ("absolute", recipe.absolute, recipe.absolute == 0, "0"),
        ("precision", recipe.precision, recipe.precision == "float32", "float32"),
    ):
        if not right:
            raise InvalidValue(field, value, allowed)
