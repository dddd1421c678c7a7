"""What `diagnose` and `explore` are given, turned into one form: grid, codes, hold-out, right outputs, metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from recombine.diagnosis.result import OUTPUT_SCORES
from recombine.encodings import ENCODINGS, Encoding
from recombine.errors import InvalidValue, listed
from recombine.factors import FORMS, TURN, Factor, FactorGrid, Form
from recombine.files import as_numbers
from recombine.holdouts import HOLDOUTS, Holdout
from recombine.metrics.profile import usual_metrics
from recombine.metrics.registry import STAGE_METRICS, Need
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import Encode
from recombine.tasks import ArrayTask

TargetFunction = Callable[[Tensor], Tensor]
"""Factor values `(point, factor)` to the right outputs `(point, …)`."""
Targets = Tensor | np.ndarray | TargetFunction
GRID = "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas"
ANGLE = "angle"
"""Name of a factor that is an angle in degrees unless its text says otherwise."""


# -- the grid ----------------------------------------------------------------------------------------------------------


def parse_grid(text: str) -> FactorGrid:
    """`x=0:27,y=0:27`: integers, both ends included; `b=0.25:1:4` has a number of values as well.

    A form may come last, as in `shape=0:2:category`; a factor called `angle` is one.
    """
    return FactorGrid(tuple(_parsed_factor(part.strip()) for part in text.split(",")))


def _parsed_factor(text: str) -> Factor:
    """The factor of `NAME=LOW:HIGH` or `NAME=LOW:HIGH:COUNT`, either with `:FORM`."""
    name, _, span = text.partition("=")
    bounds = span.split(":")
    form = bounds.pop() if bounds[-1] in FORMS else None
    try:
        low, high = float(bounds[0]), float(bounds[1])
        steps = int(bounds[2]) - 1 if len(bounds) == 3 else round(high - low)
    except (ValueError, IndexError, OverflowError):
        raise InvalidValue("grid", text, GRID) from None
    if not name.strip().isidentifier() or len(bounds) > 3:
        raise InvalidValue("grid", text, GRID)
    if len(bounds) < 3 and high - low != steps:
        raise InvalidValue("grid", text, "bounds an integer apart, or NAME=LOW:HIGH:COUNT")
    form = form or (ANGLE if name.strip() == ANGLE and high - low <= TURN else "number")
    return Factor(name.strip(), low, high, steps + 1, cast(Form, form))


def valid_grid(grid: FactorGrid | str | None, reserved: frozenset[str] = frozenset()) -> FactorGrid:
    """The grid of a string, without names that the result uses itself."""
    if grid is None:
        raise InvalidValue("grid", None, 'a FactorGrid, or a string as "x=0:27,y=0:27" or "x=0:1:5"')
    parsed = parse_grid(grid) if isinstance(grid, str) else grid
    for name in parsed.names:
        if name in reserved:
            raise InvalidValue("grid", name, f"names of factors other than {listed(sorted(reserved))}")
    return parsed


# -- codes and hold-out ------------------------------------------------------------------------------------------------


def valid_encoding(encode: Encode | Encoding | str | None, grid: FactorGrid) -> Encode | Encoding | None:
    """The encoding that a string names, or the encoding itself, of the grid's factors."""
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    return encoding.resolved(grid) if isinstance(encoding, Encoding) else encoding


def encode_values(values: Tensor, encoding: Encode | Encoding | None, grid: FactorGrid) -> Tensor:
    """The inputs of the module for rows of factor values."""
    if encoding is None:
        return values
    if isinstance(encoding, Encoding):
        return torch.cat([encoding.code(values[:, k], factor) for k, factor in enumerate(grid.factors)], dim=-1)
    inputs = encoding(values)
    if inputs.shape[:1] != values.shape[:1]:
        raise InvalidValue("encode", tuple(inputs.shape), "a function that returns a tensor with a row for each point")
    return inputs


