"""What `diagnose` is given, in the many forms it may have, made one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recombine.encodings import Encoding
from recombine.errors import InvalidValue
from recombine.factors import Factor, FactorGrid
from recombine.holdouts import HOLDOUTS, Holdout
from recombine.metrics.stages import Encode


def parse_grid(text: str) -> FactorGrid:
    """`x=0:27,y=0:27`: whole numbers, both ends included; `b=0.25:1:4` has a number of values as well."""
    factors = []
    for part in text.split(","):
        name, equals, span = part.partition("=")
        bounds = span.split(":")
        try:
            low, high = float(bounds[0]), float(bounds[1])
            count = int(bounds[2]) if len(bounds) == 3 else round(high - low) + 1
            if len(bounds) < 3 and high - low != count - 1:
                raise ValueError
        except (ValueError, IndexError, OverflowError):
            raise InvalidValue("grid", part, "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas") from None
        if not (equals and name.strip().isidentifier()) or len(bounds) > 3:
            raise InvalidValue("grid", part, "NAME=LOW:HIGH or NAME=LOW:HIGH:COUNT, separated by commas")
        factors.append(Factor(name.strip(), low, high, count))
    return FactorGrid(tuple(factors))


def encode_values(values: Tensor, encoding: Encode | Encoding | None, grid: FactorGrid) -> Tensor:
    if encoding is None:
        return values
    if not isinstance(encoding, Encoding):
        return encoding(values)
    return torch.cat([encoding.code(values[:, k], factor) for k, factor in enumerate(grid.factors)], dim=-1)


def holdout_mask(holdout: Holdout | Tensor | np.ndarray | str | None, grid: FactorGrid) -> Tensor:
    if holdout is None:
        return torch.zeros(grid.size, dtype=torch.bool)
    if isinstance(holdout, str):
        holdout = HOLDOUTS.parse(holdout)
    mask = holdout.mask(grid) if isinstance(holdout, Holdout) else torch.as_tensor(holdout)
    if mask.dtype != torch.bool or mask.numel() != grid.size:
        raise InvalidValue("holdout", tuple(mask.shape), f"a boolean mask over the grid of shape {grid.shape}")
    if bool(mask.all()):
        raise InvalidValue("holdout", int(mask.sum()), "a mask that keeps at least one combination")
    return mask.flatten().cpu()


def checked_targets(targets: Tensor | None, answers: Tensor) -> Tensor | None:
    """The right answers in the shape of the answers."""
    if targets is None:
        return None
    if targets.ndim == 0 or len(targets) != len(answers) or targets.numel() != answers.numel():
        raise InvalidValue("targets", tuple(targets.shape), f"{tuple(answers.shape)} numbers, a row a grid point")
    return targets.to(answers).reshape(answers.shape)
