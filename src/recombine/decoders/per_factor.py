"""Decoders that render every factor by a network of its own, and then combine the images.

    additive:     f(z) = Σ_k f_k(z_k)                              (Lachapelle et al. 2023, Additive Decoders)
    occlusion:    a over b = a σ(α Σ_c a) + b σ(−α Σ_c a)          (Wiedemer et al. 2023, Compositional Generalization
                                                                    from First Principles)
    multilinear:  f(z) = Σ_r Π_k f_kr(z_k)                         (Georgopoulos et al. 2020, Multilinear Latent
                                                                    Conditioning); rank 1 is a product of images

Each f_k is the base decoder, given one factor's code. Occlusion puts the first factor in front; the sum Σ_c is over
colours. Stages: `components` (one image per factor, or several) and `output`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial, reduce
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from recombine.decoders.base import DECODERS, AnyDecoder, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.cnn import CNN

ALPHA = 1.0
"""Steepness of the sigmoid in the published code."""


class Components(nn.Module):
    """One image per factor, `(batch, factor, image, …)`, each from its block of the code."""

    def __init__(self, decoders: list[nn.Module], code_sizes: tuple[int, ...], images: int) -> None:
        super().__init__()
        self.decoders, self.code_sizes, self.images = nn.ModuleList(decoders), list(code_sizes), images

    def forward(self, codes: Tensor) -> Tensor:
        parts = zip(self.decoders, codes.split(self.code_sizes, dim=-1), strict=True)
        return torch.stack([decoder(part) for decoder, part in parts], dim=1).unflatten(2, (self.images, -1))


class Combined(nn.Module):
    """Components to the image, by a function over `(batch, factor, image, pixel)`."""

    def __init__(self, combine: Callable[[Tensor], Tensor], interface: Interface) -> None:
        super().__init__()
        self.combine, self.image_shape = combine, interface.image_shape

    def forward(self, components: Tensor) -> Tensor:
        return self.combine(components).unflatten(-1, self.image_shape)


class PerFactorDecoder(DecoderSpec):
    """One base decoder per factor."""

    base: AnyDecoder = CNN()
    """Decoder of each factor, as text in parentheses: base=(cnn:width=16)."""

    @property
    def images(self) -> int:
        """Images per factor."""
        return 1

    @abstractmethod
    def combined(self, components: Tensor, channels: int) -> Tensor:
        """Return pixels `(batch, pixel)` from components `(batch, factor, image, pixel)`."""

    def build(self, interface: Interface) -> StagedDecoder:
        rows, columns = interface.plane
        channels = self.images * interface.channels
        shape = (rows, columns) if channels == 1 else (channels, rows, columns)
        parts = [_flat(self.base.build(Interface((size,), shape))) for size in interface.code_sizes]
        components = Components(parts, interface.code_sizes, self.images)
        output = Combined(partial(self.combined, channels=interface.channels), interface)
        return StagedDecoder({"components": components, "output": output})


def _flat(decoder: StagedDecoder) -> nn.Module:
    return nn.Sequential(decoder, nn.Flatten(1))


@DECODERS.register
class AdditiveDecoder(PerFactorDecoder):
    """The sum of one image per factor."""

    kind: Literal["additive"] = "additive"

    def combined(self, components: Tensor, channels: int) -> Tensor:
        return components.sum(dim=(1, 2))


@DECODERS.register
class OcclusionDecoder(PerFactorDecoder):
    """One image per factor, the first in front."""

    kind: Literal["occlusion"] = "occlusion"

    def combined(self, components: Tensor, channels: int) -> Tensor:
        front, *others = components.squeeze(2).unbind(dim=1)
        for behind in others:
            total = front.unflatten(-1, (channels, -1)).sum(dim=-2).repeat(1, channels)
            front = front * torch.sigmoid(ALPHA * total) + behind * torch.sigmoid(-ALPHA * total)
        return front


@DECODERS.register
class MultilinearDecoder(PerFactorDecoder):
    """The sum of products of images, one per factor in each product."""

    kind: Literal["multilinear"] = "multilinear"
    rank: Annotated[int, Field(ge=1, le=256)] = 4
    """Products that are summed."""

    @property
    def images(self) -> int:
        return self.rank

    def combined(self, components: Tensor, channels: int) -> Tensor:
        # `prod` would look for zeros on the host, which a CUDA graph does not allow
        return reduce(torch.mul, components.unbind(dim=1)).sum(dim=1)
