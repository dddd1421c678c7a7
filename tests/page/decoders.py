"""Subjects of the page's tests: our decoders after a few steps of training, and foreign ones.

Of the foreign ones some are written as people write them, after public designs, and some are small ones of public
libraries, each with a function that makes its inputs of factor values; none uses anything of this package.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from recombine.decoders import DECODERS
from recombine.page.subject import page_decoders, smooth_factors
from tests.small import small_decoder, small_spec


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.GroupNorm(4, cout), nn.SiLU(),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.GroupNorm(4, cout), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x):
        return self.block(x)


class UNet(nn.Module):
    """A conditional U-Net: factor maps in, pooled, upsampled, with skips."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 3 * 16 * 16))
        self.down1, self.down2, self.mid = DoubleConv(3, 8), DoubleConv(8, 16), DoubleConv(16, 16)
        self.pool = nn.MaxPool2d(2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.dec2, self.dec1 = DoubleConv(32, 8), DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, z):
        x = self.embed(z).view(-1, 3, 16, 16)
        d1 = self.down1(x)
        d2 = self.down2(self.pool(d1))
        m = self.mid(F.avg_pool2d(d2, 2))
        u2 = self.dec2(torch.cat([self.up1(m), d2], dim=1))
        u1 = self.dec1(torch.cat([F.interpolate(u2, scale_factor=2, mode="nearest"), d1], dim=1))
        return torch.sigmoid(self.out(u1))


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class PatchTransformer(nn.Module):
    """Learnt queries that attend to factor tokens (`nn.Transformer`), each becoming a patch of the image."""

    def __init__(self, d_model=32, patches=16, patch=3):
        super().__init__()
        self.values = nn.Embedding(28, d_model)
        self.queries = nn.Parameter(torch.randn(patches, d_model))
        self.position = PositionalEncoding(d_model)
        self.transformer = nn.Transformer(
            d_model, nhead=4, num_encoder_layers=1, num_decoder_layers=2, dim_feedforward=48, batch_first=True
        )
        self.head = nn.Linear(d_model, patch * patch)
        self.grid, self.patch = math.isqrt(patches), patch

    def forward(self, factors):
        tokens = self.values(factors.round().long().clamp(0, 27))
        queries = self.position(self.queries.expand(factors.shape[0], -1, -1))
        patches = self.head(self.transformer(tokens, queries))
        patches = patches.reshape(-1, self.grid, self.grid, self.patch, self.patch)
        return torch.einsum("bhwpq->bhpwq", patches).reshape(-1, self.grid * self.patch, self.grid * self.patch)


class ResBlockUp(nn.Module):
    """A residual block that upsamples, as GAN generators have it."""

    def __init__(self, cin, cout):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(cin), nn.BatchNorm2d(cout)
        self.conv1 = nn.Conv2d(cin, cout * 4, 3, padding=1, padding_mode="reflect")
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=2, dilation=2, groups=2)
        self.shortcut = nn.Conv2d(cin, cout, 1)
        self.act = nn.PReLU(cout)

    def forward(self, x):
        h = F.pixel_shuffle(self.conv1(F.elu(self.norm1(x))), 2)
        h = self.conv2(self.act(self.norm2(h)))
        return h + self.shortcut(F.interpolate(x, scale_factor=2))


class ResNetGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 16 * 4 * 4)
        self.blocks = nn.ModuleList([ResBlockUp(16, 12), ResBlockUp(12, 8)])
        self.norm = nn.LayerNorm([8, 16, 16])
        self.to_rgb = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, z):
        x = self.fc(z / 28).unflatten(1, (16, 4, 4))
        for block in self.blocks:
            x = block(x)
        return {"images": F.softplus(self.to_rgb(self.norm(x)))}


FOREIGN = {module.__name__: module for module in (UNet, PatchTransformer, ResNetGenerator)}


def foreign(name):
    """One of them, with statistics of its norms as after some training, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = FOREIGN[name]()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.3)
                part.running_var.uniform_(0.5, 2)
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.2)
    return module.eval()


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


OURS = [name for name, spec in DECODERS.items() if spec.direction == "decode"]
CODES = ["bump:variance=2", "rate:scale=unit", "ramp", "positional:pairs=3", "polar", "circular"]
"""One for each decoder of ours, in turn."""
EVERYONE = [*OURS, *FOREIGN, *LIBRARY]


@cache
def trained(name):
    """Task and network of a small spec after a dozen steps."""
    encoding = CODES[OURS.index(name) % len(CODES)] if name != "low_rank" else "bump"
    spec = small_spec(small_decoder(name), task={"size": 10, "encoding": encoding})
    task, module = spec.task, spec.module()
    inputs, targets = task.examples(task.grid.points)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(12):
        optimizer.zero_grad()
        (module(inputs) - targets).square().mean().backward()
        optimizer.step()
    return task, module.eval()


def arguments(name):
    """What `explore` takes for a decoder of ours or a foreign one."""
    if name in FOREIGN:
        return {"module": foreign(name), "grid": "x=0:27,y=0:27", "holdout": "center:8:20"}
    if name in LIBRARY:
        return library(name)
    task, module = trained(name)
    return {
        "module": module, "grid": task.grid, "encode": task.encoding, "holdout": task.held_out, "targets": task.render,
        "background": task.background,
    }  # fmt: skip


def subject(name):
    """The same as the page has it."""
    settings = {"targets": None, "background": None, "encode": None, "data": None, **arguments(name)}
    return page_decoders({name: settings.pop("module")}, **settings)[0]


def points(own, count, seed=0):
    """Positions of random points, half of them held out where any are; between grid values where factors allow."""
    generator = torch.Generator().manual_seed(seed)
    masks = (own.held_out, ~own.held_out) if bool(own.held_out.any()) else (~own.held_out,)
    places = []
    for mask in masks:
        inside = torch.nonzero(mask).flatten()
        places.append(inside[torch.randint(len(inside), (count // len(masks),), generator=generator)])
    positions = own.grid.positions(torch.cat(places)).double()
    smooth = torch.tensor(smooth_factors(own.encoding, own.grid)) & torch.tensor(own.name != "PatchTransformer")
    shift = torch.rand(positions.shape, dtype=torch.float64, generator=generator) - 0.5
    shifted = (positions + shift).clamp(min=0)
    shifted = torch.minimum(shifted, torch.tensor(own.grid.shape).double() - 1)
    return torch.where(smooth, shifted, positions)


def values_at(grid, positions):
    """Factor values at positions."""
    columns = []
    for k, factor in enumerate(grid.factors):
        below = positions[:, k].floor().long().clamp(max=max(factor.count - 2, 0))
        after = (below + 1).clamp(max=factor.count - 1)
        own = factor.values
        columns.append(own[below] + (own[after] - own[below]) * (positions[:, k] - below))
    return torch.stack(columns, dim=1)
