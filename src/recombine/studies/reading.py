"""What studies read off finished runs, and how it becomes a labelled Dataset.

Conventions: stage 0 is the input code; what is measured at each stage is registered in `recombine.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recombine.errors import InvalidValue
from recombine.metrics import decoder_reader, metric_tensor
from recombine.metrics.profile import read_stages
from recombine.metrics.profile import stage_profile as registered_profile
from recombine.metrics.registry import STAGE_METRICS, Column, Need
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.studies.base import DONE, Trials

if TYPE_CHECKING:
    import xarray

MEMORY = {"cpu": 1 << 30, "cuda": 16 << 30}
"""Bytes that a measurement may keep at a time."""
ANSWERED_AT_ONCE = 256
SAMPLE_PLACES = ((0.5, 0.5), (0.25, 0.25), (0.75, 0.25), (0.25, 0.75))
"""Where in the held-out region networks are asked to draw, as shares of its extent along x and y."""

PROBES = frozenset({"probe_in_sample", "probe_held_out"})
"""Registered metrics that fit linear probes, the slowest ones."""

Found = Mapping[str, Any]


def tabulate(
    trials: Trials,
    dims: Sequence[str],
    measure: Callable[[Run], Found],
    inner: Mapping[str, Sequence[str]] | None = None,
) -> xarray.Dataset:
    """A Dataset over the arms' labels and the seed from what is measured on each run.

    `inner` names the dimensions that a measured array has of its own. Arrays of different lengths along them, arms with
    fewer seeds and labels that were not trained together are filled up with NaN, and so are runs that diverged, which
    are not measured: a network that stopped half-way is no example of what training leads to.
    """
    import xarray

    inner = inner or {}
    labels = [list(dict.fromkeys(arm[k] for arm in trials)) for k in range(len(dims))]
    tables: dict[str, np.ndarray] = {}
    every = {(arm, seed): run for arm, runs in trials.items() for seed, run in enumerate(runs)}
    found = {where: measure(run) for where, run in every.items() if run.status == DONE}
    if not found:
        raise InvalidValue("runs", f"all {len(every)} diverged", "some that train to their end: a smaller lr may do")
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for values in found.values():
        for name, value in values.items():
            shapes.setdefault(name, []).append(np.shape(value))
    for name, seen in shapes.items():
        own = tuple(max(sizes) for sizes in zip(*seen, strict=True))
        tables[name] = np.full((*(len(label) for label in labels), trials.seeds, *own), np.nan, dtype=np.float32)
    for (arm, seed), values in found.items():
        at = (*(labels[k].index(arm[k]) for k in range(len(dims))), seed)
        for name, value in values.items():
            tables[name][at + tuple(slice(size) for size in np.shape(value))] = value
    coords = {
        dim: [str(v) if isinstance(v, str) else v for v in label] for dim, label in zip(dims, labels, strict=True)
    }
    variables = {name: ((*dims, "seed", *inner.get(name, ())), table) for name, table in tables.items()}
    return xarray.Dataset(variables, coords={**coords, "seed": np.arange(trials.seeds)})


def keep_first(result: xarray.Dataset, *names: str) -> xarray.Dataset:
    """Keep of some large variables the first seed that counts and, as `mean_…`, the mean over seeds."""
    kept = {}
    for name in names:
        kept[name] = first_seed(result[name])
        kept[f"mean_{name}"] = result[name].mean("seed")
    return result.drop_vars(names).assign(kept)


def first_seed(values: xarray.DataArray) -> xarray.DataArray:
    """Each arm's first seed with a value."""
    inner = values.dims[values.dims.index("seed") + 1 :]
    first = values.notnull().any(inner).argmax("seed")
    rest = [dim for dim in values.dims if dim != "seed"]
    return values.isel(seed=first).drop_vars("seed").transpose(*rest)


def listed_attribute(result: xarray.Dataset, name: str) -> list[int]:
    """An attribute that is a list of whole numbers; files give a list of one back as a number."""
    return [int(value) for value in np.atleast_1d(result.attrs[name])]


def grid_variables(spec: RunSpec) -> dict[str, Any]:
    """The held-out mask and the coordinates of a two-factor grid, for any study over one."""
    task = spec.task
    x, y = (factor.values.numpy() for factor in task.grid.factors[:2])
    return {"held_out": (("y", "x"), task.held_out.reshape(task.grid.shape).T.numpy()), "x": x, "y": y}


def base_attributes(trials: Trials) -> dict[str, Any]:
    """What captions need to know."""
    first = next(iter(trials.items()))[1][0].spec.task
    return {"preset": trials.preset.name, "background": first.background, "size": trials.preset.size}


