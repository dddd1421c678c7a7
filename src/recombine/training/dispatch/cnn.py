"""The transposed-convolution decoder: on kernels where there are some, and as grouped convolutions.

Kernels know networks that end in one channel. Of colour images many members run as grouped convolutions, and one
network as its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from recombine import kernels
from recombine.decoders import StagedDecoder
from recombine.decoders.cnn import Resize, ToChannels
from recombine.training.dispatch.contract import MemberOutputs
from recombine.training.layout import FlatLayout


def forward_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Outputs of many members."""
    network = kernels.implementation("network", inputs.device) if inputs.is_cuda else None
    if network is not None and _grey(layout) and network.takes(layout.shapes, inputs.shape[1], dtype):
        images = network.TransposedConvolutions.apply(weights, inputs, layout.shapes, dtype)
        return MemberOutputs(resized(decoder, images.unsqueeze(2)))
    named = {name: part.to(dtype) for name, part in layout.unflatten_members(weights).items()}
    return MemberOutputs(grouped(decoder, named, inputs.to(dtype)))


def forward_one(decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor) -> MemberOutputs | None:
    """Outputs of one network on a CPU."""
    network = kernels.implementation("network", inputs.device)
    if network is None or not _grey(layout) or not network.takes(layout.shapes, len(inputs), inputs.dtype):
        return None
    images = network.TransposedConvolutions.apply(weights, inputs, layout.shapes, inputs.dtype)
    return MemberOutputs(_last(decoder)[1](images.unsqueeze(1)))


def _grey(layout: FlatLayout) -> bool:
    """Whether images have one channel, by the last bias."""
    return layout.shapes[-1] == (1,)


def grouped(decoder: StagedDecoder, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """All members as one network of grouped convolutions, channels last throughout."""
    members, batch = inputs.shape[:2]
    kernel, bias = weights["stages.layer0.0.weight"], weights["stages.layer0.0.bias"]
    channels, size = kernel.shape[2], kernel.shape[-1]
    product = inputs @ kernel.permute(0, 1, 3, 4, 2).flatten(2)  # (member, batch, y x channel)
    image = product.view(members, batch, size, size, channels).permute(1, 2, 3, 0, 4) + bias
    image = functional.relu(image.flatten(-2).permute(0, 3, 1, 2))  # (batch, member channel, y, x), channels last
    _, *blocks, _ = decoder.stages.items()
    for name, stage in blocks:
        own = stage[0]  # type: ignore[index]
        kernel, bias = weights[f"stages.{name}.0.weight"], weights[f"stages.{name}.0.bias"]
        image = functional.relu(
            functional.conv_transpose2d(
                image, kernel.flatten(0, 1), bias.flatten(), own.stride, own.padding, groups=members
            )
        )
    return _read_out(decoder, weights, image, members)


def _read_out(decoder: StagedDecoder, weights: Mapping[str, Tensor], image: Tensor, members: int) -> Tensor:
    """The last convolution, as a product and shifts, and the resizing."""
    batch, _, rows, columns = image.shape
    pixels = image.permute(0, 2, 3, 1).reshape(batch * rows * columns, members, -1).transpose(0, 1)
    kernel, bias = weights["stages.output.0.weight"], weights["stages.output.0.bias"]
    taps = kernel.flatten(3).permute(0, 3, 1, 2).flatten(1, 2)  # (member, tap and colour, channel)
    maps = (taps @ pixels.mT).view(members, -1, kernel.shape[1], batch, rows, columns).transpose(0, 1)
    planes = _last(decoder)[0].summed(maps) + bias[:, :, None, None, None]
    return resized(decoder, planes.transpose(1, 2))


def resized(decoder: StagedDecoder, planes: Tensor) -> Tensor:
    """Planes `(member, batch, channel, y, x)` as images of the decoder's size."""
    resized: Tensor = _last(decoder)[1](planes.flatten(0, 1))
    return resized.unflatten(0, planes.shape[:2])


def _last(decoder: StagedDecoder) -> tuple[ToChannels, Resize]:
    return cast("tuple[ToChannels, Resize]", tuple(decoder.stages["output"].children()))
