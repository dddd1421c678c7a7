"""A module beside all that the page needs to know of it: its codes, and its outputs at points of the grid."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from recombine.diagnosis.arguments import (
    TargetFunction,
    array_task,
    encode_values,
    holdout_mask,
    own_data,
    valid_encoding,
    valid_grid,
    valid_targets,
)
from recombine.diagnosis.hooks import tensors_in
from recombine.diagnosis.isolation import refuse_unfinished, uncompiled
from recombine.diagnosis.subject import ROWS_AT_ONCE, SEED
from recombine.encodings import Bump, Circular, Encoding, OneHot, Polar, Positional, Ramp, Rate
from recombine.errors import InvalidValue, reason_of
from recombine.factors import FactorGrid
from recombine.metrics.stages import Encode
from recombine.reproduction.explorer import KeptDecoder
from recombine.store import Run
from recombine.tasks import ArrayTask

Trained = Run | KeptDecoder
"""A trained decoder whose spec says everything else."""
KNOWN = (Bump, OneHot, Rate, Ramp, Positional, Polar, Circular)
"""Encodings that the page computes (`script/grid.js`)."""


@dataclass(frozen=True)
class Subject:
    """A module on the CPU in evaluation mode, a copy of the user's."""

    name: str
    module: nn.Module
    grid: FactorGrid
    encoding: Encode | Encoding | None
    held_out: Tensor
    targets: Tensor | np.ndarray | TargetFunction | None
    background: float
    data: ArrayTask | None = None
    """The images that are the right outputs, where they are a user's own."""
    notes: list[str] = field(default_factory=list)

    @property
    def present(self) -> Tensor | None:
        """Which combinations have an image; none where all have."""
        return None if self.data is None or bool(self.data.present.all()) else self.data.present

    @property
    def unseen(self) -> Tensor:
        """Combinations that are not trained on: held out, or without an image."""
        return self.held_out if self.present is None else self.held_out | ~self.present

    @property
    def levels(self) -> dict[str, list[str]]:
        """Names of the values of factors that are texts."""
        levels = {} if self.data is None else self.data.levels
        return {name: list(texts) for name, texts in levels.items() if all(isinstance(text, str) for text in texts)}

    def inputs(self, values: Tensor) -> Tensor:
        """The module's inputs for rows of factor values."""
        inputs = encode_values(values, self.encoding, self.grid)
        return inputs.float() if inputs.is_floating_point() else inputs

    @cached_property
    def is_random(self) -> bool:
        """Whether the same rows have different outputs."""
        last = self.grid.size - 1
        rows = self.inputs(self.grid.rows(torch.tensor([0, last // 2, last])))
        return not torch.equal(*(self._batch(rows.clone()).nan_to_num() for _ in range(2)))

    def outputs(self, values: Tensor) -> Tensor:
        """The `(row, …)` outputs at rows of factor values; where they are random, all with the same random numbers."""
        parts = []
        for part in self.inputs(values).split(1 if self.is_random else ROWS_AT_ONCE):
            if self.is_random:
                torch.manual_seed(SEED)
            parts.append(self._batch(part.clone()))
        return torch.cat(parts)

    @torch.no_grad()
    def _batch(self, inputs: Tensor) -> Tensor:
        try:
            returned = self.module(inputs)
        except Exception as error:  # whatever a user's module raises
            allowed = f"a module that runs at every grid point ({reason_of(error)})"
            raise InvalidValue("module", self.name, allowed) from error
        rows = next((t for t in tensors_in(returned) if t.shape[:1] == inputs.shape[:1]), None)
        if rows is None or rows.numel() == 0:
            allowed = "a module whose output has a row of real numbers per input row"
            raise InvalidValue("module", self.name, allowed)
        return rows.float()


def subjects_of(given: Any, **settings: Any) -> list[Subject]:
    """The subjects of a module or a run, of several, or of several by name."""
    if isinstance(given, Mapping):
        named = list(given.items())
    else:
        named = [(_default_name(part), part) for part in parts_of(given)]
    if not named:
        raise InvalidValue("module", given, "at least one module or run")
    subjects = [_of_run(name, part, settings) if isinstance(part, Trained) else _of_module(name, part, settings)
                for name, part in _distinct(named)]  # fmt: skip
    for subject in subjects[1:]:
        if subject.grid != subjects[0].grid:
            allowed = f"runs on one grid: {subjects[0].name} has {subjects[0].grid.shape} {subjects[0].grid.names}"
            raise InvalidValue("module", subject.name, allowed)
    return subjects


def parts_of(given: Any) -> list[Any]:
    """The modules or runs themselves."""
    if isinstance(given, Mapping):
        return list(given.values())
    return list(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]


def _default_name(part: Any) -> str:
    if isinstance(part, Trained):
        spec = part.spec
        return f"{spec.decoder} · {spec.task.encoding}" + (" · isolated factors" if spec.task.isolated else "")
    return type(part).__name__


def _distinct(named: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The same, with names that occur more than once numbered."""
    names = [name for name, _ in named]
    return [
        (name if names.count(name) == 1 else f"{name} · {names[: k + 1].count(name)}", part)
        for k, (name, part) in enumerate(named)
    ]


def _of_run(name: str, run: Trained, settings: Mapping[str, Any]) -> Subject:
    for field_name, value in settings.items():
        if value is not None:
            raise InvalidValue(field_name, value, "left out for a stored run, whose spec says it")
    task = run.spec.task
    if task.direction != "decode":
        raise InvalidValue("module", name, "a run that decodes")
    data = task if isinstance(task, ArrayTask) else None
    module = run.module().cpu()
    return Subject(name, module, task.grid, task.encoding, task.held_out, task.render, task.background, data)


def _of_module(name: str, module: Any, settings: Mapping[str, Any]) -> Subject:
    if not isinstance(module, nn.Module):
        raise InvalidValue("module", module, "a torch.nn.Module or a finished run")
    own = uncompiled(module)
    refuse_unfinished(own)
    if settings["data"] is not None:
        return _on_data(name, _copied(own, name), settings)
    grid = valid_grid(settings["grid"])
    encoding = valid_encoding(settings["encode"], grid)
    mask = holdout_mask(settings["holdout"], grid)
    targets = valid_targets(settings["targets"], grid)
    return Subject(name, _copied(own, name), grid, encoding, mask, targets, float(settings["background"] or 0))


def _on_data(name: str, module: nn.Module, settings: Mapping[str, Any]) -> Subject:
    """A module whose grid and right outputs are those of images of the user's own."""
    for field_name in ("grid", "targets", "background"):
        if settings[field_name] is not None:
            raise InvalidValue(field_name, settings[field_name], "left out where data is given, which has its own")
    data = array_task(settings["data"])
    grid, encode, held_out, targets, background, _ = own_data(settings["data"], settings["encode"], settings["holdout"])
    return Subject(name, module, grid, valid_encoding(encode, grid), held_out, targets, background, data)


def _copied(module: nn.Module, name: str) -> nn.Module:
    """A copy on the CPU, in float32 and evaluation mode."""
    try:
        return copy.deepcopy(module).cpu().float().eval()
    except Exception as error:  # hooks and handles that cannot be copied
        raise InvalidValue("module", name, f"a module that can be copied ({reason_of(error)})") from error


class Encoded(nn.Module):
    """Factor values to outputs: a function of the user's, or an encoding that the page does not know, and a module."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.module, self.inputs = subject.module, subject.inputs

    def forward(self, values: Tensor) -> Any:
        return self.module(self.inputs(values))


def factor_codes(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[Encoding] | None:
    """The encoding of each factor, the raw rate without any; none where the code is a function of the user's."""
    if encoding is None:
        return [Rate()] * len(grid.factors)
    return [encoding.of(factor) for factor in grid.factors] if isinstance(encoding, Encoding) else None


def smooth_factors(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[bool]:
    """For each factor, whether it may lie between two values of the grid."""
    codes = factor_codes(encoding, grid)
    return [
        factor.form != "category" and (codes is None or codes[k].differentiable)
        for k, factor in enumerate(grid.factors)
    ]


def mean_code(codes: Sequence[Encoding], grid: FactorGrid, held_out: Bool[Tensor, " point"]) -> Float[Tensor, " code"]:
    """The mean code over the kept combinations: each factor's code, weighed by how often its values are kept."""
    kept = (~held_out).reshape(grid.shape)
    means = []
    for axis, (factor, code) in enumerate(zip(grid.factors, codes, strict=True)):
        counts = kept.sum(dim=[k for k in range(kept.ndim) if k != axis]) if kept.ndim > 1 else kept.long()
        means.append(counts.double() @ code.code(factor.values, factor).double() / counts.sum())
    return torch.cat(means).float()
