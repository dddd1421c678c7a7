"""The decoder as one function."""

import torch


class Convolutional(torch.autograd.Function):
    """Codes to images."""
