"""Decoders of public libraries, small ones, as these libraries write them: nothing of them is ours.

Each has a function that makes its inputs of factor values, as a user would write it.
"""

import torch
from torch import nn


def autoencoder_kl():
    """The decoder of latent diffusion: residual blocks, group norm, attention in the middle (diffusers)."""
    from diffusers.models.autoencoders.vae import Decoder

    up = ("UpDecoderBlock2D", "UpDecoderBlock2D")
    return Decoder(4, 3, up_block_types=up, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)


def autoencoder_tiny():
    """A distilled decoder: convolutions, ReLU, nearest upsampling, a clamp by tanh (diffusers)."""
    from diffusers.models.autoencoders.vae import DecoderTiny

    return DecoderTiny(4, 3, (1, 1, 1), (8, 8, 8), upsampling_scaling_factor=2, act_fn="relu", upsample_fn="nearest")


def autoencoder_dc():
    """The deep compression autoencoder's decoder: linear attention at several scales, RMS norm (diffusers)."""
    from diffusers.models.autoencoders.autoencoder_dc import Decoder

    return Decoder(
        3, 4, attention_head_dim=8, block_type=("ResBlock", "EfficientViTBlock"), block_out_channels=(8, 16),
        layers_per_block=(1, 1), qkv_multiscales=((), (5,)), norm_type="rms_norm", act_fn="silu",
        upsample_block_type="pixel_shuffle",
    )  # fmt: skip


def hifi_gan():
    """A vocoder: transposed convolutions over time with parametrized weights (transformers)."""
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    sizes = {"model_in_dim": 8, "upsample_initial_channel": 16, "upsample_rates": [2, 2], "resblock_kernel_sizes": [3]}
    kernels = {"upsample_kernel_sizes": [4, 4], "resblock_dilation_sizes": [[1, 3]]}
    return SpeechT5HifiGan(SpeechT5HifiGanConfig(**sizes, **kernels))


def dac():
    """An audio codec's decoder: dilated convolutions and snake activations (transformers)."""
    from transformers import DacConfig
    from transformers.models.dac.modeling_dac import DacDecoder

    sizes = {"hidden_size": 4, "decoder_hidden_size": 16, "upsampling_ratios": [2, 2], "downsampling_ratios": [2, 2]}
    return DacDecoder(DacConfig(**sizes))


def transformer_encoder():
    """Attention and MLPs over tokens (torch)."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def as_maps(values):
    """Four maps of 4 × 4, as latents of an image."""
    return (values / 9).repeat(1, 2)[:, :, None, None] * torch.linspace(-1, 1, 4) + torch.linspace(-1, 1, 4)[:, None]


def as_sound(values):
    """Eight steps of eight channels."""
    return (values / 9)[:, None, :].repeat(1, 8, 4) * torch.linspace(-1, 1, 8)


def as_codes(values):
    """Four channels of eight steps."""
    return (values / 9).repeat(1, 2)[:, :, None] * torch.linspace(-1, 1, 8)


def as_tokens(values):
    """Nine tokens of sixteen numbers."""
    return (values / 9).repeat(1, 8)[:, None, :] * torch.linspace(-1, 1, 9)[:, None]


LIBRARY = {
    "TransformerEncoder": (transformer_encoder, as_tokens), "AutoencoderKL": (autoencoder_kl, as_maps),
    "AutoencoderTiny": (autoencoder_tiny, as_maps), "AutoencoderDC": (autoencoder_dc, as_maps),
    "HifiGan": (hifi_gan, as_sound), "Dac": (dac, as_codes),
}  # fmt: skip


def library(name):
    """What `explore` takes for one of them, with random weights."""
    make, encode = LIBRARY[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        module = make().eval()
    return {"module": module, "grid": "x=0:9,y=0:9", "encode": encode, "holdout": "center:3:7"}
