"""Remedy A: every factor value owns a low-rank image, rendered before anything is mixed (SPEC §6, Eq. 8–12).

`LowRankEmbedding` is a module for use anywhere: n factors, any image size, any module behind it. For each value of
each factor it holds `W = Σ_n λ⁽ⁿ⁾ v⁽ⁿ⁾ u⁽ⁿ⁾ᵀ` with unit-norm v (over rows) and u (over columns); a factor's channel is
its code's mixture of those images, so one-hot codes select one and an absent factor leaves its channel empty.

Notes
-----
The published scripts penalise the variance of the raw vectors and normalise them at use: `vectors="raw"`. The
paper's Eq. 11 speaks of the vectors of the decomposition, which have unit norm: `vectors="unit"`, the default.
Variances are over the pixel index and divide by its length.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder

Convention = Literal["unit", "raw"]


@DECODERS.register
class LowRank(DecoderSpec):
    """One rendered channel a factor, then a small convolutional net."""

    kind: Literal["low_rank"] = "low_rank"
    rank: Annotated[int, Field(ge=1, le=2**12)] | None = None
    """Bound on the rank of an embedding; none: the smaller side of the image."""
    channels: Annotated[int, Field(ge=1, le=2**12)] = 2
    """Channels of the hidden convolutions."""
    depth: Annotated[int, Field(ge=0, le=1000)] = 2
    """Hidden convolutions."""
    vectors: Convention = "unit"
    """Which vectors the variance penalty sees."""
    penalised: ClassVar[bool] = True

    def build(self, interface: Interface) -> StagedDecoder:
        embedding = LowRankEmbedding(interface.code_sizes, interface.image_shape, self.rank, self.vectors)
        stages: dict[str, nn.Module] = {"embedding": embedding}
        before = len(interface.code_sizes)
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(nn.Conv2d(before, self.channels, 3, padding=1), nn.PReLU())
            before = self.channels
        stages["output"] = nn.Sequential(nn.Conv2d(before, 1, 3, padding=1), nn.Flatten(1, 2))
        return LowRankDecoder(stages)


class LowRankDecoder(StagedDecoder):
    """The chain, with the embedding's penalties."""

    def penalties(self) -> dict[str, Tensor]:
        embedding = self.stages["embedding"]
        assert isinstance(embedding, LowRankEmbedding)
        return {"entropy": embedding.entropy(), "variance": embedding.variance()}


class LowRankEmbedding(nn.Module):
    """Codes to one rendered image a factor: `(batch, code)` to `(batch, factor, y, x)`."""

    def __init__(
        self,
        code_sizes: tuple[int, ...],
        image_shape: tuple[int, int],
        rank: int | None = None,
        vectors: Convention = "unit",
    ) -> None:
        super().__init__()
        rank = min(image_shape) if rank is None else rank
        self.code_sizes = tuple(code_sizes)
        self.vectors = vectors
        rows, columns = image_shape
        self.rows = nn.ParameterList(nn.Parameter(torch.randn(size, rank, rows)) for size in code_sizes)
        self.columns = nn.ParameterList(nn.Parameter(torch.randn(size, rank, columns)) for size in code_sizes)
        self.strengths = nn.ParameterList(nn.Parameter(torch.randn(size, rank)) for size in code_sizes)

    def images(self) -> list[Float[Tensor, "value y x"]]:
        """Each factor's embeddings W(v), one image a value (Eq. 8)."""
        return [
            torch.einsum("vr,vry,vrx->vyx", strength, _unit(rows), _unit(columns))
            for strength, rows, columns in zip(self.strengths, self.rows, self.columns, strict=True)
        ]

    def spectra(self) -> list[Float[Tensor, "value rank"]]:
        """Each embedding's normalised squared strengths λ̃ = λ² / Σλ² (Eq. 9)."""
        return [functional.normalize(strength**2, p=1, dim=-1) for strength in self.strengths]

    def entropy(self) -> Float[Tensor, ""]:
        """−Σ λ̃ ln λ̃, summed over all values of all factors (Eq. 10, without μ1)."""
        tiny = torch.finfo(torch.float32).tiny  # 0 ln 0 = 0, with a finite gradient: strengths may reach zero
        return torch.stack([-(s * s.clamp(min=tiny).log()).sum() for s in self.spectra()]).sum()

    def variance(self) -> Float[Tensor, ""]:
        """Var v + Var u over the pixel index, summed over ranks, values and factors (Eq. 11, without μ2)."""
        every = [*self.rows, *self.columns]
        seen = [_unit(vectors) for vectors in every] if self.vectors == "unit" else every
        return torch.stack([vectors.var(dim=-1, correction=0).sum() for vectors in seen]).sum()

    def forward(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch factor y x"]:
        blocks = codes.split(self.code_sizes, dim=-1)
        channels = [
            torch.einsum("bv,vyx->byx", block, images) for block, images in zip(blocks, self.images(), strict=True)
        ]
        return torch.stack(channels, dim=1)


def _unit(vectors: Tensor) -> Tensor:
    return functional.normalize(vectors, dim=-1)
