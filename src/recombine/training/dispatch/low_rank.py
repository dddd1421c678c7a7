"""The low-rank decoder: rendered embeddings and narrow convolutions, on kernels where there are some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from recombine import kernels
from recombine.decoders import StagedDecoder
from recombine.decoders.base import ToImage
from recombine.decoders.low_rank import LowRankDecoder, LowRankEmbedding
from recombine.decoders.low_rank_parts import EmbeddingParts, PlainParts
from recombine.training.dispatch.contract import MemberOutputs
from recombine.training.dispatch.layers import narrow_convolution, prelu
from recombine.training.layout import FlatLayout


def forward_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Outputs and penalties of many members; embeddings stay in float32."""
    named = layout.unflatten_members(weights)
    first, *hidden, last = decoder.stages
    parts = _parts(cast(LowRankDecoder, decoder).embedding, named, f"stages.{first}")
    values = parts.rendered(inputs).to(dtype)
    named = {name: part.to(dtype) for name, part in named.items() if not name.startswith(f"stages.{first}.")}
    for name in hidden:
        values = prelu(named, f"stages.{name}.1", narrow_convolution(named, f"stages.{name}.0", values))
    planes = narrow_convolution(named, f"stages.{last}.0", values)
    return MemberOutputs(_images(decoder, planes), parts.penalties())


def forward_one(decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor) -> MemberOutputs | None:
    """Outputs and penalties of one network on a CPU."""
    named = layout.unflatten(weights)
    first, *hidden, last = decoder.stages
    widest = max(max(named[f"stages.{name}.0.weight"].shape[:2]) for name in (*hidden, last))
    narrow = kernels.implementation("narrow", inputs.device)
    if narrow is None or widest > kernels.NARROW[inputs.device.type]:
        return None
    parts = _parts(cast(LowRankDecoder, decoder).embedding, named, f"stages.{first}")
    values = parts.rendered(inputs)
    for name in (*hidden, last):
        kernel, bias = (named[f"stages.{name}.0.{part}"] for part in ("weight", "bias"))
        values = narrow.NarrowConvolution.apply(values, kernel, bias)
        if name != last:
            values = functional.prelu(values, named[f"stages.{name}.1.weight"])
    return MemberOutputs(_images(decoder, values), parts.penalties())


def _images(decoder: StagedDecoder, planes: Tensor) -> Tensor:
    """Images of the decoder's shape from their planes, `(*member, batch, channel, y, x)`."""
    return planes.reshape(*planes.shape[:-3], *cast(ToImage, decoder.stages["output"][1]).image_shape)  # type: ignore[index]


def _parts(embedding: LowRankEmbedding, weights: Mapping[str, Tensor], name: str) -> EmbeddingParts:
    """An embedding's parts from parameters by name, with a leading member axis or without."""
    rows, columns, strengths = (
        [weights[f"{name}.{kind}.{k}"] for k in range(len(embedding.code_sizes) * embedding.channels)]
        for kind in ("rows", "columns", "strengths")
    )
    on_kernels = rows[0].is_cuda and kernels.available(rows[0].device, "vectors")
    family = KernelParts if on_kernels else PlainParts
    return family.of(rows, columns, strengths, embedding.vectors == "unit", embedding.channels)


@dataclass(frozen=True)
class KernelParts(EmbeddingParts):
    """Of many members, by kernels that pass over memory once; `rows` have unit norm times their strengths."""

    spread: Tensor

    @classmethod
    def of(
        cls, rows: list[Tensor], columns: list[Tensor], strengths: list[Tensor], unit: bool, channels: int = 1
    ) -> KernelParts:
        """From parameters; the variance penalised is that of the unit vectors, or of the raw ones."""
        from recombine.kernels.triton.vectors import ScaledUnits

        scaled = [ScaledUnits.apply(v, s, unit) for v, s in zip(rows, strengths, strict=True)]
        units = [ScaledUnits.apply(u, None, unit) for u in columns]
        spread = torch.stack([variance for _, variance in scaled + units]).sum(dim=0)
        return cls([v for v, _ in scaled], [u for u, _ in units], strengths, channels, spread)

    def images(self) -> list[Tensor]:
        return [v.mT @ u for v, u in zip(self.rows, self.columns, strict=True)]

    def entropy(self) -> Tensor:
        from recombine.kernels.triton.vectors import Entropies

        return torch.stack([Entropies.apply(strength) for strength in self.strengths]).sum(dim=0)

    def variance(self) -> Tensor:
        return self.spread
