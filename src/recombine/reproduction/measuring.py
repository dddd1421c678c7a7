"""What studies measure on finished runs, and how it becomes a labelled Dataset.

Runs of one arm are measured together: on a GPU as many at a time as fit into a budget of memory, since metrics of one
network are short kernels that leave most of it idle; on a CPU one at a time, where batching slows convolutions down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.errors import InvalidValue
from recombine.metrics import Reader, ensemble_reader, metric_tensor
from recombine.metrics.registry import STAGE_METRICS, Column, Need, read_stages
from recombine.metrics.registry import stage_profile as registered_profile
from recombine.metrics.stages import FEWEST, chunks, over_members
from recombine.reproduction.study import DONE, Labels, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.tasks import Task

if TYPE_CHECKING:
    import xarray

CPU_MEMORY = 1 << 30
GPU_SHARE = 3
"""A budget is a gibibyte on a CPU and one part in so many of a GPU's memory: activations and metrics have one each."""
ROWS = 256
"""Rows that networks are run on at a time."""
BYTES_PER_NUMBER = 28
"""What metrics need for each number of a stage: itself and three copies in double precision."""
MATRICES = 8
"""Matrices between points, in double precision, that a probe or a kernel needs."""
PROBES = frozenset({"probe_in_sample", "probe_held_out"})
"""Registered metrics that fit linear probes, the slowest ones."""
SAMPLE_POSITIONS = ((0.5, 0.5), (0.25, 0.25), (0.75, 0.25), (0.25, 0.75))
"""Where in the held-out region drawings are kept, as shares of its extent along x and y."""
DRAWING = ("sample", "row", "column")
"""Dimensions of the drawings at those positions."""
TRAINED = "trained"
"""Variable of a Dataset that tells networks that were trained from those that there never were."""
Measured = Mapping[str, Any]
"""Arrays or tensors by name, each with a leading member axis: one row per run of a batch."""


def budget(device: torch.device) -> int:
    """Bytes that a measurement may keep at a time on a device."""
    if device.type != "cuda":
        return CPU_MEMORY
    return torch.cuda.get_device_properties(device).total_memory // GPU_SHARE


class Batch:
    """Finished runs whose specs differ in the seed alone, measured within so many bytes of memory."""

    def __init__(self, runs: Sequence[Run], device: torch.device, memory: int | None = None) -> None:
        self.runs, self.device = tuple(runs), device
        self.memory = budget(device) if memory is None else memory
        if len({run.spec.replace(seed=0).digest for run in self.runs}) != 1:
            raise InvalidValue("runs", [run.key for run in self.runs], "of one spec but for the seed")

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def spec(self) -> RunSpec:
        """The first run's."""
        return self.runs[0].spec

    @property
    def task(self) -> Task:
        """Of every run."""
        return self.spec.task

    @property
    def scores(self) -> dict[str, np.ndarray]:
        """Each run's stored scores, by name."""
        rows = [run.scores for run in self.runs]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def stored(self, name: str) -> np.ndarray:
        """An array that is stored with every run: `[member, …]`."""
        return np.stack([arrays[name] for arrays in self._arrays])

    @cached_property
    def modules(self) -> list[StagedDecoder]:
        """The trained networks one by one, on the CPU."""
        return [run.module() for run in self.runs]

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The networks' parameters on the device, each with a leading member axis."""
        states = [run.weights() for run in self.runs]
        return {
            name: torch.from_numpy(np.stack([state[name] for state in states])).to(self.device) for name in states[0]
        }

    def reader(self) -> Reader:
        """A reader of all stages, with one member axis (`recombine.metrics.stages`)."""
        return ensemble_reader(self._decoder, self.weights, lambda values: self.task.codes(values).float())

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """The networks' outputs for rows of inputs: `[member, row, …]`, on the device."""
        parts = chunks(inputs.to(self.device), ROWS)
        return torch.cat([over_members(self._decoder, self.weights, part).float() for part in parts], dim=1)

    def outputs(self, values: Tensor) -> Tensor:
        """The networks' outputs for rows of factor values: `[member, row, …]`, on the CPU."""
        return self.forward(self.task.examples(values).inputs).cpu()

    @cached_property
    def _decoder(self) -> StagedDecoder:
        """The structure that weights are put into."""
        return self.spec.module().to(self.device).eval()

    @cached_property
    def _arrays(self) -> list[dict[str, np.ndarray]]:
        return [run.arrays() for run in self.runs]


