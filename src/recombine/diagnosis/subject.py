"""The subject of a diagnosis or an explorer: a decoder with its grid, encoding, hold-out and targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from recombine.diagnosis.calling import Call
from recombine.encodings import ENCODINGS, RAW, Encoding
from recombine.errors import InvalidValue, listed, without_exit
from recombine.factors import FactorGrid, Grid
from recombine.holdouts import HOLDOUTS, Holdout, Nothing
from recombine.specs import RunSpec
from recombine.tasks import ArrayTask, Task

TargetFunction = Callable[[Tensor], Tensor]
"""A function from factor values `(point, factor)` to target outputs `(point, …)`."""
Targets = Tensor | np.ndarray | TargetFunction
Encode = Callable[[Any], Any]
"""A function from factor values `(point, factor)` to inputs, of tensors or of NumPy arrays."""


@runtime_checkable
class Trained(Protocol):
    """A trained decoder and its spec, from a stored run or a run's checkpoint."""

    @property
    def spec(self) -> RunSpec: ...

    def module(self) -> nn.Module: ...


@dataclass(frozen=True)
class Subject:
    """The decoder to be diagnosed, with its grid, encoding, hold-out and targets."""

    name: str
    module: nn.Module
    grid: FactorGrid
    encoding: Encode | Encoding | None
    """None if the module takes raw factor values."""
    held_out: Tensor
    """Boolean mask over the grid points."""
    targets: Targets | None
    """May be a memory-mapped array, since only the required rows are read."""
    background: float = 0.0
    data: ArrayTask | None = None
    """The user's images, if they are the targets."""
    call: Call = field(default_factory=Call)
    """How to run the module."""

    @classmethod
    def of(
        cls, decoder: Any, grid: Grid | None = None, *, encode: Any = None, holdout: Any = None,
        targets: Any = None, background: float | None = None, data: Any = None, bins: Any = None,
        repeats: Any = None, name: str | None = None, output: Any = None, call: Any = None, kwargs: Any = None,
    ) -> Self:  # fmt: skip
        """Build the subject from a module plus a grid or data, or from a trained decoder and its spec."""
        given = {"grid": grid, "encode": encode, "holdout": holdout, "targets": targets, "background": background}
        given |= {"data": data, "bins": bins, "repeats": repeats, "output": output, "call": call, "kwargs": kwargs}
        if isinstance(decoder, nn.Module):
            name = name or type(decoder).__name__
            called = Call.of(decoder, call, kwargs, output)
            if data is None:
                _refuse(given, ("bins", "repeats"), "omitted without data")
                grid = FactorGrid.of(grid)
                mask, encoding = holdout_mask(holdout, grid), valid_encoding(encode, grid)
                if isinstance(targets, (Tensor, np.ndarray)) and (targets.ndim == 0 or len(targets) != grid.size):
                    raise InvalidValue("targets", tuple(targets.shape), f"{grid.size} rows, one per grid point")
                if isinstance(targets, np.ndarray) and targets.dtype.kind not in "biuf":
                    raise InvalidValue("targets", f"an array of {targets.dtype}", "an array of real numbers")
                return cls(name, decoder, grid, encoding, mask, targets, float(background or 0), call=called)
            _refuse(given, ("grid", "targets", "background"), "omitted when data is given")
            if isinstance(data, ArrayTask):
                _refuse(given, ("bins", "repeats"), "omitted when data is an ArrayTask, which has its own")
                images, encode = data, data.encoding if encode is None else encode
            else:
                images = ArrayTask(data=data, holdout="none", bins=bins or "", repeats=repeats)
            mask = images.held_out if holdout is None else holdout_mask(holdout, images.grid, images.present)
            return cls._on_task(name, decoder, images, encode, mask, call=called)
        if not isinstance(decoder, Trained):
            required = "a torch.nn.Module, a finished run or ModelConfig.from_pretrained(FOLDER)"
            raise InvalidValue("module", decoder, required)
        _refuse(given, given, "omitted for a trained decoder, whose spec supplies it")
        task = decoder.spec.task
        if task.direction != "decode":
            raise InvalidValue("module", str(decoder.spec.decoder), "a decoder: this run trained an encoder")
        unseen = task.held_out if isinstance(task, ArrayTask) else task.held_out | task.left_out
        return cls._on_task(name or run_name(decoder.spec), decoder.module(), task, task.encoding, unseen)

    @classmethod
    def _on_task(cls, name: str, module: nn.Module, task: Task, encode: Any, held_out: Tensor, **call: Call) -> Self:
        data = task if isinstance(task, ArrayTask) else None
        encoding = valid_encoding(encode, task.grid)
        return cls(name, module, task.grid, encoding, held_out, task.render, task.background, data, **call)

    @property
    def present(self) -> Tensor | None:
        """Mask of the combinations with an image in the data; None if every combination has one."""
        return None if self.data is None or bool(self.data.present.all()) else self.data.present

    @property
    def unseen(self) -> Tensor:
        """Mask of the combinations not used for training because they are held out or have no image."""
        return self.held_out if self.present is None else self.held_out | ~self.present

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user's images are given with: raw factor values, and how they were binned or repeat."""
        if self.data is None:
            return ()
        raw = f"inputs: raw values of {listed(self.grid.names)}; encode= (--encoding) gives codes, as mixed in train"
        coverage = self.data.coverage
        return (*([f"data: {coverage}"] if coverage else []), *([raw] if self.encoding is None else []))

    def inputs(self, values: Tensor) -> Tensor:
        """Return the module's inputs for the given rows of factor values."""
        encoding = self.encoding
        if encoding is None:
            return values
        if isinstance(encoding, Encoding):
            codes = [encoding.code(values[:, k], factor) for k, factor in enumerate(self.grid.factors)]
            return torch.cat(codes, dim=-1)
        with without_exit("encode", encoding):
            inputs = _encoded(encoding, values)
        if inputs.shape[:1] != values.shape[:1]:
            raise InvalidValue("encode", tuple(inputs.shape), "a function that returns one row per point")
        return inputs

    def target_rows(self, indices: Tensor | None = None) -> Tensor:
        """Return the targets at these grid points (default: all); targets must be set and finite."""
        targets = self.targets
        assert targets is not None
        if isinstance(targets, np.ndarray):  # copied, since torch warns about read-only memory maps
            rows = torch.from_numpy(np.array(targets if indices is None else targets[indices.numpy()], np.float64))
        elif isinstance(targets, Tensor):
            rows = targets if indices is None else targets[indices.to(targets.device)]
        else:
            values = self.grid.points if indices is None else self.grid.rows(indices)
            with without_exit("targets", targets):
                rows = targets(values)
            if rows.shape[:1] != values.shape[:1]:
                raise InvalidValue("targets", tuple(rows.shape), "a function that returns one row per point")
        if not bool(rows.isfinite().all()):
            raise InvalidValue("targets", "NaN or infinity", "finite numbers only")
        return rows


