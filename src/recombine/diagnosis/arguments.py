"""Arguments of `diagnose` in their many forms, turned into one; what cannot be used is refused in one line.

A user's own module and encoding may raise anything. That becomes one line too, and the error itself is its cause, so
that in Python the traceback leads into the user's code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from types import CodeType, TracebackType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from recombine.encodings import ENCODINGS, Encoding
from recombine.errors import InvalidValue, RecombineError, listed, reason_of
from recombine.factors import FORMS, TURN, Factor, FactorGrid, Form
from recombine.holdouts import HOLDOUTS, Holdout
from recombine.metrics.stages import Encode

T = TypeVar("T")
GRID = "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas"
ANGLE = "angle"
"""Name of a factor that is an angle in degrees unless its text says otherwise."""


def parse_grid(text: str) -> FactorGrid:
    """`x=0:27,y=0:27`: whole numbers, both ends included; `b=0.25:1:4` has a number of values as well.

    A form may come last, as in `shape=0:2:category`; a factor called `angle` is one.
    """
    if not isinstance(text, str):
        raise InvalidValue("grid", text, GRID)
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
    if high < low:
        raise InvalidValue("grid", text, "HIGH not below LOW")
    if len(bounds) < 3 and high - low != steps:
        raise InvalidValue("grid", text, "bounds a whole number apart, or NAME=LOW:HIGH:COUNT")
    try:
        form = form or (ANGLE if name.strip() == ANGLE and high - low <= TURN else "number")
        return Factor(name.strip(), low, high, steps + 1, cast(Form, form))
    except InvalidValue as error:
        bound = error.field.rpartition(".")[-1].upper()
        raise InvalidValue("grid", text, f"{bound}: {error.allowed}") from None


def valid_grid(grid: FactorGrid | str | None, reserved: frozenset[str]) -> FactorGrid:
    """The grid of a text, without names that the result uses itself."""
    parsed = parse_grid(grid) if isinstance(grid, str) else grid
    if not isinstance(parsed, FactorGrid):
        raise InvalidValue("grid", grid, 'a FactorGrid, or a text as "x=0:27,y=0:27" or "x=0:1:5"')
    for name in parsed.names:
        if name in reserved:
            raise InvalidValue("grid", name, f"names of factors other than {listed(sorted(reserved))}")
    return parsed


def valid_module(module: Any) -> nn.Module:
    """The module; of anything that has one, the error says how to take it out."""
    if isinstance(module, nn.Module):
        return module
    allowed = "a torch.nn.Module"
    if hasattr(type(module), "module"):
        allowed += ": spec.module() has not been trained, run.module() has"
    raise InvalidValue("module", module, allowed)


def valid_encoding(encode: Any, grid: FactorGrid) -> Encode | Encoding | None:
    """The encoding that a text names, or the encoding itself, of the grid's factors."""
    encoding = ENCODINGS.parse(encode) if isinstance(encode, str) else encode
    if isinstance(encoding, Encoding):
        return encoding.resolved(grid)
    if encoding is None or callable(encoding):
        return encoding
    raise InvalidValue("encode", encode, f"{listed(ENCODINGS)}, a function of (point, factor) values, or nothing")


def encode_values(values: Tensor, encoding: Encode | Encoding | None, grid: FactorGrid) -> Tensor:
    """The inputs of the module for rows of factor values."""
    if encoding is None:
        return values
    if isinstance(encoding, Encoding):
        return torch.cat([encoding.code(values[:, k], factor) for k, factor in enumerate(grid.factors)], dim=-1)
    inputs = encoding(values)
    if not isinstance(inputs, Tensor) or inputs.shape[:1] != values.shape[:1]:
        raise InvalidValue("encode", inputs, "a function that returns a tensor with a row for each point")
    return inputs


def holdout_mask(holdout: Holdout | Tensor | np.ndarray | str | None, grid: FactorGrid) -> Tensor:
    """True where a point of the grid is held out, in the grid's order."""
    if holdout is None:
        return torch.zeros(grid.size, dtype=torch.bool)
    parsed = HOLDOUTS.parse(holdout) if isinstance(holdout, str) else holdout
    try:
        mask = parsed.mask(grid) if isinstance(parsed, Holdout) else torch.as_tensor(parsed)
    except InvalidValue:
        raise
    except (TypeError, ValueError, RuntimeError):
        mask = torch.empty(0)
    if mask.dtype != torch.bool or tuple(mask.shape) not in (grid.shape, (grid.size,)):
        value = tuple(mask.shape) if mask.dtype == torch.bool and mask.ndim else holdout
        raise InvalidValue("holdout", value, f"a boolean mask over the grid, of shape {grid.shape} or ({grid.size},)")
    if bool(mask.all()):
        raise InvalidValue("holdout", int(mask.sum()), "a mask that keeps at least one combination")
    return mask.flatten().cpu()


def shaped_targets(targets: Tensor, outputs: Tensor) -> Tensor:
    """The right outputs in the shape of the outputs."""
    if targets.numel() != outputs.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{tuple(outputs.shape)} numbers, a row per grid point")
    return targets.to(outputs).reshape(outputs.shape)


def one_line_mistakes(function: Callable[..., T]) -> Callable[..., T]:
    """The function of a module, saying in one line what the user's module or encoding raised while it ran."""

    @wraps(function)
    def call(module: nn.Module, *args: Any, **kwargs: Any) -> T:
        try:
            return function(module, *args, **kwargs)
        except (Exception, SystemExit) as error:
            own = error.__cause__ if isinstance(error, RecombineError) else error
            codes = _running(own.__traceback__) if own is not None else set()
            if getattr(error, "field", None) == "module":  # said already
                raise
            if nn.Module._call_impl.__code__ in codes:
                allowed = f"a module that runs at every grid point ({reason_of(own)})"
                raise InvalidValue("module", type(module).__name__, allowed) from own
            if unwrap(encode_values).__code__ in codes:
                allowed = f"a function of (point, factor) values ({reason_of(own)})"
                raise InvalidValue("encode", kwargs.get("encode"), allowed) from own
            raise

    return call


def _running(trace: TracebackType | None) -> set[CodeType]:
    """The functions that a traceback goes through."""
    codes = set()
    while trace is not None:
        codes.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    return codes
