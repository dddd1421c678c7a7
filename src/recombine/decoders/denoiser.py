"""Conditional diffusion: a small U-Net that removes noise from an image, given a code, and the same net without noise.

With images scaled to [−1, 1], noise ε and an angle φ between 0 (the image) and 90° (noise alone), the U-Net sees
z = cos φ x + sin φ ε and predicts v = cos φ ε − sin φ x (Salimans and Ho 2022). In training, φ is uniform, which is the
cosine schedule (Nichol and Dhariwal 2021), and the loss is (v̂ − v)². A sample starts from noise and turns by equal
angles δ, z ← cos δ z − sin δ v̂ (DDIM without noise; Song et al. 2021), so that it is a function of the code: all codes
and all networks start from the same noise.

`denoiser` is trained so; its forward pass returns samples, so that everything that is measured on a decoder can be
measured on it. `unet` is the same network as a plain decoder: one turn of 90°, trained on the squared error of the
image that it draws from that noise.

The U-Net has `width` channels at the image's size, twice as many at half of it and four times as many at a quarter. The
code enters every block by an embedding, which is added to that of the angle. With a `renderer`, it enters as maps
beside the noisy image instead, which are drawn by any decoder, such as one image per factor. That is where remedies
act that replace a decoder (`RunSpec.with_remedy`). Stages: `code` and `output`.
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

LEVELS = 3
"""Sizes of an image in the U-Net: whole, half and a quarter; fewer for images of less than 4 pixels."""
GROUPS = 4
"""Maximum number of groups whose channels are normalised together."""
FREQUENCIES = 6
"""Sines and cosines of the angle, each twice as fast as the one before."""
QUARTER = math.pi / 2


def normalisation(channels: int) -> nn.GroupNorm:
    """Return a group norm with as many groups as fit."""
    return nn.GroupNorm(math.gcd(GROUPS, channels), channels)


class Block(nn.Module):
    """Two convolutions beside a 1 × 1 one; an embedding sets gains and biases between them."""

    def __init__(self, before: int, after: int, embedding: int) -> None:
        super().__init__()
        self.first = nn.Sequential(normalisation(before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.norm = normalisation(after)
        self.modulation = nn.Linear(embedding, 2 * after)
        self.last = nn.Sequential(nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.beside = nn.Conv2d(before, after, 1)

    def forward(self, image: Tensor, embedding: Tensor) -> Tensor:
        gain, bias = self.modulation(embedding)[..., None, None].chunk(2, dim=1)
        return self.beside(image) + self.last(self.norm(self.first(image)) * (1 + gain) + bias)


class Velocity(nn.Module):
    """The U-Net: v of noisy images at their angles, given embedded codes or rendered maps (`maps` of them)."""

    def __init__(self, interface: Interface, width: int, maps: int) -> None:
        super().__init__()
        levels = min(LEVELS, min(interface.plane).bit_length())
        widths = [width << level for level in range(levels)]
        planes = [tuple(side >> level for side in interface.plane) for level in range(levels)]
        embedding = 4 * width
        self.angle = nn.Sequential(
            nn.Linear(2 * FREQUENCIES, embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )  # fmt: skip
        self.enter = nn.Conv2d(interface.channels + maps, width, 3, padding=1)
        self.down = nn.ModuleList(Block(before, after, embedding) for before, after in pairwise([width, *widths]))
        self.middle = Block(widths[-1], widths[-1], embedding)
        self.up = nn.ModuleList(Block(deep + own, own, embedding) for own, deep in pairwise(widths))
        self.enlarge = nn.ModuleList(Repeat(cast(tuple[int, int], plane)) for plane in planes[:-1])
        last = nn.Conv2d(width, interface.channels, 3, padding=1)
        self.leave = nn.Sequential(normalisation(width), nn.SiLU(), last)

    def forward(self, image: Tensor, angle: Float[Tensor, " batch"], condition: Tensor) -> Tensor:
        turns = angle[:, None] * 2 ** torch.arange(FREQUENCIES, device=angle.device, dtype=angle.dtype)
        embedding = self.angle(torch.cat([turns.cos(), turns.sin()], dim=1).to(condition.dtype))
        channels = image.to(condition.dtype)
        if condition.ndim == 2:
            embedding = embedding + condition
        else:
            channels = torch.cat([channels, condition], dim=1)
        embedding, channels = functional.silu(embedding), self.enter(channels)
        kept: list[Tensor] = []
        for block in self.down:
            channels = block(functional.avg_pool2d(channels, 2) if kept else channels, embedding)
            kept.append(channels)
        channels = self.middle(kept.pop(), embedding)
        for block, enlarge in zip(reversed(self.up), reversed(self.enlarge), strict=True):
            channels = block(torch.cat([enlarge(channels), kept.pop()], dim=1), embedding)
        return self.leave(channels).to(image.dtype)


class Sampler(nn.Module):
    """Images from embedded codes or rendered maps, in some turns from noise; or what a denoiser is trained on."""

    noise: Tensor

    def __init__(self, network: nn.Module, image_shape: tuple[int, ...], turns: int, seed: int) -> None:
        super().__init__()
        self.network, self.image_shape, self.turns = network, image_shape, turns
        shape = image_shape if len(image_shape) == 3 else (1, *image_shape)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("noise", noise, persistent=False)

    def forward(self, condition: Tensor) -> Tensor:
        image, turn = self.noise.expand(len(condition), *self.noise.shape), QUARTER / self.turns
        for left in range(self.turns, 0, -1):
            angle = image.new_full((len(condition),), left * turn)
            image = math.cos(turn) * image - math.sin(turn) * self.network(image, angle, condition)
        return (image / 2 + 0.5).reshape(-1, *self.image_shape)

    def denoised(self, condition: Tensor, images: Tensor, noise: Tensor, angle: Float[Tensor, " batch"]) -> Tensor:
        """Return images that are off by v̂ − v, so that their squared error is the loss of a denoiser."""
        clean, noise = ((part.reshape(len(images), *self.noise.shape)) for part in (2 * images - 1, noise))
        cosine, sine = (part[:, None, None, None] for part in (angle.cos(), angle.sin()))
        difference = self.network(cosine * clean + sine * noise, angle, condition) - (cosine * noise - sine * clean)
        return images + difference.view_as(images)


class UNetDecoder(StagedDecoder):
    """Chain of what the code becomes and the sampler, with the renderer's methods, such as those penalties call."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("stages")["code"], name)


