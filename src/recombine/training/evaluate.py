"""A trained member's answers over the whole factor grid, reduced to errors and hits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recombine.checks import checked, users_function, whole_number
from recombine.errors import InvalidValue
from recombine.metrics import extreme_pixel, hits, region_mean, squared_error
from recombine.tasks import Task
from recombine.training.devices import arithmetic

Evaluation = dict[str, Tensor]
SCORES_VERSION = 1
"""Raise it when the scores of a run change, so that Datasets that hold them are measured again."""


EXACT = "donot_use_mm_for_euclid_dist"
HELD = 2**28
"""Bytes of a grid's examples that are kept on the device; more are brought there chunk by chunk."""


class Evaluator:
    """The whole factor grid of one task, or of several that look alike, made once for many members.

    `chunk` points are asked and marked at a time, in strict float32.
    """

    def __init__(self, task: Task, device: torch.device, chunk: int = 32) -> None:
        whole_number("chunk", chunk)
        self.task, self.device = task, device
        parts = [*task.examples(task.grid.points), task.grid.points]
        place = device if sum(part.nbytes for part in parts) <= HELD else torch.device("cpu")
        self.chunks = list(zip(*(part.to(place).split(chunk) for part in parts), strict=True))
        blank = task.blank.to(place)
        self.blank = torch.cat([squared_error(blank.expand_as(t), t) for _, t, _ in self.chunks]).cpu()

    @torch.no_grad()
    def of(self, answer: Callable[[Tensor], Tensor], held_out: Tensor) -> Evaluation:
        """Per grid point: `error`, `hit`, `blank` (the error of the empty answer) and `held_out`.

        `answer` maps a batch of inputs to a batch of answers.
        """
        errors, found = [], []
        with arithmetic("float32"):
            for chunk in self.chunks:
                inputs, targets, points = (part.to(self.device) for part in chunk)
                answers = answer(inputs)
                if not isinstance(answers, Tensor) or answers.shape != targets.shape:
                    raise InvalidValue("answer", answers, f"a function that returns {tuple(targets.shape)} numbers")
                answers = answers.float()
                errors.append(squared_error(answers, targets))
                found.append(_hit(self.task, answers, points))
        return {
            "error": torch.cat(errors).cpu(), "blank": self.blank, "hit": torch.cat(found).cpu(), "held_out": held_out
        }  # fmt: skip


@checked
def evaluate(task: Task, answer: Callable[[Tensor], Tensor], device: torch.device, chunk: int = 32) -> Evaluation:
    """One member's evaluator."""

    def answers(inputs: Tensor) -> Tensor:
        with users_function("answer", answer):
            return answer(inputs)

    return Evaluator(task, device, chunk).of(answers, task.held_out)


def _hit(task: Task, answers: Tensor, points: Tensor) -> Tensor:
    """Whether the answer is in its place; NaN for a task without places."""
    if not task.position_factors:
        return torch.full((len(answers),), torch.nan)
    axes = [task.grid.names.index(name) for name in task.position_factors]
    if task.direction == "decode":
        return hits(extreme_pixel(answers, "bright" if task.background == 0 else "dark"), points[:, axes])
    return hits(_read_code(task, answers)[:, axes], points[:, axes])


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
    """The numbers of a run: mean error, the same over blank, and accuracy, inside and outside the hold-out."""
    for name in ("error", "blank", "hit", "held_out"):
        if name not in evaluation or evaluation[name].shape != evaluation["error"].shape:
            raise InvalidValue("evaluation", list(evaluation), "error, blank, hit and held_out for each grid point")
    held_out = evaluation["held_out"].bool()
    found: dict[str, float] = {}
    for name, region in (("id", ~held_out), ("ood", held_out)):
        error = region_mean(evaluation["error"].double(), region)
        blank = region_mean(evaluation["blank"].double(), region)
        found[f"{name}_mse"] = error.item()
        found[f"{name}_over_blank"] = (error / blank).item()
        found[f"{name}_accuracy"] = region_mean(evaluation["hit"].double(), region).item()
    return found
