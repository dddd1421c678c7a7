"""Convolutional decoders: many members on a GPU, and one network on a CPU.

Whole-network kernels for a CPU support only grey images; colour images use the module there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from recombine import kernels
from recombine.decoders import StagedDecoder
from recombine.decoders.base import ToImage
from recombine.decoders.cnn import Resize, ToChannels
from recombine.decoders.pixelwise import coordinates
from recombine.training.members import FlatLayout, MemberOutputs, Weights, module_members

Planes = Callable[[ModuleType, StagedDecoder, Weights, Tensor], Tensor]
"""Maps a module of kernels, decoder, weights and codes to planes `(member, batch, channel, y, x)`."""


def cnn_members(
    decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members."""
    images = _kernel_images(layout, weights, inputs, dtype) if inputs.is_cuda else None
    if images is not None:
        return MemberOutputs(resized(decoder, images))
    named = {name: part.to(dtype) for name, part in layout.unflatten(weights).items()}
    return MemberOutputs(grouped(decoder, named, inputs.to(dtype)))


def cnn_one(decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor) -> MemberOutputs | None:
    """Return outputs of one network on a CPU."""
    images = _kernel_images(layout, weights, inputs, inputs.dtype)
    return None if images is None else MemberOutputs(_last(decoder)[1](images))


