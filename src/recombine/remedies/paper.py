"""The remedies of Liang et al. 2025, and plain controls.

low_rank      every factor value owns an image of low rank, with penalties on its entropy and variance (§4.1)
isolated      every factor value is also shown alone (§4.2)
wider, dropout, weight_decay   what one would try anyway
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from recombine.decoders import DecoderSpec, DropoutDecoder, LowRank
from recombine.errors import InvalidValue
from recombine.remedies.base import REMEDIES, Penalty, Remedy, S, Weight
from recombine.remedies.noise import Generator


class EmbeddingPenalty(Penalty):
    """A penalty on low-rank embeddings, by which each factor value owns an image."""

    source = "Liang et al. 2025"
    knows = ("factor blocks",)

    def check(self, decoder: DecoderSpec) -> None:
        if not isinstance(getattr(decoder, "renderer", None) or decoder, LowRank):
            raise InvalidValue(
                "remedy", str(self), f"one that fits decoder {decoder.kind!r}, which has no low-rank embeddings"
            )


@REMEDIES.register
class Entropy(EmbeddingPenalty):
    """Entropy of the spectra of rendered embeddings (Eq. 10)."""

    kind: Literal["entropy"] = "entropy"

    def loss(self, decode: Any, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return decode.entropy()


@REMEDIES.register
class Variance(EmbeddingPenalty):
    """Variance of the vectors of rendered embeddings (Eq. 11)."""

    kind: Literal["variance"] = "variance"

    def loss(self, decode: Any, codes: Tensor, blocks: Sequence[int], generator: Generator) -> Tensor:
        return decode.variance()


@REMEDIES.register
class LowRankEmbeddings(Remedy):
    """Low-rank rendered embeddings with both penalties."""

    source = "Liang et al. 2025"
    knows = ("factor blocks",)
    kind: Literal["low_rank"] = "low_rank"
    entropy: Weight = 1e-6
    """Weight of the entropy penalty (0.1 in the paper, for 1000 epochs)."""
    variance: Weight = 1e-7
    """Weight of the variance penalty (0.01 in the paper)."""

    def apply(self, spec: S) -> S:
        spec = spec.replace(decoder=LowRank())
        for penalty in (Entropy(weight=self.entropy), Variance(weight=self.variance)):
            spec = penalty.apply(spec) if penalty.weight else spec
        return spec


@REMEDIES.register
class Isolated(Remedy):
    """Every factor value is also shown alone."""

    source = "Liang et al. 2025"
    knows = ("extra images",)
    kind: Literal["isolated"] = "isolated"

    def apply(self, spec: S) -> S:
        return spec.replace(task=spec.task.replace(isolated=True))


@REMEDIES.register
class Wider(Remedy):
    """The same decoder with a multiple of its width."""

    source = "control"
    assumes = ("coverage",)
    kind: Literal["wider"] = "wider"
    times: Annotated[int, Field(ge=2, le=64)] = 2

    def apply(self, spec: S) -> S:
        width = getattr(spec.decoder, "width", None)
        if width is None:
            raise InvalidValue("remedy", str(self), f"one that fits decoder {spec.decoder.kind!r}, which has no width")
        return spec.replace(decoder=spec.decoder.replace(width=self.times * width))


@REMEDIES.register
class WeightDecay(Remedy):
    """More weight decay."""

    source = "control"
    assumes = ("coverage",)
    kind: Literal["weight_decay"] = "weight_decay"
    weight_decay: Weight = 0.1

    def apply(self, spec: S) -> S:
        return spec.replace(recipe=spec.recipe.replace(weight_decay=self.weight_decay))


@REMEDIES.register
class Dropout(Remedy):
    """Dropout after every hidden stage."""

    source = "control"
    assumes = ("coverage",)
    kind: Literal["dropout"] = "dropout"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.1

    def apply(self, spec: S) -> S:
        return spec.replace(decoder=DropoutDecoder(base=spec.decoder, rate=self.rate))
