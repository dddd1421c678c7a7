"""Conditional diffusion: a small U-Net that removes noise from an image, given a code, and the same net without noise.

Images x are scaled to [−1, 1]. At timestep t, between 0 (the image) and 1 (noise ε alone), the noise schedule is the
cosine one (Nichol and Dhariwal 2021), α = cos(π t / 2) and σ = sin(π t / 2). The U-Net sees z = α x + σ ε and predicts
v = α ε − σ x (Salimans and Ho 2022). In training, t is uniform and the loss is (v̂ − v)². Sampling is deterministic
(DDIM; Song et al. 2021): from noise, in steps of equal length 1 / steps, z ← cos δ z − sin δ v̂ with δ = π / (2 steps).
Thus a sample is a function of the code: all codes and all networks start from the same noise.

`denoiser` is trained so; its forward pass returns samples, so that everything that is measured on a decoder can be
measured on it. `unet` is the same network as a plain decoder: a single sampling step, trained on the squared error of
the image that it draws from that noise.

The U-Net has `width` channels at the image's size, twice as many at half of it and four times as many at a quarter. The
code enters every block by an embedding, which is added to that of the timestep. With a `renderer`, it enters as feature
maps that are concatenated to the noisy image instead, and that are drawn by any decoder, such as one image per factor.
That is the decoder that remedies replace (`RunSpec.with_remedy`). Stages: `code` (the condition) and `output`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders.base import DECODERS, AnyDecoder, DecoderSpec, Interface, StagedDecoder
from recombine.decoders.ladder import Repeat

RESOLUTIONS = 3
"""Resolutions of the U-Net: whole, half and a quarter; fewer for images of less than 4 pixels."""
GROUPS = 4
"""Maximum number of groups of a group norm."""
FREQUENCIES = 6
"""Frequencies of the timestep's embedding, each twice the one before."""
HALF_PI = math.pi / 2


def normalisation(channels: int) -> nn.GroupNorm:
    """Return a group norm with as many groups as fit."""
    return nn.GroupNorm(math.gcd(GROUPS, channels), channels)