class DenoisingDecoder(UNetDecoder):
    """A decoder that trains on noisy images, at angles drawn from 0 to 1 quarter turns, and returns samples."""

    def forward(self, codes: Tensor, *noisy: Any) -> Tensor:
        """Return samples, or given images, noise and angles what is to equal the images."""
        if not noisy:
            return super().forward(codes)
        images: Tensor = cast(Sampler, self.stages["output"]).denoised(self.stages["code"](codes), *noisy)
        return images


class UNetSpec(DecoderSpec):
    """Base class of decoders with a U-Net that turns noise into an image."""

    width: Annotated[int, Field(ge=1, le=2**12)] = 64
    """Channels at full size."""
    renderer: AnyDecoder | None = None
    """Decoder that draws maps of the code beside the noise. Default: the code is embedded in every block."""
    maps: Annotated[int, Field(ge=2, le=2**10)] = 8
    """Number of the renderer's maps."""
    noise: Annotated[int, Field(ge=0)] = 0
    """Seed of the noise from which images are drawn."""

    def stages(self, interface: Interface, turns: int) -> dict[str, nn.Module]:
        """Return what the code becomes and the sampler, by name."""
        code: nn.Module
        if self.renderer is None:
            size, maps = 4 * self.width, 0
            code = nn.Sequential(nn.Linear(interface.code_size, size), nn.SiLU(), nn.Linear(size, size))
        else:
            maps = self.maps
            code = self.renderer.build(Interface(interface.code_sizes, (maps, *interface.plane)))
        network = Velocity(interface, self.width, maps)
        return {"code": code, "output": Sampler(network, interface.image_shape, turns, self.noise)}


@DECODERS.register
class UNet(UNetSpec):
    """U-Net that draws an image from noise at once: the plain decoder beside `denoiser`.

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
    turns: Annotated[int, Field(ge=1, le=1000)] = 16
    """Steps of a sample."""

    def build(self, interface: Interface) -> StagedDecoder:
        return DenoisingDecoder(self.stages(interface, self.turns))
