"""The paper's decoder: transposed convolutions from a 1×1 code to an image (SPEC §4).

7×7 by one transposed convolution, then `depth` blocks that double the size while it is below the image's and keep it
after that; ReLU after each; a last convolution to one channel. Another image size than the one reached (7, 14, 28, 56
…) is met by nearest-neighbour resizing at the end. Stages: `layer0` … `layer{depth}` (after their ReLU) and `output`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from recombine import native
from recombine.accelerated import available, fits
from recombine.decoders.base import DECODERS, DecoderSpec, Interface, MemberOutputs, StagedDecoder

FIRST_SIZE = 7
"""Rows and columns after the first transposed convolution (its kernel size)."""


@DECODERS.register
class CNN(DecoderSpec):
    """Transposed-convolution decoder."""

    kind: Literal["cnn"] = "cnn"
    width: Annotated[int, Field(ge=1, le=2**16)] = 64
    """Channels of every stage."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 4
    """Blocks after the first transposed convolution (the paper: 2 … 10)."""

    def build(self, interface: Interface) -> StagedDecoder:
        size, stages = FIRST_SIZE, {}
        stages["layer0"] = nn.Sequential(
            FromPoint(interface.code_size, self.width, FIRST_SIZE),
            nn.ReLU(),
        )
        for number in range(1, self.depth + 1):
            grows = size < max(interface.image_shape)
            convolution = (
                nn.ConvTranspose2d(self.width, self.width, 4, stride=2, padding=1)
                if grows
                else SameSize(self.width, self.width, 3, stride=1, padding=1)
            )
            size = 2 * size if grows else size
            stages[f"layer{number}"] = nn.Sequential(convolution, nn.ReLU(inplace=True))
        stages["output"] = nn.Sequential(ToChannel(self.width, 1, 3, padding=1), Resize(interface.image_shape))
        return CNNDecoder(stages)


