"""Datasets and networks of the remedies' studies that are made by hand, so that what they show is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import xarray
from torch import Tensor

from recombine.metrics import extreme_pixel, hits, squared_error
from recombine.papers.forced_rendering.scores import fit_of_outputs
from recombine.papers.forced_rendering.stripes import (
    FAMILIES,
    FULL,
    PERCENT,
    PERCENT_ALONE,
    WITH,
    WITHOUT,
    conjunctions,
)
from recombine.reproduction.claims import Claim, Data, Judgement, judge
from recombine.tasks import BumpTask

SEEDS = 12
NUMBERS, PERCENTS, ALL = (0, 10, 50, 100, 200), (1, 5, 20, 50), 2000
LEARNT = {"id_over_blank": 0.01, "id_accuracy": 1.0, "training_over_blank": 0.01, "training_accuracy": 1.0}


def noise(seed: int = 0) -> np.ndarray:
    """A little of it for every seed, the same every time."""
    return 0.001 * np.random.default_rng(seed).normal(size=SEEDS)


def verdict_of(claim: Claim, data: Data) -> Judgement:
    """The verdict on one claim."""
    (found,) = judge([claim], data)
    return found


def outcomes(tests: list) -> list[str]:
    """In their order."""
    return [test.outcome for test in tests]


def stripes_data(**values: float | Mapping[tuple[str, int], float | list[float]]) -> xarray.Dataset:
    """The stripe study's Dataset: numbers of all arms, or by family and number of bumps; lists are over stages."""
    arms = [(WITH, n) for n in NUMBERS] + [(WITHOUT, n) for n in NUMBERS if n] + [(FULL, ALL)]
    arms += [(family, p) for family in (PERCENT, PERCENT_ALONE) for p in PERCENTS]
    bumps = list(dict.fromkeys(n for _, n in arms))
    coords = {"family": list(FAMILIES), "bumps": bumps, "seed": np.arange(SEEDS)}
    variables = {}
    for name, own in {**LEARNT, **values}.items():
        by_arm = own if isinstance(own, Mapping) else dict.fromkeys(arms, own)
        stages = max((len(value) for value in by_arm.values() if isinstance(value, list)), default=0)
        table = np.full((len(FAMILIES), len(bumps), SEEDS, *([stages] if stages else [])), np.nan)
        for (family, number), value in by_arm.items():
            disturbance = (
                np.stack([noise(number + stage) for stage in range(stages)], axis=1) if stages else noise(number)
            )
            table[FAMILIES.index(family), bumps.index(number)] = np.asarray(value) + disturbance
        variables[name] = (("family", "bumps", "seed", *(["stage"] if stages else [])), table)
    attributes = {"added": list(NUMBERS), "percents": list(PERCENTS), "full": ALL, "shown": 50, "many": 100}
    return xarray.Dataset(variables, coords=coords, attrs=attributes)


# -- networks: outputs for bumps at all grid points and for single factors, given what they were trained on ------------

Drawn = tuple[Tensor, Tensor]
Network = Callable[[BumpTask, int], Drawn]
TASK = BumpTask(size=14)
FEW = 30


def truth(task: BumpTask) -> Drawn:
    """Everything drawn right."""
    return task.render(task.grid.points), task.render(task.isolated_values())


def sum_of_stripes(task: BumpTask) -> Tensor:
    """The two stripes of every grid point, one upon the other."""
    points, stripes = task.grid.points, task.render(task.isolated_values())
    x, y = points.long().T
    return stripes[x] + stripes[task.size + y]


def trained_mask(task: BumpTask, seed: int) -> Tensor:
    """Grid points in the training set."""
    values = task.training_values(seed)
    bumps = values[values.isfinite().all(dim=1)]
    return (task.grid.points[:, None] == bumps[None]).all(dim=-1).any(dim=-1)


def as_claimed(task: BumpTask, seed: int) -> Drawn:
    """Sums of stripes after stripes alone, bumps after stripes and bumps, nothing new after bumps alone."""
    right, stripes = truth(task)
    if not task.isolated:
        return right * trained_mask(task, seed)[:, None, None], stripes * 0
    return (right if bool(trained_mask(task, seed).any()) else sum_of_stripes(task)), stripes


