"""The networks as one writes them from torch's own layers: what the plain loop trains."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from recombine.decoders import CNN, Interface, StagedDecoder, Transformer
from recombine.decoders.tokens import PixelTokens
from recombine.specs import RunSpec


def plain_module(spec: RunSpec) -> nn.Module:
    """The spec's network from torch's own layers; decoders that are written so already are taken as they are."""
    if isinstance(spec.decoder, CNN):
        return PublishedCNN(spec.decoder, spec.interface)
    if isinstance(spec.decoder, Transformer):
        return PublishedTransformer(spec.decoder, spec.interface)
    return spec.module()


class PublishedCNN(nn.Module):
    """Transposed convolutions from a pixel on."""

    def __init__(self, decoder: CNN, interface: Interface) -> None:
        super().__init__()
        *transposed, last = decoder.convolutions(interface)
        layers = [layer for block in transposed for layer in (nn.ConvTranspose2d(*block), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Conv2d(*last))
        self.image_shape = interface.image_shape

    def forward(self, codes: Tensor) -> Tensor:
        image = self.layers(codes[:, :, None, None])
        if image.shape[-2:] != self.image_shape:
            image = functional.interpolate(image, size=self.image_shape)
        return cast(Tensor, image).squeeze(1)


class PublishedTransformer(nn.Module):
    """torch's encoder layers over pixel tokens, without dropout."""

    def __init__(self, decoder: Transformer, interface: Interface) -> None:
        super().__init__()
        self.tokens = PixelTokens(interface, decoder.width)
        layer = nn.TransformerEncoderLayer(
            decoder.width, decoder.heads, decoder.feedforward, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, decoder.depth)
        self.read = nn.Linear(decoder.width, 1)
        self.image_shape = interface.image_shape

    def forward(self, codes: Tensor) -> Tensor:
        values = self.read(self.layers(self.tokens(codes)))
        return cast(Tensor, values).view(-1, *self.image_shape)


def plain_loss(module: nn.Module, spec: RunSpec, inputs: Tensor, targets: Tensor) -> Tensor:
    """The recipe's loss of one network."""
    loss = functional.mse_loss(module(inputs), targets)
    if isinstance(module, StagedDecoder) and spec.decoder.penalised:
        penalties = module.penalties()
        loss = loss + spec.recipe.entropy * penalties["entropy"] + spec.recipe.variance * penalties["variance"]
    return loss


def first_batch(spec: RunSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """A batch of the spec's examples."""
    examples = spec.task.examples(spec.task.training_values(spec.seed)[: spec.recipe.batch])
    return examples.inputs.to(device), examples.targets.to(device)
