"""Datasets of networks that nobody trained: numbers along stages as a test wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import xarray

SEEDS = 40
INPUT = 9.9
"""At the input stage, which most claims do not read."""
FAILED = {"id_over_blank": 0.02, "id_accuracy": 1.0, "ood_over_blank": 1.0, "ood_accuracy": 0.05, "trained": 1.0}
"""Scores of a network that learnt and does not compose."""
COMPOSED = {**FAILED, "ood_over_blank": 0.05, "ood_accuracy": 1.0}
UNLEARNT = {**FAILED, "id_over_blank": 0.6, "id_accuracy": 0.5}
ABSENT = dict.fromkeys(FAILED, np.nan) | {"trained": 0.0}

Curve = Callable[..., Sequence[float] | None]
"""From an arm's labels, the values from the first hidden stage to the output; none where it was not trained."""


def line(first: float, last: float, stages: int) -> np.ndarray:
    """Values that change evenly from the first hidden stage to the output."""
    return np.linspace(first, last, stages)


def planted(
    labels: Mapping[str, Sequence[object]],
    curves: Mapping[str, Curve],
    scores: Callable[..., Mapping[str, float]] = lambda *arm: FAILED,
    noise: float = 0.005,
    seeds: int = SEEDS,
    inputs: Mapping[str, float] | None = None,
    **attributes: object,
) -> xarray.Dataset:
    """A Dataset over labels, seeds and stages, every value with noise of its own but for the learning scores."""
    random = np.random.default_rng(7)
    arms = list(product(*labels.values()))
    stages = 1 + max(len(own) for curve in curves.values() for arm in arms if (own := curve(*arm)) is not None)
    shape = tuple(len(values) for values in labels.values())
    variables = {}
    for name, curve in curves.items():
        table = np.full((len(arms), seeds, stages), np.nan)
        for row, arm in zip(table, arms, strict=True):
            if (own := curve(*arm)) is not None:
                row[:, 0] = (inputs or {}).get(name, INPUT)
                row[:, 1 : 1 + len(own)] = np.asarray(own) + noise * random.standard_normal((seeds, len(own)))
        variables[name] = ((*labels, "seed", "stage"), table.reshape(*shape, seeds, stages))
    for name in FAILED:
        table = np.array([[scores(*arm)[name]] * seeds for arm in arms])
        variables[name] = ((*labels, "seed"), table.reshape(*shape, seeds))
    return xarray.Dataset(variables, coords={dim: list(values) for dim, values in labels.items()}, attrs=attributes)
