"""How factor values become inputs, as the page computes it; and what the page cannot compute itself."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from recombine.diagnosis.arguments import encode_values
from recombine.encodings import Bump, Circular, Encoding, OneHot, Polar, Positional, Ramp, Rate
from recombine.factors import Factor, FactorGrid
from recombine.metrics.stages import Encode

KNOWN = (Bump, OneHot, Rate, Ramp, Positional, Polar, Circular)
"""Encodings that the page computes (`script/codes.js`)."""


class Encoded(nn.Module):
    """Factor values to outputs: a function of the user's, or an encoding that the page does not know, and a module."""

    def __init__(self, module: nn.Module, encoding: Encode | Encoding, grid: FactorGrid) -> None:
        super().__init__()
        self.module, self.encoding, self.grid = module, encoding, grid

    def forward(self, values: Tensor) -> Any:
        inputs = encode_values(values, self.encoding, self.grid)
        return self.module(inputs.float() if inputs.is_floating_point() else inputs)


def page_codes(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[dict[str, Any]] | None:
    """Kind and fields of each factor's encoding; none where the page does not know one. No encoding is the raw rate."""
    parts = [_part(encoding, factor) for factor in grid.factors]
    if not all(type(part) in KNOWN for part in parts):
        return None
    return [part.model_dump() for part in parts if isinstance(part, Encoding)]


def smooth_factors(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[bool]:
    """For each factor, whether it may lie between two values of the grid."""
    parts = [_part(encoding, factor) for factor in grid.factors]
    return [
        factor.form != "category" and (not isinstance(part, Encoding) or part.differentiable)
        for part, factor in zip(parts, grid.factors, strict=True)
    ]


def mean_code(
    encoding: Encode | Encoding | None, grid: FactorGrid, held_out: Bool[Tensor, " point"]
) -> Float[Tensor, " code"]:
    """The mean code over the kept combinations: each factor's code, weighed by how often its values are kept."""
    kept = (~held_out).reshape(grid.shape)
    means = []
    for axis, factor in enumerate(grid.factors):
        counts = kept.sum(dim=[k for k in range(kept.ndim) if k != axis]) if kept.ndim > 1 else kept.long()
        part = _part(encoding, factor)
        assert isinstance(part, Encoding)
        means.append(counts.double() @ part.code(factor.values, factor).double() / counts.sum())
    return torch.cat(means).float()


def code_sizes(encoding: Encode | Encoding | None, grid: FactorGrid) -> list[int]:
    """Length of each factor's code."""
    parts = [_part(encoding, factor) for factor in grid.factors]
    return [part.size(factor) for part, factor in zip(parts, grid.factors, strict=True) if isinstance(part, Encoding)]


def _part(encoding: Encode | Encoding | None, factor: Factor) -> Encode | Encoding:
    if encoding is None:
        return Rate()
    return encoding.of(factor) if isinstance(encoding, Encoding) else encoding
