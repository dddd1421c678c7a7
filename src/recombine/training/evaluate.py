"""A trained member's outputs over the whole factor grid, reduced to errors and hits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from recombine.checks import checked, users_function, whole_number
from recombine.errors import InvalidValue
from recombine.metrics import extreme_pixel, hits, region_mean, squared_error
from recombine.specs import RunSpec
from recombine.tasks import Task
from recombine.training.devices import arithmetic
from recombine.training.tables import Wanted

Evaluation = dict[str, Tensor]
SCORES_VERSION = 1
"""Raise it when the scores of a run change, so that Datasets that hold them are measured again."""


EXACT = "donot_use_mm_for_euclid_dist"
"""How distances between codes are computed: exactly, not through a matrix product."""
KEPT_BYTES = 2**28
"""Bytes of a grid's examples that are kept on the device; more are brought there chunk by chunk."""


class Evaluator:
    """The whole factor grid of one task, or of several that render alike, made once for many members.

    `chunk` points are evaluated at a time, in strict float32.
    """

    def __init__(self, task: Task, device: torch.device, chunk: int = 32) -> None:
        whole_number("chunk", chunk)
        self.task, self.device, self.chunk = task, device, chunk
        self.measured = task.evaluated()
        self.points = task.grid.points if self.measured is None else task.grid.points[self.measured]
        self._kept: list[tuple[Tensor, ...]] | None = None
        if not Wanted(task, self.points).is_large:
            parts = [*task.examples(self.points), self.points]
            home = device if sum(part.nbytes for part in parts) <= KEPT_BYTES else torch.device("cpu")
            self._kept = list(zip(*(part.to(home).split(chunk) for part in parts), strict=True))
        self.blank = self._on_grid([self._blank_error(targets) for _, targets, _ in self.chunks()])

    def chunks(self) -> Iterator[tuple[Tensor, ...]]:
        """Inputs, targets and points, some rows at a time; streamed ones are read as they are asked for."""
        if self._kept is not None:
            yield from self._kept
            return
        for points in self.points.split(self.chunk):
            yield *self.task.examples(points), points

    def _blank_error(self, targets: Tensor) -> Tensor:
        return squared_error(self.task.blank.to(targets.device).expand_as(targets), targets)

    def _on_grid(self, parts: list[Tensor]) -> Tensor:
        """Numbers of the points that were evaluated, on the whole grid: NaN elsewhere."""
        numbers = torch.cat(parts).cpu()
        if self.measured is None:
            return numbers
        whole = torch.full((self.task.grid.size,), torch.nan, dtype=torch.float32)
        whole[self.measured] = numbers.to(whole.dtype)
        return whole

    @torch.no_grad()
    def of(self, forward: Callable[[Tensor], Tensor], held_out: Tensor) -> Evaluation:
        """Per grid point: `error`, `hit`, `blank` (the error of the empty output) and `held_out`.

        `forward` maps a batch of inputs to a batch of outputs. Where not all points are evaluated, `measured` says
        which are.
        """
        errors, hit = [], []
        with arithmetic("float32"):
            for chunk in self.chunks():
                inputs, targets, points = (part.to(self.device) for part in chunk)
                outputs = forward(inputs)
                if not isinstance(outputs, Tensor) or outputs.shape != targets.shape:
                    raise InvalidValue("forward", outputs, f"a function that returns {tuple(targets.shape)} numbers")
                outputs = outputs.float()
                errors.append(squared_error(outputs, targets))
                hit.append(_hit(self.task, outputs, points))
        evaluation = {
            "error": self._on_grid(errors), "blank": self.blank, "hit": self._on_grid(hit), "held_out": held_out
        }  # fmt: skip
        if self.measured is not None:
            measured = torch.zeros(self.task.grid.size, dtype=torch.bool)
            measured[self.measured] = True
            evaluation["measured"] = measured
        return evaluation


def group_by_evaluation(specs: Sequence[RunSpec]) -> list[list[int]]:
    """Which specs' tasks are evaluated on the same examples."""
    groups: dict[object, list[int]] = {}
    for index, spec in enumerate(specs):
        points = spec.task.evaluated()
        key = spec.task.rendering_key, None if points is None else points.numpy().tobytes()
        groups.setdefault(key, []).append(index)
    return list(groups.values())


@checked
def evaluate(task: Task, forward: Callable[[Tensor], Tensor], device: torch.device, chunk: int = 32) -> Evaluation:
    """One member's error and hit at every grid point.

    Parameters
    ----------
    task
        The task whose grid is evaluated.
    forward
        A function from a batch of inputs to a batch of outputs, as a module.
    device
        Where it computes.
    chunk
        Grid points per batch.

    Returns
    -------
    `error`, `hit`, `blank` (the error of the empty output) and `held_out`, one value per grid point each; and
    `measured` where data lack some points or have too many: the others' numbers are NaN.
    """

    def outputs(inputs: Tensor) -> Tensor:
        with users_function("forward", forward):
            return forward(inputs)

    return Evaluator(task, device, chunk).of(outputs, task.held_out)


def _hit(task: Task, outputs: Tensor, points: Tensor) -> Tensor:
    """Whether the output is at its position; NaN for a task without positions."""
    if not task.position_factors:
        return torch.full((len(outputs),), torch.nan)
    axes = [task.grid.names.index(name) for name in task.position_factors]
    if task.direction == "decode":
        return hits(extreme_pixel(outputs, "bright" if task.background == 0 else "dark"), points[:, axes])
    return hits(_read_code(task, outputs)[:, axes], points[:, axes])


def _read_code(task: Task, codes: Tensor) -> Tensor:
    """Factor values read from codes: the value whose own code is nearest."""
    columns = []
    for factor, block in zip(task.grid.factors, codes.split(task.code_sizes, dim=-1), strict=True):
        values = factor.values.to(codes.device)
        own = task.encoding.code(values, factor).float()
        columns.append(values[torch.cdist(block, own, compute_mode=EXACT).argmin(dim=-1)])
    return torch.stack(columns, dim=-1)


@checked
def scores(evaluation: Evaluation) -> dict[str, float]:
    """The scores of a run: mean error, the same over blank, and accuracy, inside and outside the hold-out.

    Parameters
    ----------
    evaluation
        What `evaluate` returns.

    Returns
    -------
    `id_mse`, `id_over_blank`, `id_accuracy`, and the same with `ood`.
    """
    for name in ("error", "blank", "hit", "held_out"):
        if name not in evaluation or evaluation[name].shape != evaluation["error"].shape:
            raise InvalidValue("evaluation", list(evaluation), "error, blank, hit and held_out for each grid point")
    held_out = evaluation["held_out"].bool()
    measured = evaluation["measured"].bool() if "measured" in evaluation else torch.ones_like(held_out)
    results: dict[str, float] = {}
    for name, region in (("id", measured & ~held_out), ("ood", measured & held_out)):
        error = region_mean(evaluation["error"].double(), region)
        blank = region_mean(evaluation["blank"].double(), region)
        results[f"{name}_mse"] = error.item()
        results[f"{name}_over_blank"] = (error / blank).item()
        results[f"{name}_accuracy"] = region_mean(evaluation["hit"].double(), region).item()
    return results
