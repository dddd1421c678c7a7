"""What no change of the code may change: keys, weights, measurements, files of users and exit codes.

The expected values lie beside the tests and were written once, by `python -m tests.frozen.make`, before the code was
reduced. They are not to be written again because a test fails: wording may change, these may not.
"""

import json
import platform
from functools import cache
from pathlib import Path

import numpy as np
import torch
import xarray

import recombine as rc

FROZEN = Path(__file__).parent
EXPECTED = FROZEN / "expected.json"
PAPER_RESULTS = FROZEN.parents[1] / "results" / "paper"
PACKED = FROZEN / "folders.tar.gz"
"""A store with finished runs and a checkpoint, and a results folder."""
SAME_MACHINE = platform.machine() == "x86_64" and torch.__version__.startswith("2.13.")
"""Whether bits are comparable: other processors and versions of torch may differ in the last digits."""
SMALL = {"size": 8, "training": "draws:50"}
RECIPE = {"steps": 12, "batch": 16, "weight_decay": 0.05}
LONG = 400
"""Steps of the run that was interrupted."""
TINY = ["seeds=2", "extra_seeds=1", "size=8", "width=4", "steps=20", "samples=60", "depths=2", "variances=1,5"]
DECODERS = {
    "cnn": "cnn:width=8:depth=2",
    "mlp": "mlp:width=8:depth=2",
    "transformer": "transformer:width=8:depth=2:heads=2:feedforward=8",
    "coordinate": "coordinate:width=8:depth=2",
    "low_rank": "low_rank:channels=2:depth=2:rank=4",
    "encoder": "encoder:channels=4,6:hidden=12",
}


def small_spec(name: str) -> rc.RunSpec:
    """A run of a second with a decoder."""
    direction = "encode" if name == "encoder" else "decode"
    penalties = ("entropy:0.05", "variance:0.02") if name == "low_rank" else ()
    return rc.RunSpec(
        task=rc.BumpTask(**SMALL, direction=direction),
        decoder=DECODERS[name],
        recipe=rc.Recipe(**RECIPE),
        seed=3,
        penalties=penalties,
    )


def long_spec() -> rc.RunSpec:
    """The run whose checkpoint is in the store."""
    spec = small_spec("mlp")
    return spec.replace(recipe=spec.recipe.replace(steps=LONG), seed=9)


@cache
def varied_specs() -> dict[str, rc.RunSpec]:
    """Specs that use every family of parts, by name."""
    tasks = {
        **{
            f"encoding {name}": rc.BumpTask(encoding=name)
            for name in ("onehot", "rate", "ramp", "positional", "bump:3")
        },
        **{
            f"holdout {name}": rc.BumpTask(holdout=name)
            for name in ("center:8:20", "corner", "cross", "L", "random", "none", "diagonal", "orthogonal")
        },
        **{f"training {name}": rc.BumpTask(training=name) for name in ("draws:200", "each", "pick:100", "percent:20")},
        "isolated": rc.BumpTask(isolated=True, training="pick:50", mixing=0.5),
        "dark": rc.BumpTask(polarity="dark", sigma=1.5, size=32, centers="real"),
        "whole": rc.BumpTask(region="whole"),
        "brightness": rc.BumpTask(brightness=3),
        "rotation": rc.RotationTask(),
        "bumps": rc.BumpsTask(factors="x=5,y=5,size=3"),
        "sprites": rc.SpriteTask(),
        "balls": rc.BallsTask(),
    }
    recipes = {
        "steps": rc.Recipe(steps=100),
        "absolute": rc.Recipe(absolute=0.1, weight_decay=1e-4),
        "betas": rc.Recipe(beta1=0.8, beta2=0.99),
        "bf16": rc.Recipe(precision="bf16"),
    }
    specs = {name: rc.RunSpec(task=task, decoder="cnn:width=16") for name, task in tasks.items()}
    specs |= {f"recipe {name}": rc.RunSpec(recipe=recipe) for name, recipe in recipes.items()}
    return specs | {f"decoder {name}": small_spec(name) for name in DECODERS}


def expected() -> dict:
    """What was written before."""
    return json.loads(EXPECTED.read_text())


class Module(torch.nn.Module):
    """A module of a user's own, with weights that need no random numbers."""

    def __init__(self, inputs: int = 16, pixels: int = 36) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(inputs, 12), torch.nn.Linear(12, pixels)
        for layer in (self.first, self.second):
            count = layer.weight.numel()
            layer.weight.data = torch.sin(torch.arange(count, dtype=torch.float32)).reshape(layer.weight.shape)
            layer.bias.data = torch.cos(torch.arange(len(layer.bias), dtype=torch.float32)) / 4

    def forward(self, code: torch.Tensor) -> torch.Tensor:
        """Pixels."""
        return self.second(torch.tanh(self.first(code)))


def labelled_images(path: Path) -> Path:
    """A data file with two factors of six values, and images of 6 × 6."""
    values = np.array([[x, y] for x in range(6) for y in range(6)], dtype=float)
    rows, columns = np.mgrid[:6, :6]
    images = np.exp(-((columns - values[:, :1, None]) ** 2 + (rows - values[:, 1:, None]) ** 2) / 2)
    np.savez(path, imgs=images, latents_values=values, factor_names=["x", "y"])
    return path


def diagnoses(run: rc.Run, folder: Path) -> dict[str, xarray.Dataset]:
    """Measurements of a module, of a run and on a data file."""
    data = labelled_images(folder / "images.npz")
    module = Module().eval()
    small = Module(inputs=12).eval()
    return {
        "module": rc.diagnose(module, "x=0:7,y=0:7", encode="bump", holdout="center:2:5"),
        "run": rc.diagnose(run),
        "data": rc.diagnose(small, data=data, encode="bump", holdout="center:2:3"),
    }


def plain(dataset: xarray.Dataset) -> dict[str, list]:
    """By name, the shape of every numeric variable and a summary of its values that any change would move."""
    summary = {}
    for name, variable in sorted(dataset.data_vars.items()):
        if variable.dtype.kind in "bifu":
            values = np.nan_to_num(variable.values.astype(float).ravel(), nan=-7.0, posinf=9.0, neginf=-9.0)
            weights = np.cos(np.arange(len(values)))
            summary[str(name)] = [list(variable.shape), float(values.sum()), float(values @ weights)]
    return summary


COMMANDS: dict[str, int] = {
    "--version": 0,
    "--help": 0,
    "train --help": 0,
    "train --width 0": 2,
    "train --nonsense": 2,
    "train --decoder nothing": 2,
    "train --task array --data missing.npz": 2,
    "train --store {store} --decoder mlp:width=8:depth=1 --size 8 --training draws:50 --steps 3 --device cpu": 0,
    "nonsense": 2,
    "runs list --store {store}": 0,
    "runs list --store {missing}": 2,
    "runs show zzzz --store {store}": 2,
    "verify {store}": 0,
    "verify {results}": 0,
    "verify {damaged}": 1,
    "verify {missing}": 2,
    "claims --from {missing}": 2,
    "figure nothing --from {results}": 2,
    "reproduce nothing --store {store} --out {out}": 2,
    "reproduce C1 --preset nothing --store {store} --out {out}": 2,
    "diagnose nothing:nothing": 2,
    "diagnose torch.nn:Identity --grid x=0:3,y=0:3": 0,
    "explore nothing:nothing --out {out}.html": 2,
    "sweep {missing}": 2,
}
"""Exit codes of commands."""