def ideal_composer(task: BumpTask, seed: int) -> Drawn:
    """Bumps whatever stripes it was trained with; without stripes only those that it saw."""
    right, stripes = truth(task)
    return (right, stripes) if task.isolated else as_claimed(task, seed)


def exact_superposer(task: BumpTask, seed: int) -> Drawn:
    """Sums of stripes, but for the very bumps that it was trained on."""
    right, stripes = truth(task)
    seen = trained_mask(task, seed)[:, None, None]
    return torch.where(seen, right, sum_of_stripes(task) if task.isolated else 0 * right), stripes


def random_features(task: BumpTask, seed: int) -> Drawn:
    """A random hidden layer with a read-out fitted to the training set by least squares."""
    generator = torch.Generator().manual_seed(seed)
    values = task.training_values(seed)
    weights = torch.randn(sum(task.code_sizes), 600, generator=generator, dtype=torch.float64)
    offsets = torch.randn(600, generator=generator, dtype=torch.float64)

    def hidden(rows: Tensor) -> Tensor:
        return (task.codes(rows).double() @ weights + offsets).relu()

    readout = torch.linalg.pinv(hidden(values), rtol=1e-9) @ task.render(values).flatten(1).double()
    return tuple(  # type: ignore[return-value]
        (hidden(rows) @ readout).unflatten(1, task.image_shape) for rows in (task.grid.points, task.isolated_values())
    )


def not_learnt(task: BumpTask, seed: int) -> Drawn:
    """Noise."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(0.01 * torch.randn(images.shape, generator=generator) for images in truth(task))  # type: ignore[return-value]


def scored(network: Network, task: BumpTask) -> dict[str, np.ndarray]:
    """What the stripe study measures on a network's outputs, one number per seed."""
    drawn = [network(task, seed) for seed in range(SEEDS)]
    outputs, alone = (torch.stack([images[part].float() for images in drawn]) for part in range(2))
    points, right = task.grid.points, task.render(task.grid.points).float()
    error, blank = squared_error(outputs, right), squared_error(torch.zeros_like(right), right)
    hit, held_out = hits(extreme_pixel(outputs), points).double(), task.held_out
    scores = {
        "ood_mse": error[:, held_out].mean(dim=1),
        "ood_over_blank": error[:, held_out].mean(dim=1) / blank[held_out].mean(),
        "ood_accuracy": hit[:, held_out].mean(dim=1),
        "id_over_blank": error[:, ~held_out].mean(dim=1) / blank[~held_out].mean(),
        **fit_of_outputs(task, range(SEEDS), outputs, alone if task.isolated else None),
        **(conjunctions(task, outputs, alone) if task.isolated else {}),
    }
    return {name: value.double().numpy() for name, value in scores.items()}


def planted_stripes(network: Network) -> xarray.Dataset:
    """The stripe study's Dataset of such networks, as far as C10 reads it."""
    arms = {
        (WITH, 0): TASK.replace(isolated=True, training="pick:0"),
        (WITH, FEW): TASK.replace(isolated=True, training=f"pick:{FEW}"),
        (WITHOUT, FEW): TASK.replace(training=f"pick:{FEW}"),
        (FULL, ALL): TASK.replace(training="each"),
    }
    bumps = [0, FEW, ALL]
    measured = {arm: scored(network, task) for arm, task in arms.items()}
    names = dict.fromkeys(name for own in measured.values() for name in own)
    variables = {}
    for name in names:
        table = np.full((len(FAMILIES), len(bumps), SEEDS), np.nan)
        for (family, number), own in measured.items():
            if name in own:
                table[FAMILIES.index(family), bumps.index(number)] = own[name]
        variables[name] = (("family", "bumps", "seed"), table)
    coords = {"family": list(FAMILIES), "bumps": bumps, "seed": np.arange(SEEDS)}
    return xarray.Dataset(
        variables, coords=coords, attrs={"added": [0, FEW], "full": ALL, "shown": FEW, "many": FEW, "percents": [0]}
    )