def run_name(spec: RunSpec) -> str:
    """Return a short name for a run, for use in legends: its architecture and encoding."""
    return f"{spec.decoder} · {spec.task.encoding}" + (" · isolated factors" if spec.task.isolated else "")


def _encoded(encode: Encode, values: Tensor) -> Tensor:
    """Return the inputs that a user's function computes from a tensor or, if that fails, from a NumPy array."""
    try:
        inputs = encode(values)
    except InvalidValue:
        raise
    except Exception as error:
        try:
            inputs = encode(values.cpu().numpy())  # fails for a derivative, which would be lost
        except Exception:
            raise error from None
    try:
        return torch.as_tensor(inputs, device=values.device)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidValue("encode", type(inputs).__name__, "a function that returns a tensor or an array") from None


def valid_encoding(encode: Encode | Encoding | str | None, grid: FactorGrid) -> Encode | Encoding | None:
    """Return the encoding, parsed if it is a string and resolved for the grid, or None for raw factor values."""
    if isinstance(encode, str) and encode == RAW:
        return None
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    return encoding.resolved(grid) if isinstance(encoding, Encoding) else encoding


def holdout_mask(
    holdout: Holdout | Tensor | np.ndarray | str | None, grid: FactorGrid, present: Tensor | None = None
) -> Tensor:
    """Return a hold-out as a boolean mask over the grid points that are present (default: all)."""
    if holdout is None:
        return torch.zeros(grid.size, dtype=torch.bool)
    parsed = HOLDOUTS.parse(holdout) if isinstance(holdout, str) else holdout
    mask = parsed.mask(grid) if isinstance(parsed, Holdout) else torch.as_tensor(parsed)
    if mask.dtype != torch.bool or tuple(mask.shape) not in (grid.shape, (grid.size,)):
        allowed = f"a boolean mask over the grid, of shape {grid.shape} or ({grid.size},)"
        raise InvalidValue("holdout", f"{mask.dtype} of shape {tuple(mask.shape)}", allowed)
    if bool(mask.all()):
        raise InvalidValue("holdout", int(mask.sum()), "a mask that keeps at least one combination")
    held_out = mask.flatten().cpu() if present is None else mask.flatten().cpu() & present
    if not isinstance(parsed, Nothing) and not bool(held_out.any()):
        raise InvalidValue("holdout", holdout, "none, or a hold-out with at least one combination")
    return held_out


def _refuse(given: dict[str, Any], names: Any, allowed: str) -> None:
    for name in names:
        if given[name] is not None:
            raise InvalidValue(name, given[name], allowed)
