"""What studies read off finished runs, and how it becomes a labelled Dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.reproduction.batches import Batch, batches
from recombine.reproduction.study import DONE, Labels, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec
from recombine.store import Run

if TYPE_CHECKING:
    import xarray

SAMPLE_POSITIONS = ((0.5, 0.5), (0.25, 0.25), (0.75, 0.25), (0.25, 0.75))
"""Where in the held-out region drawings are kept, as shares of its extent along x and y."""
DRAWING = ("sample", "row", "column")
"""Dimensions of the drawings at those positions."""

TRAINED = "trained"
"""Variable of a Dataset that tells networks that were trained from those that there never were."""
Measured = Mapping[str, Any]
"""Arrays or tensors by name, each with a leading member axis: one row per run of a batch."""


def tabulate(
    trials: Trials[Any],
    dims: Sequence[str],
    measure: Callable[[Batch], Measured],
    inner: Mapping[str, Sequence[str]] | None = None,
) -> xarray.Dataset:
    """A Dataset over the arms' labels and the seed of what is measured on each run, a batch of an arm's runs at a time.

    Arrays of different lengths, arms with fewer seeds and labels that were not trained together are filled up with NaN,
    and so are runs that diverged, which are not measured: a network that stopped half-way is no example of what
    training leads to.

    Parameters
    ----------
    trials
        The runs, by arm and seed.
    dims
        Names of the dimensions that the arms' labels are along.
    measure
        Gives the numbers and arrays of a batch of runs by name, one row per run.
    inner
        Names of the dimensions that a run's array has of its own.

    Returns
    -------
    xarray.Dataset
        A variable per name, over `dims`, `seed` and its inner dimensions; and `trained`, which is 1 for every network
        that was trained, to its end or not.
    """
    import xarray

    inner = inner or {}
    labels = [list(dict.fromkeys(arm[k] for arm in trials)) for k in range(len(dims))]
    rows: dict[tuple[Labels, int], dict[str, np.ndarray]] = {}
    for arm, runs in trials.items():
        done = [seed for seed, run in enumerate(runs) if run.status == DONE]
        measured = _measured([runs[seed] for seed in done], trials.device, measure)
        rows |= {(arm, seed): row for seed, row in zip(done, measured, strict=True)}
    if not rows:
        every = sum(len(runs) for _, runs in trials.items())
        raise InvalidValue("runs", f"all {every} diverged", "some that train to their end: a smaller lr may do")
    outer = (*(len(label) for label in labels), trials.seeds)
    tables = {name: np.full((*outer, *own), np.nan, dtype=np.float32) for name, own in _shapes(rows.values()).items()}
    tables[TRAINED] = np.zeros(outer, dtype=np.float32)

    def position(arm: Labels, seed: int) -> tuple[int, ...]:
        return (*(labels[k].index(arm[k]) for k in range(len(dims))), seed)

    for (arm, seed), values in rows.items():
        for name, value in values.items():
            tables[name][position(arm, seed) + tuple(slice(size) for size in np.shape(value))] = value
    for arm, runs in trials.items():
        tables[TRAINED][position(arm, 0)[:-1]][: len(runs)] = 1
    coords = {
        dim: [str(v) if isinstance(v, str) else v for v in label] for dim, label in zip(dims, labels, strict=True)
    }
    variables = {name: ((*dims, "seed", *inner.get(name, ())), table) for name, table in tables.items()}
    return xarray.Dataset(variables, coords={**coords, "seed": trials.preset.first_seed + np.arange(trials.seeds)})


def _measured(
    runs: Sequence[Run], device: torch.device, measure: Callable[[Batch], Measured]
) -> Iterator[dict[str, np.ndarray]]:
    """What is measured on each of an arm's runs."""
    for batch in batches(runs, device):
        values = {name: value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
                  for name, value in measure(batch).items()}  # fmt: skip
        for name, value in values.items():
            if value.shape[:1] != (len(batch),):
                raise InvalidValue(f"measured {name}", value, f"one row for each of {len(batch)} runs")
        for member in range(len(batch)):
            yield {name: value[member] for name, value in values.items()}


def _shapes(rows: Iterable[Measured]) -> dict[str, tuple[int, ...]]:
    """The smallest shape that holds every run's array, by name."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for values in rows:
        for name, value in values.items():
            shapes.setdefault(name, []).append(np.shape(value))
    return {name: tuple(max(sizes) for sizes in zip(*own, strict=True)) for name, own in shapes.items()}


def grid_variables(spec: RunSpec) -> dict[str, Any]:
    """The held-out mask and the coordinates of a two-factor grid, for any study over one."""
    task = spec.task
    x, y = (factor.values.numpy() for factor in task.grid.factors[:2])
    return {"held_out": (("y", "x"), task.held_out.reshape(task.grid.shape).T.numpy()), "x": x, "y": y}


def base_attributes(trials: Trials[Any], **more: Any) -> dict[str, Any]:
    """Attributes that captions need, of any study: the preset's name, the background of images, and more."""
    return {"preset": trials.preset.name, "background": trials.first.spec.task.background, **more}


def grid_maps(batch: Batch, name: str) -> np.ndarray:
    """A stored array over grid points as images of the (x, y) grid: `[member, y, x]`."""
    return batch.stored(name).reshape(len(batch), *batch.task.grid.shape).swapaxes(1, 2).astype(np.float32)


def sample_points(spec: RunSpec) -> Tensor:
    """Grid points spread over the held-out region: `(sample, (x, y))`."""
    task = spec.task
    where = torch.nonzero(task.held_out.reshape(task.grid.shape))
    low, high = where.min(dim=0).values, where.max(dim=0).values
    positions = [low + torch.tensor(share) * (high - low) for share in SAMPLE_POSITIONS]
    nearest = [where[((where - position) ** 2).sum(dim=1).argmin()] for position in positions]
    return torch.stack(nearest).double()


def drawings(batch: Batch) -> Tensor:
    """The networks' outputs at held-out positions, over members and `DRAWING`."""
    return batch.outputs(sample_points(batch.spec))


def with_positions(result: xarray.Dataset, spec: RunSpec, *means: str) -> xarray.Dataset:
    """A Dataset of drawings with where they are; of drawings and `means` the first seed, of `means` the mean too."""
    kept = keep_first(result, *means, "drawing").drop_vars("mean_drawing")
    return kept.assign(place=(("sample", "axis"), sample_points(spec).numpy()), **grid_variables(spec))