class ResidualBlock(nn.Module):
    """Two convolutions with a 1 × 1 skip connection; an embedding sets scale and shift between them."""

    def __init__(self, before: int, after: int, embedding: int) -> None:
        super().__init__()
        self.first = nn.Sequential(normalisation(before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.norm = normalisation(after)
        self.scale_shift = nn.Linear(embedding, 2 * after)
        self.last = nn.Sequential(nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, image: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.scale_shift(embedding)[..., None, None].chunk(2, dim=1)
        return self.skip(image) + self.last(self.norm(self.first(image)) * (1 + scale) + shift)


class ConditionalUNet(nn.Module):
    """Predicts v from noisy images and timesteps, given embedded codes or rendered maps (`maps` of them)."""

    def __init__(self, interface: Interface, width: int, maps: int) -> None:
        super().__init__()
        resolutions = min(RESOLUTIONS, min(interface.plane).bit_length())
        widths = [width << k for k in range(resolutions)]
        planes = [tuple(side >> k for side in interface.plane) for k in range(resolutions)]
        embedding = 4 * width
        self.timestep = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )  # fmt: skip
        self.conv_in = nn.Conv2d(interface.channels + maps, width, 3, padding=1)
        pairs = pairwise([width, *widths])
        self.down = nn.ModuleList(ResidualBlock(before, after, embedding) for before, after in pairs)
        self.middle = ResidualBlock(widths[-1], widths[-1], embedding)
        self.up = nn.ModuleList(ResidualBlock(deep + own, own, embedding) for own, deep in pairwise(widths))
        self.upsample = nn.ModuleList(Repeat(cast(tuple[int, int], plane)) for plane in planes[:-1])
        last = nn.Conv2d(width, interface.channels, 3, padding=1)
        self.conv_out = nn.Sequential(normalisation(width), nn.SiLU(), last)

    def forward(self, image: Tensor, timestep: Float[Tensor, " batch"], condition: Tensor) -> Tensor:
        frequencies = 2 ** torch.arange(FREQUENCIES, device=timestep.device, dtype=timestep.dtype)
        phases = HALF_PI * timestep[:, None] * frequencies
        embedding = self.timestep(torch.cat([phases.cos(), phases.sin()], dim=1).to(condition.dtype))
        channels = image.to(condition.dtype)
        if condition.ndim == 2:
            embedding = embedding + condition
        else:
            channels = torch.cat([channels, condition], dim=1)
        embedding, channels = functional.silu(embedding), self.conv_in(channels)
        skips: list[Tensor] = []
        for block in self.down:
            channels = block(functional.avg_pool2d(channels, 2) if skips else channels, embedding)
            skips.append(channels)
        channels = self.middle(skips.pop(), embedding)
        for block, upsample in zip(reversed(self.up), reversed(self.upsample), strict=True):
            channels = block(torch.cat([upsample(channels), skips.pop()], dim=1), embedding)
        return self.conv_out(channels).to(image.dtype)


class Sampler(nn.Module):
    """Samples from noise, given embedded codes or rendered maps; or what a denoiser is trained on."""

    noise: Tensor

    def __init__(self, network: nn.Module, image_shape: tuple[int, ...], steps: int, seed: int) -> None:
        super().__init__()
        self.network, self.image_shape, self.steps = network, image_shape, steps
        shape = image_shape if len(image_shape) == 3 else (1, *image_shape)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("noise", noise, persistent=False)

    def forward(self, condition: Tensor) -> Tensor:
        image, angle = self.noise.expand(len(condition), *self.noise.shape), HALF_PI / self.steps
        for step in range(self.steps, 0, -1):
            timestep = image.new_full((len(condition),), step / self.steps)
            image = math.cos(angle) * image - math.sin(angle) * self.network(image, timestep, condition)
        return (image / 2 + 0.5).reshape(-1, *self.image_shape)

    def with_v_error(
        self, condition: Tensor, images: Tensor, noise: Tensor, timestep: Float[Tensor, " batch"]
    ) -> Tensor:
        """Return the images plus v̂ − v, so that their squared error is the loss of v-prediction."""
        clean, noise = ((part.reshape(len(images), *self.noise.shape)) for part in (2 * images - 1, noise))
        angle = HALF_PI * timestep[:, None, None, None]
        alpha, sigma = angle.cos(), angle.sin()
        error = self.network(alpha * clean + sigma * noise, timestep, condition) - (alpha * noise - sigma * clean)
        return images + error.view_as(images)


class UNetDecoder(StagedDecoder):
    """Chain of the condition and the sampler; has the methods of the renderer, such as the values of its penalties."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(cast(nn.ModuleDict, super().__getattr__("stages"))["code"], name)


class DenoisingDecoder(UNetDecoder):
    """A decoder that trains on noisy images, at timesteps between 0 and 1, and returns samples."""

    def forward(self, codes: Tensor, *noisy: Any) -> Tensor:
        """Return samples; given images, noise and timesteps, what is to equal the images (`Sampler.with_v_error`)."""
        if not noisy:
            return super().forward(codes)
        images: Tensor = cast(Sampler, self.stages["output"]).with_v_error(self.stages["code"](codes), *noisy)
        return images


class UNetSpec(DecoderSpec):
    """Base class of decoders with a U-Net that draws an image from noise."""

    width: Annotated[int, Field(ge=1, le=2**12)] = 64
    """Channels at full size."""
    renderer: AnyDecoder | None = None
    """Decoder that draws maps of the code, concatenated to the noise. Default: the code is embedded in every block."""
    maps: Annotated[int, Field(ge=2, le=2**10)] = 8
    """Number of the renderer's maps."""
    noise: Annotated[int, Field(ge=0)] = 0
    """Seed of the noise from which images are drawn."""

    def stages(self, interface: Interface, steps: int) -> dict[str, nn.Module]:
        """Return the embedding or renderer of the code and the sampler, by name."""
        code: nn.Module
        if self.renderer is None:
            size, maps = 4 * self.width, 0
            code = nn.Sequential(nn.Linear(interface.code_size, size), nn.SiLU(), nn.Linear(size, size))
        else:
            maps = self.maps
            code = self.renderer.build(Interface(interface.code_sizes, (maps, *interface.plane)))
        network = ConditionalUNet(interface, self.width, maps)
        return {"code": code, "output": Sampler(network, interface.image_shape, steps, self.noise)}


@DECODERS.register
class UNet(UNetSpec):
    """U-Net that draws an image from noise in a single step: the plain decoder beside `denoiser`.

    Examples
    --------
    >>> import recombine as rc
    >>> rc.RunSpec(task=rc.BumpTask(size=8), decoder="unet:width=8").module().stage_names
    ('code', 'output')
    """

    kind: Literal["unet"] = "unet"

    def build(self, interface: Interface) -> StagedDecoder:
        return UNetDecoder(self.stages(interface, 1))


@DECODERS.register
class Denoiser(UNetSpec):
    """Conditional diffusion with a U-Net; outputs are samples.

    Examples
    --------
    >>> import recombine as rc
    >>> spec = rc.RunSpec(task=rc.BumpTask(size=8), decoder="denoiser:renderer=mlp")
    >>> str(spec.with_remedy("additive").decoder)
    'denoiser:renderer=(additive:base=mlp)'
    """

    kind: Literal["denoiser"] = "denoiser"
    steps: Annotated[int, Field(ge=1, le=1000)] = 16
    """Number of sampling steps."""

    def build(self, interface: Interface) -> StagedDecoder:
        return DenoisingDecoder(self.stages(interface, self.steps))
