"""Remedies that replace the decoder. The decoders' own files have their formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from recombine.decoders import (
    AdditiveDecoder,
    BroadcastDecoder,
    CoordConvDecoder,
    CoordinateMLP,
    CrossAttentionDecoder,
    HypernetworkDecoder,
    ImplicitDecoder,
    MultilinearDecoder,
    OcclusionDecoder,
)
from recombine.remedies.base import REMEDIES, Penalty, Remedy, S, Weight
from recombine.remedies.derivatives import Rows, first_rows
from recombine.remedies.noise import Generator

Width = Annotated[int, Field(ge=4, le=2**12, multiple_of=4)]
Depth = Annotated[int, Field(ge=1, le=1000)]


@REMEDIES.register
class Additive(Remedy):
    """The sum of one image per factor, each by a decoder like the given one."""

    source = "Lachapelle et al. 2023"
    knows = ("factor blocks",)
    assumes = ("additivity",)
    kind: Literal["additive"] = "additive"

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=AdditiveDecoder(base=spec.decoder))


@REMEDIES.register
class Occlusion(Remedy):
    """One image per factor, the first in front of the next, each by a decoder like the given one."""

    source = "Wiedemer et al. 2023"
    knows = ("factor blocks",)
    assumes = ("additivity",)  # but where objects overlap
    kind: Literal["occlusion"] = "occlusion"

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=OcclusionDecoder(base=spec.decoder))


@REMEDIES.register
class Multilinear(Remedy):
    """A sum of products of images, one per factor, by decoders like the given one."""

    source = "Georgopoulos et al. 2020"
    knows = ("factor blocks",)
    assumes = ("low rank",)
    kind: Literal["multilinear"] = "multilinear"
    rank: Annotated[int, Field(ge=1, le=256)] = 4
    """Products that are summed; 1 for a product of per-factor images."""

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=MultilinearDecoder(base=spec.decoder, rank=self.rank))


@REMEDIES.register
class SpatialBroadcast(Remedy):
    """Spatial broadcast decoder."""

    source = "Watters et al. 2019"
    knows = ("pixel coordinates",)
    assumes = ("translation",)
    kind: Literal["broadcast"] = "broadcast"
    width: Width = 64
    depth: Depth = 4

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=BroadcastDecoder(width=self.width, depth=self.depth))


@REMEDIES.register
class CoordConv(Remedy):
    """Coordinates as channels of every convolution."""

    source = "Liu et al. 2018"
    knows = ("pixel coordinates",)
    assumes = ("translation",)
    kind: Literal["coordconv"] = "coordconv"
    width: Width = 64
    depth: Depth = 4

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=CoordConvDecoder(width=self.width, depth=self.depth))


@REMEDIES.register
class Coordinate(Remedy):
    """Coordinate MLP: each pixel is computed from the code and its sinusoidal position."""

    source = "Liang et al. 2025"
    knows = ("pixel coordinates",)
    assumes = ("translation",)
    kind: Literal["coordinate"] = "coordinate"
    width: Annotated[int, Field(ge=4, le=2**16, multiple_of=4)] = 128
    depth: Depth = 3

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=CoordinateMLP(width=self.width, depth=self.depth))


@REMEDIES.register
class Implicit(Remedy):
    """Coordinate MLP on plain coordinates, with sines or ReLUs."""

    source = "Sitzmann et al. 2020"
    knows = ("pixel coordinates",)
    assumes = ("translation",)
    kind: Literal["implicit"] = "implicit"
    activation: Literal["relu", "sine"] = "sine"
    frequency: Annotated[float, Field(gt=0, le=1e4)] = 30.0
    width: Width = 128
    depth: Depth = 3

    def apply(self, spec: S) -> S:
        fields = {name: getattr(self, name) for name in ("width", "depth", "activation", "frequency")}
        return spec.replace(decoder=ImplicitDecoder(**fields))


@REMEDIES.register
class Hypernetwork(Remedy):
    """A pixel-wise network whose weights, or gains and biases, are linear in the code."""

    source = "Schug et al. 2024; Perez et al. 2018"
    knows = ("pixel coordinates",)
    assumes = ("translation",)
    kind: Literal["hypernetwork"] = "hypernetwork"
    form: Literal["linear", "film"] = "linear"
    width: Width = 64
    depth: Depth = 2

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=HypernetworkDecoder(width=self.width, depth=self.depth, form=self.form))


@REMEDIES.register
class Interaction(Penalty):
    """Cross-attention decoder whose pixels should attend to one factor each."""

    source = "Brady et al. 2025"
    knows = ("factor blocks", "pixel coordinates")
    assumes = ("additivity",)
    version = 1  # heads are summed
    kind: Literal["interaction"] = "interaction"
    weight: Weight = 1e-4
    """Weight of the term in the loss (0.05 in the published code)."""
    rows: Rows = 0.125
    """Share of the batch that it is computed on."""

    def apply(self, spec: S) -> S:
        own = isinstance(spec.decoder, CrossAttentionDecoder)
        return super().apply(spec if own else spec.replace(decoder=CrossAttentionDecoder()))

    def loss(self, decode: Any, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return decode.interaction(first_rows(codes, self.rows))
