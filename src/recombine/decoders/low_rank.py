"""Low-rank embeddings, which render each factor value as a low-rank image before factors interact (Eq. 8–12, 43–48).

`LowRankEmbedding` works with any number of factors, any image size and any module after it. For each value of each
factor it holds `W = Σ_n λ⁽ⁿ⁾ v⁽ⁿ⁾ u⁽ⁿ⁾ᵀ` with unit-norm v (over rows) and u (over columns); a factor's channel is the
mixture of these images weighted by its code, so a one-hot code selects one, and an absent factor's channel is empty.

For colour images, an embedding has one low-rank matrix W per colour channel. With a single grey image per factor, later
layers would have to infer a colour from one number, and a factor such as hue would not be rendered at all. Channels are
ordered by factor, then colour; penalties are sums over all matrices.

Notes
-----
With `vectors="raw"`, the variance of the raw vectors is penalised, as in the published scripts, and they are normalised
at use. The default, `vectors="unit"`, follows the paper's Eq. 11, whose decomposition has vectors of unit norm.
Variances are over the pixel index and divide by its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, cast

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, DecoderSpec, Interface, StagedDecoder, ToImage

Convention = Literal["unit", "raw"]


@DECODERS.register
class LowRank(DecoderSpec):
    """One rendered image per factor, then a small convolutional network.

    Examples
    --------
    >>> import recombine as rc
    >>> task = rc.BumpTask(size=8, encoding="onehot")
    >>> module = rc.RunSpec(task=task, decoder=rc.LowRank(channels=2, depth=1)).module()
    >>> module.stage_names
    ('embedding', 'layer1', 'output')
    """

    kind: Literal["low_rank"] = "low_rank"
    free_signs: ClassVar[str | None] = "embedding"
    rank: Annotated[int, Field(ge=1, le=2**12)] | None = None
    """Maximum rank of an embedding. Default: the smaller side of the image."""
    channels: Annotated[int, Field(ge=1, le=2**12)] = 2
    """Number of channels of the hidden convolutions."""
    depth: Annotated[int, Field(ge=0, le=1000)] = 2
    """Number of hidden convolutions."""
    vectors: Convention = "unit"
    """Vectors to which the variance penalty applies: normalised (unit) or not (raw)."""

    def build(self, interface: Interface) -> StagedDecoder:
        embedding = LowRankEmbedding(interface.code_sizes, interface.image_shape, self.rank, self.vectors)
        stages: dict[str, nn.Module] = {"embedding": embedding}
        before = len(interface.code_sizes) * interface.channels
        for number in range(1, self.depth + 1):
            stages[f"layer{number}"] = nn.Sequential(nn.Conv2d(before, self.channels, 3, padding=1), nn.PReLU())
            before = self.channels
        last = nn.Conv2d(before, interface.channels, 3, padding=1)
        stages["output"] = nn.Sequential(last, ToImage(interface.image_shape))
        return LowRankDecoder(stages)


class LowRankDecoder(StagedDecoder):
    """Chain of stages with the embedding's penalties."""

    @property
    def embedding(self) -> LowRankEmbedding:
        """First stage."""
        return cast(LowRankEmbedding, self.stages["embedding"])

    def entropy(self) -> Float[Tensor, ""]:
        """The embedding's entropy."""
        return self.embedding.entropy()

    def variance(self) -> Float[Tensor, ""]:
        """The embedding's variance."""
        return self.embedding.variance()


