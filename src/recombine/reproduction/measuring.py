"""Measurements of finished runs, collected into a labelled Dataset.

Runs of one arm (experimental condition) are measured in batches: on a GPU, as many as fit into a memory budget, since
the short kernels of a single network would leave it idle; on a CPU, one at a time, since batching slows convolutions.
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
from recombine.metrics.stages import FEWEST, chunks, over_members, sign_aligned
from recombine.reproduction.study import DONE, Trials
from recombine.reproduction.tables import keep_first
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.tasks import Task

if TYPE_CHECKING:
    import xarray

ROWS = 256  # number of inputs per forward pass
BYTES_PER_NUMBER = 28  # memory per activation: one float32 and three float64 copies in the metrics
MATRICES = 8  # number of float64 (point, point) matrices that a probe or a kernel metric needs
PROBES = frozenset({"probe_in_sample", "probe_held_out"})
"""Registered metrics that fit linear probes, which are the slowest."""
DRAWING = ("sample", "row", "column")  # dimensions of stored sample outputs
TRAINED = "trained"
"""Dataset variable that is 1 for every trained network and 0 where an arm has fewer seeds."""
Measured = Mapping[str, Any]
"""Arrays or tensors by name, with one row per run in a batch."""


def budget(device: torch.device) -> int:
    """Return the memory limit in bytes, each for activations and metrics: 1 GiB on a CPU, a third of a GPU's memory."""
    return torch.cuda.get_device_properties(device).total_memory // 3 if device.type == "cuda" else 1 << 30


class Batch:
    """Finished runs whose specs differ only in the seed, measured within a memory budget given in bytes."""

    def __init__(self, runs: Sequence[Run], device: torch.device, memory: int | None = None) -> None:
        self.runs, self.device = tuple(runs), device
        self.memory = budget(device) if memory is None else memory
        if len({run.spec.replace(seed=0).digest for run in self.runs}) != 1:
            raise InvalidValue("runs", [run.key for run in self.runs], "runs whose specs differ only in the seed")

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def spec(self) -> RunSpec:
        """The first run's spec."""
        return self.runs[0].spec

    @property
    def task(self) -> Task:
        """The task of all runs."""
        return self.spec.task

    @property
    def scores(self) -> dict[str, np.ndarray]:
        """Each run's stored scores, by name."""
        rows = [run.scores for run in self.runs]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def stored(self, name: str) -> np.ndarray:
        """Return an array stored with every run, as `[member, …]`."""
        return np.stack([arrays[name] for arrays in self._arrays])

    @cached_property
    def modules(self) -> list[StagedDecoder]:
        """The trained networks, on the CPU."""
        return [run.module() for run in self.runs]

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The networks' parameters on the device, with a leading member axis."""
        states = [run.weights() for run in self.runs]
        return {
            name: torch.from_numpy(np.stack([state[name] for state in states])).to(self.device) for name in states[0]
        }

    def reader(self, *, aligned: bool = True) -> Reader:
        """Return a reader of all stages with a member axis (`recombine.metrics.stages`).

        Embeddings of one-hot codes are aligned in sign unless `aligned` is false. With other codes their signs are not
        free, since an image is a mixture of the embeddings of several values.
        """
        reader = ensemble_reader(self._decoder, self.weights, lambda values: self.task.codes(values).float())
        stage = self.spec.decoder.free_signs
        if stage is None or not aligned or self.task.encoding.differentiable:
            return reader
        return sign_aligned(reader, stage, self.task.grid, self.device, members=1)

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Return the networks' outputs for rows of inputs, as `[member, row, …]` on the device."""
        parts = chunks(inputs.to(self.device), ROWS)
        return torch.cat([over_members(self._decoder, self.weights, part).float() for part in parts], dim=1)

    def outputs(self, values: Tensor) -> Tensor:
        """Return the networks' outputs for rows of factor values, as `[member, row, …]` on the CPU."""
        return self.forward(self.task.examples(values).inputs).cpu()

    @cached_property
    def _decoder(self) -> StagedDecoder:
        return self.spec.module().to(self.device).eval()

    @cached_property
    def _arrays(self) -> list[dict[str, np.ndarray]]:
        return [run.arrays() for run in self.runs]


