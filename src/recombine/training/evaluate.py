"""A trained member's answers over the whole factor grid, reduced to errors and hits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recombine.metrics import extreme_pixel, hits, region_mean, squared_error
from recombine.tasks import Task
from recombine.training.devices import arithmetic

Evaluation = dict[str, Tensor]


@torch.no_grad()
def evaluate(task: Task, answer: Callable[[Tensor], Tensor], device: torch.device, chunk: int = 32) -> Evaluation:
    """Per grid point: `error`, `hit`, `blank` (the error of the empty answer) and `held_out`.

    `answer` maps a batch of inputs to a batch of answers; `chunk` points are asked at a time, in strict float32.
    """
    examples = task.examples(task.grid.points)
    with arithmetic("float32"):
        answers = torch.cat([answer(part.to(device)).float().cpu() for part in examples.inputs.split(chunk)])
    blank = task.blank.expand_as(examples.targets)
    return {
        "error": squared_error(answers, examples.targets),
        "blank": squared_error(blank, examples.targets),
        "hit": _hit(task, answers),
        "held_out": task.held_out,
    }


def _hit(task: Task, answers: Tensor) -> Tensor:
    """Whether the answer is in its place; NaN for a task without places."""
    if not task.position_factors:
        return torch.full((len(answers),), torch.nan)
    axes = [task.grid.names.index(name) for name in task.position_factors]
    truth = task.grid.points[:, axes]
    if task.direction == "decode":
        return hits(extreme_pixel(answers, "bright" if task.background == 0 else "dark"), truth)
    return hits(_read_code(task, answers)[:, axes], truth)


def _read_code(task: Task, codes: Tensor) -> Tensor:
    """Factor values read from codes: the value whose own code is nearest."""
    columns = []
    for factor, block in zip(task.grid.factors, codes.split(task.code_sizes, dim=-1), strict=True):
        own = task.encoding.code(factor.values, factor).float()
        columns.append(factor.values[torch.cdist(block, own).argmin(dim=-1)])
    return torch.stack(columns, dim=-1)


def scores(evaluation: Evaluation) -> dict[str, float]:
    """The numbers of a run: mean error, the same over blank, and accuracy, inside and outside the hold-out."""
    held_out = evaluation["held_out"].bool()
    found: dict[str, float] = {}
    for name, region in (("id", ~held_out), ("ood", held_out)):
        error = region_mean(evaluation["error"].double(), region)
        blank = region_mean(evaluation["blank"].double(), region)
        found[f"{name}_mse"] = error.item()
        found[f"{name}_over_blank"] = (error / blank).item()
        found[f"{name}_accuracy"] = region_mean(evaluation["hit"].double(), region).item()
    return found
