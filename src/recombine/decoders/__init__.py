"""Decoders: codes to images, as chains of named stages."""

from recombine.decoders.base import (
    DECODERS,
    AnyDecoder,
    DecoderSpec,
    Interface,
    StagedDecoder,
    build_seeded,
)
from recombine.decoders.cnn import CNN
from recombine.decoders.encoder import ConvEncoder
from recombine.decoders.low_rank import LowRank, LowRankEmbedding
from recombine.decoders.mlp import MLP
from recombine.decoders.tokens import CoordinateMLP, Transformer

__all__ = [
    "CNN",
    "DECODERS",
    "MLP",
    "AnyDecoder",
    "ConvEncoder",
    "CoordinateMLP",
    "DecoderSpec",
    "Interface",
    "LowRank",
    "LowRankEmbedding",
    "StagedDecoder",
    "Transformer",
    "build_seeded",
]