def holdout_mask(holdout: Holdout | Tensor | np.ndarray | str | None, grid: FactorGrid) -> Tensor:
    """True where a point of the grid is held out, in the grid's order."""
    if holdout is None:
        return torch.zeros(grid.size, dtype=torch.bool)
    parsed = HOLDOUTS.parse(holdout) if isinstance(holdout, str) else holdout
    mask = parsed.mask(grid) if isinstance(parsed, Holdout) else torch.as_tensor(parsed)
    if mask.dtype != torch.bool or tuple(mask.shape) not in (grid.shape, (grid.size,)):
        allowed = f"a boolean mask over the grid, of shape {grid.shape} or ({grid.size},)"
        raise InvalidValue("holdout", f"{mask.dtype} of shape {tuple(mask.shape)}", allowed)
    if bool(mask.all()):
        raise InvalidValue("holdout", int(mask.sum()), "a mask that keeps at least one combination")
    return mask.flatten().cpu()


# -- right outputs: only rows that are measured are read, so that an array may lie on disk -----------------------------


def valid_targets(targets: Targets | None, grid: FactorGrid) -> Targets | None:
    """The targets, if they can be: of an array, as many rows as the grid has points."""
    if isinstance(targets, (Tensor, np.ndarray)) and (targets.ndim == 0 or len(targets) != grid.size):
        raise InvalidValue("targets", tuple(targets.shape), f"{grid.size} rows, one per grid point")
    return targets


def target_rows(targets: Targets | None, grid: FactorGrid, indices: Tensor | None = None) -> Tensor | None:
    """The targets at some points of the grid, all by default, as a tensor of finite numbers."""
    if targets is None:
        return None
    if isinstance(targets, np.ndarray):
        return torch.from_numpy(as_numbers(targets if indices is None else targets[indices.numpy()], "targets"))
    if isinstance(targets, Tensor):
        rows = targets if indices is None else targets[indices.to(targets.device)]
    else:
        values = points_at(grid, indices)
        rows = targets(values)
        if rows.shape[:1] != values.shape[:1]:
            allowed = "a function that returns a tensor with a row for each point"
            raise InvalidValue("targets", tuple(rows.shape), allowed)
    if not bool(rows.isfinite().all()):
        raise InvalidValue("targets", "NaN or infinity", "finite numbers only")
    return rows


def shaped_targets(targets: Tensor, outputs: Tensor) -> Tensor:
    """The right outputs in the shape of the outputs."""
    if targets.numel() != outputs.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{tuple(outputs.shape)} numbers, a row per grid point")
    return targets.to(outputs).reshape(outputs.shape)


# -- a user's data -----------------------------------------------------------------------------------------------------


def array_task(data: Any) -> ArrayTask:
    """The task itself, or that of a file, which holds nothing out."""
    return data if isinstance(data, ArrayTask) else ArrayTask(data=data, holdout="none")


def own_data(data: Any, encode: Any, holdout: Any) -> tuple[FactorGrid, Any, Tensor, TargetFunction, float, Tensor]:
    """Grid, codes, hold-out, targets, background and present points of an `ArrayTask`, or the file of one."""
    task = array_task(data)
    if task is data and encode is None:
        encode = task.encoding
    held_out = task.held_out if holdout is None else holdout_mask(holdout, task.grid) & task.present
    return task.grid, encode, held_out, task.render, task.background, task.present


# -- which numbers are computed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """What is measured: registered metrics by name, and whether any of them needs the metric tensor."""

    stage_metrics: list[str]
    metric_tensor: bool = True
    kernels: bool = True
    superposition: bool = True


def selected(names: Sequence[str] | None, thorough: bool | Collection[str]) -> Selection:
    """What must be measured for variables of these names, or for all that are usual."""
    if names is None:
        return Selection(usual_metrics(thorough))
    wanted = {names} if isinstance(names, str) else set(names)
    known = {column.name: metric.name for metric in STAGE_METRICS.values() for column in metric.columns}
    scores = ("error", *OUTPUT_SCORES)
    if unknown := sorted(wanted - {*known, *scores}):
        raise InvalidValue("metrics", unknown[0], f"one of {listed([*scores, *known])}")
    chosen = {known[name] for name in wanted if name in known}
    ordered = [name for name in STAGE_METRICS if name in chosen]
    tensors = any(Need.METRIC in STAGE_METRICS[name].needs for name in ordered)
    kernels = bool(wanted & {"kernel_agreement", "kernel_p"})
    return Selection(ordered, tensors, kernels, "superposition" in wanted)