def grid_map(run: Run, name: str) -> np.ndarray:
    """An array a grid point as an image of the (x, y) grid: `[y, x]`."""
    return np.asarray(run.arrays()[name]).reshape(run.spec.task.grid.shape).T.astype(np.float32)


def sample_points(spec: RunSpec) -> Tensor:
    """Grid points spread over the held-out region: `(sample, (x, y))`."""
    task = spec.task
    where = torch.nonzero(task.held_out.reshape(task.grid.shape))
    low, high = where.min(dim=0).values, where.max(dim=0).values
    wanted = [low + torch.tensor(share) * (high - low) for share in SAMPLE_PLACES]
    nearest = [where[((where - place) ** 2).sum(dim=1).argmin()] for place in wanted]
    return torch.stack(nearest).double()


@torch.no_grad()
def answers(run: Run, values: Tensor, device: torch.device) -> Tensor:
    """What the network answers to rows of factor values, on the CPU."""
    module = run.module().to(device)
    inputs = run.spec.task.examples(values).inputs
    return torch.cat([module(part.to(device)).float().cpu() for part in inputs.split(ANSWERED_AT_ONCE)])


def stage_profile(run: Run, device: torch.device, *, probes: bool = True, maps: bool = True) -> dict[str, np.ndarray]:
    """The registered metrics of every stage of a network over a two-factor grid, one row per stage.

    Parameters
    ----------
    run
        A finished run.
    device
        Where the network is measured.
    probes
        Whether linear probes are fitted.
    maps
        Whether columns that have a number at every grid point are kept, as `[stage, y, x]`.

    Returns
    -------
    dict of ndarray
        By the column's name in studies. Values per factor are averaged. Codes without a derivative have finite
        differences only.
    """
    task, module = run.spec.task, run.module().to(device)
    points = task.grid.points.to(device)
    reader = decoder_reader(module, lambda values: task.codes(values).float())
    memory = MEMORY[device.type]
    exact = metric_tensor(reader, points, memory=memory) if task.encoding.differentiable else None
    metrics = [metric for metric in STAGE_METRICS.in_studies() if probes or metric.name not in PROBES]
    targets = task.render(task.grid.points) if any(Need.TARGETS in metric.needs for metric in metrics) else None
    stages = read_stages(reader, points, task.grid, task.held_out, exact=exact, targets=targets, memory=memory)
    columns = registered_profile(stages, [metric.name for metric in metrics]).columns
    return {
        column.study_name: torch.stack([_row(column, value, task.grid.shape) for value in columns[column.name]])
        .float().cpu().numpy()
        for metric in metrics
        for column in metric.columns
        if column.name in columns and (maps or "point" not in column.dims)
    }  # fmt: skip


def _row(column: Column, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A stage's value of a column: means over factors, maps as `[y, x]`."""
    if column.dims == ("point",):
        return value.reshape(shape).T
    return value.mean(dim=column.dims.index("factor")) if "factor" in column.dims else value


class _StageDims(Mapping[str, Sequence[str]]):
    """Dimensions of what `stage_profile` gives, with all metrics that are registered by now."""

    def __getitem__(self, name: str) -> Sequence[str]:
        return self._dims()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims())

    def __len__(self) -> int:
        return len(self._dims())

    @staticmethod
    def _dims() -> dict[str, Sequence[str]]:
        return {
            column.study_name: ("stage", "y", "x") if column.dims == ("point",)
            else ("stage", *(dim for dim in column.dims if dim != "factor"))
            for metric in STAGE_METRICS.in_studies()
            for column in metric.columns
        }  # fmt: skip


STAGE_DIMS: Mapping[str, Sequence[str]] = _StageDims()
"""Dimensions of what `stage_profile` gives."""


def stage_slope(values: xarray.DataArray) -> xarray.DataArray:
    """Least-squares slope over the stages that a network has."""
    import xarray

    stage = xarray.DataArray(np.arange(values.sizes["stage"], dtype=float), dims="stage").where(values.notnull())
    centred = stage - stage.mean("stage")
    power = (centred**2).sum("stage")
    return (centred * values).sum("stage") / power.where(power > 0)


def last_stage(values: xarray.DataArray) -> xarray.DataArray:
    """The value at each network's last stage: its answer."""
    last = values.notnull().sum("stage") - 1
    return values.isel(stage=last.clip(min=0))


def all_depths(values: xarray.DataArray) -> xarray.DataArray:
    """The mean over depths of the seeds that have a value at each."""
    return values.mean("depth", skipna=False)


def per_seed(values: xarray.DataArray) -> list[float]:
    """A score's values over seeds."""
    return [float(value) for value in values.values]


def log_ratio(above: xarray.DataArray, below: xarray.DataArray) -> list[float]:
    """log10 of one error over another, seed by seed."""
    return [float(value) for value in np.log10(above.values / below.values)]