def fitting_runs(spec: RunSpec, memory: int) -> int:
    """Return how many networks with this spec can be measured together; metrics process one stage at a time."""
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
    """Return a Dataset of measurements, indexed by the arms' labels and the seed.

    `measure` returns arrays by name for a batch of an arm's runs, one row per run; `inner` names their remaining
    dimensions. Arms are arranged along `dims`. Arrays of different lengths, arms with fewer seeds, and untrained
    combinations of labels are padded with NaN. Diverged runs are also set to NaN rather than measured, since a network
    that stopped half-way does not show what training leads to; the `trained` variable still counts them.
    """
    import xarray

    labels = [list(dict.fromkeys(arm[k] for arm in trials)) for k in range(len(dims))]
    outer = (*map(len, labels), trials.seeds)
    trained = np.zeros(outer, dtype=np.float32)
    rows: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for arm, runs in trials.items():
        position = tuple(own.index(label) for own, label in zip(labels, arm, strict=False))
        trained[position][: len(runs)] = 1
        done = [seed for seed, run in enumerate(runs) if run.status == DONE]
        measured = _measured([runs[seed] for seed in done], trials.device, measure)
        rows |= {(*position, seed): row for seed, row in zip(done, measured, strict=True)}
    if not rows:
        raise InvalidValue("runs", f"all {int(trained.sum())} diverged", "runs that converge (try a smaller lr)")
    shapes: dict[str, tuple[int, ...]] = {}
    for row in rows.values():
        for name, value in row.items():
            shapes[name] = tuple(map(max, shapes.get(name, value.shape), value.shape))
    tables = {name: np.full((*outer, *shape), np.nan, dtype=np.float32) for name, shape in shapes.items()}
    for position, row in rows.items():
        for name, value in row.items():
            tables[name][position + tuple(slice(size) for size in value.shape)] = value
    variables = {
        name: ((*dims, "seed", *(inner or {}).get(name, ())), table)
        for name, table in {**tables, TRAINED: trained}.items()
    }
    coords: dict[str, Any] = {
        dim: [str(label) if isinstance(label, str) else label for label in own]
        for dim, own in zip(dims, labels, strict=True)
    }
    return xarray.Dataset(variables, {**coords, "seed": trials.preset.first_seed + np.arange(trials.seeds)})


def _measured(
    runs: Sequence[Run], device: torch.device, measure: Callable[[Batch], Measured]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the measurements of each run of an arm, made in batches that fit into the device's memory."""
    size = 1 if device.type == "cpu" or not runs else fitting_runs(runs[0].spec, budget(device))
    for start in range(0, len(runs), size):
        batch = Batch(runs[start : start + size], device)
        values = {name: value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
                  for name, value in measure(batch).items()}  # fmt: skip
        for name, value in values.items():
            if value.shape[:1] != (len(batch),):
                raise InvalidValue(f"measured {name}", value, f"an array with one row for each of {len(batch)} runs")
        for member in range(len(batch)):
            yield {name: value[member] for name, value in values.items()}


def grid_variables(spec: RunSpec) -> dict[str, Any]:
    """Return the held-out mask and the coordinates of a two-factor grid."""
    task = spec.task
    x, y = (factor.values.numpy() for factor in task.grid.factors[:2])
    return {"held_out": (("y", "x"), task.held_out.reshape(task.grid.shape).T.numpy()), "x": x, "y": y}


def base_attributes(trials: Trials[Any], **more: Any) -> dict[str, Any]:
    """Return the attributes required by captions: the preset's name, the images' background, and `more`."""
    return {"preset": trials.preset.name, "background": trials.first.spec.task.background, **more}


def grid_maps(batch: Batch, name: str) -> np.ndarray:
    """Return a stored array with one value per grid point as maps of the (x, y) grid, `[member, y, x]`."""
    return batch.stored(name).reshape(len(batch), *batch.task.grid.shape).swapaxes(1, 2).astype(np.float32)


def sample_points(spec: RunSpec) -> Tensor:
    """Return grid points spread across the held-out region, as `(sample, (x, y))`."""
    task = spec.task
    where = torch.nonzero(task.held_out.reshape(task.grid.shape))
    low, high = where.min(dim=0).values, where.max(dim=0).values
    shares = ((0.5, 0.5), (0.25, 0.25), (0.75, 0.25), (0.25, 0.75))  # fractions of the region's extent along x and y
    positions = [low + torch.tensor(share) * (high - low) for share in shares]
    nearest = [where[((where - position) ** 2).sum(dim=1).argmin()] for position in positions]
    return torch.stack(nearest).double()


def drawings(batch: Batch) -> Tensor:
    """Return the networks' outputs at the sample positions, with a member axis followed by `DRAWING`."""
    return batch.outputs(sample_points(batch.spec))


def with_positions(result: xarray.Dataset, spec: RunSpec, *means: str) -> xarray.Dataset:
    """Reduce outputs and `means` to their first seed; add the means of `means` over seeds and the sample positions."""
    kept = keep_first(result, *means, "drawing").drop_vars("mean_drawing")
    return kept.assign(place=(("sample", "axis"), sample_points(spec).numpy()), **grid_variables(spec))


def stage_profile(batch: Batch, *, probes: bool = True, maps: bool = True) -> dict[str, np.ndarray]:
    """Return the registered metrics of every stage of the networks on a two-factor grid.

    Arrays are `[member, stage, …]`, keyed by the column's name in studies. With `maps`, columns with one value per grid
    point are included as `[member, stage, y, x]`. Stage 0 is the input code. Values are averaged over factors. For
    non-differentiable codes, finite differences are used.
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
    """Return a column's values at one stage, one row per member, averaged over factors, with maps as `[y, x]`."""
    # a metric that does not depend on the activations may have no member axis
    value = value.expand(members, *value.shape[value.ndim - len(column.dims) :])
    if column.dims == ("point",):
        return value.unflatten(1, shape).mT
    return value.mean(dim=1 + column.dims.index("factor")) if "factor" in column.dims else value


def stage_dims() -> dict[str, Sequence[str]]:
    """Return the dimensions of the arrays returned by `stage_profile`."""
    return {
        column.study_name: ("stage", "y", "x") if column.dims == ("point",)
        else ("stage", *(dim for dim in column.dims if dim != "factor"))
        for metric in STAGE_METRICS.in_studies()
        for column in metric.columns
    }  # fmt: skip
