"""A low-rank embedding's parameters as they are used: images to be mixed, and penalties.

Vectors are `(*member, value, rank, pixel)` and strengths `(*member, value, rank)`, one tensor per factor and, where
images have colour, channel: factor by factor, a factor's channels together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class EmbeddingParts(ABC):
    """Images and penalties, however they are computed."""

    rows: list[Tensor]
    columns: list[Tensor]
    strengths: list[Tensor]
    channels: int
    """Tensors of one factor, one for each colour channel."""

    @abstractmethod
    def images(self) -> list[Tensor]:
        """W(v) = Σ λ v uᵀ, `(*member, value, y, x)`."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """−Σ λ̃ ln λ̃ over all values of all factors, one number per member."""

    @abstractmethod
    def variance(self) -> Tensor:
        """Var v + Var u over pixels, summed over ranks, values and factors; one number per member."""

    def rendered(self, codes: Tensor) -> Tensor:
        """Codes `(*member, batch, code)` to one image per factor and channel, `(*member, batch, factor, y, x)`."""
        blocks = codes.split([s.shape[-2] for s in self.strengths[:: self.channels]], dim=-1)
        mixed = [
            (blocks[k // self.channels] @ images.flatten(-2)).unflatten(-1, images.shape[-2:])
            for k, images in enumerate(self.images())
        ]
        return torch.stack(mixed, dim=-3)

    def penalties(self) -> dict[str, Tensor]:
        """Both penalties by name, as the recipe weighs them into the loss."""
        return {"entropy": self.entropy(), "variance": self.variance()}


@dataclass(frozen=True)
class PlainParts(EmbeddingParts):
    """By torch; `rows` and `columns` have unit norm."""

    penalised: list[Tensor]
    """The vectors whose variance is penalised."""

    @classmethod
    def of(
        cls, rows: list[Tensor], columns: list[Tensor], strengths: list[Tensor], unit: bool, channels: int = 1
    ) -> PlainParts:
        """From parameters; the variance penalised is that of the unit vectors, or of the raw ones."""
        units = [_unit(v) for v in rows], [_unit(v) for v in columns]
        return cls(*units, strengths, channels, [*units[0], *units[1]] if unit else rows + columns)

    def images(self) -> list[Tensor]:
        return [(s[..., None] * v).mT @ u for s, v, u in zip(self.strengths, self.rows, self.columns, strict=True)]

    def spectra(self) -> list[Tensor]:
        """Normalised squared strengths λ̃."""
        return [functional.normalize(strength**2, p=1, dim=-1) for strength in self.strengths]

    def entropy(self) -> Tensor:
        tiny = torch.finfo(torch.float32).tiny  # 0 ln 0 = 0, with a finite gradient: strengths may reach zero
        return torch.stack([-(s * s.clamp(min=tiny).log()).sum(dim=(-1, -2)) for s in self.spectra()]).sum(dim=0)

    def variance(self) -> Tensor:
        centred = [v - v.mean(dim=-1, keepdim=True) for v in self.penalised]  # faster than `var`
        return torch.stack([v.square().mean(dim=-1).sum(dim=(-1, -2)) for v in centred]).sum(dim=0)


def _unit(vectors: Tensor) -> Tensor:
    return functional.normalize(vectors, dim=-1)