class CNNDecoder(StagedDecoder):
    """The chain; two ways to run many members at once, on Triton's kernels and as grouped convolutions; and one for a
    network that trains alone on a CPU, compiled there."""

    rounds = True

    def forward_members(self, weights: Mapping[str, Tensor], inputs: Tensor, dtype: torch.dtype) -> MemberOutputs:
        width = weights["stages.layer0.0.bias"].shape[1]
        if inputs.is_cuda and dtype == torch.bfloat16 and available() and fits(width, inputs.shape[1] * self._largest):
            return MemberOutputs(self.forward_kernels(weights, inputs, dtype))
        weights = {name: w.to(dtype) for name, w in weights.items()}
        return MemberOutputs(self.forward_grouped(weights, inputs.to(dtype)))

    def forward_one(self, vector: Tensor, inputs: Tensor) -> MemberOutputs | None:
        first, resize = cast(FromPoint, self.stages["layer0"][0]), tuple(self.stages["output"].children())[1]  # type: ignore[index]
        if inputs.device.type != "cpu" or inputs.dtype != torch.float32 or not native.takes(first.out_channels):
            return None
        plan = native.Plan(first.in_channels, first.kernel_size[0], first.out_channels, tuple(self._ups))
        return MemberOutputs(resize(native.Convolutional.apply(vector, inputs, plan).unsqueeze(1)))

    @property
    def _largest(self) -> int:
        """Pixels of the largest stage, its border included."""
        return (FIRST_SIZE * 2 ** sum(self._ups) + 2) ** 2

    @property
    def _ups(self) -> list[bool]:
        """Which of the blocks double the size."""
        return [stage[0].stride == (2, 2) for name, stage in self.stages.items() if name not in ("layer0", "output")]  # type: ignore[index]

    def forward_kernels(self, weights: Mapping[str, Tensor], inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Every convolution a kernel with the member as a grid axis, bias and ReLU inside."""
        from recombine.accelerated.network import ConvolutionalMembers

        drawn = ConvolutionalMembers.apply(inputs, self._ups, dtype, *weights.values())
        resize = tuple(self.stages["output"].children())[1]
        return resize(drawn.flatten(0, 1).unsqueeze(1)).unflatten(0, drawn.shape[:2])

    def forward_grouped(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """One network of grouped convolutions, channels last throughout."""
        members, batch = inputs.shape[:2]
        kernel, bias = weights["stages.layer0.0.weight"], weights["stages.layer0.0.bias"]
        channels, size = kernel.shape[2], kernel.shape[-1]
        product = inputs @ kernel.permute(0, 1, 3, 4, 2).flatten(2)  # (member, batch, y x channel)
        image = product.view(members, batch, size, size, channels).permute(1, 2, 3, 0, 4) + bias
        image = functional.relu(image.flatten(-2).permute(0, 3, 1, 2))  # (batch, member channel, y, x), channels last
        for name, stage in self.stages.items():
            if name in ("layer0", "output"):
                continue
            own = stage[0]  # type: ignore[index]
            kernel, bias = weights[f"stages.{name}.0.weight"], weights[f"stages.{name}.0.bias"]
            image = functional.relu(
                functional.conv_transpose2d(
                    image, kernel.flatten(0, 1), bias.flatten(), own.stride, own.padding, groups=members
                )
            )
        return self._drawn(image, weights, members)

    def _drawn(self, image: Tensor, weights: Mapping[str, Tensor], members: int) -> Tensor:
        """The last convolution, as a product and shifts, and the resizing."""
        batch, _, rows, columns = image.shape
        pixels = image.permute(0, 2, 3, 1).reshape(batch * rows * columns, members, -1).transpose(0, 1)
        kernel = weights["stages.output.0.weight"].squeeze(1).flatten(2)  # (member, channel, place)
        maps = (kernel.mT @ pixels.mT).view(members, -1, batch, rows, columns).transpose(0, 1)
        last, resize = cast("tuple[ToChannel, Resize]", tuple(self.stages["output"].children()))
        drawn = last.summed(maps) + weights["stages.output.0.bias"][:, :, None, None]
        return resize(drawn.flatten(0, 1).unsqueeze(1)).unflatten(0, (members, batch))


class FromPoint(nn.ConvTranspose2d):
    """A transposed convolution of one pixel, which is a matrix product: `(batch, code)` to `(batch, channel, y, x)`.

    Channels lie last in memory, and stay there: libraries are faster that way.
    """

    def forward(self, codes: Tensor) -> Tensor:  # type: ignore[override]
        assert self.bias is not None
        weight = self.weight.permute(0, 2, 3, 1)
        images = (codes @ weight.flatten(1)).unflatten(-1, weight.shape[1:]) + self.bias
        return images.movedim(-1, -3)


class SameSize(nn.ConvTranspose2d):
    """A transposed convolution with stride 1, which is the convolution with the mirrored kernel, and faster as such."""

    def forward(self, image: Tensor) -> Tensor:  # type: ignore[override]
        mirrored = self.weight.flip(-2, -1).permute(1, 2, 3, 0).contiguous().permute(0, 3, 1, 2)  # channels last
        return functional.conv2d(image, mirrored, self.bias, padding=self.padding)


class ToChannel(nn.Conv2d):
    """A padded convolution to one channel.

    It is a matrix product to one map for each place of the kernel, and a sum of the maps shifted into place: libraries
    have no good way to one channel.
    """

    def forward(self, channels: Tensor) -> Tensor:
        assert self.bias is not None
        pixels = channels.movedim(-3, -1)
        maps = self.weight[0].flatten(1).mT @ pixels.flatten(end_dim=-2).mT
        return (self.summed(maps.unflatten(-1, pixels.shape[:-1])) + self.bias).unsqueeze(-3)

    def summed(self, maps: Tensor) -> Tensor:
        """The sum of one map for each place of the kernel, `(place, …, y, x)`, shifted into place."""
        rows, columns = maps.shape[-2:]
        height, width = self.kernel_size
        padded = functional.pad(maps, (width // 2, width // 2, height // 2, height // 2)).unflatten(0, (height, width))
        across = sum_of(padded[:, k, ..., k : k + columns] for k in range(width))
        return sum_of(across[k, ..., k : k + rows, :] for k in range(height))


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """A sum, in order."""
    return functools.reduce(torch.add, parts)


class Resize(nn.Module):
    """One channel to an image of the right size, by nearest neighbours where it is not right already."""

    def __init__(self, image_shape: tuple[int, int]) -> None:
        super().__init__()
        self.image_shape = image_shape

    def forward(self, channel: Tensor) -> Tensor:
        images = channel.squeeze(1)
        if images.shape[-2:] != self.image_shape:  # images as channels: torch's gradient is a loop over examples
            images = functional.interpolate(images[None], size=self.image_shape, mode="nearest")[0]
        return images
