"""Decoders, which map codes to images through a chain of named stages."""

from recombine.decoders.base import DECODERS, AnyDecoder, DecoderSpec, Interface, StagedDecoder, build_seeded
from recombine.decoders.cnn import CNN, ConvEncoder
from recombine.decoders.low_rank import LowRank, LowRankEmbedding
from recombine.decoders.mlp import MLP
from recombine.decoders.tokens import CoordinateMLP, Transformer