class LowRankEmbedding(nn.Module):
    """One rendered image per factor: `(batch, code)` to `(batch, factor, y, x)`.

    With an image shape of `(channel, y, x)`, the output is `(batch, factor × channel, y, x)`.

    Parameters
    ----------
    code_sizes
        Size of each factor's code; codes are concatenated.
    image_shape
        `(y, x)`, or `(channel, y, x)` for colour.
    rank
        Maximum rank of an embedding. Default: the smaller side of the image.
    vectors
        Vectors to which the variance penalty applies: normalised or raw.

    Examples
    --------
    >>> import recombine as rc
    >>> import torch
    >>> rc.LowRankEmbedding((4, 4), (8, 8))(torch.eye(8)).shape
    torch.Size([8, 2, 8, 8])
    """

    def __init__(
        self,
        code_sizes: tuple[int, ...],
        image_shape: tuple[int, ...],
        rank: int | None = None,
        vectors: Convention = "unit",
    ) -> None:
        super().__init__()
        rank = min(image_shape[-2:]) if rank is None else rank
        ends = Interface(tuple(code_sizes), tuple(image_shape))
        self.channels, (rows, columns) = ends.channels, ends.plane
        self.code_sizes = tuple(code_sizes)
        self.vectors = vectors
        each = [size for size in code_sizes for _ in range(self.channels)]
        self.rows = nn.ParameterList(nn.Parameter(torch.randn(size, rank, rows)) for size in each)
        self.columns = nn.ParameterList(nn.Parameter(torch.randn(size, rank, columns)) for size in each)
        self.strengths = nn.ParameterList(nn.Parameter(torch.randn(size, rank)) for size in each)

    def parts(self) -> EmbeddingParts:
        """Return the parameters as lists of tensors."""
        lists = [*self.rows], [*self.columns], [*self.strengths]
        return EmbeddingParts(*lists, self.vectors == "unit", self.channels)

    def images(self) -> list[Float[Tensor, "value *channel y x"]]:
        """Return each factor's embeddings W(v), one image per value (Eq. 8)."""
        planes = self.parts().images()
        if self.channels == 1:
            return planes
        return [torch.stack(planes[k : k + self.channels], dim=1) for k in range(0, len(planes), self.channels)]

    def spectra(self) -> list[Float[Tensor, "value rank"]]:
        """Return normalised squared strengths λ̃ = λ² / Σλ² (Eq. 9) by factor and channel."""
        return self.parts().spectra()

    def entropy(self) -> Float[Tensor, ""]:
        """−Σ λ̃ ln λ̃, summed over all values of all factors (Eq. 10, without μ1)."""
        return self.parts().entropy()

    def variance(self) -> Float[Tensor, ""]:
        """Var v + Var u over the pixel index, summed over ranks, values and factors (Eq. 11, without μ2)."""
        return self.parts().variance()

    def forward(self, codes: Float[Tensor, "batch code"]) -> Float[Tensor, "batch rendered y x"]:
        return self.parts().rendered(codes)


@dataclass(frozen=True)
class EmbeddingParts:
    """Parameters of an embedding, with the images and penalties computed from them.

    Vectors are `(*member, value, rank, pixel)` and strengths `(*member, value, rank)`, one tensor per factor and colour
    channel.
    """

    rows: list[Tensor]
    columns: list[Tensor]
    strengths: list[Tensor]
    unit: bool
    """Whether the variance penalty applies to unit vectors instead of raw ones."""
    channels: int = 1

    @cached_property
    def units(self) -> tuple[list[Tensor], list[Tensor]]:
        """Normalised row and column vectors."""
        rows, columns = ([functional.normalize(v, dim=-1) for v in part] for part in (self.rows, self.columns))
        return rows, columns

    def images(self) -> list[Tensor]:
        """W(v) = Σ λ v uᵀ, `(*member, value, y, x)`."""
        return [(s[..., None] * v).mT @ u for s, v, u in zip(self.strengths, *self.units, strict=True)]

    def spectra(self) -> list[Tensor]:
        """Normalised squared strengths λ̃."""
        return [functional.normalize(strength**2, p=1, dim=-1) for strength in self.strengths]

    def entropy(self) -> Tensor:
        """−Σ λ̃ ln λ̃ over all values of all factors, one number per member."""
        tiny = torch.finfo(torch.float32).tiny  # makes 0 ln 0 = 0 with a finite gradient
        return torch.stack([-(s * s.clamp(min=tiny).log()).sum(dim=(-1, -2)) for s in self.spectra()]).sum(dim=0)

    def variance(self) -> Tensor:
        """Var v + Var u over pixels, summed over ranks, values and factors; one number per member."""
        rows, columns = self.units if self.unit else (self.rows, self.columns)
        centred = [v - v.mean(dim=-1, keepdim=True) for v in rows + columns]  # faster than `var`
        return torch.stack([v.square().mean(dim=-1).sum(dim=(-1, -2)) for v in centred]).sum(dim=0)

    def rendered(self, codes: Tensor) -> Tensor:
        """Map codes `(*member, batch, code)` to one image per factor and channel, `(*member, batch, factor, y, x)`."""
        blocks = codes.split([s.shape[-2] for s in self.strengths[:: self.channels]], dim=-1)
        mixed = [
            (blocks[k // self.channels] @ images.flatten(-2)).unflatten(-1, images.shape[-2:])
            for k, images in enumerate(self.images())
        ]
        return torch.stack(mixed, dim=-3)

    def penalties(self) -> dict[str, Tensor]:
        """Return both penalties by name."""
        return {"entropy": self.entropy(), "variance": self.variance()}
