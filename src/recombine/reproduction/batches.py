"""Finished runs of one arm, measured together.

On a GPU as many at a time as fit into a budget of memory: metrics of one network are short kernels that leave most of
it idle. On a CPU one at a time, where batching slows convolutions down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from recombine.decoders import StagedDecoder
from recombine.errors import InvalidValue
from recombine.metrics import Reader, ensemble_reader
from recombine.metrics.stages import FEWEST, chunks, over_members
from recombine.specs import RunSpec
from recombine.store import Run
from recombine.tasks import Task

CPU_MEMORY = 1 << 30
GPU_SHARE = 3
"""A budget is a gibibyte on a CPU and one part in so many of a GPU's memory: activations and metrics have one each."""
ROWS = 256
"""Rows that networks are run on at a time."""
BYTES_PER_NUMBER = 28
"""What metrics need for each number of a stage: itself and three copies in double precision."""
MATRICES = 8
"""Matrices between points, in double precision, that a probe or a kernel needs."""


def budget(device: torch.device) -> int:
    """Bytes that a measurement may keep at a time on a device."""
    if device.type != "cuda":
        return CPU_MEMORY
    return torch.cuda.get_device_properties(device).total_memory // GPU_SHARE


class Batch:
    """Runs whose specs differ in the seed alone.

    Parameters
    ----------
    runs
        At least one finished run.
    device
        Where they are measured.
    memory
        Bytes that may be kept at a time; by default what is usual on the device.
    """

    def __init__(self, runs: Sequence[Run], device: torch.device, memory: int | None = None) -> None:
        self.runs, self.device = tuple(runs), device
        self.memory = budget(device) if memory is None else memory
        if len({run.spec.replace(seed=0).digest for run in self.runs}) != 1:
            raise InvalidValue("runs", [run.key for run in self.runs], "runs of one spec but for the seed")

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
    """An arm's runs in batches that fit a device.

    Parameters
    ----------
    runs
        Finished runs whose specs differ in the seed alone; none give no batch.
    device
        Where they are measured.

    Yields
    ------
    Batch
        In the order of the runs.
    """
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
