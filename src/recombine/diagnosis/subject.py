"""What is measured or explored: a decoder, and the grid, codes, hold-out and right outputs that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from recombine.encodings import ENCODINGS, Encoding
from recombine.errors import InvalidValue
from recombine.factors import FactorGrid
from recombine.files import as_numbers
from recombine.holdouts import HOLDOUTS, Holdout
from recombine.metrics.sampling import points_at
from recombine.metrics.stages import Encode
from recombine.specs import RunSpec
from recombine.tasks import ArrayTask

TargetFunction = Callable[[Tensor], Tensor]
"""Factor values `(point, factor)` to the right outputs `(point, …)`."""
Targets = Tensor | np.ndarray | TargetFunction


@runtime_checkable
class Trained(Protocol):
    """A trained decoder whose spec says everything else: a run of a store, or a folder in the hub's layout."""

    @property
    def spec(self) -> RunSpec: ...

    def module(self) -> nn.Module: ...


@dataclass(frozen=True)
class Subject:
    """A decoder with its grid, codes, hold-out and right outputs."""

    name: str
    module: nn.Module
    grid: FactorGrid
    encoding: Encode | Encoding | None
    """None: the module takes the factor values themselves."""
    held_out: Tensor
    """True where a point of the grid is held out, in the grid's order."""
    targets: Targets | None
    """Only the rows that are needed are read, so that an array may lie on disk."""
    background: float = 0.0
    data: ArrayTask | None = None
    """The user's own images, where these are the right outputs."""

    @classmethod
    def of(
        cls, decoder: Any, grid: FactorGrid | str | None = None, *, encode: Any = None, holdout: Any = None,
        targets: Any = None, background: float | None = None, data: Any = None, name: str | None = None,
    ) -> Self:  # fmt: skip
        """The subject of a module with a grid or with data, or of a trained decoder, whose spec says the rest."""
        given = {
            "grid": grid, "encode": encode, "holdout": holdout, "targets": targets, "background": background,
            "data": data,
        }  # fmt: skip
        if isinstance(decoder, nn.Module):
            name = name or type(decoder).__name__
            if data is not None:
                _refuse(given, ("grid", "targets", "background"), "left out beside data, which has its own")
                return cls._on_data(name, decoder, data, encode, holdout)
            own_grid = valid_grid(grid)
            mask = holdout_mask(holdout, own_grid)
            return cls(
                name, decoder, own_grid, valid_encoding(encode, own_grid), mask, valid_targets(targets, own_grid),
                float(background or 0),
            )  # fmt: skip
        if not isinstance(decoder, Trained):
            raise InvalidValue("module", decoder, "a torch.nn.Module or a finished run")
        _refuse(given, given, "left out: the spec of a run says it")
        task = decoder.spec.task
        if task.direction != "decode":
            raise InvalidValue("module", str(decoder.spec.decoder), "a decoder: this run trained an encoder")
        own = task if isinstance(task, ArrayTask) else None
        name = name or run_name(decoder.spec)
        encoding = valid_encoding(task.encoding, task.grid)
        return cls(name, decoder.module(), task.grid, encoding, task.held_out, task.render, task.background, own)

    @classmethod
    def _on_data(cls, name: str, module: nn.Module, data: Any, encode: Any, holdout: Any) -> Self:
        """A module on images of the user's own: an `ArrayTask`, or the file of one, which holds nothing out."""
        task = data if isinstance(data, ArrayTask) else ArrayTask(data=data, holdout="none")
        encode = task.encoding if task is data and encode is None else encode
        mask = task.held_out if holdout is None else holdout_mask(holdout, task.grid) & task.present
        encoding = valid_encoding(encode, task.grid)
        return cls(name, module, task.grid, encoding, mask, task.render, task.background, task)

    @property
    def present(self) -> Tensor | None:
        """Which combinations have an image; none where all have."""
        return None if self.data is None or bool(self.data.present.all()) else self.data.present

    @property
    def unseen(self) -> Tensor:
        """Combinations that are not trained on: held out, or without an image."""
        return self.held_out if self.present is None else self.held_out | ~self.present

    def inputs(self, values: Tensor) -> Tensor:
        """The module's inputs for rows of factor values."""
        return encode_values(values, self.encoding, self.grid)

    def target_rows(self, indices: Tensor | None = None) -> Tensor | None:
        """The right outputs at some points of the grid, all by default, as a tensor of finite numbers."""
        targets = self.targets
        if targets is None:
            return None
        if isinstance(targets, np.ndarray):
            return torch.from_numpy(as_numbers(targets if indices is None else targets[indices.numpy()], "targets"))
        if isinstance(targets, Tensor):
            rows = targets if indices is None else targets[indices.to(targets.device)]
        else:
            values = points_at(self.grid, indices)
            rows = targets(values)
            if rows.shape[:1] != values.shape[:1]:
                allowed = "a function that returns a tensor with a row for each point"
                raise InvalidValue("targets", tuple(rows.shape), allowed)
        if not bool(rows.isfinite().all()):
            raise InvalidValue("targets", "NaN or infinity", "finite numbers only")
        return rows


def run_name(spec: RunSpec) -> str:
    """What a run is called beside others."""
    return f"{spec.decoder} · {spec.task.encoding}" + (" · isolated factors" if spec.task.isolated else "")


def valid_grid(grid: FactorGrid | str | None) -> FactorGrid:
    """The grid itself, or that of a string."""
    if grid is None:
        raise InvalidValue("grid", None, 'a FactorGrid, or a string such as "x=0:27,y=0:27" or "x=0:1:5"')
    return FactorGrid.parse(grid) if isinstance(grid, str) else grid


def valid_encoding(encode: Encode | Encoding | str | None, grid: FactorGrid) -> Encode | Encoding | None:
    """The encoding that a string names, or the encoding itself, of the grid's factors."""
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    return encoding.resolved(grid) if isinstance(encoding, Encoding) else encoding


def encode_values(values: Tensor, encoding: Encode | Encoding | None, grid: FactorGrid) -> Tensor:
    """The inputs of a module for rows of factor values."""
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


def valid_targets(targets: Targets | None, grid: FactorGrid) -> Targets | None:
    """The targets, if they can be: of an array, as many rows as the grid has points."""
    if isinstance(targets, (Tensor, np.ndarray)) and (targets.ndim == 0 or len(targets) != grid.size):
        raise InvalidValue("targets", tuple(targets.shape), f"{grid.size} rows, one per grid point")
    return targets


def _refuse(given: dict[str, Any], names: Any, allowed: str) -> None:
    for name in names:
        if given[name] is not None:
            raise InvalidValue(name, given[name], allowed)
