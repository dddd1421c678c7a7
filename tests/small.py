"""Small specs that train in a second."""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import torch

from recombine.decoders import DECODERS, DecoderSpec
from recombine.specs import Recipe, RunSpec
from recombine.tasks import TASKS, BumpTask, Task

SMALL_FIELDS = {
    "width": 8,
    "depth": 2,
    "heads": 2,
    "feedforward": 8,
    "channels": {"encoder": (4, 6), "low_rank": 2},
    "hidden": 12,
    "rank": 4,
    "base": "cnn:width=8:depth=2",
    "steps": 2,
}


def small_decoder(name: str) -> DecoderSpec:
    """A decoder of any registered kind with few parameters; fields it does not have are left out."""
    cls = DECODERS[name]
    fields = {}
    for field, value in SMALL_FIELDS.items():
        if field in cls.model_fields:
            chosen = value.get(name) if isinstance(value, dict) else value
            if chosen is not None:
                fields[field] = chosen
    return cls(**fields)


def small_penalties(decoder: DecoderSpec) -> tuple[str, ...]:
    return ("entropy:0.05", "variance:0.02") if decoder.kind == "low_rank" else ()


def small_spec(
    decoder: str | DecoderSpec = "mlp", *, seed: int = 0, task: dict | None = None, penalties=None, **recipe
) -> RunSpec:
    """A run of a few dozen steps on a small grid; penalties are on where the decoder has them."""
    spec = decoder if isinstance(decoder, DecoderSpec) else small_decoder(decoder)
    length = {} if "epochs" in recipe else {"steps": 12}
    return RunSpec(
        task=BumpTask(**{"size": 8, "training": "draws:50", "direction": spec.direction, **(task or {})}),
        decoder=spec,
        recipe=Recipe(**{"batch": 16, "weight_decay": 0.05, **length, **recipe}),
        seed=seed,
        penalties=small_penalties(spec) if penalties is None else penalties,
    )


def labelled_images(count: int, channels: int = 0) -> dict:
    """Images of a user's own of so many factors, numbers with uneven steps, angles and categories among them."""
    values = {"x": (0, 1, 4), "angle": (0, 90, 180), "shape": ("disc", "heart", "ring"), "y": (0, 1, 2), "z": (0, 1, 2)}
    names = [*values][:count]
    points = list(product(*(values[name] for name in names)))
    shape = (len(points), 6, 6, *([channels] if channels else []))
    columns = {name: [point[k] for point in points] for k, name in enumerate(names)}
    angular = ("angle",) if count > 1 else ()
    return {"images": np.random.default_rng(count).random(shape), "factors": columns, "angular": angular}


SMALL_TASKS: dict[str, tuple[dict, ...]] = {
    "bump": ({"size": 6}, {"size": 6, "brightness": 3}),
    "rotation": ({}, {"digits": 3}),
    "bumps": (
        {"factors": "x=3"}, {"factors": "x=3,y=3"}, {"factors": "x=3,y=3,size=3"},
        {"factors": "x=3,y=3,size=3,intensity=3"}, {"factors": "x=3,y=3,size=3,intensity=3,orientation=3"},
    ),
    "sprites": (
        {"size": 20, "factors": "scale=3"}, {"size": 20, "factors": "shape=3,rotation=3"},
        {"size": 20, "factors": "shape=3,x=3,y=3", "colour": True}, {"size": 20, "factors": "shape=3,x=3,y=3,hue=3"},
        {"size": 20, "factors": "shape=3,x=3,y=3,x2=3,y2=3", "sprites": 2},
    ),
    "array": tuple(labelled_images(count, channels) for count, channels in enumerate((0, 3, 0, 3, 0), 1)),
    "balls": ({"size": 20, "factors": "x=3,y=3"}, {"size": 20, "factors": "x=3,y=3,x2=3,y2=3"}),
}  # fmt: skip
"""Fields of small tasks of a kind, one for each number of factors that it can have."""
SMALL_SIDES = {"size": 6, "angles": 10}


def small_tasks(name: str) -> list[Callable[..., Task]]:
    """Makers of small tasks of any registered kind, each with fields of one's own."""
    cls = TASKS[name]
    sides = {field: value for field, value in SMALL_SIDES.items() if field in cls.model_fields}
    return [partial(cls, **{**sides, **fields}) for fields in SMALL_TASKS.get(name, ({},))]


def stage_reader(module, encode):
    """A reader of the input and every stage of one decoder."""

    def read(values, tap):
        codes = encode(values)
        tap("input", codes)
        for name, activation in module.walk(codes):
            tap(name, activation)

    return read


def noise(*shape, seed=0):
    """Normal numbers in double precision."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