def _kernel_images(layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return images `(*member, batch, channel, y, x)` from whole-network kernels, or None if they do not apply."""
    network = kernels.implementation("network", inputs.device)
    shapes = layout.shapes[: sum(name.startswith("stages.") for name in layout.names)]  # those of a remedy follow
    if network is None or not network.takes(shapes, inputs.shape[-2], dtype):
        return None
    images: Tensor = network.images(weights, inputs, shapes, dtype)
    return images


def block_members(
    planes: Planes, decoder: StagedDecoder, layout: FlatLayout, weights: Tensor, inputs: Tensor, dtype: torch.dtype
) -> MemberOutputs:
    """Return outputs of many members, from kernels where they support the decoder's convolutions."""
    network = kernels.implementation("network", inputs.device) if inputs.is_cuda else None
    named = {name: part for name, part in layout.unflatten(weights).items() if name.startswith("stages.")}
    channels = next(part for name, part in named.items() if name.endswith(".bias")).shape[-1]
    # neither with weights of their own at every pixel, nor with hidden kernels of 1 × 1
    is_spatial = all(part.ndim == 2 or (part.ndim == 5 and part.shape[-1] > 1) for part in [*named.values()][2:-2])
    colours, pixels = [*named.values()][-1].shape[1], inputs.shape[1] * 4 * (max(_plane(decoder)) + 1) ** 2
    if network is None or not is_spatial or not network.fits(channels, colours, pixels, dtype):
        return module_members(decoder, layout, weights, inputs, dtype)
    return MemberOutputs(resized(decoder, planes(network, decoder, named, inputs.to(dtype))))


def broadcast_planes(network: ModuleType, decoder: StagedDecoder, weights: Weights, codes: Tensor) -> Tensor:
    """Return planes of spatial broadcast decoders.

    Codes are the same at every pixel inside the image, so that a tap of the first convolution adds one product wherever
    it lies inside.
    """
    (kernel, bias), *others = _pairs(weights)
    plane = _plane(decoder)
    own, places = _placed(kernel, bias, plane)
    taps = torch.bmm(codes, own.permute(0, 2, 3, 4, 1).flatten(2).to(codes.dtype)).unflatten(2, (9, -1)).flatten(0, 1)
    inside = functional.unfold(codes.new_ones(1, 1, *plane), 3, padding=1)[0]  # (tap, pixel)
    product = torch.bmm(inside.mT.expand(len(taps), -1, -1), taps).view(*codes.shape[:2], *plane, -1)
    return _drawn(network, product, places, others)


def ladder_planes(network: ModuleType, decoder: StagedDecoder, weights: Weights, codes: Tensor) -> Tensor:
    """Return planes of ladder decoders."""
    (kernel, bias), (second, second_bias), *others = _pairs(weights)
    plane, channels = _plane(decoder), bias.shape[1]
    product = network.spread(codes, kernel)
    if product.shape[2:4] == (1, 1):
        repeated = product.expand(-1, -1, *plane, -1)
    else:
        planes = product.permute(0, 1, 4, 2, 3)
        repeated = functional.interpolate(planes.flatten(0, 2)[None], size=plane, mode="nearest")[0]
        repeated = repeated.view(*planes.shape[:3], *plane).permute(0, 1, 3, 4, 2)
    has_coordinates = second.shape[2] > channels
    placed = _placed(second, second_bias, plane) if has_coordinates else (second, second_bias)
    return _drawn(network, repeated, bias, [placed, *others])


def coordconv_planes(network: ModuleType, decoder: StagedDecoder, weights: Weights, codes: Tensor) -> Tensor:
    """Return planes of CoordConv decoders."""
    (kernel, bias), *blocks, last = _pairs(weights)
    product = network.spread(codes, kernel)
    doubles: list[bool] = []
    (rows, columns), parameters = kernel.shape[-2:], [bias]
    for kernel, bias in blocks:
        doubles.append(kernel.shape[-1] == 4)
        places, side = kernel[:, -2:].permute(0, 1, 3, 4, 2).flatten(1, 3), kernel.shape[-1]
        given, taps = _coordinates((rows, columns), bias), _taps(side, bias).transpose(0, 1)
        basis = functional.conv_transpose2d(given, taps, stride=1 + doubles[-1], padding=1)
        rows, columns = basis.shape[-2:]
        parameters += [kernel[:, :-2], _biases(basis, places, bias)]
    own, places = _placed(*last, (rows, columns))
    planes: Tensor = network.Blocks.apply(product, tuple(doubles), *parameters, own, torch.zeros_like(last[1]))
    return planes + places.permute(0, 3, 1, 2)[:, None].to(planes.dtype)


def _drawn(network: ModuleType, product: Tensor, bias: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return planes from a first layer's products and bias, and torch's convolutions with kernels of 3 or 1."""
    squares = [(functional.pad(own, (1, 1, 1, 1)) if own.shape[-1] == 1 else own, b) for own, b in layers]
    blocks = [(own.flip(3, 4).transpose(1, 2).contiguous(), b) for own, b in squares[:-1]]
    parameters = [part for pair in (*blocks, squares[-1]) for part in pair]
    planes: Tensor = network.Blocks.apply(product, (False,) * len(blocks), bias, *parameters)
    return planes


def _placed(kernel: Tensor, bias: Tensor, plane: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return a convolution's weights without those of coordinates, and what these and the bias add at each pixel."""
    side, places = kernel.shape[-1], kernel[:, :, -2:].flatten(2).mT
    basis = functional.conv2d(_coordinates(plane, bias), _taps(side, bias), padding=side // 2)
    return kernel[:, :, :-2], _biases(basis, places, bias)


def _coordinates(plane: tuple[int, int], like: Tensor) -> Tensor:
    return coordinates(plane, like.device).to(like.dtype)[None]


def _taps(side: int, like: Tensor) -> Tensor:
    """Return a kernel for each tap and coordinate that is 1 there and 0 elsewhere, `(coordinate and tap, 2, y, x)`."""
    return torch.eye(2 * side**2, device=like.device, dtype=like.dtype).view(-1, 2, side, side)


def _biases(basis: Tensor, places: Tensor, bias: Tensor) -> Tensor:
    """Return biases `(member, y, x, channel)` from coordinates under each tap and weights `(member, tap, out)`."""
    maps = basis[0].flatten(1).mT @ places + bias[:, None]
    return maps.unflatten(1, basis.shape[-2:])


def _pairs(weights: Weights) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of each layer, in order."""
    parts = [*weights.values()]
    return list(zip(parts[0::2], parts[1::2], strict=True))


def _plane(decoder: StagedDecoder) -> tuple[int, int]:
    shape = cast(ToImage, [*decoder.stages["output"].children()][-1]).image_shape
    return shape[-2], shape[-1]


def grouped(decoder: StagedDecoder, weights: Weights, inputs: Tensor) -> Tensor:
    """Return outputs of all members as one network of grouped convolutions, channels last throughout."""
    members, batch = inputs.shape[:2]
    kernel, bias = weights["stages.layer0.0.weight"], weights["stages.layer0.0.bias"]
    channels, size = kernel.shape[2], kernel.shape[-1]
    product = inputs @ kernel.permute(0, 1, 3, 4, 2).flatten(2)  # (member, batch, y x channel)
    image = product.view(members, batch, size, size, channels).permute(1, 2, 3, 0, 4) + bias
    image = functional.relu(image.flatten(-2).permute(0, 3, 1, 2))  # (batch, member channel, y, x), channels last
    _, *blocks, _ = decoder.stages.items()
    for name, stage in blocks:
        block = stage[0]  # type: ignore[index]
        kernel, bias = weights[f"stages.{name}.0.weight"], weights[f"stages.{name}.0.bias"]
        image = functional.relu(
            functional.conv_transpose2d(
                image, kernel.flatten(0, 1), bias.flatten(), block.stride, block.padding, groups=members
            )
        )
    # the last convolution is a matrix product with shifts
    rows, columns = image.shape[-2:]
    pixels = image.permute(0, 2, 3, 1).reshape(batch * rows * columns, members, -1).transpose(0, 1)
    kernel, bias = weights["stages.output.0.weight"], weights["stages.output.0.bias"]
    taps = kernel.flatten(3).permute(0, 3, 1, 2).flatten(1, 2)  # (member, tap and colour, channel)
    maps = (taps @ pixels.mT).view(members, -1, kernel.shape[1], batch, rows, columns).transpose(0, 1)
    planes = _last(decoder)[0].summed(maps) + bias[:, :, None, None, None]
    return resized(decoder, planes.transpose(1, 2))


def resized(decoder: StagedDecoder, planes: Tensor) -> Tensor:
    """Return planes `(member, batch, channel, y, x)` as images of the decoder's shape and size."""
    images: Tensor = list(decoder.stages["output"].children())[-1](planes.flatten(0, 1))
    return images.unflatten(0, planes.shape[:2])


def _last(decoder: StagedDecoder) -> tuple[ToChannels, Resize]:
    return cast("tuple[ToChannels, Resize]", tuple(decoder.stages["output"].children()))
