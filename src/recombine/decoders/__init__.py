"""Decoders, which map codes to images through a chain of named stages."""

from recombine.decoders.base import DECODERS, AnyDecoder, DecoderSpec, Interface, StagedDecoder, build_seeded, seeded
from recombine.decoders.cnn import CNN, ConvEncoder
from recombine.decoders.cross_attention import CrossAttentionDecoder
from recombine.decoders.denoiser import Denoiser, DenoisingDecoder, UNet, UNetSpec
from recombine.decoders.dropout import DropoutDecoder
from recombine.decoders.hypernetwork import HypernetworkDecoder
from recombine.decoders.ladder import LadderDecoder
from recombine.decoders.low_rank import LowRank, LowRankEmbedding
from recombine.decoders.mlp import MLP
from recombine.decoders.own_module import module_decoder
from recombine.decoders.per_factor import AdditiveDecoder, MultilinearDecoder, OcclusionDecoder
from recombine.decoders.pixelwise import BroadcastDecoder, CoordConvDecoder, ImplicitDecoder
from recombine.decoders.tokens import CoordinateMLP, Transformer