def batches(runs: Sequence[Run], device: torch.device) -> Iterator[Batch]:
    """An arm's runs, in their order, in batches that fit a device."""
    if not runs:
        return
    size = 1 if device.type == "cpu" else fitting_runs(runs[0].spec, budget(device))
    for start in range(0, len(runs), size):
        yield Batch(runs[start : start + size], device)


def fitting_runs(spec: RunSpec, memory: int) -> int:
    """How many networks of a spec can be measured together, at least one: metrics take one stage at a time."""
    points = spec.task.grid.points
    with torch.no_grad():
        stages = [stage[0].numel() for _, stage in spec.module().walk(spec.task.examples(points[:FEWEST]).inputs)]
    largest = max(*stages, spec.interface.code_size)
    return max(1, memory // (len(points) * (BYTES_PER_NUMBER * largest + 8 * MATRICES * len(points))))


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

    Arms' labels are along `dims`. `measure` gives arrays by name, one row per run, whose own dimensions are `inner`.
    The variable `trained` is 1 for every network that was trained, to its end or not.
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
        raise InvalidValue("runs", f"all {every} diverged", "some that train to their end (try a smaller lr)")
    outer = (*(len(label) for label in labels), trials.seeds)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for values in rows.values():
        for name, value in values.items():
            shapes.setdefault(name, []).append(np.shape(value))
    largest = {name: tuple(max(sizes) for sizes in zip(*own, strict=True)) for name, own in shapes.items()}
    tables = {name: np.full((*outer, *own), np.nan, dtype=np.float32) for name, own in largest.items()}
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


def stage_profile(batch: Batch, *, probes: bool = True, maps: bool = True) -> dict[str, np.ndarray]:
    """The registered metrics of every stage of networks over a two-factor grid.

    Arrays are `[member, stage, …]` by the column's name in studies; with `maps` also columns that have a number at
    every grid point, as `[member, stage, y, x]`. Stage 0 is the input code. Values per factor are averaged. Codes
    without a derivative have finite differences only.
    """
    task, reader, memory = batch.task, batch.reader(), batch.memory
    points = task.grid.points.to(batch.device)
    exact = metric_tensor(reader, points, members=1, memory=memory) if task.encoding.differentiable else None
    metrics = [metric for metric in STAGE_METRICS.in_studies() if probes or metric.name not in PROBES]
    targets = task.render(task.grid.points) if any(Need.TARGETS in metric.needs for metric in metrics) else None
    stages = read_stages(
        reader, points, task.grid, task.held_out, exact=exact, targets=targets, members=1, memory=memory
    )
    columns = registered_profile(stages, [metric.name for metric in metrics]).columns
    return {
        column.study_name: torch.stack([_rows(column, value, len(batch), task.grid.shape)
                                        for value in columns[column.name]], dim=1).float().cpu().numpy()
        for metric in metrics
        for column in metric.columns
        if column.name in columns and (maps or "point" not in column.dims)
    }  # fmt: skip


def _rows(column: Column, value: Tensor, members: int, shape: tuple[int, ...]) -> Tensor:
    """A stage's values of a column, one row per member: means over factors, maps as `[y, x]`.

    A metric that does not depend on the activations may have no member axis.
    """
    value = value.expand(members, *value.shape[value.ndim - len(column.dims) :])
    if column.dims == ("point",):
        return value.unflatten(1, shape).mT
    return value.mean(dim=1 + column.dims.index("factor")) if "factor" in column.dims else value


def stage_dims() -> dict[str, Sequence[str]]:
    """Dimensions of what `stage_profile` gives, with all metrics that are registered by now."""
    return {
        column.study_name: ("stage", "y", "x") if column.dims == ("point",)
        else ("stage", *(dim for dim in column.dims if dim != "factor"))
        for metric in STAGE_METRICS.in_studies()
        for column in metric.columns
    }  # fmt: skip
