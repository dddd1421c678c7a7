"""The last convolution of many members, with kernel 3 and padding 1, to a few colours.

It is a transposed convolution with turned taps. Colours are padded to the number of channels that tensor cores need.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from recombine.kernels.triton import convolution

CHANNELS = 16
"""Number of channels to which colours are padded."""


def forward(x: Tensor, kernel: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return images `(member, batch, colour, y, x)`, and the weights for the backward pass.

    The kernel is torch's, `(member, colour, channel, 3, 3)`.
    """
    colours = bias.shape[1]
    spare = 0, CHANNELS - colours
    turned = functional.pad(kernel.flip(3, 4).transpose(1, 2), (0, 0, 0, 0, *spare)).contiguous()
    along, back = convolution.laid_out(turned, x.dtype)
    images = convolution.forward(x, along, functional.pad(bias, spare), up=False, relu=False)
    return convolution.inner(images)[..., :colours].permute(0, 1, 4, 2, 3), back


def backward(z: Tensor, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient before the ReLU of the inputs, its sums by channel, and those of bias and kernel."""
    colours = z.shape[2]
    padded = functional.pad(z.permute(0, 1, 3, 4, 2), (0, CHANNELS - colours, 1, 1, 1, 1)).to(x.dtype).contiguous()
    kernel = convolution.weight_gradient(x, padded, up=False)[:, :, :colours].flip(3).transpose(1, 2)
    return *convolution.input_gradient(padded, w, x, up=False), z.sum(dim=(1, 3, 4), dtype=torch.float32), kernel
